# SPDX-License-Identifier: GPL-2.0-only
"""sendfile() and splice() from files and pipes, and into pipes."""

import ctypes
import fcntl
import os
import signal
import socket
import tempfile

from lib import calls, pattern
from lib.registry import case

MORE = 4                    # SPLICE_F_MORE


def source_file(seed, total):
    file = tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    file.write(pattern.Pattern(seed).at(0, total))
    file.flush()
    return file


@case(timeout=60)
def sendfile(e):
    near, far = e.pair()
    total = 3000001
    file = source_file(61, total)

    def send():
        place = 0
        while place < total:
            count = os.sendfile(near.fileno(), file.fileno(), place, total - place)
            e.check(count > 0, f"sendfile gave {count}")
            place += count

    task = e.task(send)
    e.equal(pattern.receive(far, 61, total, [100000]), total, "bytes")
    task.result()
    e.note("at the end of the file", os.sendfile(near.fileno(), file.fileno(), total, 100))
    e.note("nothing", os.sendfile(near.fileno(), file.fileno(), 0, 0))


@case
def sendfile_parts(e):
    """sendfile() from unaligned offsets, by the file's own offset, and before and after plain
    sends."""
    near, far = e.pair()
    file = source_file(62, 50000)
    near.sendall(b"head")
    e.note("part", os.sendfile(near.fileno(), file.fileno(), 4095, 8194))
    near.sendall(b"tail")
    e.check(far.recv_exactly(8202) == b"head" + pattern.Pattern(62).at(4095, 8194) + b"tail", "the data differs")
    os.lseek(file.fileno(), 100, os.SEEK_SET)
    count = calls.sized("sendfile", near.fileno(), file.fileno(), None, 1000)
    e.note("own offset", (count, os.lseek(file.fileno(), 0, os.SEEK_CUR)))
    e.check(far.recv_exactly(1000) == pattern.Pattern(62).at(100, 1000), "the data differs")


@case
def sendfile_and_change(e):
    """If another process changes the file after sendfile() has read it, the peer gets the bytes of
    the time of the call."""
    near, far = e.pair()
    file = source_file(63, 40000)
    os.sendfile(near.fileno(), file.fileno(), 0, 40000)
    data = far.recv_exactly(40000)
    os.pwrite(file.fileno(), b"\0" * 40000, 0)
    e.check(data == pattern.Pattern(63).at(0, 40000), "the data differs")


@case
def sendfile_errors(e):
    near, far = e.pair()
    file = source_file(64, 100000)
    near.setblocking(False)
    e.fill(near)
    e.note("full", e.error(os.sendfile, near.fileno(), file.fileno(), 0, 100000))
    near.setblocking(True)
    near.shutdown(socket.SHUT_WR)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    e.note("shut", e.error(os.sendfile, near.fileno(), file.fileno(), 0, 100))
    e.note("unconnected", e.error(os.sendfile, e.socket().fileno(), file.fileno(), 0, 100))
    e.note("from a socket", e.error(os.sendfile, file.fileno(), far.fileno(), 0, 100))


@case(timeout=60)
def splice_in(e):
    """From a pipe into the socket."""
    near, far = e.pair()
    total = 1000003
    reader, writer = os.pipe()

    def fill():
        stream, place = pattern.Pattern(65), 0
        while place < total:
            place += os.write(writer, stream.at(place, min(50000, total - place)))
        os.close(writer)

    def move():
        count = 0
        while part := calls.splice(reader, near, 1 << 20, MORE):
            count += part
        near.shutdown(socket.SHUT_WR)
        return count

    tasks = [e.task(fill), e.task(move)]
    e.equal(pattern.receive(far, 65, total + 1, [70001]), total, "bytes")
    tasks[0].result()
    e.equal(tasks[1].result(), total, "spliced")


@case(timeout=60)
def splice_out(e):
    """From the socket into a pipe."""
    near, far = e.pair()
    total = 1000003
    task = e.task(lambda: (pattern.send(near, 66, total, [33333]), near.shutdown(socket.SHUT_WR)))
    reader, writer = os.pipe()
    checker = pattern.Checker(66)
    while part := calls.splice(far, writer, 50000):
        while part:
            data = os.read(reader, part)
            checker.feed(data)
            part -= len(data)
    task.result()
    e.equal(checker.count, total, "bytes")
    e.note("at the end", calls.splice(far, writer, 100))


@case
def splice_rules(e):
    near, far = e.pair()
    reader, writer = os.pipe()
    far.setblocking(False)
    e.note("nothing there", e.error(calls.splice, far, writer, 100))
    far.setblocking(True)
    near.send(b"some words")
    e.unread(far, 10)
    e.note("part", calls.splice(far, writer, 4))
    e.note("in the pipe", os.read(reader, 100))
    e.note("rest", calls.recv(far, 100))
    task = e.task(calls.splice, far, writer, 100).wait_asleep("splice")
    near.send(b"late")
    e.note("waited for", (task.result(), os.read(reader, 100)))
    e.note("unconnected", e.error(calls.splice, e.socket(), writer, 100))
    e.note("listening", e.error(calls.splice, e.listen(), writer, 100))
    near.shutdown(socket.SHUT_WR)
    e.note("end", calls.splice(far, writer, 100))


@case
def splice_leaves_file_pages(e):
    """Pages of a file arrive by way of a pipe."""
    near, far = e.pair()
    file = source_file(67, 60000)
    reader, writer = os.pipe()
    fcntl.fcntl(writer, 1031, 1 << 17)
    moved = os.splice(file.fileno(), writer, 60000, offset_src=123) if hasattr(os, "splice") else 0
    sent = 0
    while sent < moved:
        sent += calls.splice(reader, near, moved - sent)
    e.check(far.recv_exactly(moved) == pattern.Pattern(67).at(123, moved), "the data differs")
    e.note("moved", moved)


@case
def socket_to_socket(e):
    """A proxy passes bytes from one connection through a pipe into another connection."""
    near, far = e.pair()
    second_near, second_far = e.pair()
    total = 400000
    reader, writer = os.pipe()

    def proxy():
        while count := calls.splice(far, writer, 60000):
            while count:
                count -= calls.splice(reader, second_near, count, MORE)
        second_near.shutdown(socket.SHUT_WR)

    tasks = [e.task(proxy), e.task(pattern.send, near, 68, total, [12345])]
    tasks[1].result()
    near.shutdown(socket.SHUT_WR)
    e.equal(pattern.receive(second_far, 68, total + 1, [54321]), total, "bytes")
    tasks[0].result()


@case
def tee_and_vmsplice(e):
    """User pages passed to a pipe by vmsplice() arrive unchanged."""
    near, far = e.pair()
    reader, writer = os.pipe()
    data = pattern.Pattern(69).at(0, 20000)
    buffer = ctypes.create_string_buffer(data, len(data))
    vector = calls.Iovec(ctypes.addressof(buffer), len(data))
    e.note("vmsplice", calls.sized("vmsplice", writer, ctypes.byref(vector), 1, 0))
    sent = 0
    while sent < len(data):
        sent += calls.splice(reader, near, len(data) - sent)
    e.check(far.recv_exactly(len(data)) == data, "the data differs")
