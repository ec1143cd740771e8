# SPDX-License-Identifier: GPL-2.0-only
"""Memory that is remapped, or moved to another owner, while a blocking call uses it.

A transfer between the pages of two programs uses the pages that the call found: the content of
these pages is sent, and received bytes are written to these pages, even if other pages have
replaced them in the address space. A call that copies after all finds the current pages, as on TCP.
"""

import mmap
import os
import socket

from lib import calls, consts, netns, observe, pattern
from lib.kmsg import Log
from lib.memory import PAGE, Raw
from lib.registry import case

from .blocks import MIB, Counters, before_it_gives_up, pair, pipelined, unpinned
from .figures import parameter
from .notified import Told, asking

SIZE = 100 * PAGE


class File(Raw):
    """Shared memory of a file."""

    def __init__(self, size):
        self.descriptor = os.memfd_create("changed")
        os.ftruncate(self.descriptor, size)
        super().__init__(size, mmap.MAP_SHARED, self.descriptor)

    def truncate(self):
        """After truncation, the file has new pages of zeros."""
        os.ftruncate(self.descriptor, 0)
        os.ftruncate(self.descriptor, self.size)

    def unmap(self):
        super().unmap()
        os.close(self.descriptor)


def locked(memory):
    """Makes access to the memory forbidden."""
    memory.protect(0)


def forked(memory):
    """A child writes to its copy of the memory first."""
    child = os.fork()
    if child == 0:
        memory.bytes = bytes([9]) * memory.size
        os._exit(0)
    os.waitpid(child, 0)


# Change of the memory, its kind, and true if the program still sees the same pages afterwards.
CHANGES = ((Raw.replace, Raw, False), (Raw.discard, Raw, False), (File.truncate, File, False), (locked, Raw, True), (forked, Raw, True))


@case(reference=False, families=("v4",), timeout=120, messages=True)
def to_be_sent(e):
    """Memory that a sender has advertised: the peer reads its content at the time of the send."""
    def attempt(change, kind):
        near, far = pair(e)
        counters, memory = Counters(), kind(SIZE)
        before = memory.fill(1).bytes
        task = e.task(e.outcome, calls.send_at, near, memory.address, SIZE)
        e.until(lambda: counters.gained("post_send SDP_MID_SRCAVAIL"), "an advert")
        change(memory)
        reader = e.task(far.recv, SIZE, socket.MSG_WAITALL)
        e.until(lambda: not (task.is_alive() and reader.is_alive()), "the end of one of the two calls")
        if task.is_alive() or task.result() != SIZE:
            near.shutdown(socket.SHUT_WR)
        sent, got = task.result(), reader.result()
        if counters.gained("zcopy rx_bytes") != SIZE:
            # the block was taken back, and its new content copied as far as possible
            e.check(sent == "EFAULT" and not got or sent == len(got), f"the call gave {sent}, and {len(got)} bytes came")
            memory.unmap()
            return False
        e.equal(sent, SIZE, "bytes sent")
        e.check(got == before, f"{change.__name__}: other bytes than were there")
        memory.unmap()
        return True

    for change, kind, _ in CHANGES:
        before_it_gives_up(e, lambda: attempt(change, kind))
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120, messages=True)
def to_be_filled(e):
    """A reader has advertised its memory: memory that replaces it in the address space is not
    written to.
    """
    def attempt(change, kind, same):
        near, far = pipelined(e)
        counters, memory = Counters(), kind(SIZE)
        memory.fill(1)
        task = e.task(calls.recv_at, far, memory.address, SIZE, socket.MSG_WAITALL)
        e.until(lambda: counters.gained("post_send SDP_MID_SINKAVAIL"), "a sink advert")
        change(memory)
        data = pattern.Pattern(2).at(0, SIZE)
        sender = e.task(near.sendall, data)
        got = e.outcome(task.result)
        near.close()
        direct = counters.gained("zcopy filled") == SIZE
        if direct:
            e.equal(got, SIZE, "bytes received")
            memory.protect(mmap.PROT_READ | mmap.PROT_WRITE)
            e.check(memory.bytes == (data if same else bytes(SIZE)), f"{change.__name__}: other bytes")
        else:
            e.check(got in (SIZE, "EFAULT"), f"{change.__name__}: the call gave {got}")
            e.error(sender.result)
        memory.unmap()
        return direct

    for change, kind, same in CHANGES:
        before_it_gives_up(e, lambda: attempt(change, kind, same))
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
def under_way(e):
    """Memory of a send that has returned (MSG_ZEROCOPY): the peer, waiting or polling, reads the
    pages of the time of the send."""
    for change, kind, _ in CHANGES:
        for polls in (False, True):
            near, far = asking(e)
            told, memory = Told(e, near), kind(SIZE)
            before = memory.fill(1).bytes
            e.equal(calls.send_at(near, memory.address, SIZE, consts.MSG_ZEROCOPY | socket.MSG_DONTWAIT), SIZE, "bytes sent")
            e.check(observe.stats("self")["pinned pages send"] > 0, "nothing is under way")
            change(memory)
            got = b""
            while polls and len(got) < SIZE:
                e.wait(far)
                got += far.recv(SIZE, socket.MSG_DONTWAIT)
            got = got or far.recv_exactly(SIZE)
            e.check(got == before, f"{change.__name__}: other bytes than were there")
            told.wait(1)
            memory.unmap()
            near.close()
            far.close()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def stack(e):
    """The stack, including addresses below its used part: the stack grows as for any other call."""
    near, far = pair(e)
    data = pattern.Pattern(3).at(0, 15 * PAGE)

    def deep():
        with open("/proc/self/maps") as maps:
            lowest = next(int(line.split("-")[0], 16) for line in maps if line.endswith("[stack]\n"))
        room = Raw.at(lowest - len(data), len(data))
        got = calls.recv_at(far, room.address, room.size, socket.MSG_WAITALL)
        same = room.bytes == data
        # sends again, now that the memory is mapped and a block can be read from it
        got += calls.recv_at(far, room.address, room.size, socket.MSG_WAITALL)
        room.bytes = data
        return got, same, calls.send_at(far, room.address, room.size)

    log = Log()
    child = e.child(deep)
    near.sendall(data)
    near.sendall(data)
    e.check(near.recv(len(data), socket.MSG_WAITALL) == data, "other bytes came from the stack")
    e.equal(child.result(), (2 * len(data), True, len(data)), "calls and bytes")
    said = [line for line in log.lines() if "grows the stack" in line]
    e.equal(said, [], "what the kernel said of that")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
def out_of_budget(e):
    """More calls than the limits of both directions allow: the excess bytes are copied, and no call
    waits for another call."""
    # a local reader pins nothing
    ways = ("send",) if netns.is_one() else ("send", "receive")
    names = [f"max_pinned_{way}{whose}" for way in ways for whose in ("", "_user")]
    counters = Counters()
    for name in names:
        with parameter(name, 0):
            pairs = [pair(e) for _ in range(4)]
            total, tasks = 6 * MIB, []
            for turn, ends in enumerate(pairs):
                for source, target in (ends, ends[::-1]):
                    tasks.append(e.task(pattern.send, source, turn, total, [MIB]))
                    tasks.append(e.task(pattern.receive, target, turn, total, [MIB], socket.MSG_WAITALL))
            for task in tasks:
                e.equal(task.result(), total, "bytes")
            e.check(sum(observe.info(sock)["unpinnable"] for ends in pairs for sock in ends) > 0, f"{name}: no socket says so")
            for sock in (sock for ends in pairs for sock in ends):
                sock.close()
    e.check(counters.gained("pin over budget") > 0, "nothing was refused")
    e.check(counters.gained("zcopy rx_bytes") > 0, "and nothing went on without a copy")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
def short_memory(e):
    """Memory that stays pinned between transfers is released when memory is short, automatically
    and on request."""
    def kept():
        told = observe.stats()
        return told["pinned pages send"] + told["pinned pages recv"]

    start, go = os.pipe()

    def hog():
        """Allocates memory until the kernel reclaims some; the OOM killer would select this process
        first.
        """
        os.read(start, 1)
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
        most, taken = kept(), []
        while kept() >= most:
            taken.append(mmap.mmap(-1, 16 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
        return len(taken)

    with parameter("pin_cache", 1):
        near, far = pair(e)
        memory = mmap.mmap(-1, 8 * MIB)
        memory[:] = pattern.Pattern(1).at(0, len(memory))
        child, before = e.child(hog), kept()     # forks only now, because a fork changes the mappings of the parent
        for _ in range(10):
            task = e.task(pattern.receive, far, 1, len(memory), [MIB], socket.MSG_WAITALL)
            near.sendall(memory)
            e.equal(task.result(), len(memory), "bytes")
            if kept() > before:
                break
        else:
            e.check(False, "nothing was kept")
        os.write(go, b"x")
        e.check(child.result() > 0, "it took no more memory")
        task = e.task(pattern.receive, far, 1, len(memory), [MIB], socket.MSG_WAITALL)
        near.sendall(memory)
        e.equal(task.result(), len(memory), "bytes afterwards")
        near.close()
        far.close()
        memory.close()
    os.close(start)
    os.close(go)
    unpinned(e)
