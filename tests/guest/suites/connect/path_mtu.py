# SPDX-License-Identifier: GPL-2.0-only
"""Ports with different MTUs: the connection uses the smaller MTU."""

import contextlib

from lib import either, netns, pattern
from lib.registry import case

SIZES = 900, 5000, 300000


@contextlib.contextmanager
def mtu(host, size):
    device = netns.device(host)
    netns.run(host, f"ip link set {device} mtu {size}")
    try:
        yield
    finally:
        netns.run(host, f"ip link set {device} mtu 9000")


def both_ways(e, near, far):
    for size in SIZES:
        for one, other in ((near, far), (far, near)):
            data = pattern.Pattern(size).at(0, size)
            sent = e.task(one.sendall, data)
            e.equal(other.recv_exactly(size) == data, True, f"{size} bytes")
            sent.result()


@case(reference=False, timeout=60)
def smaller_there(e):
    """The other host rejects the path MTU of the request; the module repeats the request with a
    smaller MTU."""
    if netns.is_one():
        e.skip("both hosts are the same namespace")
    for size in (1500, 3000):
        with mtu("peer", size):
            both_ways(e, *e.pair())


@case(reference=False, timeout=60)
def smaller_here(e):
    if netns.is_one():
        e.skip("both hosts are the same namespace")
    with mtu("self", 1500):
        both_ways(e, *e.pair())


@case(reference=False, timeout=60)
def ipproto_has_no_fallback(e):
    if netns.is_one():
        e.skip("both hosts are the same namespace")
    with mtu("peer", 1500), either.parameters(ipproto_wait=10000, ipproto_memory=0):
        listener = either.listen(e)
        near = either.connect(e, listener)
        e.equal(either.protocol(near), either.SDP, "the protocol")
        both_ways(e, near, either.accept(e, listener))


def next_one_works(e, change):
    """Checks that a connection fails after `change`, and that the next connection transfers data.

    `change(near, far, until_then)` returns the failing end; the ExitStack is unwound at the end of
    the case."""
    listener = either.listen(e)
    near = either.connect(e, listener)
    far = either.accept(e, listener)
    with either.parameters(ack_time=3, ipproto_wait=10000, ipproto_memory=0), contextlib.ExitStack() as until_then:
        failed = change(near, far, until_then)
        e.check(e.outcome(failed.recv, 1) in ("ECONNRESET", "EPIPE", "ETIMEDOUT"), "the connection ends")
        near.close()
        far.close()
        near = either.connect(e, listener)
        e.equal(either.protocol(near), either.SDP, "the protocol of the next one")
        both_ways(e, near, either.accept(e, listener))


@case(reference=False, timeout=120)
def smaller_meanwhile(e):
    """The MTU shrinks: a large message ends the connection, and the next connection uses a smaller
    MTU."""
    if netns.is_one():
        e.skip("both hosts are the same namespace")

    def change(near, _, until_then):
        for host in ("self", "peer"):
            until_then.enter_context(mtu(host, 1500))
        near.sendall(bytes(20000))
        return near

    next_one_works(e, change)


@case(reference=False, families=("v4",), timeout=120)
def address_comes_back(e):
    """An address is removed and added again: the next message ends the connection; a new connection
    works.
    """
    if netns.is_one():
        e.skip("both hosts are the same namespace")

    def change(_, far, __):
        device = netns.device("peer")
        netns.run("peer", f"ip addr del {e.there}/24 dev {device}")
        netns.run("peer", f"ip addr add {e.there}/24 dev {device}")
        far.sendall(b"x")
        return far

    next_one_works(e, change)
