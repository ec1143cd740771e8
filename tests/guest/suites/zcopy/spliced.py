# SPDX-License-Identifier: GPL-2.0-only
"""sendfile(2) and splice(2): the peer reads the pages of files and pipes, collected from several
calls into large blocks."""

import fcntl
import os
import random
import select
import socket
import struct
import tempfile
import time

from lib import calls, consts, pattern
from lib.registry import case
from suites.zcopy.blocks import MIB, Counters, eager, pipelined, unpinned, waiting_reader
from suites.zcopy.figures import parameter

MORE = 4                        # SPLICE_F_MORE
NOW = socket.MSG_DONTWAIT
CORK_TIME = 0.2                 # time after which held bytes are sent
MOST = 8                        # blocks under way
PIECE = 64 << 10                # maximum that one call of the kernel transfers


class File:
    """A file with bytes of a pattern, and a pipe."""

    def __init__(self, e, seed, size):
        self._file = e.keep(tempfile.TemporaryFile())
        self._file.write(pattern.Pattern(seed).at(0, size))
        self._file.flush()
        self.size = size
        self.fd = self._file.fileno()
        self.pipe = os.pipe()
        fcntl.fcntl(self.pipe[1], fcntl.F_SETPIPE_SZ, MIB)

    def send(self, sock, at=0, end=None):
        """Calls sendfile(2) for a range of the file; returns the number of bytes sent."""
        start, end = at, self.size if end is None else end
        while at < end:
            at += os.sendfile(sock.fileno(), self.fd, at, end - at)
        return at - start

    def splice(self, sock, at=0, end=None, flags=0):
        """Like `send`, but through the pipe, with flags for the socket's end of the pipe."""
        start, end = at, self.size if end is None else end
        while at < end:
            left = os.splice(self.fd, self.pipe[1], min(end - at, MIB), offset_src=at)
            at += left
            while left:
                left -= calls.splice(self.pipe[0], sock, left, flags)
        return at - start


def sending(e, size, seed=1):
    near, far = e.pair()
    eager(near)
    return near, far, File(e, seed, size)


@case(reference=False, timeout=60)
def whole(e):
    """Sends a file by sendfile(2), and by a pipe: nothing is copied, and blocks are large."""
    for way in (File.send, File.splice):
        def attempt():
            near, far, file = sending(e, 8 * MIB)
            counters = Counters()
            task = e.task(way, file, near)
            e.equal(pattern.receive(far, 1, 8 * MIB, [MIB], socket.MSG_WAITALL), 8 * MIB, "bytes")
            e.equal(task.result(), 8 * MIB, "bytes sent")
            e.until(lambda: counters.gained("tx_bytes") == 8 * MIB, "so many bytes sent, by the counter")
            return counters.gained("zcopy tx_bytes") == 8 * MIB and counters.gained("post_send SDP_MID_SRCAVAIL") <= 16
        e.lucky(attempt, "something was copied, or blocks were small")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def nobody_waits(e):
    """sendfile(2) and close(2) return before the peer has read: all bytes arrive, followed by the
    end of the stream.
    """
    for ending in ("close", "shutdown", "exit", "kill"):
        near, far, file = sending(e, 3 * MIB + 5)
        counters = Counters()
        if ending in ("close", "shutdown"):
            file.send(near)
            near.shutdown(socket.SHUT_WR) if ending == "shutdown" else near.close()
        else:
            process = e.child(lambda: (file.send(near), ending == "kill" and near.recv(1)))
            near.close()
            if ending == "exit":
                process.result()
            else:
                process.wait_asleep("recvfrom")
                process.kill()
        e.equal(counters.gained("rx_bytes"), 0, "bytes read so far")
        e.equal(pattern.receive(far, 1, 4 * MIB, [MIB], socket.MSG_WAITALL), 3 * MIB + 5, f"{ending}: bytes before the end")
        far.close()
        unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def polled(e):
    """A reader that polls gets the bytes in messages."""
    near, far, file = sending(e, 3 * MIB)
    task = e.task(file.send, near)
    checker = pattern.Checker(1)
    while checker.count < 3 * MIB:
        e.wait(far)
        checker.feed(far.recv(MIB, NOW))
    task.result()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def written_to_a_waiting_reader(e):
    """If a reader is already waiting, the bytes are written to its memory."""
    def attempt():
        near, far = pipelined(e)
        eager(near)
        file = File(e, 1, MIB)
        task, counters = waiting_reader(e, far, MIB)
        file.send(near)
        e.check(task.result() == pattern.Pattern(1).at(0, MIB), "other bytes")
        unpinned(e)
        return counters.gained("zcopy written") == MIB
    e.lucky(attempt, "the reader took its memory back")


@case(reference=False, families=("v4",), timeout=60, messages=True)
def held_back(e):
    """Pages sent with MSG_MORE are sent with the next bytes, of any kind, or after a time limit."""
    def plain(near):
        near.send(b"x")

    def nodelay(near):
        near.set(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def urgent(near):
        near.send(b"!", socket.MSG_OOB)

    followed = {"a send": plain, "a send that waits": lambda near: near.send(b"x", socket.MSG_MORE), "shutdown": lambda near: near.shutdown(1),
                "close": lambda near: near.close(), "TCP_NODELAY": nodelay, "an urgent byte": urgent,
                "a large send": lambda near: near.send(bytes(40000), NOW), "nothing": lambda near: None}
    for name, follow in followed.items():
        near, far, file = sending(e, PIECE)
        start = time.monotonic()
        file.splice(near, flags=MORE)
        if time.monotonic() - start < CORK_TIME / 2:
            e.equal(calls.ioctl_int(near, consts.SIOCOUTQ), PIECE, f"{name}: bytes that wait")
        follow(near)
        e.equal(pattern.receive(far, 1, PIECE, [PIECE], socket.MSG_WAITALL), PIECE, f"{name}: bytes")
        near.close()
        far.close()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def end_of_file(e):
    """sendfile(2) requests more bytes than the file has: its last pages, sent with MSG_MORE, are
    flushed at the end of the file (splice_eof)."""
    near, far, file = sending(e, PIECE)
    counters = Counters()
    e.equal(os.sendfile(near.fileno(), file.fd, 0, 2 * PIECE), PIECE, "bytes sent")
    e.equal(counters.gained("post_send SDP_MID_SRCAVAIL"), 1, "adverts at once")
    e.equal(pattern.receive(far, 1, PIECE, [PIECE], socket.MSG_WAITALL), PIECE, "bytes")
    near.close()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
def mixed(e):
    """Files, pipes, plain sends of all sizes, held back and not, in any order and from any offset:
    the stream stays in order."""
    near, far, file = sending(e, 12 * MIB)
    near.set(socket.SOL_SOCKET, consts.SO_ZEROCOPY, 1)
    choice = random.Random(5)
    stream = memoryview(pattern.Pattern(1).at(0, file.size))      # the bytes do not change while they are sent

    def sender():
        at = 0
        while at < file.size:
            end = min(at + choice.choice((1, 100, 4096, 5000, 20000, PIECE, 70000, 200001, MIB, 3 * MIB)), file.size)
            way = choice.randrange(6)
            if way < 2:
                file.send(near, at, end)
            elif way < 4:
                file.splice(near, at, end, choice.choice((0, MORE)))
            elif way == 4:
                near.sendall(stream[at:end], choice.choice((0, socket.MSG_MORE)))
            else:
                end = at + near.send(stream[at:end], consts.MSG_ZEROCOPY)
            at = end

    task = e.task(sender)
    reads = [choice.choice((5000, 100000, MIB, 3 * MIB)) for _ in range(20)]
    e.equal(pattern.receive(far, 1, file.size, reads), file.size, "bytes")
    task.result()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def behind_a_stall(e):
    """Pages spliced before and after a plain send are not merged while the connection waits for
    credits: the bytes of the plain send stay between the pages."""
    near, far, file = sending(e, 4 * MIB)
    stream, at = pattern.Pattern(1).at(0, file.size), 0
    # a polled socket gets an event for each message, and sends nothing earlier
    poller = e.keep(select.epoll())
    poller.register(near, select.EPOLLIN | select.EPOLLET)
    while calls.ioctl_int(near, consts.SIOCOUTQNSD) < PIECE and at < MIB:
        at += near.send(stream[at:at + 4096], NOW)
    e.check(at < MIB, "the connection never waited for credits")
    for _ in range(3):
        at += file.splice(near, at, at + 8192, MORE)
        at += near.send(stream[at:at + 4096], NOW)
    at += file.splice(near, at, at + 8192)
    e.equal(pattern.receive(far, 1, at, [PIECE]), at, "bytes")
    near.close()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def small(e):
    """A few bytes are copied, as without splicing."""
    near, far, file = sending(e, 40000)
    near.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, PIECE)
    counters = Counters()
    file.send(near)
    e.equal(pattern.receive(far, 1, 40000, [40000], socket.MSG_WAITALL), 40000, "bytes")
    e.equal(counters.gained("zcopy tx_bytes"), 0, "bytes not copied")
    e.equal(counters.gained("post_send SDP_MID_SRCAVAIL"), 0, "adverts")


@case(reference=False, families=("v4",), timeout=60)
def never(e):
    """With SDP_ZCOPY_THRESH at 0, all bytes are copied."""
    near, far, file = sending(e, 3 * MIB)
    near.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, 0)
    counters = Counters()
    task = e.task(file.send, near)
    e.equal(pattern.receive(far, 1, 3 * MIB, [MIB], socket.MSG_WAITALL), 3 * MIB, "bytes")
    task.result()
    e.equal(counters.gained("zcopy tx_bytes"), 0, "bytes not copied")
    e.equal(counters.gained("post_send SDP_MID_SRCAVAIL"), 0, "adverts")


@case(reference=False, families=("v4",), timeout=60)
def as_many_as_may_be(e):
    """At the maximum number of blocks in flight, a non-blocking call gets EAGAIN, and poll reports
    when the call may continue; a blocking call waits."""
    near, far, file = sending(e, 2 * (MOST + 2) * MIB)
    near.setblocking(False)
    at = 0
    while isinstance(sent := e.outcome(os.sendfile, near.fileno(), file.fd, at, file.size - at), int):
        at += sent
    e.equal(sent, "EAGAIN", "one more")
    e.check(MIB * MOST <= at <= 2 * MIB * MOST, f"{at} bytes were taken")
    e.equal(near.mask(select.POLLOUT), "-", "poll()")
    near.setblocking(True)
    waiter = e.task(file.send, near, at).wait_asleep("sendfile")
    e.equal(pattern.receive(far, 1, file.size, [MIB], socket.MSG_WAITALL), file.size, "bytes")
    e.equal(waiter.result(), file.size - at, "bytes of the call that waited")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def over_budget(e):
    """Beyond the limit pages are copied."""
    near, far, file = sending(e, 4 * MIB)
    with parameter("max_pinned_send", 0):
        counters = Counters()
        task = e.task(file.send, near)
        e.equal(pattern.receive(far, 1, file.size, [MIB], socket.MSG_WAITALL), file.size, "bytes")
        task.result()
        e.check(counters.gained("pin over budget") > 0, "nothing was refused")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def lost(e):
    """The connection ends with blocks in flight and with pages held back: no page stays pinned."""
    for reset in (False, True):
        near, far, file = sending(e, 5 * MIB)
        file.send(near)
        file.splice(near, 0, PIECE, MORE)
        if reset:
            far.set(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def changed(e):
    """A file changes or is truncated while its pages are in flight, as is possible on TCP: the same
    number of bytes arrives, with old or new content."""
    near, far, file = sending(e, 4 * MIB)
    old = pattern.Pattern(1).at(0, 4 * MIB)
    file.send(near)
    os.pwrite(file.fd, bytes(MIB), MIB)
    os.ftruncate(file.fd, 3 * MIB)
    got = far.recv_exactly(4 * MIB)
    e.check(got[:MIB] == old[:MIB] and got[2 * MIB:3 * MIB] == old[2 * MIB:3 * MIB], "other bytes where nothing has changed")
    e.check(got[MIB:2 * MIB] in (old[MIB:2 * MIB], bytes(MIB)), "bytes that were never in the file")
    unpinned(e)
