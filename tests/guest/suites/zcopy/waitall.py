# SPDX-License-Identifier: GPL-2.0-only
"""Readers that wait for all of a large buffer (MSG_WAITALL), which the peer writes to in parts."""

import array
import contextlib
import random
import socket
import struct

from lib import calls, netns, pattern
from lib.registry import case

from .blocks import MIB, Counters, one_end_dies, pair, pipelined, unpinned
from .figures import parameter

ALL = socket.MSG_WAITALL
# Larger than one block of pinned memory.
LARGE = 16 * MIB
# Number of bytes compared at a time.
BLOCK = 65536


def by_write():
    """Makes senders wait for the reader's advert. Without zcopy_ways=2, the senders may send
    before the advert."""
    return parameter("zcopy_ways", 2)


def backwards(e):
    """Does the same as pipelined() for the other direction: returns (sender, reader)."""
    near, far = pair(e)
    task = e.task(pattern.send, far, 2, MIB, [MIB])
    left = MIB
    while left:
        e.wait(near)
        left -= len(near.recv(left, socket.MSG_DONTWAIT))
    task.result()
    return far, near


@case(reference=False, families=("v4",), timeout=120, messages=True)
def large(e):
    """A receive of several maximum blocks, in each direction, with either end first."""
    for make in (pipelined, backwards):
        source, target = make(e)
        counters = Counters()
        task = e.task(target.recv, LARGE, ALL)
        data = pattern.Pattern(5).at(0, LARGE)
        source.sendall(data)
        e.check(task.result() == data, "other bytes")
        for way in ("tx", "rx"):
            e.equal(counters.gained(f"{way}_bytes"), LARGE, f"{way} bytes")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=240, messages=True)
def sizes(e):
    """Unaligned sends of all sizes into large buffers: partly filled blocks are returned before the
    buffers are full."""
    choice = random.Random(11)
    counters = Counters()
    for turn in range(e.rounds(6)):
        near, far = pair(e)
        source, target = (near, far)[::1 if turn % 2 else -1]
        large = (MIB, 2 * MIB, 3 * MIB - 5, 2 * MIB + 4096, 5 * MIB + 77)
        sends = [choice.choice(large if turn < 3 else (*large, 1, 100, 4097, 65537)) for _ in range(30)]
        receives = [choice.choice((LARGE, 5 * MIB, 3 * MIB + 1, 9 * MIB - 4095)) for _ in range(10)]
        total = 2 * LARGE + 7
        with contextlib.nullcontext() if turn % 3 == 1 else by_write():     # a brief run has only turn 0
            task = e.task(pattern.send, source, turn, total, sends)
            e.equal(pattern.receive(target, turn, total, receives, ALL), total, "bytes")
            task.result()
        source.close()
        target.close()
    e.check(counters.gained("zcopy rx_bytes" if netns.is_one() else "zcopy filled") > 0, "nothing was written to a reader's memory")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=180, messages=True)
def with_small_ones(e):
    """Both directions transfer at once, with messages of a few bytes between the large messages."""
    near, far = pair(e)
    total = LARGE + 12345
    sends = [5 * MIB, 1, 100, 3 * MIB - 1, 4096, 2 * MIB, 2000, 65536]
    counters = Counters()
    tasks = [e.task(pattern.send, near, 1, total, sends), e.task(pattern.send, far, 2, total, sends[::-1]),
             e.task(pattern.receive, near, 2, total, [7 * MIB, 100, LARGE], ALL), e.task(pattern.receive, far, 1, total, [6 * MIB], ALL)]
    for task in tasks:
        e.equal(task.result(), total, "bytes")
    e.equal(counters.gained("rx_bytes"), 2 * total, "bytes received, by the counter")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=180, messages=True)
def two_readers(e):
    """Two threads read from one socket: each byte is returned once, and each call's bytes are in
    order.
    """
    near, far = pair(e)
    total, room = 24 * MIB, 3 * MIB
    words = memoryview(array.array("Q", range(total // 8))).cast("B")

    def give():
        place = 0
        for size in (2 * MIB, 4 * MIB, 4096, MIB, 3 * MIB + 8, total):
            near.sendall(words[place:place + size])
            place += size
        near.shutdown(socket.SHUT_WR)

    def take():
        parts = []
        while data := far.recv(room, ALL):
            parts.append(data)
        return parts

    sender, readers = e.task(give), [e.task(take), e.task(take)]
    seen, whole = bytearray(total // 8), b"\1" * (BLOCK // 8)
    for reader in readers:
        behind = 0
        for part in reader.result():
            e.equal(len(part) % 8, 0, "a part of a word")
            view, place = memoryview(part), 0
            while place < len(part):
                word, = struct.unpack_from("=Q", view, place)
                if word < behind:
                    e.check(False, f"word {word} comes before word {behind}")
                # compares a whole block at once if the block's bytes are consecutive, else one word
                block = bytes(view[place:place + BLOCK])
                size = len(block) if block == words[word * 8:word * 8 + len(block)].tobytes() else 8
                e.check(1 not in seen[word:word + size // 8], f"word {word} was given twice")
                seen[word:word + size // 8] = whole[:size // 8]
                behind, place = word + size // 8, place + size
    sender.result()
    e.equal(seen.count(1), total // 8, "words that were given")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120, messages=True)
def part_of_it(e):
    """A time-out, a signal, or the end of the stream ends a call that has some bytes: the call
    returns these bytes, and cancels its advert."""
    some = 5 * MIB + 333
    data = pattern.Pattern(8).at(0, some + MIB)

    def attempt(end):
        near, far = pipelined(e)
        counters = Counters()
        sender = e.task(near.sendall, memoryview(data)[:some])
        got = end(near, far, lambda: counters.gained("rx_bytes") == some)
        sender.result()
        e.check(got == data[:some], f"{end.__name__}: {len(got)} bytes, or other ones")
        unpinned(e)
        return near, far

    def timed(near, far, _):
        got = b""
        while len(got) < some:      # on a slow machine the transfer may end earlier
            far.set(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 500_000))
            part = e.outcome(calls.recv, far, LARGE - len(got), ALL)
            got += part if isinstance(part, bytes) else b""
        far.set(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 0))
        return got

    def interrupted(near, far, came):
        got, caught = e.interrupt_self(lambda: calls.recv(far, LARGE, ALL), "recvfrom", when=came)
        e.equal(caught, 1, "signals")
        return got

    def ended(near, far, came):
        reader = e.task(far.recv, LARGE, ALL)
        e.until(came, "the bytes")
        near.shutdown(socket.SHUT_WR)
        return reader.result()

    for end in (timed, interrupted):
        near, far = attempt(end)
        sender = e.task(near.sendall, memoryview(data)[some:])
        e.check(far.recv(MIB, ALL) == data[some:], f"{end.__name__}: the bytes behind")
        sender.result()
    _, far = attempt(ended)
    e.equal(far.recv(1), b"", "the end")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def urgent(e):
    """No call returns bytes from both sides of the urgent mark, and the stream continues after it.
    """
    near, far = pair(e)
    first, second = 7 * MIB + 99, 9 * MIB - 1
    data = pattern.Pattern(6).at(0, first + second)

    def give():
        near.sendall(memoryview(data)[:first])
        near.send(b"!", socket.MSG_OOB)
        near.sendall(memoryview(data)[first:])
    sender = e.task(give)
    got = b""
    while len(got) < first + second:
        part = far.recv(LARGE, ALL) if len(got) < first else far.recv(first + second - len(got), ALL)
        e.check(part, "the end")
        e.check(len(got) >= first or len(got) + len(part) <= first, "bytes from both sides of the mark")
        got += part
    e.check(got == data, "other bytes")
    sender.result()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120, messages=True)
def vectors(e):
    """Segments of all sizes: receives are scattered over buffers, sends gathered from others."""
    with by_write():
        filled = [scattered(e, turn) for turn in range(8)]
    e.check(any(filled), "nothing was written to a reader's memory")
    unpinned(e)


def scattered(e, turn):
    """Sends data from many buffers to many. Returns the number of bytes received."""
    choice = random.Random(turn)
    small, large = (100, 4097, 5000, 65536), (200_000, 700_001, MIB)
    near, far = pipelined(e)
    counters = Counters()
    sizes = (*small, *large) if turn % 2 else large
    room = [choice.choice(sizes) for _ in range(16)]
    total = sum(room)
    data = pattern.Pattern(turn).at(0, total)
    reader = e.task(calls.recvmsg, far, room, ALL)
    left, place = [], 0
    while place < total:
        size = choice.choice(sizes)
        left.append(memoryview(data)[place:place + size])
        place += size
    if turn % 2 == 0:
        e.until(lambda: counters.gained("post_send SDP_MID_SINKAVAIL"), "a sink advert")
    while left:
        sent = near.sendmsg(left[:8])
        while left and sent >= len(left[0]):
            sent -= len(left.pop(0))
        if left:
            left[0] = left[0][sent:]
    got, buffers, *_ = reader.result()
    e.equal(got, total, "bytes")
    e.check(b"".join(buffers) == data, "other bytes")
    return counters.gained("zcopy filled")


@case(reference=False, families=("v4",), timeout=240, messages=True)
def killed(e):
    """A reader with an advert dies, or its sender dies: the other end gets an error or the end of
    the stream, and no page stays pinned."""
    one_end_dies(e, 8, LARGE, lambda turn: turn + 3)
