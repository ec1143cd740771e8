# SPDX-License-Identifier: GPL-2.0-only
"""Sockets of IPPROTO_SDP, in addition to those of TCP and of families 27 and 28."""

import contextlib
import socket

from . import consts, netns, observe, remote
from .sock import Sock

# Names of the protocols' counters in /proc/net/sdpstats.
COUNTERS = {"connected_by_sdp": "- connected by SDP", "accepted_by_sdp": "- accepted by SDP", "accepted_by_tcp": "- accepted by TCP",
            "tcp_refused": "- TCP: refused", "tcp_unreachable": "- TCP: unreachable", "tcp_no_answer": "- TCP: no answer",
            "tcp_failed": "- TCP: failed", "tcp_remembered": "- TCP: remembered", "tcp_chosen": "- TCP: chosen", "tcp_option": "- TCP: option",
            "tcp_address": "- TCP: address", "tcp_port": "- TCP: port", "tcp_limit": "- TCP: limit"}

TCP, SDP = socket.IPPROTO_TCP, consts.IPPROTO_SDP


def make(e, protocol=SDP, where="self"):
    """Creates a socket of AF_INET or AF_INET6."""
    if where == "peer" and not netns.local():
        return e.keep(remote.RemoteSock.make(e.family, socket.SOCK_STREAM, protocol))
    with netns.inside(where):
        return e.keep(Sock.make(e.family, protocol=protocol))


def listen(e, protocol=SDP, where="peer", backlog=16, host=None):
    sock = make(e, protocol, where)
    sock.bind(e.address(e.host(where) if host is None else host, 0))
    sock.listen(backlog)
    return sock


def connect(e, listener, protocol=SDP, host=None):
    sock = make(e, protocol)
    sock.connect(e.address(host or e.there, listener.port))
    return sock


def accept(e, listener):
    return e.keep(listener.accept()[0])


def protocol(sock):
    """Returns the protocol of the socket: TCP's for a socket that has switched to TCP, whatever it
    began as."""
    return sock.get(socket.SOL_SOCKET, consts.SO_PROTOCOL)


def echo(e, near, far):
    """Transfers bytes in both directions."""
    near.sendall(b"question")
    e.equal(far.recv_exactly(8), b"question", "there")
    far.sendall(b"the answer")
    e.equal(near.recv_exactly(10), b"the answer", "and back")


@contextlib.contextmanager
def counts(e, where="self", **wanted):
    """Checks the exact changes of the IPPROTO_SDP counters during the block."""
    before = observe.stats(where)
    yield
    after = observe.stats(where)
    got = {name: after[told] - before[told] for name, told in COUNTERS.items() if after[told] != before[told]}
    e.equal(got, wanted, "what was counted")


@contextlib.contextmanager
def parameters(**values):
    """Sets the module's parameters to other values within the block."""
    before = {name: netns.parameter(name, value) for name, value in values.items()}
    try:
        yield
    finally:
        for name, value in before.items():
            netns.parameter(name, value)
