# SPDX-License-Identifier: GPL-2.0-only
"""Blocking calls: some transfer bytes between the pages of the two programs, others must copy."""

import contextlib
import ctypes
import mmap
import os
import random
import resource
import socket
import struct

from lib import calls, consts, memory, netns, observe, pattern
from lib.registry import case

MIB = 1 << 20
TCP = socket.IPPROTO_TCP
NOWHERE = struct.pack("=H14x", 0)


def eager(sock):
    """Sets the threshold so that sends of a page or more are offered to the peer's reader."""
    sock.set(TCP, consts.SDP_ZCOPY_THRESH, 4096)


def pair(e):
    """Makes a pair that advertises at both ends."""
    near, far = e.pair()
    eager(near)
    eager(far)
    return near, far


class Counters:
    """Growth of the counters of both ends."""

    def __init__(self):
        self._before = {where: observe.stats(where) for where in netns.hosts()}

    def gained(self, name):
        return sum(observe.stats(where)[name] - self._before[where][name] for where in netns.hosts())


def from_pages(counters):
    """Returns the bytes sent from pages of a program, file or pipe, by RDMA or in messages."""
    return counters.gained("zcopy tx_bytes") + counters.gained("zcopy in messages")


def unpinned(e):
    """No page stays pinned at either end, except memory that the kernel can reclaim when memory is
    short."""
    e.until(lambda: not any(observe.pinned(where) for where in netns.hosts()), "the end of all pinning")


@case(reference=False, timeout=60, messages=True, hosts=(1, 2))
def whole(e):
    """Large sends to large receives are not copied. On siw, whose regions have 256 pages, at most a
    page of each call is copied, because the memory does not begin at a page border."""
    spare = 8 * mmap.PAGESIZE if os.path.exists("/sys/class/infiniband/siw0") else 0
    for turn in (1, -1):
        def attempt():
            source, target = pair(e)[::turn]
            counters = Counters()
            task = e.task(pattern.send, source, 3, 8 * MIB, [MIB])
            e.equal(pattern.receive(target, 3, 8 * MIB, [MIB], socket.MSG_WAITALL), 8 * MIB, "bytes")
            task.result()
            for way in ("tx", "rx"):
                e.equal(counters.gained(f"{way}_bytes"), 8 * MIB, f"{way} bytes")
            if any(8 * MIB - counters.gained(f"zcopy {way}_bytes") > spare for way in ("tx", "rx")):
                return False        # the reader was once so slow that the sender timed out and copied
            adverts = counters.gained("post_send SDP_MID_SRCAVAIL") + counters.gained("post_send SDP_MID_SINKAVAIL")
            e.check(adverts >= 8, f"{adverts} adverts")
            return True
        e.lucky(attempt, "something was copied")
    unpinned(e)


def pipelined(e, turn=1):
    """Returns a pair where the far end's readers may advertise (the near end's, if `turn` is -1),
    and none has had to cancel yet. An end stops advertising for a while after a cancel. The first
    bytes are therefore sent to a reader that polls, because a polling reader never advertises."""
    near, far = pair(e)[::turn]
    counters = Counters()
    task = e.task(pattern.send, near, 2, MIB, [MIB])
    left = MIB
    while left:
        e.wait(far)
        left -= len(far.recv(left, socket.MSG_DONTWAIT))
    task.result()
    e.check(netns.is_one() or counters.gained("post_send SDP_MID_MODECHANGE") > 0, "no ModeChange was sent")
    e.equal(counters.gained("post_send SDP_MID_SINKAVAIL"), 0, "sink adverts")
    return near, far


def waiting_reader(e, sock, size, flags=socket.MSG_WAITALL):
    """Starts a receive call that has advertised its memory; returns the call and the current
    counters."""
    counters = Counters()
    task = e.task(sock.recv, size, flags)
    e.until(lambda: counters.gained("post_send SDP_MID_SINKAVAIL"), "a sink advert")
    return task, Counters()


def before_it_gives_up(e, attempt):
    """The case is repeated, because a reader cancels its advert if no byte arrives for a second,
    and a slow machine may take longer."""
    e.lucky(attempt, "the reader took its memory back")


@case(reference=False, timeout=120, messages=True)
def written(e):
    """A sender writes to the memory of a waiting reader: no byte is copied, or read by the peer."""
    for size in (MIB, 2 * MIB - 65536, 300_001):
        def attempt():
            near, far = pipelined(e)
            task, counters = waiting_reader(e, far, size)
            data = pattern.Pattern(size).at(0, size)
            near.sendall(data)
            e.equal(task.result(), data, "data")
            e.equal(counters.gained("tx_bytes"), size, "bytes in all")
            e.equal(counters.gained("zcopy filled"), counters.gained("zcopy written"), "bytes written")
            near.close()
            far.close()
            return counters.gained("zcopy written") == size
        before_it_gives_up(e, attempt)
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def written_in_part(e):
    """A block smaller than the reader's buffer ends its call; the rest of a larger block is sent by
    another method."""
    def less():
        near, far = pipelined(e)
        task, counters = waiting_reader(e, far, 2 * MIB - 65536, 0)
        data = pattern.Pattern(1).at(0, MIB)
        sender = e.task(near.sendall, data)
        got = task.result()
        while len(got) < len(data):
            got += far.recv(len(data) - len(got))
        e.equal(got, data, "less than there was room for")
        sender.result()
        return counters.gained("zcopy written") == MIB

    def more():
        near, far = pipelined(e)
        task, counters = waiting_reader(e, far, MIB)
        data = pattern.Pattern(2).at(0, 5 * MIB)
        sender = e.task(near.sendall, data)
        got = task.result()
        while len(got) < len(data):
            got += far.recv(len(data) - len(got))
        e.equal(got, data, "more than there was room for")
        sender.result()
        return counters.gained("zcopy written") >= MIB

    before_it_gives_up(e, less)
    before_it_gives_up(e, more)
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def small_to_a_waiting_reader(e):
    """A send of a few bytes is copied, and reaches the reader at once."""
    for flags, size in ((0, 1), (0, 1000), (socket.MSG_DONTWAIT, 100_000)):
        near, far = pipelined(e)
        task, counters = waiting_reader(e, far, MIB, 0)
        data = pattern.Pattern(size).at(0, size)
        sent = near.send(data, flags)
        got = task.result()
        while len(got) < sent:
            got += far.recv(MIB)
        e.equal(got, data[:sent], "data")
        e.equal(counters.gained("zcopy tx_bytes"), 0, "bytes not copied")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def reader_times_out(e):
    """The reader's call times out while its memory is advertised: nothing is lost."""
    near, far = pipelined(e)
    far.set(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 300_000))
    task, _ = waiting_reader(e, far, MIB)
    e.equal(e.error(task.result), "EAGAIN", "after the time-out")
    far.set(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 0))
    unpinned(e)
    data = pattern.Pattern(1).at(0, MIB)
    sender = e.task(near.sendall, data)
    e.equal(far.recv(MIB, socket.MSG_WAITALL), data, "data after the time-out")
    sender.result()


@case(reference=False, families=("v4",), timeout=60, messages=True)
def reader_interrupted(e):
    """A signal ends the reader's call while its memory is advertised: nothing is lost."""
    near, far = pipelined(e)
    counters = Counters()
    outcome, caught = e.interrupt_self(lambda: calls.recv(far, MIB), "recvfrom", when=lambda: counters.gained("post_send SDP_MID_SINKAVAIL"))
    e.equal((outcome, caught), ("EINTR", 1), "a signal")
    unpinned(e)
    near.sendall(b"later")
    e.equal(far.recv(100), b"later", "data after the signal")


@case(reference=False, families=("v4",), timeout=60, messages=True)
def end_for_a_waiting_reader(e):
    """The stream ends while the reader's memory is advertised."""
    near, far = pipelined(e)
    task, _ = waiting_reader(e, far, MIB)
    near.shutdown(socket.SHUT_WR)
    e.equal(task.result(), b"", "the end")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
def changed_mind(e):
    """A sender enters and leaves Pipelined mode repeatedly, at any moment relative to the reader's
    adverts."""
    near, far = pair(e)
    size, rounds = 200_000, 300
    task = e.task(pattern.receive, far, 4, size * rounds, [MIB, size, 3 * size])
    stream = pattern.Pattern(4)
    for turn in range(rounds):
        near.set(TCP, consts.SDP_ZCOPY_THRESH, 0 if turn % 5 < 2 else 4096)
        near.sendall(stream.at(turn * size, size))
    e.equal(task.result(), size * rounds, "bytes")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def idle_reader(e):
    """A reader without bytes cancels its advert, and gets the bytes that arrive later."""
    near, far = pipelined(e)
    task, _ = waiting_reader(e, far, MIB)
    unpinned(e)
    data = pattern.Pattern(1).at(0, MIB)
    near.sendall(data)
    e.equal(task.result(), data, "data")
    unpinned(e)


@case(reference=False, families=("v4",), hosts=(1, 2), timeout=120)
def sizes(e):
    """Unaligned sends and receives of all sizes in turn."""
    near, far = pair(e)
    choice = random.Random(4)
    for source, target in ((near, far), (far, near)):
        sends = [choice.choice((1, 100, 4095, 4096, 4097, 8193, 65537, 300001)) for _ in range(40)]
        receives = [choice.choice((1, 4095, 4096, 5000, 70001, 500000)) for _ in range(30)]
        task = e.task(pattern.send, source, 6, 4 * MIB + 7, sends)
        e.equal(pattern.receive(target, 6, 4 * MIB + 7, receives), 4 * MIB + 7, "bytes")
        task.result()
    unpinned(e)


@case(reference=False, hosts=(1, 2), timeout=120)
def both_ways(e):
    """Blocks of both ends cross: neither end stops reading while its own block waits for a
    reader."""
    near, far = pair(e)
    total = 3 * MIB
    tasks = [e.task(pattern.send, near, 1, total, [200000]), e.task(pattern.send, far, 2, total, [70000]),
             e.task(pattern.receive, near, 2, total, [90000]), e.task(pattern.receive, far, 1, total, [300000])]
    for task in tasks:
        e.equal(task.result(), total, "bytes")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def both_send_first(e):
    """Both programs first send as many bytes as both buffers hold, and then receive. TCP can do the
    same.
    """
    near, far = pair(e)
    data = pattern.Pattern(8).at(0, 100000)
    tasks = [e.task(calls.send, near, data), e.task(calls.send, far, data)]
    for task in tasks:
        e.equal(task.result(), len(data), "bytes sent")
    for sock in (near, far):
        e.equal(pattern.receive(sock, 8, len(data), [len(data)]), len(data), "bytes received")
    unpinned(e)


@case(reference=False, families=("v4",), hosts=(1, 2), timeout=60)
def nobody_reads(e):
    """A send does not wait for a reader if the buffers have space for a copy."""
    near, far = pair(e)
    data = pattern.Pattern(9).at(0, 60000)
    counters = Counters()
    e.equal(calls.send(near, data), len(data), "bytes sent")
    e.equal(counters.gained("zcopy returned"), 1, "blocks that came back")
    e.equal(pattern.receive(far, 9, len(data), [len(data)]), len(data), "bytes received")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def little_by_little(e):
    """A reader with small buffers gets a block as Data."""
    def attempt():
        counters = Counters()
        near, far = pair(e)
        task = e.task(pattern.send, near, 2, MIB, [MIB])
        e.equal(pattern.receive(far, 2, MIB, [100]), MIB, "bytes")
        task.result()
        return counters.gained("zcopy refused")     # or the reader was so slow that the sender timed out and copied
    e.lucky(attempt, "nothing was refused")
    unpinned(e)


@case(reference=False, families=("v4",), hosts=(1, 2), timeout=60, messages=True)
def in_parts(e):
    """One block is read by several receives."""
    def attempt():
        near, far = pair(e)
        counters = Counters()
        task = e.task(pattern.send, near, 2, MIB, [MIB])
        e.equal(pattern.receive(far, 2, MIB, [50000]), MIB, "bytes")
        task.result()
        # or the reader was so slow that the sender timed out and copied
        return counters.gained("received SDP_MID_RDMARDCOMPL") > counters.gained("post_send SDP_MID_SRCAVAIL")
    e.lucky(attempt, "no block was read in parts")
    unpinned(e)


@case(reference=False, families=("v4",), hosts=(1, 2), timeout=60)
def peeked(e):
    """MSG_PEEK leaves the bytes in the stream."""
    near, far = pair(e)
    data = pattern.Pattern(4).at(0, 200000)
    task = e.task(calls.send, near, data)
    e.until(lambda: far.recv(50000, socket.MSG_PEEK) == data[:50000], "so many bytes to look at")
    e.equal(pattern.receive(far, 4, len(data), [len(data)]), len(data), "bytes")
    e.equal(task.result(), len(data), "bytes sent")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def polled(e):
    """Bytes that poll(2) reports can be read without waiting. poll(2) does not report a block that
    only the peer has."""
    near, far = pair(e)
    total = 2 * MIB
    task = e.task(pattern.send, near, 7, total, [total])
    checker = pattern.Checker(7)
    while checker.count < total:
        e.wait(far)
        data = e.outcome(calls.recv, far, 100000, socket.MSG_DONTWAIT)
        e.check(isinstance(data, bytes) and data, f"poll said readable, recv {data!r}")
        checker.feed(data)
    task.result()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def not_waiting(e):
    """A non-blocking reader that does not poll also gets the bytes."""
    near, far = pair(e)
    total = MIB
    task = e.task(pattern.send, near, 7, total, [total])
    checker = pattern.Checker(7)

    def some():
        data = e.outcome(calls.recv, far, 100000, socket.MSG_DONTWAIT)
        if isinstance(data, bytes):
            checker.feed(data)
        return checker.count == total

    e.until(some, "all bytes", patience=40)
    task.result()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def given_back_meanwhile(e):
    """A block is returned while the next block is pinned: bytes of the returned block are sent
    before those of the next block."""
    near, far = pipelined(e)
    first, second = (random.Random(seed).randbytes(MIB) for seed in (1, 2))
    absent = memory.Absent(MIB)
    e.keep(absent)
    counters = Counters()
    task = e.task(near.sendmsg, [first, absent.map])
    e.until(absent.touched, "the sender at the second block")
    # Makes the sender advertise the first block: by an incoming message, or by poll(2) if messages
    # do not notify.
    far.send(b"x")
    e.until(lambda: near.mask() and counters.gained("post_send SDP_MID_SRCAVAIL"), "an advert")

    early = bytearray()

    def is_back():
        with contextlib.suppress(BlockingIOError):
            early.extend(far.recv(MIB, socket.MSG_DONTWAIT))    # bytes of the block may follow at once
        return counters.gained("received SDP_MID_SENDSM")

    e.until(is_back, "the advert's return")
    absent.give(second)
    rest = far.recv_exactly(2 * MIB - len(early))
    e.check(early + rest == first + second, "the bytes came in another order")
    e.equal(task.result(), 2 * MIB, "bytes sent")
    e.equal(counters.gained("tx_bytes"), 2 * MIB + 1, "bytes sent, by the counter")


@case(reference=False, families=("v4",), timeout=60)
def vectors(e):
    """Sends gathered from, and receives scattered to, segments of any size."""
    near, far = pair(e)
    choice = random.Random(2)
    pieces = [choice.choice((0, 1, 5, 4096, 5000, 100000)) for _ in range(60)]
    total = sum(pieces)
    data = pattern.Pattern(5).at(0, total)
    parts, place = [], 0
    for size in pieces:
        parts.append(data[place:place + size])
        place += size

    def give():
        left = [memoryview(part) for part in parts]
        while left:
            sent = os.writev(near.fileno(), left)
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if left:
                left[0] = left[0][sent:]

    task = e.task(give)
    got = bytearray()
    while len(got) < total:
        room = [bytearray(choice.choice((1, 4096, 9000, 200000))) for _ in range(8)]
        count = far.recvmsg_into(room)[0]
        e.check(count, "end of the stream")
        got += b"".join(room)[:count]
    task.result()
    e.check(got == data, "other bytes")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def from_a_file_mapping(e):
    """Sends bytes of a mapped file, shared and private; the peer reads into a shared mapping."""
    near, far = pair(e)
    data = pattern.Pattern(6).at(0, MIB)
    with open("/tmp/zcopy-source", "w+b") as file:
        file.write(data)
        file.flush()
        for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
            with mmap.mmap(file.fileno(), MIB, flags, mmap.PROT_READ) as mapping:
                with memoryview(mapping) as view:
                    task = e.task(near.sendall, view)
                    e.equal(pattern.receive(far, 6, MIB, [MIB]), MIB, "bytes")
                    task.result()
    os.unlink("/tmp/zcopy-source")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def from_a_device(e):
    """Memory of a device has no pages that can be pinned: the memory is copied."""
    near, far = pair(e)
    with memory.of_a_device(e) as device:
        data = device[:]
        counters = Counters()
        with memoryview(device) as view:
            task = e.task(near.sendall, view)
            e.check(far.recv(len(device), socket.MSG_WAITALL) == data, "other bytes")
            task.result()
    e.check(counters.gained("zcopy unpinnable") > 0, "it was pinned")
    e.equal(counters.gained("zcopy tx_bytes"), 0, "bytes not copied")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def memlock(e):
    """Bytes are copied if the program has no right to lock memory."""
    near, far = pair(e)

    def give():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        return pattern.send(near, 5, MIB, [MIB])

    counters = Counters()
    child = e.child(give)
    e.equal(pattern.receive(far, 5, MIB, [MIB]), MIB, "bytes")
    child.result()
    e.check(counters.gained("pin over memlock") >= 1, "the limit was not met")
    e.equal(counters.gained("zcopy tx_bytes"), 0, "bytes not copied")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def bad_address(e):
    """A receive into memory that cannot be written fails, and consumes nothing."""
    near, far = pair(e)
    size = 100000
    calls.libc.mmap.restype = ctypes.c_void_p
    nowhere = calls.libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    task = e.task(pattern.send, far, 5, size, [size])
    e.equal(e.error(calls.recv_at, near, nowhere, size), "EFAULT", "recv")
    e.equal(pattern.receive(near, 5, size, [size]), size, "bytes")
    task.result()
    calls.libc.munmap(ctypes.c_void_p(nowhere), ctypes.c_size_t(size))
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def interrupted(e):
    """A signal ends a send that waits for its reader. Exactly the bytes arrive whose number the
    interrupted call returns."""
    near, far = pair(e)
    data, part = pattern.Pattern(3).at(0, 64 * MIB), 3 * MIB + 5
    checker = pattern.Checker(3)
    task = e.task(lambda: checker.feed(far.recv(part, socket.MSG_WAITALL)))
    (outcome, caught) = e.interrupt_self(lambda: calls.send(near, data), "sendto", when=lambda: checker.count == part)
    task.result()
    e.equal(caught, 1, "signals")
    e.check(isinstance(outcome, int) and part <= outcome < len(data), f"send gave {outcome}")
    near.shutdown(socket.SHUT_WR)
    while piece := far.recv(MIB):
        checker.feed(piece)
    e.equal(checker.count, outcome, "bytes that arrived")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def dissolved(e):
    """connect(AF_UNSPEC) during a send with an advertised block: the send ends, and its pages are
    unpinned."""
    for _ in range(5):
        near, far = pair(e)
        counters = Counters()
        task = e.task(lambda: e.error(pattern.send, near, 5, 64 * MIB, [MIB], socket.MSG_NOSIGNAL))
        e.until(lambda: counters.gained("post_send SDP_MID_SRCAVAIL"), "an advert")
        e.equal(e.error(calls.connect, near, NOWHERE), "ok", "connect(AF_UNSPEC)")
        e.check(task.result() in ("ECONNRESET", "EPIPE"), f"the send gave {task.result()}")
        e.check(e.error(far.drain) in ("ok", "ECONNRESET"), "the reader was not told")
        near.close()
        far.close()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
def killed(e):
    """A sender or a reader dies at any moment: no page stays pinned, and the other end gets an
    error or the end of the stream."""
    choice = random.Random(1)
    for turn in range(e.rounds(12)):
        listener = e.listen()

        def live():
            near = e.connect(listener)
            eager(near)
            if turn % 2:
                pattern.send(near, 5, 1 << 30, [MIB])
            else:
                pattern.receive(near, 5, 1 << 30, [MIB])

        child = e.child(live)
        far, _ = listener.accept()
        eager(far)
        limit = choice.randrange(1, 6 * MIB)
        if turn % 2:
            e.equal(pattern.receive(far, 5, limit, [MIB]), limit, "bytes")
            child.kill()
            e.check(e.error(far.drain) in ("ok", "ECONNRESET"), "the reader was not told")
        else:
            task = e.task(lambda: e.error(pattern.send, far, 5, 1 << 30, [MIB], socket.MSG_NOSIGNAL))
            start = observe.stats("peer")["tx_bytes"]
            e.until(lambda: observe.stats("peer")["tx_bytes"] - start > limit, "some bytes")
            child.kill()
            e.check(task.result() in ("ECONNRESET", "EPIPE"), "the sender was not told")
        far.close()
        listener.close()
    unpinned(e)


def one_end_dies(e, turns, size, least):
    """Kills the sender or the reader in turn after `least(turn)` MiB by calls of `size` bytes. The
    surviving end gets an error or the end of the stream."""
    data = bytes(size)

    def send_on(sock):
        while True:
            sock.send(data, socket.MSG_NOSIGNAL)

    def receive_on(sock):
        room = bytearray(size)
        while sock.recv_into(room, flags=socket.MSG_WAITALL):
            pass

    for turn in range(turns):
        listener = e.listen()
        dying, living = (send_on, receive_on) if turn % 2 else (receive_on, send_on)

        def live():
            near = e.connect(listener)
            eager(near)
            dying(near)

        counters = Counters()
        child = e.child(live)
        far, _ = listener.accept()
        eager(far)
        task = e.task(lambda: e.error(living, far))
        e.until(lambda: counters.gained("tx_bytes") > least(turn) * MIB, "some bytes")
        child.kill()
        e.check(task.result() in ("ok", "ECONNRESET", "EPIPE"), "the other end was not told")
        far.close()
        listener.close()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
def killed_midway(e):
    """One end dies while the other transfers bytes from or to its memory. The surviving end gets an
    error or the end of the stream."""
    one_end_dies(e, e.rounds(16), 16 * MIB, lambda turn: turn % 8 + 1)
