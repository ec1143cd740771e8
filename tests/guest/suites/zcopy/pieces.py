# SPDX-License-Identifier: GPL-2.0-only
"""Sends of many segments without a copy: MSG_ZEROCOPY, protected blocks and blocking sends.
Segments that meet at page borders form one block. Other segments are a block each, unless they are
copied because there are many."""

import ctypes
import mmap
import os
import random
import resource
import threading

from lib import consts, memory, netns
from lib.registry import case
from suites.zcopy import protected as single
from suites.zcopy.blocks import Counters, unpinned
from suites.zcopy.notified import Told, asking
from suites.zcopy.protected import LIBC, MREMAP_FIXED, MREMAP_MAYMOVE, TCP, receive, view, write

KIB, MIB, PAGE = 1024, 1 << 20, mmap.PAGESIZE
# Size of the segments together, and with a page between each two.
ALL = 4 * MIB
APART = [(n * 17 * PAGE, 16 * PAGE) for n in range(16)]


class Pieces:
    """Segments of a mapping: offset and length of each."""

    def __init__(self, places, m=None):
        self.m, self.places = m or memory.Raw(ALL).fill(len(places)), places

    @property
    def bytes(self):
        content = self.m.bytes
        return b"".join(content[start:start + length] for start, length in self.places)

    def vector(self):
        return [view(self.piece(n)) for n in range(len(self.places))]

    def piece(self, n):
        start, length = self.places[n]
        return memory.Raw.at(self.m.address + start, length)


def choosing(ends, threshold):
    """Makes the two ends; the first end uses zero copy from the given number of bytes on, or by
    measurement."""
    if threshold is not None:
        ends[0].set(TCP, consts.SDP_ZCOPY_THRESH, threshold)
    return ends


class Notified:
    """By MSG_ZEROCOPY."""

    name, flags, counter = "MSG_ZEROCOPY", consts.MSG_ZEROCOPY, "received SDP_MID_SRCAVAIL"

    def __init__(self, e, threshold=65536):
        self.near, self.far = choosing(asking(e), threshold)
        self.told = Told(e, self.near)


class Protected:
    """By AZ-SDP."""

    name, flags, counter, told = "AZ-SDP", 0, "async blocks", None

    def __init__(self, e, threshold=65536):
        self.near, self.far = choosing(e.pair(), threshold)
        self.near.set(TCP, consts.SDP_ASYNC_SEND, 1)


class Blocking:
    """Blocking sends."""

    name, flags, counter, told = "a blocking send", 0, "received SDP_MID_SRCAVAIL", None

    def __init__(self, e, threshold=65536):
        self.near, self.far = choosing(e.pair(), threshold)


def send(way, pieces):
    return way.near.sendmsg(pieces.vector(), [], way.flags)


def arrive(e, way, pieces, blocks, what):
    """Checks that the bytes arrive and that the given number of blocks exist before the first read;
    returns the codes of the notifications."""
    counters, want, codes = Counters(), pieces.bytes, None
    task = e.task(send, way, pieces)
    e.until(lambda: counters.gained(way.counter) >= blocks, f"{what}: the blocks")
    receive(e, way.far, want, what)
    e.equal(task.result(), len(want), f"{what}: bytes sent")
    e.equal(counters.gained(way.counter), blocks, f"{what}: blocks")
    e.equal(counters.gained("zcopy unpinnable"), 0, f"{what}: pins in vain")
    if way.told:
        codes = way.told.wait(1)
    way.near.close()
    way.far.close()
    unpinned(e)
    return codes


def with_empty_ones():
    places = list(APART)
    for at in (16, 9, 9, 1, 0):
        places.insert(at, (at * PAGE + 5, 0))
    return places


def cut():
    """The first segment begins within a page, and the last segment ends within a page."""
    return [(100, 16 * PAGE - 100), *APART[1:-1], (APART[-1][0], 15 * PAGE + 5)]


# Description of the segments, the segments, and their number of blocks by each method.
KINDS = {
    "with borders between pages": (APART, 1, 1),
    "with empty ones": (with_empty_ones(), 1, 1),
    "cut at the ends": (cut(), 1, 1),
    "in another order": ([*APART[8:], *APART[:8]], 1, 1),
    "with borders within pages": ([(n * 160_000 + 1000, 150_000) for n in range(6)], 6, 6),
    "one with a border within a page": ([*APART[:5], (APART[5][0], 15 * PAGE + 9), *APART[6:]], 2, 2),
    # a single segment may be too small to be protected
    "small": ([(n * 2 * PAGE, PAGE) for n in range(64)], 1, 0),
    "small within pages": ([(n * 2 * PAGE + 8, PAGE - 8) for n in range(64)], 0, 0),
    "many": ([(n * 9 * PAGE, 8 * PAGE) for n in range(40)], 1, 3),
    "the same more than once": ([APART[0], APART[0], (8 * PAGE, 8 * PAGE), APART[1], (0, 8 * PAGE), (7 * PAGE, 4 * PAGE)], 1, 1),
    "of more than a block": ([(n * 33 * PAGE, 32 * PAGE) for n in range(24)], 2, 2),
}


@case(reference=False, families=("v4",), timeout=120, messages=True)
def notified(e):
    """MSG_ZEROCOPY: the bytes that arrive, and the number of blocks."""
    for what, (places, blocks, _) in KINDS.items():
        arrive(e, Notified(e), Pieces(places), blocks, what)


@case(reference=False, families=("v4",), timeout=120)
def protected(e):
    """Like `notified`, but for asynchronous sends."""
    for what, (places, _, blocks) in KINDS.items():
        arrive(e, Protected(e), Pieces(places), blocks, what)


@case(reference=False, families=("v4",), timeout=60)
def blocking(e):
    """A blocking send has one advert for all its segments, except if segments stay pinned
    separately, as on local connections."""
    if netns.local():
        e.skip("segments stay pinned separately")
    for what in ("with borders between pages", "with empty ones", "cut at the ends", "in another order"):
        arrive(e, Blocking(e), Pieces(KINDS[what][0]), 1, what)


SCATTERED = [(n * 62_000 + 1000, 60_000) for n in range(16)]


@case(reference=False, families=("v4",), timeout=60, messages=True)
def too_small(e):
    """Many segments that cannot form one block are copied if no single segment would use zero copy.
    Notifications report that the segments were copied. A segment that makes up most of the call is
    sent as if it were alone.
    """
    for kind in (Notified, Protected, Blocking):
        for threshold in (65536, None, 0):
            codes = arrive(e, kind(e, threshold), Pieces(SCATTERED), 0, f"{kind.name}, {threshold}")
            e.equal(codes, [1] if codes else None, "told as copied")
    for threshold in (65536, None, 0):
        for places in ([(8, 100), (PAGE, 5 * PAGE)], [(PAGE, 5 * PAGE), (8, 100)], [(8, 100), (500, 10), (7 * PAGE + 1, 5 * PAGE), (17, 3)]):
            arrive(e, Notified(e, threshold), Pieces(places), 1, f"one, {places}")


@case(reference=False, families=("v4",), timeout=240)
def as_it_pays(e):
    """Without a threshold, blocks of many segments are tried like other sends, so that the
    connection measures them."""
    pieces = Pieces([(n * 70_000 + 1000, 66_000) for n in range(16)])
    for kind in (Notified, Blocking):
        way, counters, want = kind(e, None), Counters(), pieces.bytes

        def sender():
            # fills buffers, waits for the first trial, and makes the trial
            for _ in range(21):
                e.equal(send(way, pieces), len(want), "sent")

        task = e.task(sender)
        for turn in range(21):
            receive(e, way.far, want, f"{kind.name}, {turn}")
        task.result()
        direct = counters.gained("zcopy tx_bytes")
        e.check(0 < direct, f"{kind.name}: all was copied")
        way.near.close()
        way.far.close()
        unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def in_large_pages(e):
    """Sends segments of one large page, which is pinned as a whole."""
    m = memory.Raw(ALL)
    LIBC.madvise(m.address, m.size, mmap.MADV_HUGEPAGE)
    m.fill(3)
    for kind in (Notified, Protected):
        arrive(e, kind(e), Pieces(APART, m), 1, kind.name)
    arrive(e, Protected(e), Pieces(KINDS["the same more than once"][0], m), 1, "more than once")


@case(reference=False, families=("v4",), timeout=60)
def with_a_hole(e):
    """A call's memory ends within a segment: the bytes before the end are sent, and no bytes after
    it."""
    for kind in (Notified, Protected):
        for start, length, good in ((4 * 17 * PAGE + 8 * PAGE, PAGE, 4 * 64 * KIB + 8 * PAGE), (2 * 17 * PAGE, 16 * PAGE, 2 * 64 * KIB)):
            pieces = Pieces(APART)
            want = pieces.bytes[:good]
            LIBC.munmap(pieces.m.address + start, length)
            way = kind(e)
            task = e.task(send, way, pieces)
            receive(e, way.far, want, f"{kind.name}: {start}")
            e.equal(task.result(), good, f"{kind.name}: bytes sent")
            way.near.close()
            e.equal(way.far.recv(1), b"", "the end")
        way = kind(e)
        e.equal(e.error(send, way, Pieces([(start, length), *APART[3:]], pieces.m)), "EFAULT", "nothing but a hole")
    unpinned(e)


def in_flight(e):
    """Sends segments as one block to a peer that does not read. Returns the peer, the segments and
    their bytes."""
    way, pieces, counters = Protected(e), Pieces(APART), Counters()
    want = pieces.bytes
    e.equal(send(way, pieces), len(want), "sent")
    e.equal(counters.gained("async blocks"), 1, "blocks")
    return way.far, pieces, want


@case(reference=False, families=("v4",), timeout=60)
def written_in_flight(e):
    """A write to any segment waits, but not for a reader. The peer receives the bytes as they were
    sent. Memory between the segments is not protected."""
    for n in (1, 15, 0):
        far, pieces, want = in_flight(e)
        counters = Counters()
        write(pieces.m, 16 * PAGE, 0x55, PAGE)
        write(pieces.m, 17 * 16 * PAGE, 0x55, PAGE)
        e.equal(counters.gained("async touched"), 0, "touches of what is between them")
        e.task(write, pieces.piece(n), PAGE + 5, 0x55, 2 * PAGE).result()
        e.equal(pieces.piece(n).bytes[PAGE + 5:3 * PAGE + 5], b"U" * 2 * PAGE, "written")
        e.check(counters.gained("async touched") > 0, "nobody has waited")
        receive(e, far, want, f"bytes with a write to {n}")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def changed_in_flight(e):
    """The program unmaps one segment and moves another. Later writes to the addresses of unmapped
    and moved segments do not arrive."""
    far, pieces, want = in_flight(e)
    pieces.piece(3).unmap()
    piece, to = pieces.piece(5), memory.Raw(16 * PAGE)
    LIBC.mremap(piece.address, piece.size, piece.size, MREMAP_MAYMOVE | MREMAP_FIXED, to.address)
    e.task(write, to, 0, 3, to.size).result()
    receive(e, far, want)
    e.check(to.bytes == b"\3" * to.size, "written")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def pinned_by_others(e):
    """A block is not protected if other users pin one of its segments."""
    pieces = Pieces(APART)
    parameters = ctypes.create_string_buffer(120)
    ring = LIBC.syscall(425, 4, parameters)                     # io_uring_setup
    if ring < 0:
        e.skip("no io_uring")
    piece = pieces.piece(7)
    e.equal(LIBC.syscall(427, ring, 0, (ctypes.c_size_t * 2)(piece.address, PAGE), 1), 0, "io_uring_register")
    way, counters, want = Protected(e), single.Counters(), pieces.bytes
    task = e.task(send, way, pieces)
    receive(e, way.far, want)
    task.result()
    e.equal(counters.gained("async unprotected pinned"), 1, "refused")
    e.equal(counters.gained("async blocks"), 0, "blocks")
    os.close(ring)
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def memlock(e):
    """Segments in flight count for RLIMIT_MEMLOCK: all their pages, and two more as the kernel
    counts.
    """
    way, counters = Protected(e), Counters()
    first, second, third = (Pieces(APART) for _ in range(3))
    want = first.bytes

    def sender():
        limit = MIB + 2 * PAGE
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        send(way, first)
        send(way, second)
        way.near.recv(1)
        send(way, third)

    task = e.child(sender)
    e.until(lambda: counters.gained("pin over memlock"), "the second block")
    e.equal(counters.gained("async blocks"), 1, "blocks")
    receive(e, way.far, 2 * want, "the first two")
    unpinned(e)
    way.far.send(b"x")
    e.until(lambda: counters.gained("async blocks") == 2, "the third block")
    receive(e, way.far, want, "the third")
    task.result()
    unpinned(e)


def dice(rng):
    """Returns some segments, most of them page-aligned."""
    places, at = [], 0
    while len(places) < rng.randint(1, 24) and at < ALL - 64 * PAGE:
        start, length = at, rng.choice((1, 4, 8, 16, 32)) * PAGE
        if rng.random() < 0.15:
            start, length = start + rng.choice((1, 77)), length - rng.choice((0, 100))
        if rng.random() < 0.1:
            length = 0
        places.append((start, length))
        at = start + length + rng.choice((0, 1, 2)) * PAGE
        at += -at % PAGE
    return places


@case(reference=False, families=("v4",), timeout=240)
def stress(e):
    """Segments are overwritten as soon as send returns: no new byte ever arrives. The first segment
    is overwritten before the receiver reads."""
    counters, touched = Counters(), threading.Event()
    for seed in range(e.rounds(16)):
        rng = random.Random(seed)
        way = Protected(e)
        turns = [Pieces([(0, 32 * PAGE)]), *(Pieces(dice(rng)) for _ in range(3))]
        wants = [pieces.bytes for pieces in turns]

        def sender():
            for pieces, want in zip(turns, wants):
                vector, left = pieces.vector(), len(want)
                e.equal(way.near.sendmsg(vector, [], 0), left, "sent")
                for n in rng.sample(range(len(vector)), 1):
                    piece = pieces.piece(n)
                    write(piece, 0, 0xAA, piece.size)
                touched.set()

        task = e.task(sender)
        touched.wait(e.patience)
        for want in wants:
            receive(e, way.far, want, f"seed {seed}")
        task.result()
        way.near.close()
        way.far.close()
    for name in ("blocks", "touched"):
        e.check(counters.gained(f"async {name}") > 0, f"async {name} is 0")
    unpinned(e)
