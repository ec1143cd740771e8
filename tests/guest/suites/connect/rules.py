# SPDX-License-Identifier: GPL-2.0-only
"""Routing rules apply to SDP connections as to TCP's."""

import contextlib
import os
import socket

from lib import consts, either, netns
from lib.env import Child
from lib.registry import case

MARK = 77


@contextlib.contextmanager
def rule(e, words):
    """Adds a routing rule directly after the rule for local addresses."""
    command = f"ip -{6 if e.six else 4} rule {{}} pref 10 {words}"
    netns.run("self", command.format("add"))
    try:
        yield
    finally:
        netns.run("self", command.format("del"))


def marked(e, mark=MARK):
    sock = e.socket()
    sock.set(socket.SOL_SOCKET, socket.SO_MARK, mark)
    return sock


def attempt(e, sock, port, blocking=True):
    """Returns the result of connect(2), and True if the socket has a port after connect(2)."""
    sock.setblocking(blocking)
    outcome = e.error(sock.connect, e.address(e.there, port))
    return outcome, outcome == "ok" or outcome == "EINPROGRESS" or sock.port != 0


@case
def prohibited(e):
    """Rules by mark, user, protocol and port."""
    listener = e.listen()
    with rule(e, f"fwmark {MARK} prohibit"):
        e.note("marked", attempt(e, marked(e), listener.port))
        e.note("without blocking", attempt(e, marked(e), listener.port, False))
        e.note("another mark", attempt(e, marked(e, 1), listener.port))
        sock = marked(e)
        sock.bind(e.address(e.here, 0))
        e.note("bound", attempt(e, sock, listener.port))

    def as_nobody():
        os.setresuid(netns.NOBODY, netns.NOBODY, netns.NOBODY)
        return attempt(e, e.socket(), listener.port)

    with rule(e, f"uidrange {netns.NOBODY}-{netns.NOBODY} prohibit"):
        e.note("nobody", Child(e.patience, as_nobody).result())
        e.note("root", attempt(e, e.socket(), listener.port))
    with rule(e, f"ipproto tcp dport {listener.port} prohibit"):
        e.note("port", attempt(e, e.socket(), listener.port))
    for kind in ("unreachable", "blackhole"):
        with rule(e, f"fwmark {MARK} {kind}"):
            e.note(kind, attempt(e, marked(e), listener.port))


@case(reference=False)
def elsewhere(e):
    """If a routing rule selects a device without RDMA: SDP uses no other device."""
    e.needs_wire()
    listener, version = e.listen(), 6 if e.six else 4
    netns.run("self", "ip link add dummy7 type dummy")
    try:
        netns.run("self", "ip link set dummy7 up")
        netns.run("self", f"ip -{version} route add {e.there} dev dummy7 table 77")
        with rule(e, f"fwmark {MARK} lookup 77"):
            sock = marked(e)
            if e.ipproto:
                sock.setblocking(False)
                e.equal(e.error(sock.connect, e.address(e.there, listener.port)), "EINPROGRESS", "connect()")
                e.until(lambda: either.protocol(sock) == either.TCP, "TCP")
            else:
                e.equal(e.error(sock.connect, e.address(e.there, listener.port)), "ENETUNREACH", "connect()")
            # this failure must not be cached as a host without SDP
            near = e.connect(listener)
            e.equal(near.get(socket.IPPROTO_TCP, consts.SDP_ROUTE) if e.ipproto else 0, 0, "the next one")
    finally:
        netns.run("self", "ip link del dummy7")
