# SPDX-License-Identifier: GPL-2.0-only
"""io_uring: accept, connect, send, receive and poll through its ring, by bare system calls."""

import ctypes
import mmap
import os
import socket
import struct

from lib import calls, pattern
from lib.registry import case

SETUP, ENTER = 425, 426
OP_POLL_ADD, OP_ACCEPT, OP_CONNECT, OP_SEND, OP_RECV, OP_SEND_ZC = 6, 13, 16, 26, 27, 47
GETEVENTS = 1


class Ring:
    """A submission and a completion queue of eight entries."""

    def __init__(self, e):
        params = bytearray(120)
        buffer = (ctypes.c_char * 120).from_buffer(params)
        calls.libc.syscall.restype = ctypes.c_long
        self._fd = calls.libc.syscall(SETUP, 8, buffer)
        if self._fd < 0:
            e.skip(f"no io_uring: {os.strerror(ctypes.get_errno())}")
        words = struct.unpack_from("=30I", params)
        sq_off, cq_off = words[10:20], words[20:30]
        self._sq = mmap.mmap(self._fd, 4096, mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=0)
        self._cq = mmap.mmap(self._fd, 4096, mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=0x8000000)
        self._sqes = mmap.mmap(self._fd, 4096, mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=0x10000000)
        self._sq_tail, self._sq_mask, self._sq_array = sq_off[1], sq_off[2], sq_off[6]
        self._cq_head, self._cq_tail, self._cq_mask, self._cqes = cq_off[0], cq_off[1], cq_off[2], cq_off[5]

    def submit(self, operation, sock, address=0, length=0, offset=0, flags=0, tag=0):
        tail = struct.unpack_from("=I", self._sq, self._sq_tail)[0]
        slot = tail & struct.unpack_from("=I", self._sq, self._sq_mask)[0]
        struct.pack_into("=BBHiQQIIQ24x", self._sqes, slot * 64, operation, 0, 0, sock.fileno(), offset, address, length,
                         flags, tag)
        struct.pack_into("=I", self._sq, self._sq_array + 4 * slot, slot)
        struct.pack_into("=I", self._sq, self._sq_tail, tail + 1)
        self._enter(1, 0, 0)

    def _enter(self, submit, wait, flags):
        if calls.libc.syscall(ENTER, self._fd, submit, wait, flags, None, 0) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def result(self):
        """(result, tag, flags) of the next completion."""
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
def poll(e):
    ring = Ring(e)
    near, far = e.pair()
    ring.submit(OP_POLL_ADD, near, flags=1, tag=1)
    far.send(b"x")
    e.note("answer", ring.result()[:2])


@case(timeout=60)
def large(e):
    """Larger than the socket's buffers: the ring's own threads wait."""
    ring = Ring(e)
    near, far = e.pair()
    total = 4 << 20
    words = buffer_of(pattern.Pattern(6).at(0, total))
    ring.submit(OP_SEND, near, ctypes.addressof(words), total, flags=socket.MSG_WAITALL, tag=1)
    e.equal(pattern.receive(far, 6, total, [100000]), total, "bytes")
    e.note("answer", ring.result()[:2])


@case
def zero_copy(e):
    """SEND_ZC: done without copying or by copying, but never wrong, and a notification follows."""
    ring = Ring(e)
    near, far = e.pair()
    words = buffer_of(pattern.Pattern(8).at(0, 40000))
    ring.submit(OP_SEND_ZC, near, ctypes.addressof(words), 40000, tag=1)
    result, _, flags = ring.result()
    e.note("result, and whether more is to come", (result, flags & 2))
    e.check(far.recv_exactly(40000) == pattern.Pattern(8).at(0, 40000), "the data differs")
    if flags & 2:
        e.note("notification", (ring.result()[0], 1))


@case
def cancelled_by_close(e):
    """A receive in the ring ends when the other end closes."""
    ring = Ring(e)
    near, far = e.pair()
    room = ctypes.create_string_buffer(100)
    ring.submit(OP_RECV, near, ctypes.addressof(room), 100, tag=1)
    far.close()
    e.note("answer", ring.result()[:2])
