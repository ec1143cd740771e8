# SPDX-License-Identifier: GPL-2.0-only
"""Test data whose bytes show their position in the stream."""

import random

from .remote import anywhere

_PERIOD = 1000003           # prime, so that no buffer size divides it


# The pattern is made once, before the processes of the cases, because that takes 40 ms in
# emulation. Each seed uses a different offset.
_RANDOM = random.Random(7).randbytes(_PERIOD)


class Pattern:
    """An endless stream of bytes, different for each seed."""

    def __init__(self, seed):
        start = seed * 514229 % _PERIOD
        self._block = _RANDOM[start:] + _RANDOM[:start]

    def at(self, offset, count):
        start = offset % _PERIOD
        part = self._block[start:start + count]
        while len(part) < count:
            part += self._block[:count - len(part)]
        return part


class Checker:
    """Receives a stream in parts and finds the first wrong byte."""

    def __init__(self, seed):
        self._pattern, self.count = Pattern(seed), 0

    def feed(self, data):
        wanted = self._pattern.at(self.count, len(data))
        if data != wanted:
            bad = next(index for index, (one, two) in enumerate(zip(data, wanted)) if one != two)
            raise ValueError(f"byte {self.count + bad} of the stream is {data[bad:bad + 8].hex()}…, "
                             f"must be {wanted[bad:bad + 8].hex()}… (piece of {len(data)} from {self.count})")
        self.count += len(data)


@anywhere
def send(sock, seed, total, sizes, flags=0):
    """Sends `total` bytes of a pattern in pieces of the given sizes (cycled)."""
    pattern, sent, turn = Pattern(seed), 0, 0
    while sent < total:
        piece = pattern.at(sent, min(sizes[turn % len(sizes)], total - sent))
        sock.sendall(piece, flags)
        sent += len(piece)
        turn += 1
    return sent


@anywhere
def receive(sock, seed, total, sizes, flags=0):
    """Receives and checks `total` bytes. Returns the number of bytes, which is lower if the stream
    ends early."""
    checker, turn = Checker(seed), 0
    while checker.count < total:
        data = sock.recv(min(sizes[turn % len(sizes)], total - checker.count), flags)
        if not data:
            break
        checker.feed(data)
        turn += 1
    return checker.count
