# SPDX-License-Identifier: GPL-2.0-only
"""Local connections: each waiting task is woken, and each call returns what it has read or sent."""

import os
import select
import socket
import struct
import time

from lib import calls, consts, pattern
from lib.registry import case
from suites.syscall_fuzz.limits import parameter

HERE = (0,)
MIB = 1 << 20
SOL = socket.SOL_SOCKET


def sends(sock, seed, total, sizes):
    """Sends by poll(2), without waiting in the calls."""
    stream, sent, turn = pattern.Pattern(seed), 0, 0
    poller = select.poll()
    poller.register(sock, select.POLLOUT)
    while sent < total:
        poller.poll()
        try:
            sent += sock.send(stream.at(sent, min(sizes[turn % len(sizes)], total - sent)), socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        turn += 1
    return sent


@case(hosts=HERE, timeout=60)
def lowat_of_much(e):
    """A reader polls for as many bytes as its buffer holds, and reads half of them at a time: each
    read wakes the sender for the next bytes."""
    sent = []
    for way in (pattern.send, sends):
        near, far = e.pair()
        far.setsockopt(SOL, consts.SO_RCVLOWAT, 2 * MIB)
        total = 16 * MIB
        task = e.task(way, near, 1, total, [100000])
        checker = pattern.Checker(1)
        while checker.count < total - 3 * MIB:
            e.wait(far)
            checker.feed(far.recv(MIB + MIB // 4))
        far.setsockopt(SOL, consts.SO_RCVLOWAT, 1)
        while checker.count < total:
            checker.feed(far.recv(MIB))
        sent.append(task.result())
    e.note("sent", sent)


@case(hosts=HERE, reference=False, timeout=60)
def lowat_raised(e):
    """SO_RCVLOWAT enlarges a full receive buffer, which wakes the sender. TCP's sender only finds
    the larger window by its next probe."""
    near, far = e.pair()
    task = e.task(pattern.send, near, 1, 8 * MIB, [100000]).wait_asleep("sendto")
    far.setsockopt(SOL, consts.SO_RCVLOWAT, 2 * MIB)
    e.wait(far)
    e.unread(far, 2 * MIB)
    far.setsockopt(SOL, consts.SO_RCVLOWAT, 1)
    e.equal(pattern.receive(far, 1, 8 * MIB, [MIB]), 8 * MIB, "bytes received")
    e.equal(task.result(), 8 * MIB, "bytes sent")


@case(hosts=HERE, reference=False, timeout=60)
def memory_in_time(e):
    """SO_SNDTIMEO ends the wait for memory."""
    near, far = e.pair()
    near.setsockopt(SOL, socket.SO_SNDTIMEO, struct.pack("@qq", 0, 300000))
    with parameter("max_buffer_memory", 0):
        near.send(b"x" * 2048)
        e.equal(e.task(e.error, near.send, b"y").result(), "EAGAIN", "a second message")
    e.equal(len(far.recv(4096)), 2048, "bytes")


@case(hosts=HERE, reference=False, timeout=60)
def idle_memory(e):
    """A sender that lacks memory gets the memory that idle connections keep for their next
    bytes."""
    pairs = [e.pair() for _ in range(10)]
    for near, far in pairs:
        e.fill(near)
        near.shutdown(socket.SHUT_WR)
        while far.recv(MIB):
            pass
    near, far = e.pair()
    with parameter("max_buffer_memory", 4):
        task = e.task(near.sendall, bytes(MIB // 2))
        e.equal(task.result(), None, "half of a MiB without a reader")


@case(hosts=HERE, timeout=120)
def block_behind_urgent(e):
    """A non-blocking call returns EAGAIN or bytes of a block, and never EFAULT."""
    near, far = e.pair()
    if e.sdp:
        near.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, 4096)
    near.send(b"!", socket.MSG_OOB)
    e.wait(far, select.POLLPRI)
    e.equal(far.recv(1, socket.MSG_OOB), b"!", "the urgent byte")
    far.setblocking(False)
    total = e.rounds(3000) * 8192
    child = e.child(pattern.send, near, 1, total, [8192])
    checker, errors = pattern.Checker(1), set()
    while checker.count < total and not errors:
        try:
            checker.feed(far.recv(100000))
        except BlockingIOError:
            pass
        except OSError as error:
            errors.add(calls.errname(error))
    e.note("errors", sorted(errors))
    child.result()


@case(hosts=HERE, timeout=60)
def splice_before_lowat(e):
    """splice(2) returns the available bytes, whatever SO_RCVLOWAT is."""
    near, far = e.pair()
    reader, writer = os.pipe()
    far.setsockopt(SOL, consts.SO_RCVLOWAT, 1000)
    far.setsockopt(SOL, socket.SO_RCVTIMEO, struct.pack("@qq", 1, 0))
    near.send(b"x" * 10)
    e.unread(far, 10)
    begin = time.monotonic()
    e.note("bytes", e.outcome(calls.splice, far, writer, 4096))
    e.note("at once", time.monotonic() - begin < 0.5)
    os.close(reader)
    os.close(writer)


@case(hosts=HERE, timeout=60)
def two_senders(e):
    """Two processes send on one socket: the call with fewer bytes does not wait until the peer
    reads the bytes of the other call."""
    before, few, many = 100000, 2 * MIB, 64 * MIB
    early = []
    for _ in range(3):
        near, far = e.pair()
        if e.sdp:
            near.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, 65536)
        small = e.child(near.sendall, bytes(few))
        far.recv_exactly(before)
        large = e.child(near.sendall, bytes(many)).wait_asleep("sendto")
        got, buffer = before, bytearray(MIB // 4)
        while not small.done(0.001) and got < few + many:
            got += far.recv_into(buffer)
        early.append(got < (few + many) // 2)
        while got < few + many:
            got += far.recv_into(buffer)
        small.result()
        large.result()
    e.note("the smaller call ends early", early)
