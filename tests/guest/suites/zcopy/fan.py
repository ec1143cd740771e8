# SPDX-License-Identifier: GPL-2.0-only
"""One source sends to several peers: a registered buffer of io_uring, a file, or a pipe. No byte is
copied, the pages of the source are pinned once, and a peer that stops or dies affects only its own
connection."""

import ctypes
import fcntl
import os
import resource
import select
import signal
import socket

from lib import calls, observe, pattern
from lib.registry import case
from suites.process.uring import COPIED, FIXED_BUF, MORE, NOTIF, OP_SEND_ZC, REPORT_USAGE, Ring, buffer_of
from suites.zcopy import spliced
from suites.zcopy.blocks import Counters, eager, unpinned

SIZE = 240_000      # bytes of a block, which a device with regions of 64 pages also sends as one block
ROUNDS = 3          # blocks in flight of each connection, of at most eight
DATA = pattern.Pattern(1).at(0, SIZE)


class Buffer:
    """Sends by SEND_ZC from a registered buffer."""

    def __init__(self, e):
        self._e, self._area, self._ring = e, buffer_of(DATA), Ring(e)
        self._ring.register(self._area)
        self._results, self.told, self.sent = {}, {}, []

    def _take(self):
        result, tag, flags = self._ring.result()
        if flags & NOTIF:
            self.told[tag] = result & 0xFFFFFFFF
        else:
            self._results[tag] = result, flags

    def send(self, sock):
        """Sends the bytes once, and waits until they are queued."""
        tag = len(self.sent)
        self.sent.append(sock)
        self._ring.submit(OP_SEND_ZC, sock, ctypes.addressof(self._area), SIZE, flags=socket.MSG_NOSIGNAL, tag=tag, ioprio=FIXED_BUF | REPORT_USAGE)
        while tag not in self._results:
            self._take()
        result, flags = self._results[tag]
        if result < 0:
            self.sent[tag] = None
            if not flags & MORE:
                self.told[tag] = 0
            raise OSError(-result, "SEND_ZC")
        self._e.equal((result, flags), (SIZE, MORE), "result, and a notification to come")

    def settle(self, *but):
        """Waits for the notifications of sends, except sends to some sockets: nothing was copied.
        """
        wanted = {tag for tag, sock in enumerate(self.sent) if sock not in but}
        while not wanted <= set(self.told):
            self._take()
        copied = [tag for tag, code in self.told.items() if code == COPIED and self.sent[tag]]
        self._e.equal(copied, [], "copied")
        held = {tag for tag, sock in enumerate(self.sent) if sock in but and tag in self.told}
        self._e.equal(held, set(), "notifications of blocks that nobody has read")

    def forget(self):
        """Unregisters the buffer. Blocks in flight keep the buffer."""
        self._ring.unregister()


class File:
    """Sends a file by sendfile(2)."""

    def __init__(self, e):
        self._file = spliced.File(e, 1, SIZE)

    def send(self, sock):
        self._file.send(sock)

    def settle(self, *but):
        pass

    def forget(self):
        pass


class Pipe(File):
    """Sends by tee(2) of a pipe, so that the pipe keeps its bytes."""

    def __init__(self, e):
        super().__init__(e)
        self._pipe = os.pipe()
        e.at_end += [lambda end=end: os.close(end) for end in self._pipe]
        fcntl.fcntl(self._pipe[1], fcntl.F_SETPIPE_SZ, 1 << 20)
        e.equal(os.splice(self._file.fd, self._pipe[1], SIZE, offset_src=0), SIZE, "bytes in the pipe")

    def send(self, sock):
        copy = self._file.pipe
        left = calls.tee(self._pipe[0], copy[1], SIZE)
        try:
            while left:
                left -= calls.splice(copy[0], sock, left)
        finally:
            if left:
                os.read(copy[0], left)


SOURCES = Buffer, File, Pipe


def pairs_of(e, count):
    pairs = [e.pair() for _ in range(count)]
    for near, _ in pairs:
        eager(near)
    return pairs


def read(e, *ends):
    """Each end reads the bytes by one call, in a thread without a ring: completions of a ring
    interrupt calls of the ring's thread, like signals."""
    def reads():
        for end in ends:
            data = end.recv(SIZE, socket.MSG_WAITALL)
            e.equal(len(data), SIZE, "bytes")
            e.check(data == DATA, "other bytes")
    e.task(reads).result()


def done(e, pairs):
    for near, far in pairs:
        near.close()
        far.close()
    unpinned(e)


def pinned():
    """Returns the kernel's number of pinned pages, and the pinned memory of this process in KiB."""
    with open("/proc/sys/vm/stat_refresh", "w") as file:
        file.write("1")     # adds up the counts of all processors
    with open("/proc/vmstat") as file:
        count = dict(line.split() for line in file)
    with open("/proc/self/status") as file:
        own = [line.split()[1] for line in file if line.startswith("VmPin:")]
    return int(count["nr_foll_pin_acquired"]) - int(count["nr_foll_pin_released"]), int(own[0])


@case(reference=False, families=("v4",), timeout=60)
def to_each(e):
    """2, 4 and 8 peers read the same pages, and no page is pinned again for a further peer."""
    for kind in SOURCES:
        source = kind(e)
        for count in (2, 4, 8):
            pairs, counters, before = pairs_of(e, count), Counters(), pinned()
            for near, _ in pairs:
                source.send(near)
            e.check(all(now <= then for now, then in zip(pinned(), before)), f"{kind.__name__}: pinned {before}, with {count} sends {pinned()}")
            read(e, *(far for _, far in pairs))
            source.settle()
            for name in ("zcopy tx_bytes", "zcopy rx_bytes"):
                e.until(lambda name=name, wanted=count * SIZE: counters.gained(name) == wanted, f"{kind.__name__}, {count} peers: {name}")
            e.equal(counters.gained("zcopy written"), 0, f"{kind.__name__}, {count} peers: bytes not by READ")
            done(e, pairs)


@case(reference=False, families=("v4",), timeout=60)
def stopped(e):
    """A peer that does not read delays no other peer. The stopped peer's blocks wait, and arrive
    later, although the program unregisters the buffer meanwhile."""
    for kind in SOURCES:
        source, pairs = kind(e), pairs_of(e, 3)
        (slow, end), *others = pairs
        for _ in range(ROUNDS):
            for near, _ in pairs:
                source.send(near)
            read(e, *(far for _, far in others))
        source.settle(slow)
        e.equal(observe.info(end)["rx_bytes"], 0, f"{kind.__name__}: bytes of the one that does not read")
        source.forget()
        for _ in range(ROUNDS):
            read(e, end)
        source.settle()
        done(e, pairs)


@case(reference=False, families=("v4",), timeout=60)
def dead(e):
    """A peer dies with a block in flight: its connection ends. The other peers get that block and
    later blocks."""
    for kind in SOURCES:
        source, pairs = kind(e), pairs_of(e, 3)
        (lost, end), *others = pairs
        child = e.child(signal.pause)
        end.close()
        for near, _ in pairs:
            source.send(near)
        child.kill()
        read(e, *(far for _, far in others))
        e.wait(lost, select.POLLHUP)
        e.check(e.error(source.send, lost) in ("ECONNRESET", "EPIPE"), f"{kind.__name__}: a send to the dead")
        for _ in range(ROUNDS):
            for near, far in others:
                source.send(near)
                read(e, far)
        source.settle()
        done(e, pairs)


@case(reference=False, families=("v4",), timeout=60)
def memlock(e):
    """RLIMIT_MEMLOCK counts the buffer once, not for each peer."""
    pairs = pairs_of(e, 8)

    def sender():
        limit = SIZE * 3 // 2
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        source = Buffer(e)
        for near, _ in pairs:
            source.send(near)
        source.settle()
        return e.error(Buffer, e)

    child = e.child(sender)
    read(e, *(far for _, far in pairs))
    e.equal(child.result(), "ENOMEM", "another buffer")
    done(e, pairs)
