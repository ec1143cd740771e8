# SPDX-License-Identifier: GPL-2.0-only
"""Methods to receive, mixed on one connection."""

import mmap
import os
import random
import select
import socket
import time

from lib.pattern import Checker
from suites.ways.sending import AREA, LOST, NOW, SIZES, SOL, Stuck, wait


class Reader:
    """Receives a pattern up to its end, each part by a method that the seed selects."""

    def __init__(self, sock, seed, pattern):
        self.dice, self.sock = random.Random(seed), sock
        self.checker, self.ended, self.history = Checker(pattern), False, []
        self.area = mmap.mmap(-1, AREA)
        self.epoll = select.epoll()
        self.epoll.register(sock.fileno(), select.EPOLLIN | select.EPOLLET)
        sock.setsockopt(SOL, socket.SO_OOBINLINE, 1)
        ways = [self.plain, self.plain, self.into_area, self.whole, self.peeked, self.polled, self.by_edges, self.to_pipe, self.vectors, self.slow]
        self.ways = self.dice.sample(ways, self.dice.randint(2, len(ways)))

    def run(self):
        while not self.ended:
            way, size = self.dice.choice(self.ways), self.dice.choice(SIZES)
            self.history = [*self.history[-11:], (way.__name__, self.checker.count, size)]
            if self.dice.random() < 0.1:
                self.sock.setsockopt(SOL, socket.SO_RCVBUF, self.dice.choice((3000, 60000, 400000)))
            way(size)
        self.epoll.close()
        return self.checker.count

    def take(self, data):
        self.ended |= not data
        self.checker.feed(data)
        return data

    def plain(self, size):
        self.take(self.sock.recv(size))

    def into_area(self, size):
        count = self.sock.recv_into(self.area, size)
        self.take(self.area[:count])

    def whole(self, size):
        self.take(self.sock.recv(size, socket.MSG_WAITALL))

    def peeked(self, size):
        seen = self.sock.recv(min(size, 70000), socket.MSG_PEEK)
        self.ended |= not seen
        while seen:
            # one call does not suffice if the data contains an urgent mark
            got = self.take(self.sock.recv(len(seen)))
            if not got or not seen.startswith(got):
                raise ValueError(f"{len(got)} bytes up to {self.checker.count} differ from those that MSG_PEEK has shown")
            seen = seen[len(got):]

    def polled(self, size):
        wait(self.sock, select.POLLIN, "something to read, by poll")
        try:
            self.take(self.sock.recv(size, NOW))
        except BlockingIOError:
            pass

    def by_edges(self, size):
        """Reads until the receive queue is empty, then waits for the next edge."""
        try:
            while not self.ended:
                self.take(self.sock.recv(max(size, 4096), NOW))
        except BlockingIOError:
            if not self.epoll.poll(LOST / 1000):
                raise Stuck("an edge") from None

    def to_pipe(self, size):
        reader, writer = os.pipe()
        try:
            count = os.splice(self.sock.fileno(), writer, min(size, 65536))
            if count:
                self.take(os.read(reader, count))
            else:
                # the end of the stream, or the urgent byte, where splice(2) returns 0 and stays, as
                # on TCP
                self.plain(size)
        finally:
            os.close(reader)
            os.close(writer)

    def vectors(self, size):
        parts = [bytearray(self.dice.randint(1, size)) for _ in range(3)]
        count, _, _, _ = self.sock.recvmsg_into(parts)
        self.take(b"".join(parts)[:count])

    def slow(self, size):
        time.sleep(self.dice.choice((0.002, 0.02, 0.15)))
        self.plain(size)
