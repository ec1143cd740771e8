# SPDX-License-Identifier: GPL-2.0-only
"""Allocation of receive buffers fails for a while. A peer without credits is silent, so the
receiver has to continue without an event when memory is available again. The receiver keeps its
small buffers until the larger buffers are mapped."""

import contextlib
import errno
import itertools
import socket

from lib import calls, consts, faults, leftovers, pattern
from lib.registry import case
from suites.faults.nth import closing, echo, needs_faults, nothing_left
from suites.zcopy.blocks import MIB, eager

# One block of a sender fits this size. The size needs more receive buffers than the peer starts
# with, until the buffers grow.
SIZE = 60000
# Number of messages that fit the first receive buffers; two buffers are reserved for messages
# without payload.
FIRST, PAYLOAD = 6, 2000


def needs_verbs(e):
    needs_faults(e)
    if not faults.verbs_possible():
        e.skip("verbs cannot fail in this build (scripts/test-module --debug)")


def mapped(number):
    """The device cannot map a buffer from the n-th on."""
    return faults.verb("sdp_h_ib_map_error", number, errno.ENOMEM, faults.EVERY)


@case(reference=False, timeout=300, messages=True)
def growing(e):
    """The peer requests larger buffers, but the receiver can map only some of them, or none.
    While mapping fails, bytes arrive in the old buffers."""
    needs_verbs(e)
    listener, source = e.listen(), pattern.Pattern(3).at(0, SIZE)
    # The buffer that is mapped first is the sender's.
    for number in range(2, 10):
        near, far = e.pair(listener)
        with mapped(number) as hits:
            reader = e.task(far.recv_exactly, SIZE)
            e.equal(calls.send(near, source), SIZE, "taken")
            e.check(reader.result() == source, f"from {number} on: the bytes")
            e.check(hits() > 0, f"from {number} on: none was to be mapped")
        echo(e, near, far)
        closing(near, far)
    listener.close()
    nothing_left(e)


@case(reference=False, timeout=300, messages=True)
def unread(e):
    """A reader waits for more bytes than its buffers hold, and all of these bytes are unread."""
    needs_verbs(e)
    listener, source = e.listen(), pattern.Pattern(4).at(0, SIZE)
    near, far = e.pair(listener)
    far.set(socket.SOL_SOCKET, socket.SO_RCVLOWAT, SIZE * 2 // 3)
    e.equal(far.get(socket.SOL_SOCKET, socket.SO_RCVLOWAT), SIZE * 2 // 3, "SO_RCVLOWAT")
    waiter = e.task(e.wait, far)
    waiter.wait_asleep("poll")
    with mapped(2) as hits:
        e.equal(calls.send(near, source), SIZE, "taken")
        e.until(lambda: calls.ioctl_int(far, consts.SIOCINQ) >= FIRST * PAYLOAD and hits() > 0, "bytes, and a fault")
        waiter.wait_asleep("poll")
    e.equal(waiter.result(), "IN", "the mask")
    e.check(far.recv_exactly(SIZE) == source, "the bytes")
    echo(e, near, far)
    closing(near, far, listener)
    nothing_left(e)


@case(reference=False, hosts=(0, 1), timeout=300)
def ending(e):
    """All allocations of the module fail while connections end with unread and unsent bytes, with
    registered memory, or in an accept queue. All memory of the ended connections is freed."""
    needs_faults(e)
    listener = e.listen()
    pairs = [e.pair(listener) for _ in range(4)]
    waiting = [e.connect(listener) for _ in range(3)]
    for sock in itertools.chain(*pairs):
        eager(sock)
    (unread, _), (full, _), (lender, _), (reader, _) = pairs
    calls.send(unread, bytes(5000))
    while e.outcome(full.send, bytes(20000), socket.MSG_DONTWAIT) != "EAGAIN":
        pass
    tasks = [e.task(e.outcome, lender.send, bytes(MIB)).wait_asleep("sendto"),
             e.task(e.outcome, reader.recv, MIB, socket.MSG_WAITALL).wait_asleep("recvfrom")]
    with contextlib.ExitStack() as without:
        hits = [without.enter_context(faults.several(kind, faults.EVERY)) for kind in ("failslab", "fail_page_alloc")]
        for sock in itertools.chain(*pairs):
            e.outcome(sock.shutdown, socket.SHUT_RDWR)
        for task in tasks:
            task.result()
        closing(*itertools.chain(*pairs), *waiting, listener)
        left = leftovers.wait(e.patience * 9)
        e.note("faults", [hit() for hit in hits])
    e.check(not left, "left: " + "; ".join(left))
    echo(e, *e.pair(e.listen()))
    nothing_left(e)
