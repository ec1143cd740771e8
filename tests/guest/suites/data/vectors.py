# SPDX-License-Identifier: GPL-2.0-only
"""Vectors of buffers and vectors of messages."""

import ctypes
import mmap
import os
import socket
import struct
import time

from lib import calls, pattern
from lib.registry import case

BEDS = (1, 2)
PAGE = mmap.PAGESIZE
DONTWAIT = socket.MSG_DONTWAIT


@case(hosts=BEDS)
def writev(e):
    near, far = e.pair()
    e.note("writev", near.sendmsg([b"one", b"", b"two", b"x" * 5000, b"end"]))
    e.note("data", far.recv_exactly(5009) == b"onetwo" + b"x" * 5000 + b"end")
    e.note("nothing", near.sendmsg([]))
    e.note("empty", near.sendmsg([b"", b""]))
    e.note("1024 buffers", near.sendmsg([bytes([number % 256]) for number in range(1024)]))
    e.note("their data", far.recv_exactly(1024) == bytes(number % 256 for number in range(1024)))


@case
def too_many(e):
    near, _ = e.pair()
    header = calls.Msghdr(None, 0, (calls.Iovec * 1025)(), 1025, None, 0, 0)
    for name in ("sendmsg", "recvmsg"):
        e.note(name, e.error(calls.sized, name, near.fileno(), ctypes.byref(header), 0))


@case(hosts=BEDS)
def readv(e):
    near, far = e.pair()
    near.send(b"abcdefghij")
    e.unread(far, 10)
    got, parts, flags, namelen, _ = calls.recvmsg(far, [1, 3, 2])
    e.note("some", (got, parts, flags, namelen))
    got, parts, flags, _, _ = calls.recvmsg(far, [2, 100])
    e.note("rest", (got, parts[0], parts[1][:2], flags))
    near.send(b"k")
    e.wait(far)
    e.note("nowhere to put it", calls.recvmsg(far, [])[:3])
    e.note("still there", far.recv(10))


@case(hosts=BEDS, timeout=60)
def shapes(e):
    """Unusual segment sizes on both sides: no byte is lost at a boundary."""
    near, far = e.pair()
    stream, place = pattern.Pattern(31), 0
    shapes = ([1] * 300, [4095, 1, 4097], [65536, 1, 65535], [3] * 17 + [100000] + [5] * 17, [0, 7, 0, 0, 9000, 0])
    for sent in shapes:
        for received in shapes:
            total = min(sum(sent), sum(received))
            data = stream.at(place, total)
            pieces, left = [], data
            for size in sent:
                pieces.append(left[:size])
                left = left[size:]
            task = e.task(_send_all, near, pieces)
            _, parts, _, _, _ = calls.recvmsg(far, received, socket.MSG_WAITALL) if total == sum(received) \
                else (0, [far.recv_exactly(total)], 0, 0, 0)
            task.result()
            e.equal(b"".join(parts), data, f"shape {sent[:4]} into {received[:4]}")
            place += total


def _send_all(sock, pieces):
    sent = sock.sendmsg(pieces)
    whole = b"".join(pieces)
    sock.sendall(whole[sent:])


@case(hosts=BEDS)
def sendmmsg(e):
    near, far = e.pair()
    messages = [[b"one"], [b"t", b"wo"], [b"three" * 1000], [b""], [b"end"]]
    e.note("sent", calls.sendmmsg(near, messages))
    e.note("data", far.recv_exactly(5009) == b"onetwo" + b"three" * 1000 + b"end")
    near.shutdown(socket.SHUT_WR)
    e.note("after shutdown", e.error(calls.sendmmsg, near, messages, socket.MSG_NOSIGNAL))


@case(hosts=BEDS)
def recvmmsg(e):
    near, far = e.pair()
    near.send(b"abcdefghij")
    e.unread(far, 10)
    e.note("three of four", calls.recvmmsg(far, [4, 4, 4, 4], DONTWAIT))
    e.note("none", e.error(calls.recvmmsg, far, [4], DONTWAIT))
    near.send(b"klm")
    e.note("for one", calls.recvmmsg(far, [2, 2, 2], 0x10000))
    near.send(b"n")
    e.note("with a time limit", calls.recvmmsg(far, [1], 0, 10.0))
    near.shutdown(socket.SHUT_WR)
    e.note("end", calls.recvmmsg(far, [4, 4]))


@case
def faults(e):
    """Unmapped buffers: EFAULT, or the number of bytes before the unmapped memory."""
    near, far = e.pair()
    area = mmap.mmap(-1, 3 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    calls.plain("mprotect", ctypes.c_void_p(address + PAGE), ctypes.c_size_t(PAGE), 0)
    e.note("send from nowhere", e.error(calls.send_at, near, address + PAGE, 100))
    e.note("send from null", e.error(calls.send_at, near, 0, 100))
    ctypes.memmove(address + PAGE - 10, b"0123456789", 10)
    e.note("send over the edge", e.outcome(calls.send_at, near, address + PAGE - 10, 100))
    far.send(b"x" * 50)
    e.unread(near, 50)
    e.note("recv to nowhere", e.error(calls.recv_at, near, address + PAGE, 100))
    e.note("recv to null", e.error(calls.recv_at, near, 0, 100))
    e.note("not lost", calls.recv(near, 100))
    near.send(b"sentinel")
    near.shutdown(socket.SHUT_WR)
    e.note("the stream", far.drain())


@case
def fault_in_the_middle(e):
    """A large receive that reaches an unmapped page does not lose the remaining bytes."""
    near, far = e.pair()
    total = 5 * PAGE - 480
    stream = pattern.Pattern(33).at(0, total)
    near.sendall(stream)
    e.unread(far, total)
    area = mmap.mmap(-1, 4 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    calls.plain("mprotect", ctypes.c_void_p(address + 2 * PAGE), ctypes.c_size_t(PAGE), 0)
    got = e.outcome(calls.recv_at, far, address, 3 * PAGE)
    count = got if isinstance(got, int) else 0
    e.check(count <= 2 * PAGE, f"recv gave {count}")
    e.equal(area[:count], stream[:count], "the first part")
    rest = far.recv_exactly(total - count)
    e.equal(rest, stream[count:], "the rest")


@case
def unmapped_file(e):
    """Sends from file pages, and receives into file pages, that are not in memory yet."""
    near, far = e.pair()
    total = 300000
    stream = pattern.Pattern(34).at(0, total)
    with open("/dev/shm/ib_sdp_test" if os.path.isdir("/dev/shm") else "/tmp/ib_sdp_test", "w+b") as file:
        os.unlink(file.name)
        file.truncate(total)
        target = mmap.mmap(file.fileno(), total)
        task = e.task(pattern.send, near, 34, total, [total])
        place = 0
        while place < total:
            place += far.recv_into(memoryview(target)[place:])
        task.result()
        e.equal(target[:], stream, "data in the file's pages")
        task = e.task(far.sendall, target)
        e.equal(near.recv_exactly(total), stream, "data back")
        task.result()


@case(hosts=BEDS)
def timeouts(e):
    """SO_RCVTIMEO and SO_SNDTIMEO."""
    near, far = e.pair()
    limit = struct.pack("=qq", 0, 200000)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    start = time.monotonic()
    e.note("recv", e.error(calls.recv, near, 10))
    e.waited(start, 0.2, "recv")
    far.send(b"abc")
    e.note("with data", near.recv(10))
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    for _ in range(20):
        e.fill(near)
        start = time.monotonic()
        # the send succeeds only if a buffer has grown; buffers must not grow for ever
        sent = e.error(calls.send, near, b"x" * 100000)
        if sent != "ok":
            break
    e.waited(start, 0.2, "send")
    e.note("send", sent)


@case(hosts=BEDS)
def timeout_after_part(e):
    """A send that times out returns the number of queued bytes."""
    near, far = e.pair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("=qq", 0, 200000))
    total = 64 << 20
    data = pattern.Pattern(35).at(0, 1 << 20) * 64
    sent = calls.send(near, data)
    e.check(0 < sent < total, f"send took {sent}")
    near.shutdown(socket.SHUT_WR)
    place = 0
    while part := far.recv(1 << 20):
        e.check(part == data[place:place + len(part)], f"wrong data near {place}")
        place += len(part)
    e.equal(place, sent, "bytes that arrived")


@case
def interrupted(e):
    near, far = e.pair()
    e.note("recv", e.interrupt(lambda: calls.recv(near, 10), "recvfrom"))
    e.fill(near)
    e.note("send", e.interrupt(lambda: calls.send(near, b"x" * 1000000), "sendto"))
    limit = struct.pack("=qq", int(e.patience), 0)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    e.note("recv with a time limit", e.interrupt(lambda: calls.recv(near, 10), "recvfrom", restart=True))
    e.note("poll", e.interrupt(lambda: _poll(near, e.patience), "poll"))


def _poll(sock, patience):
    pollfd = struct.pack("=ihh", sock.fileno(), 1, 0)
    return calls.plain("poll", ctypes.create_string_buffer(pollfd), 1, int(patience * 1000))


@case
def interrupted_after_part(e):
    """A signal during a large send: the call returns the number of accepted bytes, and exactly
    those bytes arrive."""
    near, far = e.pair()
    data = pattern.Pattern(36).at(0, 1 << 20) * 32

    sent, signals = e.interrupt(lambda: calls.send(near, data), "sendto")
    e.equal(signals, 1, "signals")
    e.check(isinstance(sent, int) and 0 < sent < len(data), f"send gave {sent}")
    near.shutdown(socket.SHUT_WR)
    e.equal(len(far.drain()), sent, "bytes that arrived")
