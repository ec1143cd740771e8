# SPDX-License-Identifier: GPL-2.0-only
"""A device with lower limits than rxe, and a device that fails."""

import socket

from lib import adverse, calls, consts, either, kmsg, netns, pattern
from lib.registry import case
from lib.resources import queues

from ..zcopy import pieces, spliced
from ..zcopy.blocks import MIB, NOWHERE, Counters, eager, unpinned
from ..zcopy.notified import Told, give, memory_of

# Number of refusals for a queue pair: enough that the attempts take longer than ten seconds.
# The driver refuses the creation of other objects once per attempt.
REFUSALS = 17
ERRORS = ("ECONNABORTED", "ECONNRESET", "EPIPE")


@case(families=("v4",), timeout=120)
def small(e):
    """A device that supports two SGEs, short queues, short registrations and no inline data: bytes
    of every size are transferred."""
    with adverse.device(e, limits=1):
        near, far = e.pair()
        total = 700_001
        tasks = [e.task(pattern.send, near, 1, total, [1, 70_000, 3000, 150_000]), e.task(pattern.send, far, 2, total, [90_001])]
        for target, seed in ((far, 1), (near, 2)):
            e.equal(pattern.receive(target, seed, total, [50_000]), total, "bytes")
        for task in tasks:
            task.result()
        near.close()
        e.equal(far.recv(1), b"", "end")


@case(reference=False, families=("v4",), timeout=120)
def inline(e):
    """Messages of up to sdp_inline_thresh bytes are sent inline, on a device that grants no more
    than requested."""
    for most in (48, 20, 64):
        with either.parameters(sdp_inline_thresh=most), adverse.device(e):
            near, far = e.pair()
            for length in range(1, 100):
                near.send(bytes(length))
                e.equal(far.recv_exactly(length), bytes(length), "bytes")
            e.equal(adverse.read("inlined"), most, "bytes of the longest message")
            near.close()
            far.close()


@case(reference=False, families=("v4",), timeout=120)
def small_without_copies(e):
    """Like `small`, but for zero-copy blocks."""
    with adverse.device(e, limits=1):
        near, far = e.pair()
        eager(near)
        eager(far)
        counters = Counters()
        task = e.task(pattern.send, near, 3, 4 * MIB, [MIB])
        e.equal(pattern.receive(far, 3, 4 * MIB, [MIB], socket.MSG_WAITALL), 4 * MIB, "bytes")
        task.result()
        e.check(counters.gained("zcopy rx_bytes") > 0, "all was copied")
        near.close()
        far.close()
        unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
def small_in_pieces(e):
    """Like `small`, but for scattered memory: a block has as many segments as a memory region has
    pages."""
    with adverse.device(e, limits=1):
        for kind in (pieces.Notified, pieces.Protected):
            pieces.arrive(e, kind(e), pieces.Pieces(pieces.APART), 4, kind.name)
        e.equal((adverse.PARAMETERS / "misused").read_text(), "0\n", "what the device cannot do and was to")


@case(reference=False, families=("v4",), timeout=120)
def huge(e):
    """A device that reports the maximum for every limit: the module requests only the resources of
    one connection, and one vector for both of its queues."""
    with either.parameters(spare_queues=0), adverse.device(e, limits=16):
        for turn in (1, -1):
            source, target = e.pair()[::turn]
            eager(source)
            eager(target)
            task = e.task(pattern.send, source, 3, 2 * MIB, [MIB])
            e.equal(pattern.receive(target, 3, 2 * MIB, [MIB], socket.MSG_WAITALL), 2 * MIB, "bytes")
            task.result()
            source.close()
            target.close()
        unpinned(e)
        e.equal(adverse.read("apart"), 0, "connections that need interrupts of two vectors")


@case(reference=False, families=("v4",), timeout=180)
def without_regions(e):
    """A device without memory regions, without the kernel's page size, or without READs: blocks use
    the remaining methods, or are copied."""
    for name, limits in (("no READs", 2), ("no regions", 4), ("large pages only", 8)):
        with adverse.device(e, limits=limits):
            near, far = e.pair()
            eager(near)
            eager(far)
            for source, target in ((near, far), (far, near)):
                task = e.task(pattern.send, source, 3, 2 * MIB, [MIB])
                e.equal(pattern.receive(target, 3, 2 * MIB, [MIB], socket.MSG_WAITALL), 2 * MIB, f"bytes, {name}")
                task.result()
            near.close()
            e.equal(far.recv(1), b"", "end")
            far.close()
            unpinned(e)
            e.equal((adverse.PARAMETERS / "misused").read_text(), "0\n", f"what the device cannot do and was to, {name}")


@case(reference=False, families=("v4",), timeout=120)
def pages_without_regions(e):
    """Like `without_regions`, but for pages of files and for non-blocking sends. The module refuses
    a block that the peer cannot read, because no task would cancel that block."""
    for name, limits in (("no READs", 2), ("no regions", 4), ("large pages only", 8)):
        with adverse.device(e, limits=limits):
            near, far, file = spliced.sending(e, 3 * MIB + 5000)
            near.set(socket.SOL_SOCKET, consts.SO_ZEROCOPY, 1)
            told = Told(e, near)
            block = memory_of(pattern.Pattern(3).at(0, MIB))
            task = e.task(lambda far=far, size=file.size: (pattern.receive(far, 1, size, [MIB]), pattern.receive(far, 3, MIB, [MIB])))
            e.equal(file.send(near), file.size, f"bytes sent of a file, {name}")
            near.sendall(block, consts.MSG_ZEROCOPY)
            e.equal(task.result(), (file.size, MIB), f"bytes, {name}")
            e.until(lambda told=told: told.look() > 0, f"what is told, {name}")
            near.close()
            e.equal(far.recv(1), b"", "end")
            far.close()
            unpinned(e)
            e.equal((adverse.PARAMETERS / "misused").read_text(), "0\n", f"what the device cannot do and was to, {name}")


@case(reference=False, families=("v4",), timeout=120)
def overrun(e):
    """A completion queue overruns: the connection ends with an error, and no call waits for a lost
    completion."""
    with adverse.device(e):
        near, far = e.pair()
        tasks = [e.task(e.outcome, sock.recv, 10).wait_asleep("recvfrom") for sock in (near, far)]
        adverse.behave(overrun=1)
        for task in tasks:
            e.check(task.result() in ERRORS, f"recv() gave {task.result()}")
    near, far = e.pair()
    near.send(b"by other queues")
    e.equal(far.recv(100), b"by other queues", "afterwards")


@case(reference=False, families=("v4",), timeout=120)
def busy(e):
    """A driver at first refuses to destroy queue pairs, completion queues and memory regions: in
    the end none of these objects is left. A queue pair is destroyed before its completion
    queues."""
    with either.parameters(spare_queues=0), adverse.device(e, busy=3):
        for turn in (1, -1):
            near, far = e.pair()
            eager(near)
            eager(far)
            source, target = (near, far)[::turn]
            task = e.task(pattern.send, source, 3, 2 * MIB, [MIB])
            e.equal(pattern.receive(target, 3, 2 * MIB, [MIB], socket.MSG_WAITALL), 2 * MIB, "bytes")
            task.result()
            e.check(queues(), "completion queues are not shown")
            near.close()
            far.close()
            e.until(lambda: not queues(), "the end of all completion queues")
            unpinned(e)


@case(reference=False, families=("v4",), timeout=180)
def refused(e):
    """A driver refuses to destroy queue pairs for a long time: the removal of the device waits, and
    the kernel log contains the reason. After the driver has destroyed the queue pairs, no resource
    is left."""
    log, device = kmsg.Log(), netns.device()
    with either.parameters(spare_queues=0), adverse.device(e, busy=REFUSALS):
        try:
            for sock in e.pair():
                sock.close()
            netns.run("self", "rdma link del rxe0")
            said = log.lines()
            for words in ("rxe0: ib_sdp: cannot destroy QP ", "rxe0: ib_sdp: the removal of the device has waited 10 seconds"):
                e.equal(sum(words in line for line in said), 1, f"{words!r} in the kernel's log")
            e.until(lambda: not queues(), "the end of all completion queues")
        finally:
            if "rxe0" not in netns.run("self", "rdma link show"):
                netns.run("self", f"rdma link add rxe0 type rxe netdev {device}")
    near, far = e.pair()
    near.send(b"by the device")
    e.equal(far.recv(100), b"by the device", "afterwards")


def resent(e, gone):
    """A connection is dissolved during a send of several blocks; the send waits until the queue
    pair is destroyed. During the wait for the queue pair the socket has another connection with
    blocks in flight, of which `gone` are complete. Returns true if the tested situation
    occurred."""
    with adverse.device(e, busy=6):
        near, far = e.pair()
    eager(near)
    listener = e.listen()
    # from this point on several blocks are in flight at once
    task = e.task(near.sendall, bytes(65536))
    far.recv_exactly(65536)
    task.result()
    counters = Counters()
    task = e.task(lambda: e.error(near.sendall, bytes(8 * MIB)))
    e.until(lambda: counters.gained("post_send SDP_MID_SRCAVAIL") > 1, "adverts")
    e.equal(e.error(calls.connect, near, NOWHERE), "ok", "connect(AF_UNSPEC)")
    near.connect(e.address(e.there, listener.port))
    other = e.keep(listener.accept()[0])
    near.set(socket.SOL_SOCKET, consts.SO_ZEROCOPY, 1)
    told = Told(e, near)
    for turn in range(gone):
        views = give(e, near, 1, 1, 65536)
        other.recv_exactly(65536)
        told.wait(turn + 1)
    with either.parameters(zcopy_ways=2):
        views = give(e, near, 5, 4, 2 * MIB - 65536)
        waited = task.is_alive()
        e.check(task.result() in ERRORS, "the send of the lost connection")
        total = sum(map(len, views))
        e.equal(pattern.receive(other, 5, total, [MIB]), total, "bytes by the other connection")
    for sock in (near, far, other):
        sock.close()
    return waited


@case(reference=False, families=("v4",), timeout=180)
def busy_beside_another_connection(e):
    """A call waits until a queue pair is destroyed, while the driver delays the destruction. Memory
    of the socket's next connection is not confused with memory of the waiting call."""
    with either.parameters(spare_queues=0):
        for gone in range(3):
            e.lucky(lambda: resent(e, gone), "the call had come back before")
    unpinned(e)
