# SPDX-License-Identifier: GPL-2.0-only
"""io_uring: accept, connect, send, receive and poll through its ring, by direct system calls."""

import ctypes
import mmap
import os
import socket
import struct

from lib import calls, memory, netns, observe, pattern
from lib.registry import case

SETUP, ENTER, REGISTER = 425, 426, 427
REGISTER_BUFFERS, UNREGISTER_BUFFERS, REGISTER_FILES, REGISTER_BUFFER_RING = 0, 1, 2, 22
FIXED_BUF, REPORT_USAGE, COPIED, MORE, NOTIF = 1 << 2, 1 << 3, 1 << 31, 2, 8
OP_POLL_ADD, OP_ACCEPT, OP_CONNECT, OP_SEND, OP_RECV, OP_SEND_ZC = 6, 13, 16, 26, 27, 47
GETEVENTS = 1
LINK = 4


class Ring:
    """A submission and a completion queue of eight entries."""

    def __init__(self, e):
        params = bytearray(120)
        buffer = (ctypes.c_char * 120).from_buffer(params)
        calls.libc.syscall.restype = ctypes.c_long
        self._fd = calls.libc.syscall(SETUP, 8, buffer)
        if self._fd < 0:
            e.skip(f"no io_uring: {os.strerror(ctypes.get_errno())}")
        self._held = 0
        words = struct.unpack_from("=30I", params)
        sq_off, cq_off = words[10:20], words[20:30]
        self._sq = mmap.mmap(self._fd, 4096, mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=0)
        self._cq = mmap.mmap(self._fd, 4096, mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=0x8000000)
        self._sqes = mmap.mmap(self._fd, 4096, mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=0x10000000)
        self._sq_tail, self._sq_mask, self._sq_array = sq_off[1], sq_off[2], sq_off[6]
        self._cq_head, self._cq_tail, self._cq_mask, self._cqes = cq_off[0], cq_off[1], cq_off[2], cq_off[5]

    def register(self, area):
        """Registers the memory as buffer number 0 of the ring."""
        vector = calls.Iovec(ctypes.addressof(area), len(area))
        if calls.libc.syscall(REGISTER, self._fd, REGISTER_BUFFERS, ctypes.byref(vector), 1) < 0:
            raise OSError(ctypes.get_errno(), "io_uring_register")

    def unregister(self):
        """Unregisters the ring's buffer."""
        if calls.libc.syscall(REGISTER, self._fd, UNREGISTER_BUFFERS, None, 0) < 0:
            raise OSError(ctypes.get_errno(), "io_uring_register")

    def close(self):
        for part in (self._sq, self._cq, self._sqes):
            part.close()
        os.close(self._fd)

    def register_files(self, *socks):
        """Requests with FIXED_FILE select the given files by their numbers from 0 on."""
        files = (ctypes.c_int * len(socks))(*(sock.fileno() for sock in socks))
        if calls.libc.syscall(REGISTER, self._fd, REGISTER_FILES, files, len(socks)) < 0:
            raise OSError(ctypes.get_errno(), "io_uring_register")

    def register_buffer_ring(self, address, entries, group):
        """Requests with SELECT and the given group use buffers of the ring at the given address."""
        what = buffer_of(struct.pack("=QIHH24x", address, entries, group, 0))
        if calls.libc.syscall(REGISTER, self._fd, REGISTER_BUFFER_RING, ctypes.byref(what), 1) < 0:
            raise OSError(ctypes.get_errno(), "io_uring_register")

    def submit(self, operation, sock, address=0, length=0, offset=0, flags=0, tag=0, ioprio=0, how=0, group=0):
        """Submits a request; LINK in `how` links the request to the next one. The socket argument
        may be a number."""
        tail = struct.unpack_from("=I", self._sq, self._sq_tail)[0]
        slot = tail & struct.unpack_from("=I", self._sq, self._sq_mask)[0]
        file = sock if isinstance(sock, int) else sock.fileno()
        struct.pack_into("=BBHiQQIIQH22x", self._sqes, slot * 64, operation, how, ioprio, file, offset, address, length,
                         flags, tag, group)
        struct.pack_into("=I", self._sq, self._sq_array + 4 * slot, slot)
        struct.pack_into("=I", self._sq, self._sq_tail, tail + 1)
        self._held += 1
        if not how & LINK:
            self._enter(self._held, 0, 0)
            self._held = 0

    def _enter(self, submit, wait, flags):
        if calls.libc.syscall(ENTER, self._fd, submit, wait, flags, None, 0) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def polls(self, operation):
        """Returns true if a request of the given kind waits for its socket to be ready."""
        with open(f"/proc/self/fdinfo/{self._fd}") as file:
            return f"op={operation}," in file.read()

    def result(self):
        """Returns (result, tag, flags) of the next completion."""
        head = struct.unpack_from("=I", self._cq, self._cq_head)[0]
        if head == struct.unpack_from("=I", self._cq, self._cq_tail)[0]:
            self._enter(0, 1, GETEVENTS)
        slot = head & struct.unpack_from("=I", self._cq, self._cq_mask)[0]
        tag, result, flags = struct.unpack_from("=QiI", self._cq, self._cqes + 16 * slot)
        struct.pack_into("=I", self._cq, self._cq_head, head + 1)
        return result, tag, flags


def buffer_of(data):
    return (ctypes.c_char * len(data)).from_buffer_copy(data)


@case
def send_and_receive(e):
    ring = Ring(e)
    near, far = e.pair()
    room = ctypes.create_string_buffer(100)
    ring.submit(OP_RECV, far, ctypes.addressof(room), 100, tag=1)
    words = buffer_of(b"through the ring")
    ring.submit(OP_SEND, near, ctypes.addressof(words), 16, tag=2)
    answers = sorted([ring.result()[:2], ring.result()[:2]], key=lambda answer: answer[1])
    e.note("answers", answers)
    e.note("data", room.raw[:16])


@case
def accept_and_connect(e):
    ring = Ring(e)
    listener = e.listen()
    ring.submit(OP_ACCEPT, listener, tag=1)
    sock = e.socket()
    raw = buffer_of(calls.sa(e.there, listener.port))
    ring.submit(OP_CONNECT, sock, ctypes.addressof(raw), offset=len(raw), tag=2)
    answers = {tag: result for result, tag, _ in (ring.result(), ring.result())}
    e.note("connect", answers[2])
    e.check(answers[1] > 0, f"accept gave {answers[1]}")
    os.write(answers[1], b"accepted")
    e.note("data", sock.recv(10))
    refused = e.socket()
    raw = buffer_of(calls.sa(e.there, e.refused_port()))
    ring.submit(OP_CONNECT, refused, ctypes.addressof(raw), offset=len(raw), tag=3)
    e.note("refused", ring.result()[:2])


@case
def refused(e):
    """The ring repeats connect once the socket wakes the ring. With IPPROTO_SDP the refusal
    comes from TCP, while the socket switches to TCP."""
    ring = Ring(e)
    answers = set()
    for _ in range(40):
        sock, raw = e.socket(), buffer_of(calls.sa(e.there, e.refused_port()))
        ring.submit(OP_CONNECT, sock, ctypes.addressof(raw), offset=len(raw), tag=1)
        answers.add(ring.result()[0])
        sock.close()
    e.note("answers", answers)


@case
def poll(e):
    ring = Ring(e)
    near, far = e.pair()
    ring.submit(OP_POLL_ADD, near, flags=1, tag=1)
    far.send(b"x")
    e.note("answer", ring.result()[:2])


@case(timeout=60)
def large(e):
    """The request is larger than the socket's buffers, so the ring's own threads wait."""
    ring = Ring(e)
    near, far = e.pair()
    total = 4 << 20
    words = buffer_of(pattern.Pattern(6).at(0, total))
    ring.submit(OP_SEND, near, ctypes.addressof(words), total, flags=socket.MSG_WAITALL, tag=1)
    e.equal(pattern.receive(far, 6, total, [100000]), total, "bytes")
    e.note("answer", ring.result()[:2])


@case
def zero_copy(e):
    """SEND_ZC, with or without a copy: the bytes are correct, and a notification follows."""
    ring = Ring(e)
    near, far = e.pair()
    words = buffer_of(pattern.Pattern(8).at(0, 40000))
    ring.submit(OP_SEND_ZC, near, ctypes.addressof(words), 40000, tag=1)
    result, _, flags = ring.result()
    e.note("result, and whether more is to come", (result, flags & 2))
    e.check(far.recv_exactly(40000) == pattern.Pattern(8).at(0, 40000), "the data differs")
    if flags & 2:
        e.note("notification", (ring.result()[0], 1))


@case(families=("v4",), timeout=60)
def into_a_registered_buffer(e):
    """RECV with a registered buffer, from an offset within a page, before and after the bytes
    arrive. A receive beyond the end of the registered buffer fails, and consumes nothing."""
    ring = Ring(e)
    near, far = e.pair()
    most, begin = 1 << 20, 123
    area = (ctypes.c_char * (most + 2 * begin))()
    ring.register(area)
    place = ctypes.addressof(area) + begin
    for size in (5, 70_000, most):
        for first in ("receive", "send"):
            ctypes.memset(area, 0, len(area))
            data = pattern.Pattern(size).at(0, size)
            task = None if first == "receive" else e.task(near.sendall, data)
            if task:
                e.unread(far, min(size, 1000))
            ring.submit(OP_RECV, far, place, size, flags=socket.MSG_WAITALL, tag=1, ioprio=FIXED_BUF)
            task = task or e.task(near.sendall, data)
            e.note(f"{size} bytes, {first} first", ring.result()[:2])
            task.result()
            e.check(area.raw == bytes(begin) + data + bytes(most - size + begin), f"other bytes, of {size}, {first} first")
    near.send(b"kept")
    ring.submit(OP_RECV, far, place + most, begin + 1, tag=2, ioprio=FIXED_BUF)
    e.note("beyond the end", ring.result()[:2])
    e.equal(far.recv_exactly(4), b"kept", "bytes after that")


@case
def cancelled_by_close(e):
    """A receive in the ring ends when the peer closes."""
    ring = Ring(e)
    near, far = e.pair()
    room = ctypes.create_string_buffer(100)
    ring.submit(OP_RECV, near, ctypes.addressof(room), 100, tag=1)
    far.close()
    e.note("answer", ring.result()[:2])


def large_pages_at(address):
    """Returns the number of bytes in large pages of the mapping at the given address."""
    inside = False
    with open("/proc/self/smaps") as file:
        for line in file:
            first = line.split()[0]
            if "-" in first and not first.endswith(":"):
                begin, end = (int(part, 16) for part in first.split("-"))
                inside = begin <= address < end
            elif inside and first == "AnonHugePages:":
                return int(line.split()[1]) << 10
    return 0


def answers(ring, count):
    """Returns the results of the given number of SEND_ZC by their tags, and their notifications."""
    results, told = {}, {}
    while len(results) < count or len(told) < count:
        result, tag, flags = ring.result()
        (told if flags & NOTIF else results)[tag] = result & 0xFFFFFFFF if flags & NOTIF else result
    return results, told


def in_flight(e, area, fixed):
    """Four SEND_ZC of a quarter each are in flight. The notifications arrive when the peer has read
    the blocks, without a copy."""
    size = len(area) // 4
    ctypes.memmove(area, pattern.Pattern(9).at(0, 4 * size), 4 * size)
    near, far = e.pair()
    ring = Ring(e)
    if fixed:
        ring.register(area)
    for turn in range(4):
        ring.submit(OP_SEND_ZC, near, ctypes.addressof(area) + turn * size, size, tag=turn, ioprio=REPORT_USAGE | (FIXED_BUF if fixed else 0))
    before = [ring.result() for _ in range(4)]
    e.equal(sorted(before), [(size, turn, MORE) for turn in range(4)], "results before anybody reads")
    e.equal(pattern.receive(far, 9, 4 * size, [size], socket.MSG_WAITALL), 4 * size, "bytes")
    told = {}
    while len(told) < 4:
        result, tag, flags = ring.result()
        e.equal(flags, NOTIF, "flags of a notification")
        told[tag] = result & 0xFFFFFFFF
    e.equal(told, {turn: 0 for turn in range(4)}, "what was told of copies")
    near.close()
    far.close()
    ring.close()


@case(reference=False, timeout=60)
def zero_copy_in_flight(e):
    """Like `in_flight`, but with and without registered buffers, which begin and end within a
    page."""
    for fixed in (False, True):
        in_flight(e, (ctypes.c_char * (4 << 20))(), fixed)


@case(reference=False, families=("v4",), timeout=60)
def zero_copy_of_large_pages(e):
    """io_uring represents a registered buffer by its large pages; a send uses parts of these pages.
    One part crosses into the next large page."""
    with open("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") as file:
        large = int(file.read())
    space = memory.Raw(4 * large)
    begin = (space.address + large - 1) // large * large
    memory.LIBC.madvise(begin, 3 * large, mmap.MADV_HUGEPAGE)
    ctypes.memset(begin, 0, 3 * large)
    e.check(large_pages_at(begin) >= 3 * large, "large pages")
    in_flight(e, (ctypes.c_char * (4 * 1_100_000)).from_address(begin + large - (2 << 20) + 5000), True)
    space.unmap()


@case(reference=False, families=("v4",), timeout=60)
def zero_copy_torn_down(e):
    """The ring, or the connection, ends with sends in flight."""
    size = 1 << 20
    for first in ("ring", "near", "far"):
        near, far = e.pair()
        ring = Ring(e)
        area = (ctypes.c_char * (2 * size)).from_buffer_copy(pattern.Pattern(9).at(0, 2 * size))
        ring.register(area)
        taken = 0
        for turn in range(2):
            # on a device with small registrations a few bytes do not fit
            ring.submit(OP_SEND_ZC, near, ctypes.addressof(area) + taken, size, tag=turn, ioprio=FIXED_BUF)
            result = ring.result()[0]
            e.check(size - 4096 < result <= size, f"send {turn} gave {result}")
            taken += result
        {"ring": ring, "near": near, "far": far}[first].close()
        if first != "far":
            e.equal(pattern.receive(far, 9, taken, [size]), taken, f"bytes without the {first}")
        if first != "ring":
            e.equal(sorted(ring.result()[1:] for _ in range(2)), [(0, NOTIF), (1, NOTIF)], f"notifications without the {first}")
            ring.close()
        near.close()
        far.close()
        e.until(lambda: not any(observe.pinned(where) for where in netns.hosts()), "the end of all pinning")


@case(reference=False, families=("v4",), timeout=60)
def zero_copy_of_little(e):
    """A small SEND_ZC is copied, and its notification reports that."""
    ring = Ring(e)
    near, far = e.pair()
    words = buffer_of(b"little")
    ring.submit(OP_SEND_ZC, near, ctypes.addressof(words), 6, tag=1, ioprio=REPORT_USAGE)
    e.equal(answers(ring, 1), ({1: 6}, {1: COPIED}), "result and notification")
    e.equal(far.recv_exactly(6), b"little", "the bytes")
