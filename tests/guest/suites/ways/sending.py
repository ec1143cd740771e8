# SPDX-License-Identifier: GPL-2.0-only
"""Methods to send, mixed on one connection."""

import ctypes
import errno
import mmap
import os
import random
import select
import socket
import struct

from lib import consts
from lib.pattern import Pattern
from suites.process import uring

TCP, SOL, NOW = socket.IPPROTO_TCP, socket.SOL_SOCKET, socket.MSG_DONTWAIT
SIZES = (1, 100, 2048, 4096, 16384, 20000, 65536, 70000, 150000, 300000, 1 << 20)
AREA = 1 << 20
AREAS = 6
# Period of the pattern. A file contains the pattern twice, so that any part of it is contiguous.
PERIOD = 1000003
# Time without progress after which a call counts as hung (ms).
LOST = 30000


class Stuck(Exception):
    """An expected event did not happen."""


def wait(sock, events, what):
    poller = select.poll()
    poller.register(sock.fileno(), events)
    if not poller.poll(LOST):
        raise Stuck(what)


class Writer:
    """Sends a pattern, each part by a method that the seed selects."""

    def __init__(self, sock, seed, steps):
        self.dice, self.sock, self.left = random.Random(seed), sock, steps
        self.pattern, self.at, self.history = Pattern(seed), 0, []
        self.free = [mmap.mmap(-1, AREA) for _ in range(AREAS)]
        # Memory areas in flight, by notification number, or by tag of the ring.
        self.told, self.number = {}, 0
        self.ring, self.ringed = None, {}
        self.file = os.memfd_create("pattern")
        os.write(self.file, self.pattern.at(0, 2 * PERIOD))
        sock.setsockopt(SOL, consts.SO_ZEROCOPY, 1)
        ways = [self.plain, self.plain, self.at_once, self.more, self.vectors, self.zerocopy, self.zerocopy, self.by_ring, self.of_file,
                self.of_pipe, self.asynchronous, self.urgent]
        self.options = [(TCP, socket.TCP_NODELAY, (0, 1)), (TCP, socket.TCP_CORK, (0, 1)), (SOL, socket.SO_SNDBUF, (5000, 60000, 400000, 1 << 20)),
                        (TCP, consts.SDP_ASYNC_SEND, (0, 1))]
        if self.dice.random() < 0.5:
            # no value of the option means "measure", as -1 of the parameter does
            self.options.append((TCP, consts.SDP_ZCOPY_THRESH, (0, 4096, 16384, 65536)))
        self.ways = self.dice.sample(ways, self.dice.randint(3, len(ways)))

    def run(self):
        while self.left:
            self.left -= 1
            way, size = self.dice.choice(self.ways), self.dice.choice(SIZES)
            self.history = [*self.history[-11:], (way.__name__, self.at, size)]
            if self.dice.random() < 0.15:
                self.change()
            way(size)
        self.history.append("end")
        self.sock.setsockopt(TCP, socket.TCP_CORK, 0)
        while self.told or self.ringed:
            self.wait_for_area()
        self.sock.shutdown(socket.SHUT_WR)
        if self.ring:
            self.ring.close()
        os.close(self.file)
        return self.at

    def change(self):
        """Changes an option."""
        level, option, values = self.dice.choice(self.options)
        self.sock.setsockopt(level, option, self.dice.choice(values))

    def piece(self, size):
        return self.pattern.at(self.at, size)

    def filled(self, size):
        """Returns an area that contains the next bytes."""
        while not self.free:
            self.wait_for_area()
        area = self.free.pop(self.dice.randrange(len(self.free)))
        area[:size] = self.piece(size)
        return area

    def release(self, area):
        """The connection no longer uses the given memory: new content of the memory must not
        arrive."""
        area[:] = bytes(AREA)
        self.free.append(area)

    def plain(self, size):
        self.at += self.sock.send(self.piece(size))

    def at_once(self, size):
        try:
            self.at += self.sock.send(self.piece(size), NOW)
        except BlockingIOError:
            wait(self.sock, select.POLLOUT, "room to send")

    def more(self, size):
        self.at += self.sock.send(self.piece(min(size, 4096)), socket.MSG_MORE)

    def vectors(self, size):
        data = memoryview(self.piece(size))
        cuts = sorted([0, size, *(self.dice.randint(0, size) for _ in range(4))])
        self.at += self.sock.sendmsg([data[one:two] for one, two in zip(cuts, cuts[1:])])

    def zerocopy(self, size):
        area = self.filled(size)
        flags = consts.MSG_ZEROCOPY | self.dice.choice((0, NOW))
        try:
            with memoryview(area) as view, view[:size] as part:
                self.at += self.sock.send(part, flags)
        except OSError as error:
            self.free.append(area)
            if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                raise
            return self.told_of() or self.plain(min(size, 2048))
        self.told[self.number] = area
        self.number = self.number + 1 & 0xFFFFFFFF
        return self.told_of()

    def told_of(self):
        """Reads the pending notifications."""
        while True:
            try:
                _, control, _, _ = self.sock.recvmsg(1, 512, socket.MSG_ERRQUEUE | NOW)
            except BlockingIOError:
                return
            [(_, _, raw)] = control
            _, _, _, _, first, last = struct.unpack_from("=IBBBxII", raw)
            for number in range(first, last + 1):
                self.release(self.told.pop(number))

    def wait_for_area(self):
        if self.told:
            wait(self.sock, 0, f"notifications {sorted(self.told)}")
            self.told_of()
        else:
            self.completion()

    def by_ring(self, size):
        """SEND_ZC of io_uring."""
        self.ring = self.ring or uring.Ring(None)
        area = self.filled(size)
        tag = max(self.ringed, default=0) + 1
        self.ringed[tag] = (area, None)
        address = ctypes.addressof((ctypes.c_char * AREA).from_buffer(area))
        self.ring.submit(uring.OP_SEND_ZC, self.sock, address, size, tag=tag)
        while tag in self.ringed and self.ringed[tag][1] is None:
            self.completion()

    def completion(self):
        try:
            result, tag, flags = self.ring.result()
        except InterruptedError:
            return
        area, sent = self.ringed[tag]
        if not flags & uring.NOTIF:
            if result < 0:
                raise OSError(-result, f"SEND_ZC: {os.strerror(-result)}")
            self.at += result
            self.ringed[tag] = (area, result)
        if flags & uring.NOTIF or not flags & uring.MORE:
            del self.ringed[tag]
            self.release(area)

    def of_file(self, size):
        self.at += os.sendfile(self.sock.fileno(), self.file, self.at % PERIOD, min(size, PERIOD))

    def of_pipe(self, size):
        reader, writer = os.pipe()
        try:
            count = os.write(writer, self.piece(min(size, 65536)))
            while count:
                done = os.splice(reader, self.sock.fileno(), count, flags=self.dice.choice((0, 4)))
                self.at, count = self.at + done, count - done
        finally:
            os.close(reader)
            os.close(writer)

    def asynchronous(self, size):
        """The memory is overwritten as soon as the call returns."""
        area = self.filled(size)
        self.sock.setsockopt(TCP, consts.SDP_ASYNC_SEND, 1)
        with memoryview(area) as view, view[:size] as part:
            self.at += self.sock.send(part)
        self.release(area)

    def urgent(self, _):
        self.at += self.sock.send(self.piece(1), socket.MSG_OOB)
