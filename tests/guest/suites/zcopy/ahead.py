# SPDX-License-Identifier: GPL-2.0-only
"""Readers that wait for all of a large room (MSG_WAITALL) and let the peer write to several pieces of it at a time."""

import array
import contextlib
import functools
import itertools
import random
import socket
import struct

from lib import calls, pattern
from lib.registry import case

from .blocks import MIB, Counters, before_it_gives_up, eager, pair, pipelined, unpinned, waiting_reader
from .figures import parameter

ALL = socket.MSG_WAITALL
PIECES = 4
# Larger than what one piece of pinned memory holds.
LARGE = 16 * MIB
# Bytes that are compared at a time.
BLOCK = 65536


def several(function):
    """With as many pieces as there may be."""
    @functools.wraps(function)
    def wrapper(e):
        with parameter("recv_adverts", PIECES):
            function(e)
        unpinned(e)
    return wrapper


def by_write():
    """Senders wait for the reader to advertise its memory. Else they may be ahead of it with what it is to read."""
    return parameter("zcopy_ways", 2)


def whole_pieces(e, least):
    """A call in each direction whose room is scattered, each buffer a piece of its own; the counters of each, with so many pieces
    ahead at least."""
    room = [128 * 1024] * 24
    total = sum(room)
    for make in (pipelined, backwards):
        def attempt():
            nonlocal counters
            source, target = make(e)
            counters = Counters()
            task = e.task(calls.recvmsg, target, room, ALL)
            e.until(lambda: counters.gained("post_send SDP_MID_SINKAVAIL"), "a sink advert")
            data = pattern.Pattern(least).at(0, total)
            source.sendall(data)
            got, buffers, *_ = task.result()
            e.equal(got, total, "bytes")
            e.check(b"".join(buffers) == data, "other bytes")
            for way in ("tx", "rx"):
                e.equal(counters.gained(f"{way}_bytes"), total, f"{way} bytes")
            e.equal(counters.gained("zcopy filled"), counters.gained("zcopy written"), "bytes written")
            source.close()
            target.close()
            # else one lost patience with the other
            return counters.gained("zcopy written") > 0 and counters.gained("zcopy sinks ahead") >= least

        counters = None
        before_it_gives_up(e, attempt)
        yield counters


def backwards(e):
    """As pipelined(), for the other direction: (sender, reader)."""
    near, far = pair(e)
    task = e.task(pattern.send, far, 2, MIB, [MIB])
    left = MIB
    while left:
        e.wait(near)
        left -= len(near.recv(left, socket.MSG_DONTWAIT))
    task.result()
    return far, near


@case(reference=False, timeout=120)
@several
def at_a_time(e):
    """While the peer writes to one piece it knows of others, and has the next bytes in line."""
    with by_write():
        for counters in whole_pieces(e, 6):
            e.check(counters.gained("zcopy queued") > 0, "no bytes stood in line")


@case(reference=False, families=("v4",), timeout=120)
def one_at_a_time(e):
    """With one piece at a time there is none ahead."""
    with parameter("recv_adverts", 1), by_write():
        for counters in whole_pieces(e, 0):
            e.equal(counters.gained("zcopy sinks ahead"), 0, "pieces that were advertised while others were")
            e.equal(counters.gained("zcopy shifted"), 0, "bytes that were moved")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
@several
def large(e):
    """A room of several of the largest pieces, in each direction, whichever end is ahead."""
    for make in (pipelined, backwards):
        source, target = make(e)
        counters = Counters()
        task = e.task(target.recv, LARGE, ALL)
        data = pattern.Pattern(5).at(0, LARGE)
        source.sendall(data)
        e.check(task.result() == data, "other bytes")
        for way in ("tx", "rx"):
            e.equal(counters.gained(f"{way}_bytes"), LARGE, f"{way} bytes")


@case(reference=False, families=("v4",), timeout=60)
def not_without_waitall(e):
    """A call that may return with less has one piece out, however large its room is."""
    with parameter("recv_adverts", PIECES):
        near, far = pipelined(e)
        counters = Counters()
        task = e.task(pattern.receive, far, 3, LARGE, [LARGE])
        e.equal(pattern.send(near, 3, LARGE, [LARGE]), LARGE, "bytes sent")
        e.equal(task.result(), LARGE, "bytes")
        e.equal(counters.gained("zcopy sinks ahead"), 0, "pieces that were advertised while others were")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=240)
@several
def sizes(e):
    """Sends of all sizes, not aligned to anything, into large rooms: pieces come back before they are full."""
    choice = random.Random(11)
    counters = Counters()
    for turn in range(6):
        near, far = pair(e)
        source, target = (near, far)[::1 if turn % 2 else -1]
        large = (MIB, 2 * MIB, 3 * MIB - 5, 2 * MIB + 4096, 5 * MIB + 77)
        sends = [choice.choice(large if turn < 3 else (*large, 1, 100, 4097, 65537)) for _ in range(30)]
        receives = [choice.choice((LARGE, 5 * MIB, 3 * MIB + 1, 9 * MIB - 4095)) for _ in range(10)]
        total = 2 * LARGE + 7
        with by_write() if turn % 3 else contextlib.nullcontext():
            task = e.task(pattern.send, source, turn, total, sends)
            e.equal(pattern.receive(target, turn, total, receives, ALL), total, "bytes")
            task.result()
        source.close()
        target.close()
    e.check(counters.gained("zcopy sinks ahead") > 0, "no piece was advertised while another was")


@case(reference=False, families=("v4",), timeout=240)
@several
def out_of_order(e):
    """Sends that end within a piece, and go on at once with the next one: the bytes are moved to their place."""
    counters = Counters()

    turns = itertools.count()

    def attempt():
        near, far = pipelined(e)
        turn = next(turns)
        sizes = [4 * MIB + 1000 * turn + 1, MIB, 3 * MIB, MIB - 7, 2 * MIB]
        total = sum(sizes)
        task, _ = waiting_reader(e, far, total)
        data = pattern.Pattern(turn).at(0, total)

        def give():
            place = 0
            for size in sizes:
                near.sendall(memoryview(data)[place:place + size])
                place += size
        sender = e.task(give)
        e.check(task.result() == data, "other bytes")
        sender.result()
        near.close()
        far.close()
        return counters.gained("zcopy shifted") > 0

    with by_write():
        e.lucky(attempt, "nothing had to be moved", 120)
    e.equal(counters.gained("zcopy rx_bytes"), counters.gained("zcopy tx_bytes") - counters.gained("zcopy shifted"), "bytes not copied")


@case(reference=False, families=("v4",), timeout=180)
@several
def with_small_ones(e):
    """Both ways at once, with messages of a few bytes between the large ones."""
    near, far = pair(e)
    total = LARGE + 12345
    sends = [5 * MIB, 1, 100, 3 * MIB - 1, 4096, 2 * MIB, 2000, 65536]
    counters = Counters()
    tasks = [e.task(pattern.send, near, 1, total, sends), e.task(pattern.send, far, 2, total, sends[::-1]),
             e.task(pattern.receive, near, 2, total, [7 * MIB, 100, LARGE], ALL), e.task(pattern.receive, far, 1, total, [6 * MIB], ALL)]
    for task in tasks:
        e.equal(task.result(), total, "bytes")
    e.equal(counters.gained("rx_bytes"), 2 * total, "bytes received, by the counter")


@case(reference=False, families=("v4",), timeout=180)
@several
def two_readers(e):
    """Two threads that read from one socket: each byte is given once, and each call's are in order."""
    near, far = pair(e)
    total, room = 3 * LARGE, 5 * MIB
    words = memoryview(array.array("Q", range(total // 8))).cast("B")

    def give():
        place = 0
        for size in (3 * MIB, 8 * MIB, 4096, MIB, 5 * MIB + 8, total):
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
                # a block at a time where that is in one piece
                block = view[place:place + BLOCK]
                size = BLOCK if len(block) == BLOCK and block == words[word * 8:word * 8 + BLOCK] else 8
                e.check(not any(seen[word:word + size // 8]), f"word {word} was given twice")
                seen[word:word + size // 8] = whole[:size // 8]
                behind, place = word + size // 8, place + size
    sender.result()
    e.equal(seen.count(1), total // 8, "words that were given")


@case(reference=False, families=("v4",), timeout=120)
@several
def part_of_it(e):
    """A time-out, a signal, the end of the stream: the call gives what has come, and takes its memory back."""
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
        while len(got) < some:      # on a slow machine it may be over before
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


@case(reference=False, families=("v4",), timeout=60)
@several
def nothing_more(e):
    """A reader to whom nothing more comes takes all of it back, and gets what comes later."""
    near, far = pipelined(e)
    reader = e.task(far.recv, LARGE, ALL)
    data = pattern.Pattern(4).at(0, LARGE)
    near.sendall(memoryview(data)[:5 * MIB])
    unpinned(e)
    near.sendall(memoryview(data)[5 * MIB:])
    e.check(reader.result() == data, "other bytes")


@case(reference=False, families=("v4",), timeout=60)
@several
def urgent(e):
    """No call gives bytes from both sides of the urgent mark, and the stream goes on behind it."""
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


@case(reference=False, families=("v4",), timeout=120)
@several
def vectors(e):
    """Pieces of all sizes: the room is scattered over buffers, and gathered from others."""
    with by_write():
        ahead = [scattered(e, turn) for turn in range(8)]
    e.check(any(ahead), "no piece was advertised while another was")


def scattered(e, turn):
    """Sends from many buffers to many; how many of those were advertised while others were."""
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
    return counters.gained("zcopy sinks ahead")


@case(reference=False, families=("v4",), timeout=240)
@several
def killed(e):
    """A reader with several pieces out dies, or its sender: the other end learns it, and nothing stays pinned."""
    data = bytes(LARGE)

    def send_on(sock):
        while True:
            sock.send(data, socket.MSG_NOSIGNAL)

    def receive_on(sock):
        room = bytearray(LARGE)
        while sock.recv_into(room, flags=ALL):
            pass

    for turn in range(8):
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
        e.until(lambda: counters.gained("tx_bytes") > (turn + 3) * MIB, "some bytes")
        child.kill()
        e.check(task.result() in ("ok", "ECONNRESET", "EPIPE"), "the other end was not told")
        far.close()
        listener.close()
