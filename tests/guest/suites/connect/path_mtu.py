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
