# SPDX-License-Identifier: GPL-2.0-only
"""Completion queues that a device caches for new connections."""

from lib.either import parameters
from lib.registry import case
from lib.resources import queues


def through(e):
    """Makes a connection with bytes in both directions."""
    near, far = e.pair()
    for one, other in ((near, far), (far, near)):
        one.sendall(b"bytes")
        e.equal(other.recv_exactly(5), b"bytes", "what comes")
    return near, far


def used(e):
    """Runs a connection to its end. Returns the numbers of the connection's completion queues."""
    near, far = through(e)
    had = queues()
    near.close()
    far.close()
    return had


@case(reference=False, families=("v4",))
def kept(e):
    """Each end keeps its two completion queues, and the next connection uses the queues. With
    spare_queues=0 the device keeps no queues."""
    with parameters(spare_queues=0):
        used(e)
        e.until(lambda: not queues(), "the end of those of other connections")
    first = used(e)
    e.equal(len(first), 4, "completion queues of a connection")
    for _ in range(5):
        e.until(lambda: queues(free=True) == first, "the end of the last connection")
        e.equal(used(e), first, "those of the next connection")
    with parameters(spare_queues=0):
        used(e)
        e.until(lambda: not queues(), "the end of all of them")


@case(reference=False, families=("v4",))
def kept_at_most(e):
    """The device caches at most spare_queues pairs of queues."""
    with parameters(spare_queues=2):
        for near, far in [through(e) for _ in range(4)]:
            near.close()
            far.close()
        e.until(lambda: len(queues()) <= 8, "two endpoints' queues for each device")
        used(e)
