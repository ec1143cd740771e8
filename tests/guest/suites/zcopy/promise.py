# SPDX-License-Identifier: GPL-2.0-only
"""Ways in which bytes that a program writes after send(2) has returned could arrive: pins, and lost
protection."""

import ctypes
import fcntl
import mmap
import os
import re
import struct
import threading
import time

from lib import consts, memory
from lib.registry import case
from suites.zcopy.blocks import unpinned
from suites.zcopy.protected import (LIBC, MIB, MREMAP_FIXED, MREMAP_MAYMOVE, PAGE, TCP, Counters, in_flight, pair, receive, view,
                                    write)

PAGES = MIB // PAGE


def registered(m):
    """Returns an io_uring descriptor that may write to the memory without using page tables."""
    ring = LIBC.syscall(425, 4, ctypes.create_string_buffer(120))       # io_uring_setup
    vector = (ctypes.c_size_t * 2)(m.address, m.size)
    if ring >= 0 and LIBC.syscall(427, ring, 0, vector, 1):             # io_uring_register: buffers
        raise OSError(ctypes.get_errno(), "io_uring_register")
    return ring


def unmaps(m):
    m.unmap()
    if LIBC.mmap(m.address, m.size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | memory.MAP_FIXED, -1, 0) != m.address:
        raise OSError(ctypes.get_errno(), "mmap")


def discards(m):
    m.discard()


def moves_away(m):
    to = memory.Raw(m.size)
    LIBC.mremap(m.address, m.size, m.size, MREMAP_MAYMOVE | MREMAP_FIXED, to.address)
    m.replace()


@case(reference=False, families=("v4",), timeout=90)
def pinned_behind_a_block(e):
    """A block in flight proves nothing about pages outside the block. Memory that io_uring has
    since pinned at the block's address is refused: after munmap(2), MADV_DONTNEED or mremap(2)."""
    for change in (unmaps, discards, moves_away):
        near, far, m, want = in_flight(e)
        other, end = pair(e)
        change(m)
        m.fill(11)
        ring = registered(m)
        if ring < 0:
            e.skip("no io_uring")
        counters = Counters()
        task = e.task(other.send, view(m))
        e.until(lambda c=counters: c.gained("async unprotected pinned"), f"{change.__name__}: the refusal")
        receive(e, end, m.bytes, change.__name__)
        task.result()
        e.equal(counters.gained("async blocks"), 0, f"{change.__name__}: blocks")
        receive(e, far, want, f"{change.__name__}: the first block")
        os.close(ring)
        for sock in (near, far, other, end):
            sock.close()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
def sent_to_many(e):
    """Several connections send the same memory at once. No send mistakes the pins of the other
    sends for pins that write."""
    m, rounds, pairs = memory.Raw(MIB).fill(12), 25, [pair(e) for _ in range(4)]
    want, counters = m.bytes, Counters()

    def sends(near):
        for _ in range(rounds):
            near.sendall(view(m))

    tasks = [e.task(sends, near) for near, _ in pairs]
    readers = [e.task(lambda end=far: [receive(e, end, want) for _ in range(rounds)]) for _, far in pairs]
    for task in tasks + readers:
        task.result()
    gained = {name: counters.gained(f"async {name}") for name in ("blocks", "unprotected pinned", "unprotected busy")}
    e.equal(gained["unprotected pinned"], 0, f"refusals, of {gained}")
    e.check(gained["blocks"] >= 0.8 * rounds * len(pairs), f"of {rounds * len(pairs)} blocks: {gained}")


@case(reference=False, families=("v4",), timeout=60)
def sent_beside_others(e):
    """Pins of blocking sends and of MSG_ZEROCOPY also belong to this module."""
    near, far = pair(e)
    other, end = e.pair()
    other.set(TCP, consts.SDP_ZCOPY_THRESH, 65536)
    m = memory.Raw(MIB).fill(13)
    want, counters = m.bytes, Counters()
    near.send(view(m))
    receive(e, far, want)
    waits = e.task(other.sendall, view(m))
    waits.wait_asleep("sendto")
    near.send(view(m))
    e.equal(counters.gained("async unprotected pinned"), 0, "refusals")
    receive(e, end, want, "the one that waits")
    waits.result()
    receive(e, far, want)


class Tracker:
    """A userfaultfd of the program that write-protects memory."""

    REGISTER, WRITEPROTECT, WP = 0xC020AA00, 0xC018AA06, 2

    def __init__(self, m):
        self._descriptor = LIBC.syscall(consts.system_calls()["userfaultfd"], os.O_CLOEXEC | os.O_NONBLOCK)
        fcntl.ioctl(self._descriptor, memory.Absent.API, struct.pack("=QQQ", 0xAA, 1, 0))
        fcntl.ioctl(self._descriptor, self.REGISTER, struct.pack("=QQQQ", m.address, m.size, self.WP, 0))
        fcntl.ioctl(self._descriptor, self.WRITEPROTECT, struct.pack("=QQQ", m.address, m.size, 1))

    def close(self):
        os.close(self._descriptor)


def protected_pages(m):
    """Returns the number of the memory's pages that a userfaultfd write-protects."""
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        entries = os.pread(file.fileno(), m.size // PAGE * 8, m.address // PAGE * 8)
    return sum(entry >> 57 & 1 for entry, in struct.iter_unpack("=Q", entries))


@case(reference=False, families=("v4",), timeout=60)
def beside_another_userfaultfd(e):
    """The end of a block does not unprotect memory that replaced the block and that the program
    tracks by its own userfaultfd."""
    near, far, m, want = in_flight(e)
    unmaps(m)
    m.fill(14)
    tracker = Tracker(m)
    e.equal(protected_pages(m), PAGES, "pages that the program protects")
    receive(e, far, want)
    unpinned(e)
    time.sleep(0.5)
    e.equal(protected_pages(m), PAGES, "pages that it still protects")
    tracker.close()


def arguments():
    """Returns the address of the module's page in the calling process. Children and core dumps do
    not contain the module's page."""
    with open("/proc/self/smaps") as file:
        for line in file:
            if re.match("[0-9a-f]+-", line):
                start, end = (int(word, 16) for word in line.split()[0].split("-"))
            elif line.startswith("VmFlags:") and end - start == PAGE and {"wr", "dc", "dd"} <= set(line.split()):
                return memory.Raw.at(start, PAGE)
    raise LookupError("the module's page")


def loses_the_page(e, seconds):
    """Makes the module's page unreadable for the given time, while a block ends and another block
    is in flight."""
    near, far, m, want = in_flight(e)
    other, end = pair(e)
    second = memory.Raw(MIB).fill(15)
    contents = second.bytes
    other.send(view(second))
    page = arguments()
    page.protect(0)     # PROT_NONE
    timer = threading.Timer(seconds, page.protect, (mmap.PROT_READ | mmap.PROT_WRITE,)) if seconds else None
    if timer:
        timer.start()
    receive(e, end, contents, "the second block")
    time.sleep(0.3)
    e.equal(protected_pages(m), PAGES, "pages that are protected")
    task = e.task(write, m, 0, 0x66, m.size)
    receive(e, far, want)
    task.result()
    e.task(write, second, 0, 0x66, second.size).result()
    if timer:
        timer.join()
        counters = Counters()
        near.send(view(m))
        e.equal(counters.gained("async blocks"), 1, "blocks afterwards")
        receive(e, far, m.bytes)
    return True


@case(reference=False, families=("v4",), timeout=90)
def page_not_there(e):
    """The module's page cannot be read for a moment, as during page migration, or never again.
    Blocks in flight stay protected while the module's page cannot be read."""
    for seconds in (0.2, None):
        e.check(e.child(loses_the_page, e, seconds).result(), f"the child, {seconds}")
    unpinned(e)
