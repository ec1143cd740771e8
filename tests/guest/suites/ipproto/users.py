# SPDX-License-Identifier: GPL-2.0-only
"""Two users listen at one port, one user by TCP and the other by SDP alone."""

import contextlib
import itertools
import os
import socket

from lib import either, netns
from lib.either import SDP, TCP
from lib.registry import case
from lib.sock import Sock

PATIENT = {"ipproto_wait": 5000, "ipproto_memory": 0}
FAMILY = 27     # family of listeners by SDP alone
ROOT, OTHER = 0, 1000


@contextlib.contextmanager
def both_transports():
    """Hosts of a test in which connections to the same host are local, or over RDMA."""
    before = netns.local_transport(True)
    try:
        with either.parameters(**PATIENT):
            yield ("self", "peer")
    finally:
        netns.local_transport(before)


def free_port(e, where):
    with either.make(e, TCP, where) as sock:
        sock.bind(e.address(e.host(where), 0))
        return sock.port


def make(e, kind, user, where, prepare=None):
    """Creates a socket of the given user."""
    sock = e.socket(where) if kind == FAMILY else either.make(e, kind, where)
    os.fchown(sock.fileno(), user, -1)
    if prepare:
        prepare(sock)
    return sock


def listen(e, kind, user, where, host, port, prepare=None):
    """Creates a listener of the given user; returns the result of listen(2)."""
    sock = make(e, kind, user, where, prepare)
    sock.bind(e.address(host, port))
    return sock, e.error(sock.listen, 5)


def reaches(e, where, port, protocol, listener, what):
    """Checks that an IPPROTO_SDP client reaches the given listener."""
    near = either.make(e)
    near.connect(e.address(e.host(where), port))
    e.equal(either.protocol(near), protocol, what)
    either.echo(e, near, either.accept(e, listener))


@case(reference=False, timeout=60)
def of_another(e):
    """Listeners of two users, in either order, at every address, by both transports."""
    if e.ipproto:
        e.skip("neither family 27 nor 28")
    with both_transports() as hosts:
        for where in hosts:
            hosts = e.any, e.host(where)
            for at_tcp, at_sdp, first in itertools.product(hosts, hosts, (TCP, FAMILY)):
                what, port = f"TCP at {at_tcp}, SDP at {at_sdp}, {first} first", free_port(e, where)
                if first == FAMILY:
                    e.equal(listen(e, FAMILY, OTHER, where, at_sdp, port)[1], "ok", f"listen() by SDP: {what}")
                listener, _ = listen(e, TCP, ROOT, where, at_tcp, port)
                if first == TCP:
                    wanted = "ok" if (at_tcp, at_sdp) == (e.host(where), e.any) else "EADDRINUSE"
                    e.equal(listen(e, FAMILY, OTHER, where, at_sdp, port)[1], wanted, f"listen() by SDP: {what}")
                reaches(e, where, port, TCP, listener, what)
                e.equal(e.error(e.socket().connect, e.address(e.host(where), port)), "ECONNREFUSED", f"a client of SDP alone: {what}")


@case(reference=False, timeout=60)
def of_the_same(e):
    """One user may have both listeners, and root may join any user's listener."""
    if e.ipproto:
        e.skip("neither family 27 nor 28")
    with both_transports() as hosts:
        for where, (of_tcp, of_sdp) in itertools.product(hosts, ((OTHER, OTHER), (ROOT, ROOT), (OTHER, ROOT))):
            port = free_port(e, where)
            listen(e, TCP, of_tcp, where, e.host(where), port)
            listener, outcome = listen(e, FAMILY, of_sdp, where, e.any, port)
            e.equal(outcome, "ok", f"listen() of {of_sdp} beside {of_tcp}")
            reaches(e, where, port, SDP, listener, f"{of_sdp} beside {of_tcp}")


@case(reference=False)
def of_a_group(e):
    """TCP may have several listeners that share the port."""
    if e.ipproto:
        e.skip("neither family 27 nor 28")

    def share(sock):
        sock.set(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)

    with both_transports() as hosts:
        for where in hosts:
            port = free_port(e, where)
            by_sdp = make(e, FAMILY, OTHER, where, share)
            by_sdp.bind(e.address(e.any, port))
            by_sdp.listen(1)
            group = [listen(e, TCP, ROOT, where, e.host(where), port, share)[0] for _ in range(2)]
            near = either.make(e)
            near.connect(e.address(e.host(where), port))
            e.equal(either.protocol(near), TCP, "the protocol")
            e.check(any(sock.mask_when(1, 0.2) for sock in group), "nobody of the group has the connection")


@case(reference=False)
def of_both(e):
    """A listener whose TCP socket listens as well holds the port by TCP's own rules."""
    with both_transports() as hosts:
        for where in hosts:
            port = free_port(e, where)
            listener, outcome = listen(e, SDP, OTHER, where, e.any, port)
            e.equal(outcome, "ok", "listen()")
            reaches(e, where, port, SDP, listener, "the protocol")


@case(reference=False, families=("v4",))
def of_mapped_addresses(e):
    """Both the listener of TCP and that of SDP may be an IPv6 socket that accepts IPv4."""
    if e.ipproto:
        e.skip("neither family 27 nor 28")

    def of_ipv6(kind, user, where, port, only=False):
        with netns.inside(where):
            sock = e.keep(Sock.make(28 if kind == FAMILY else socket.AF_INET6, protocol=0))
        os.fchown(sock.fileno(), user, -1)
        sock.set(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only))
        sock.bind(("::", port))
        return sock, e.error(sock.listen, 5)

    with both_transports() as hosts:
        for where in hosts:
            port = free_port(e, where)
            listener, _ = of_ipv6(TCP, ROOT, where, port)
            e.equal(listen(e, FAMILY, OTHER, where, e.host(where), port)[1], "EADDRINUSE", "27 beside TCP's :: ")
            reaches(e, where, port, TCP, listener, "TCP's ::")
            port = free_port(e, where)
            listener, _ = listen(e, TCP, ROOT, where, e.any, port)
            refused, outcome = of_ipv6(FAMILY, OTHER, where, port)
            e.equal(outcome, "EADDRINUSE", "28 at :: beside TCP's 0.0.0.0")
            refused.close()
            e.equal(of_ipv6(FAMILY, OTHER, where, port, only=True)[1], "ok", "28 for IPv6 alone")
            reaches(e, where, port, TCP, listener, "TCP's 0.0.0.0")
