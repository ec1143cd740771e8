# SPDX-License-Identifier: GPL-2.0-only
"""splice(2) from a socket: errors and ends as on TCP; bytes in the pipe do not change
afterwards."""

import ctypes
import fcntl
import os
import select
import socket
import struct

from lib import calls, netns, pattern
from lib.registry import case

NONBLOCK = 2                # SPLICE_F_NONBLOCK, which applies to the pipe
MIB = 1 << 20


def pipe(e, size=MIB):
    reader, writer = os.pipe()
    e.keep(os.fdopen(reader, "rb", 0))
    e.keep(os.fdopen(writer, "wb", 0))
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, size)
    return reader, writer


def drain(reader, checker, count):
    while count:
        data = os.read(reader, count)
        checker.feed(data)
        count -= len(data)


@case
def errors(e):
    near, far = e.pair()
    reader, writer = pipe(e)
    place = ctypes.c_int64(1)
    e.note("offset", e.error(lambda: calls.sized("splice", far.fileno(), ctypes.byref(place), writer, None, ctypes.c_size_t(9), 0)))
    far.setblocking(False)
    e.note("empty", e.error(calls.splice, far, writer, 100))
    far.setblocking(True)
    task = e.task(calls.splice, far, writer, 100, NONBLOCK).wait_asleep("splice")
    near.send(b"late")
    e.note("SPLICE_F_NONBLOCK waits for the socket", (task.result(), os.read(reader, 100)))
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@qq", 0, 50000))
    e.note("SO_RCVTIMEO", e.error(calls.splice, far, writer, 100))
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@qq", 0, 0))
    e.note("nothing wanted", calls.splice(far, writer, 0))
    near.send(b"last")
    e.unread(far, 4)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
    near.close()
    e.wait(far, select.POLLHUP)
    e.note("reset", [e.outcome(calls.splice, far, writer, 100) for _ in range(3)])


@case
def ends(e):
    near, far = e.pair()
    reader, writer = pipe(e)
    near.send(b"last")
    near.shutdown(socket.SHUT_WR)
    e.wait(far, select.POLLRDHUP)
    e.note("end of stream", [calls.splice(far, writer, 3) for _ in range(4)])
    near, far = e.pair()
    far.shutdown(socket.SHUT_RD)
    e.note("SHUT_RD", calls.splice(far, writer, 100))
    near, far = e.pair()
    near.send(b"x" * 10)
    e.unread(far, 10)
    one, other = os.pipe()
    os.close(one)
    e.note("no reader of the pipe", e.error(calls.splice, far, other, 100))
    os.close(other)
    e.note("not lost", calls.recv(far, 100))


@case
def urgent(e):
    """splice(2) stops before the urgent byte, even if MSG_OOB has read it. recv(2) passes the
    urgent byte."""
    for inline in (0, 1):
        near, far = e.pair()
        reader, writer = pipe(e)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, inline)
        near.send(b"abc")
        near.send(b"d", socket.MSG_OOB)
        near.send(b"efg")
        e.unread(far, 3)
        e.until(lambda: select.select([], [], [far], 0)[2], "the urgent byte")
        e.until(lambda: len(far.recv(100, socket.MSG_PEEK)) >= 3, "bytes")
        e.note(f"before, {inline}", (calls.splice(far, writer, 100), os.read(reader, 100)))
        if not netns.is_one():   # a local connection copies the bytes for splice(2), as for recv(2)
            far.setblocking(False)
            e.note(f"at the mark without waiting, {inline}", e.error(calls.splice, far, writer, 100))
            far.setblocking(True)
            e.note(f"at the mark, {inline}", calls.splice(far, writer, 100))
            if not inline:
                e.note("MSG_OOB", far.recv(1, socket.MSG_OOB))
                e.note("at the mark that was read", calls.splice(far, writer, 100))
        e.note(f"passed, {inline}", far.recv(1))
        e.note(f"behind, {inline}", (calls.splice(far, writer, 100), os.read(reader, 100)))


@case(timeout=60)
def pages_stay(e):
    """Bytes in a pipe do not change while later bytes arrive; a buffer of which a part is in the
    pipe can be passed on further."""
    near, far = e.pair()
    total, held = 6 * MIB, 0
    reader, writer = pipe(e)
    task = e.task(pattern.send, near, 71, total, [250000])
    while select.select([], [writer], [], 0)[1] and held < MIB:
        held += calls.splice(far, writer, min(100001, MIB - held), NONBLOCK)
    checker = pattern.Checker(71)
    checker.count = held
    while checker.count < total - MIB:
        checker.feed(far.recv(min(70000, total - MIB - checker.count)))
    behind, checker.count = checker.count, 0
    drain(reader, checker, held)
    checker.count = behind
    while checker.count < total:
        drain(reader, checker, calls.splice(far, writer, 12345))
    task.result()
    e.equal(checker.count, total, "bytes")


@case
def small_pipe(e):
    """A pipe of one page: splice(2) ends when the pipe is full, and SPLICE_F_NONBLOCK does not
    wait."""
    near, far = e.pair()
    reader, writer = pipe(e, 4096)
    task = e.task(pattern.send, near, 72, 300000, [300000])
    checker = pattern.Checker(72)
    e.unread(far, 1)
    while checker.count < 300000:
        count = calls.splice(far, writer, 100000)
        e.check(0 < count <= 4096, f"{count} bytes in one page")
        if not checker.count:
            e.note("full", e.error(calls.splice, far, writer, 100, NONBLOCK))
        drain(reader, checker, count)
    task.result()


@case
def small_messages(e):
    """Small messages share the pages of the pipe."""
    near, far = e.pair()
    reader, writer = pipe(e, 65536)
    for _ in range(60):
        near.send(b"x" * 100)
    e.unread(far, 6000)
    e.note("at once", calls.splice(far, writer, 10000))
    e.note("read", len(os.read(reader, 10000)))


@case
def teed(e):
    near, far = e.pair()
    (reader, writer), (second, into) = pipe(e), pipe(e)
    task = e.task(pattern.send, near, 73, 50000, [50000])
    count = 0
    while count < 50000:
        count += calls.splice(far, writer, 50000 - count)
    e.note("teed", calls.tee(reader, into, MIB))
    near.close()
    far.close()
    drain(reader, pattern.Checker(73), 50000)
    drain(second, pattern.Checker(73), 50000)
    task.result()
