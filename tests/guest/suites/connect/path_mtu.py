# SPDX-License-Identifier: GPL-2.0-only
"""Ports whose MTUs differ: the connection has the smaller one."""

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
    """The other host refuses the path MTU of the request, and gets one with less."""
    if netns.is_one():
        e.skip("both hosts are one namespace")
    for size in (1500, 3000):
        with mtu("peer", size):
            both_ways(e, *e.pair())


@case(reference=False, timeout=60)
def smaller_here(e):
    if netns.is_one():
        e.skip("both hosts are one namespace")
    with mtu("self", 1500):
        both_ways(e, *e.pair())


@case(reference=False, timeout=60)
def ipproto_has_no_fallback(e):
    if netns.is_one():
        e.skip("both hosts are one namespace")
    with mtu("peer", 1500), either.parameters(ipproto_wait=10000, ipproto_memory=0):
        listener = either.listen(e)
        near = either.connect(e, listener)
        e.equal(either.protocol(near), either.SDP, "the protocol")
        both_ways(e, near, either.accept(e, listener))


ENDS = "ECONNRESET", "EPIPE", "ETIMEDOUT"


@case(reference=False, timeout=120)
def smaller_meanwhile(e):
    """The MTU shrinks: a large message ends the connection, and the next one has less."""
    if netns.is_one():
        e.skip("both hosts are one namespace")
    listener = either.listen(e)
    near = either.connect(e, listener)
    far = either.accept(e, listener)
    with either.parameters(ack_time=3, ipproto_wait=10000, ipproto_memory=0), mtu("self", 1500), mtu("peer", 1500):
        near.sendall(bytes(20000))
        e.check(e.outcome(near.recv, 1) in ENDS, "the connection ends")
        near.close()
        far.close()
        near = either.connect(e, listener)
        e.equal(either.protocol(near), either.SDP, "the protocol of the next one")
        both_ways(e, near, either.accept(e, listener))


@case(reference=False, families=("v4",), timeout=120)
def address_comes_back(e):
    """An address goes and comes back: the next message ends the connection; another works."""
    if netns.is_one():
        e.skip("both hosts are one namespace")
    listener = either.listen(e)
    near = either.connect(e, listener)
    far = either.accept(e, listener)
    with either.parameters(ack_time=3, ipproto_wait=10000, ipproto_memory=0):
        device = netns.device("peer")
        netns.run("peer", f"ip addr del {e.there}/24 dev {device}")
        netns.run("peer", f"ip addr add {e.there}/24 dev {device}")
        far.sendall(b"x")
        e.check(e.outcome(far.recv, 1) in ENDS, "the connection ends")
        near.close()
        far.close()
        near = either.connect(e, listener)
        e.equal(either.protocol(near), either.SDP, "the protocol of the next one")
        both_ways(e, near, either.accept(e, listener))
