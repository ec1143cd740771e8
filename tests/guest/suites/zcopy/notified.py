# SPDX-License-Identifier: GPL-2.0-only
"""MSG_ZEROCOPY: sends that neither copy nor wait for the reader. The error queue contains a
notification once a send is complete."""

import ctypes
import mmap
import os
import random
import resource
import select
import socket
import struct

from lib import calls, consts, pattern
from lib.registry import case
from suites.zcopy.blocks import MIB, Counters, pipelined, unpinned, waiting_reader
from suites.zcopy.figures import parameter

SOL, ZEROCOPY, ERRQUEUE, NOW = socket.SOL_SOCKET, consts.MSG_ZEROCOPY, socket.MSG_ERRQUEUE, socket.MSG_DONTWAIT
COPIED = 1
MOST = 8        # blocks under way


def asking(e):
    """Returns a pair of sockets whose near end may use MSG_ZEROCOPY."""
    near, far = e.pair()
    return near.set(SOL, consts.SO_ZEROCOPY, 1), far


class Told:
    """Notifications of a socket: completed sends and their codes. Each notification arrives once;
    notifications of blocks arrive in order."""

    def __init__(self, e, sock):
        self._e, self._sock, self.count, self._codes = e, sock, 0, {}

    def look(self):
        """Reads the available notifications. Returns the number of completed sends."""
        while True:
            try:
                _, control, _, _ = self._sock.recvmsg(1, 512, ERRQUEUE)
            except BlockingIOError:
                return self.count
            [(_, _, raw)] = control
            error, origin, _, code, first, last = struct.unpack_from("=IBBBxII", raw)
            self._e.equal((error, origin), (0, 5), "errno and origin of a notification")
            for number in range(first, last + 1):
                self._e.check(number not in self._codes, f"{number} was told twice")
                self._codes[number] = code
            self.count = len(self._codes)

    def wait(self, count):
        """Waits for `count` notifications; returns the codes of the notifications."""
        while self.look() < count:
            self._e.equal(self._sock.mask_when(0, self._e.patience), "ERR", f"poll() with {self.count} of {count} told")
        self._e.equal(sorted(self._codes), list(range(count)), "sends that were told")
        return [self._codes[number] for number in range(count)]


def memory_of(data):
    """Returns a view of the bytes in separate pages."""
    area = mmap.mmap(-1, len(data))
    area[:] = data
    return memoryview(area)


def give(e, sock, seed, count, size=MIB):
    """Sends a pattern by a number of non-blocking calls."""
    views = [memory_of(pattern.Pattern(seed).at(turn * size, size)) for turn in range(count)]
    for view in views:
        e.equal(sock.send(view, ZEROCOPY | NOW), size, "bytes of a send that must not wait")
    return views


@case(reference=False, timeout=60, messages=True)
def read_by_the_peer(e):
    """Several blocks are in flight. The peer reads the blocks, and only then do notifications
    arrive.
    No byte of the blocks in flight is copied."""
    near, far = asking(e)
    told, counters = Told(e, near), Counters()
    give(e, near, 1, 4)
    e.equal((told.look(), near.mask()), (0, "OUT"), "notifications before anybody reads")
    e.equal(pattern.receive(far, 1, 4 * MIB, [MIB], socket.MSG_WAITALL), 4 * MIB, "bytes")
    e.equal(told.wait(4), [0] * 4, "codes")
    for way in ("tx", "rx"):
        e.equal(counters.gained(f"zcopy {way}_bytes"), 4 * MIB, f"{way} bytes not copied")
    e.equal(counters.gained("post_send SDP_MID_SRCAVAIL"), 4, "adverts")
    unpinned(e)


@case(reference=False, timeout=60)
def many(e):
    """A stream of blocks and of copied bytes arrives in order, for every kind of reader."""
    near, far = asking(e)
    choice = random.Random(5)
    sizes = [choice.choice((1, 4000, 16384, 20001, 70000, 262144, MIB)) for _ in range(60)]
    total = sum(sizes)
    stream = memory_of(pattern.Pattern(2).at(0, total))

    def sender():
        at = asked = 0
        for size in sizes:
            flags = choice.choice((ZEROCOPY, ZEROCOPY, 0))
            end = at + size
            while at < end:
                at += near.send(stream[at:end], flags)
                asked += flags != 0
        return asked

    task = e.task(sender)
    reads = [choice.choice((5000, 100000, MIB, 3 * MIB)) for _ in range(20)]
    e.equal(pattern.receive(far, 2, total, reads), total, "bytes")
    Told(e, near).wait(task.result())
    unpinned(e)


@case(reference=False, timeout=60)
def polled(e):
    """A reader that polls gets the bytes as messages sent from the same pages. On a local
    connection the messages are copies."""
    near, far = asking(e)
    told, counters = Told(e, near), Counters()
    give(e, near, 3, 3)
    checker = pattern.Checker(3)
    while checker.count < 3 * MIB:
        e.wait(far)
        checker.feed(far.recv(MIB, NOW))
    codes = told.wait(3)
    e.check(set(codes) <= {0, COPIED}, f"codes {codes}")
    e.equal(counters.gained("tx_bytes"), 3 * MIB, "bytes sent, by the counter")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def written_to_a_waiting_reader(e):
    """If a reader is already waiting, the bytes are written to its memory."""
    def attempt():
        near, far = pipelined(e)
        near.set(SOL, consts.SO_ZEROCOPY, 1)
        told = Told(e, near)
        task, counters = waiting_reader(e, far, MIB)
        give(e, near, 4, 1)
        e.check(task.result() == pattern.Pattern(4).at(0, MIB), "other bytes")
        e.equal(told.wait(1), [0], "codes")
        unpinned(e)
        return counters.gained("zcopy written") == MIB
    e.lucky(attempt, "the reader took its memory back")


@case(reference=False, families=("v4",), timeout=60)
def as_many_as_may_be(e):
    """At the limit of blocks in flight a non-blocking send gets EAGAIN, and poll(2) reports when
    another send is possible. A blocking send at the limit succeeds."""
    near, far = asking(e)
    told = Told(e, near)
    give(e, near, 5, MOST, 65536)
    more = memory_of(pattern.Pattern(5).at(MOST * 65536, 65536))
    e.equal(e.error(near.send, more, ZEROCOPY | NOW), "EAGAIN", "one more")
    e.equal(near.mask(), "-", "poll()")
    waiter = e.task(near.send, more, ZEROCOPY).wait_asleep("sendto")
    e.equal(pattern.receive(far, 5, 65536, [65536], socket.MSG_WAITALL), 65536, "bytes of the first")
    e.equal(waiter.result(), 65536, "bytes of the one that waited")
    checker = pattern.Checker(5)
    checker.count = 65536
    while checker.count < (MOST + 1) * 65536:
        checker.feed(far.recv(65536))
    e.equal(near.mask_when(select.POLLOUT, e.patience), "OUT|ERR", "poll() after that")
    # the failed call has no number
    told.wait(MOST + 1)
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def ended(e):
    """shutdown(2), close(2) and exit(2) with blocks in flight: the bytes arrive, then the end of
    the stream, as on TCP."""
    def child(sock):
        give(e, sock, 6, 3)
        return os.getpid()

    for how in ("shutdown", "close", "exit", "kill"):
        near, far = asking(e)
        if how in ("shutdown", "close"):
            give(e, near, 6, 3)
            near.shutdown(socket.SHUT_WR) if how == "shutdown" else near.close()
        elif how == "exit":
            process = e.child(child, near)
            near.close()
            process.result()
        else:
            process = e.child(lambda sock: (give(e, sock, 6, 3), sock.recv(1)), near)
            near.close()
            process.wait_asleep("recvfrom")
            process.kill()
        e.equal(pattern.receive(far, 6, 4 * MIB, [MIB], socket.MSG_WAITALL), 3 * MIB, f"{how}: bytes before the end")
        far.close()
        unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def lost(e):
    """The connection ends with blocks in flight: notifications arrive, and nothing stays pinned."""
    for reset in (False, True):
        near, far = asking(e)
        told = Told(e, near)
        give(e, near, 7, 4)
        if reset:
            far.set(SOL, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        e.until(lambda: told.look() == 4, "the notifications")
        unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def nobody_reads_the_queue(e):
    """Unread notifications are freed with the socket; so are blocks of a socket that is reset."""
    near, far = asking(e)
    give(e, near, 8, 4)
    e.equal(pattern.receive(far, 8, 2 * MIB, [MIB], socket.MSG_WAITALL), 2 * MIB, "bytes")
    near.set(SOL, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def urgent_behind(e):
    """An urgent byte does not wait until the blocks before it are read: the module sends these
    blocks as messages."""
    near, far = asking(e)
    told = Told(e, near)
    give(e, near, 9, 3, 65536)
    near.send(b"!", socket.MSG_OOB)
    e.check("PRI" in far.mask_when(select.POLLPRI, e.patience), "poll() says nothing of urgent data")
    e.equal(pattern.receive(far, 9, 3 * 65536, [65536]), 3 * 65536, "bytes")
    e.equal(far.recv(1, socket.MSG_OOB), b"!", "the urgent byte")
    told.wait(3)
    unpinned(e)


@case(reference=False, timeout=60)
def both_ways(e):
    """Blocks of both ends cross."""
    near, far = asking(e)
    far.set(SOL, consts.SO_ZEROCOPY, 1)
    views = give(e, near, 10, 3), give(e, far, 11, 3)
    tasks = [e.task(pattern.receive, near, 11, 3 * MIB, [MIB]), e.task(pattern.receive, far, 10, 3 * MIB, [700000])]
    for task in tasks:
        e.equal(task.result(), 3 * MIB, "bytes")
    Told(e, near).wait(3)
    Told(e, far).wait(3)
    e.equal(len(views), 2, "senders")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def beside_a_send_that_waits(e):
    """A blocking send after unread blocks cancels its own block and copies; its bytes arrive after
    the blocks."""
    near, far = asking(e)
    near.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, 4096)
    give(e, near, 12, 2)
    size = 60000
    task = e.task(near.sendall, pattern.Pattern(12).at(2 * MIB, size))
    task.result()
    e.equal(pattern.receive(far, 12, 2 * MIB + size, [MIB]), 2 * MIB + size, "bytes")
    Told(e, near).wait(2)
    unpinned(e)


@case(families=("v4",), timeout=60)
def optmem(e):
    """Notifications are charged to optmem_max. Beyond optmem_max send(2) fails with ENOBUFS, and
    nothing is sent."""
    near, far = asking(e)
    limit = "/proc/sys/net/core/optmem_max"
    with open(limit) as file:
        before = file.read()
    area = memory_of(pattern.Pattern(15).at(0, 70000))
    try:
        with open(limit, "w") as file:
            file.write("1")
        e.note("a large one", e.error(near.send, area, ZEROCOPY))
        e.note("a small one", e.error(near.send, area[:5], ZEROCOPY))
        e.note("without asking", near.send(area[:5]))
    finally:
        with open(limit, "w") as file:
            file.write(before)
    e.note("afterwards", near.send(area[5:], ZEROCOPY))
    e.equal(pattern.receive(far, 15, 70000, [70000]), 70000, "bytes")


@case(families=("v4",), timeout=60)
def untold(e):
    """Unread notifications are merged into one, so that their number is bounded."""
    near, far = asking(e)
    count, size = 1000, 100
    area = memory_of(pattern.Pattern(16).at(0, count * size))
    task = e.task(pattern.receive, far, 16, count * size, [4096])
    for turn in range(count):
        near.sendall(area[turn * size:(turn + 1) * size], ZEROCOPY)
    e.equal(task.result(), count * size, "bytes")
    e.equal(set(Told(e, near).wait(count)), {COPIED}, "codes of small sends")


@case(families=("v4",), timeout=60)
def memlock(e):
    """Without the right to lock memory the call fails with ENOBUFS, as on TCP."""
    near, far = asking(e)

    def sender():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        return e.error(near.send, memory_of(bytes(MIB)), ZEROCOPY | NOW)

    e.note("more than may be locked", e.child(sender).result())
    near.send(b"later")
    e.equal(far.recv(10), b"later", "bytes after that")


@case(reference=False, families=("v4",), timeout=60)
def over_budget(e):
    """Beyond the limits bytes are copied, and notifications report the copies. A user without a
    block can still get one block."""
    for name in ("max_pinned_send", "max_pinned_send_user"):
        with parameter(name, 0):
            near, far = asking(e)
            counters = Counters()
            task = e.task(near.sendall, memory_of(pattern.Pattern(18).at(0, 4 * MIB)), ZEROCOPY)
            e.until(lambda: counters.gained("pin over budget"), "a refusal")
            e.equal(pattern.receive(far, 18, 4 * MIB, [MIB], socket.MSG_WAITALL), 4 * MIB, f"{name}: bytes")
            task.result()
            told = Told(e, near)
            e.until(lambda: told.look() > 0, "what is told")
            e.check(COPIED in told.wait(told.count), f"{name}: nothing was told of as copied")
            near.close()
            far.close()
            unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def vectors(e):
    """A send of many segments, of all sizes."""
    near, far = asking(e)
    choice = random.Random(13)
    pieces = [choice.choice((1, 5, 4096, 16384, 65536, 300000)) for _ in range(40)]
    total = sum(pieces)
    stream = memory_of(pattern.Pattern(13).at(0, total))
    parts, at = [], 0
    for size in pieces:
        parts.append(stream[at:at + size])
        at += size

    task = e.task(near.sendmsg, parts, [], ZEROCOPY)
    e.equal(pattern.receive(far, 13, total, [MIB]), total, "bytes")
    e.equal(task.result(), total, "bytes sent")
    Told(e, near).wait(1)
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def vectors_of_one_piece(e):
    """Many small segments that adjoin, as in QEMU's migration, are sent like one large segment."""
    near, far = asking(e)
    stream = memory_of(pattern.Pattern(17).at(0, MIB))
    parts = [stream[at:at + 4096] for at in range(0, MIB, 4096)]
    counters = Counters()
    e.equal(near.sendmsg(parts[:1] + [b""] + parts[1:], [], ZEROCOPY | NOW), MIB, "bytes sent")
    # runs before a reader waits for the bytes: the reader's SinkAvail would cross the advert
    e.until(lambda: counters.gained("received SDP_MID_SRCAVAIL") > 0, "the advert")
    e.equal(pattern.receive(far, 17, MIB, [MIB], socket.MSG_WAITALL), MIB, "bytes")
    e.equal(Told(e, near).wait(1), [0], "codes")
    e.equal(counters.gained("post_send SDP_MID_SRCAVAIL") + counters.gained("received SDP_MID_SINKAVAIL"), 1, "adverts")
    # the segments have a gap between them, and another order
    parts = [stream[20000:40000], stream[:20000], stream[50000:90000], stream[40000:50000]]
    task = e.task(far.recv_exactly, 90000)
    near.sendmsg(parts, [], ZEROCOPY)
    e.check(task.result() == b"".join(parts), "other bytes")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def bad_memory(e):
    """A call's memory ends within its range: the bytes before the end are sent, as on TCP."""
    near, far = asking(e)
    calls.libc.mmap.restype = ctypes.c_void_p
    area = calls.libc.mmap(None, ctypes.c_size_t(2 * MIB), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    ctypes.memmove(area, pattern.Pattern(14).at(0, MIB), MIB)
    calls.plain("munmap", ctypes.c_void_p(area + MIB), ctypes.c_size_t(MIB))
    sent = calls.send_at(near, area, 2 * MIB, ZEROCOPY | NOW)
    e.equal(sent, MIB, "bytes sent")
    e.equal(pattern.receive(far, 14, MIB, [MIB]), MIB, "bytes")
    Told(e, near).wait(1)
    e.equal(e.error(calls.send_at, near, area + MIB, MIB, ZEROCOPY | NOW), "EFAULT", "no memory at all")
    unpinned(e)
