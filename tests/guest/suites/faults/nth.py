# SPDX-License-Identifier: GPL-2.0-only
"""Fails each allocation and each user copy of a socket call once: the first in one call, the second
in the next, until a call succeeds. Every call returns an errno or the amount of work done. A
repeated call succeeds, no byte is lost or duplicated, and in the end no resource is left. Needs a
kernel with fault injection.

The suite covers the work of the calling thread; faults.anywhere covers the work of other
threads."""

import ctypes
import errno
import os
import select
import socket
import struct
import time

from lib import calls, consts, faults, leftovers, pattern
from lib.memory import Memory
from lib.registry import case
from suites import seqpacket
from suites.zcopy.blocks import MIB, Counters, eager

SOL = socket.SOL_SOCKET
MOST = 2000


def needs_faults(e):
    if not faults.possible():
        e.skip("this kernel injects no faults")
    faults.only_the_module()


class Through:
    """Repeats one kind of call with each fault. `least`: minimum number of faults. `allowed`:
    errors of a call with a fault. `without`: errors of a call without a fault."""

    def __init__(self, e, name, least, allowed, without=""):
        self._e, self._name, self._least, self._allowed, self._without = e, name, least, set(allowed.split()), set(without.split())

    def __call__(self, attempt):
        """`attempt(fault)` makes a call by `fault(function)`, then checks the result."""
        seen, self._number, self.failed = set(), 0, True
        while self.failed:
            self._number += 1
            self._e.check(self._number < MOST, f"{self._name}: no end of faults")
            self.failed = False
            try:
                result = attempt(self._fault)
            except OSError as error:
                self._e.check(False, f"{self._name}: after fault {self._number}: {error!r}")
            seen.add(result if isinstance(result, str) else "done")
        self._e.check(self._number > self._least, f"{self._name}: {self._number - 1} faults only, at least {self._least} expected")
        self._e.note(self._name, (self._number - 1, sorted(seen)))

    def _fault(self, function):
        result, failed = faults.nth(self._number, function)
        self.failed = self.failed or failed
        allowed = self._allowed | self._without if failed else self._without
        fault = f"fault {self._number}" if failed else "no fault"
        self._e.check(not isinstance(result, str) or result in allowed, f"{self._name}: {result} by {fault}")
        return result


def nothing_left(e):
    """Checks that no socket, no pinned page and no module reference is left."""
    for thing in e._keep:
        if hasattr(thing, "close"):
            thing.close()
    e._keep.clear()
    left = leftovers.wait(e.patience * 9)
    e.check(not left, "left: " + "; ".join(left))


def echo(e, near, far):
    near.sendall(b"there")
    e.equal(far.recv_exactly(5), b"there", "there")
    far.sendall(b"and back")
    e.equal(near.recv_exactly(8), b"and back", "back")


def at_once(function):
    return function()


def failed(result):
    return isinstance(result, str)


def closing(*socks):
    for sock in socks:
        sock.close()


@case(reference=False, hosts=(0, 1), timeout=300)
def making(e):
    """socket(), bind(), listen()."""
    needs_faults(e)

    def make(fault):
        result = fault(lambda: calls.plain("socket", e.domain, socket.SOCK_STREAM, 0))
        if not failed(result):
            os.close(result)
        e.socket().close()
        return result

    Through(e, "socket", 1, "ENOMEM ENOBUFS")(make)

    def bind(fault):
        sock = e.socket()
        raw = calls.sa(e.here, 0)
        result = fault(lambda: calls.bind(sock, raw))
        if failed(result):
            calls.bind(sock, raw)
        e.check(sock.port != 0, "the port")
        sock.close()
        return result

    Through(e, "bind", 1, "ENOMEM")(bind)

    def bind_again(fault):
        """Binds to a used port: the error is EADDRINUSE, or the error of the fault."""
        first = e.bound("self")
        sock = e.socket()
        raw = calls.sa(e.here, first.port)
        result = fault(lambda: calls.bind(sock, raw))
        first.close()
        calls.bind(sock, raw)
        sock.close()
        return result

    Through(e, "bind to a port in use", 0, "ENOMEM", "EADDRINUSE")(bind_again)

    def listen(fault):
        sock = e.bound("peer")
        result = fault(lambda: calls.listen(sock, 16))
        if failed(result):
            e.equal(e.error(e.socket().connect, e.address(e.there, sock.port)), "ECONNREFUSED", "connect() to what does not listen")
            calls.listen(sock, 16)
        echo(e, *e.pair(sock))
        sock.close()
        return result

    Through(e, "listen", 1, "ENOMEM")(listen)
    nothing_left(e)


@case(reference=False, hosts=(0, 1), timeout=300)
def connecting(e):
    """Blocking and non-blocking connect(), and accept()."""
    needs_faults(e)
    listener = e.listen()

    def connect(fault):
        near = e.socket()
        raw = calls.sa(e.there, listener.port)
        result = fault(lambda: calls.connect(near, raw))
        if failed(result):
            calls.connect(near, raw)
        far = accepted(e, listener, near)
        echo(e, near, far)
        closing(near, far)
        return result

    Through(e, "connect", 5, "ENOMEM")(connect)

    def begin(fault):
        near = e.socket()
        near.setblocking(False)
        raw = calls.sa(e.there, listener.port)
        result = fault(lambda: calls.connect(near, raw))
        if failed(result) and result != "EINPROGRESS":
            e.equal(e.error(calls.connect, near, raw), "EINPROGRESS", "connect() again")
        e.wait(near, select.POLLOUT)
        error = near.get(SOL, socket.SO_ERROR)
        if error and beginning.failed:
            # Within one namespace the calling thread does all of the work, and may have almost
            # completed the connection.
            e.equal(errno.errorcode[error], "ENOMEM", "how the connection failed")
            # As on TCP, the first call has reported the error, and the next call reports only the
            # end of the connection.
            e.equal(e.error(calls.connect, near, raw), "ECONNABORTED", "connect() again")
            e.equal(e.error(calls.connect, near, raw), "EINPROGRESS", "connect() once more")
            e.wait(near, select.POLLOUT)
            error = near.get(SOL, socket.SO_ERROR)
        e.equal(error, 0, "the connection")
        near.setblocking(True)
        far = accepted(e, listener, near)
        echo(e, near, far)
        closing(near, far)
        return result

    beginning = Through(e, "connect without blocking", 1, "ENOMEM", "EINPROGRESS")
    beginning(begin)

    def accept(fault):
        near = e.connect(listener)
        result = fault(lambda: calls.accept4(listener)[0])
        far = e.keep(type(near).wrap(result if not failed(result) else calls.accept4(listener)[0], e.domain))
        echo(e, near, far)
        closing(near, far)
        return result

    Through(e, "accept", 0, "ENOMEM ENOBUFS")(accept)
    nothing_left(e)


def accepted(e, listener, near):
    """Returns the peer of a connection. Earlier entries of the accept queue belong to attempts that
    failed at the client only."""
    while True:
        far, address = listener.accept()
        if address == near.getsockname():
            return e.keep(far)
        far.close()


class Sender:
    """Two connected ends; every byte of the stream between them is checked."""

    def __init__(self, e):
        self.e = e
        self.near, self.far = e.pair()
        self._pattern, self.sent, self._checker = pattern.Pattern(7), 0, pattern.Checker(7)

    def next(self, size):
        return self._pattern.at(self.sent, size)

    def took(self, result, most):
        """Records the result of a send, and sends the remaining bytes."""
        told = 0 if failed(result) else result
        self.e.check(0 <= told <= most, f"{told} of {most} bytes")
        self.sent += told
        rest = self.next(most - told)
        self.near.sendall(rest)
        self.sent += len(rest)

    def check(self, until=None):
        while self._checker.count < (self.sent if until is None else until):
            data = self.far.recv(MIB)
            self.e.check(data, f"the end of the stream after {self._checker.count} of {self.sent}")
            self._checker.feed(data)

    def feed(self, data):
        self._checker.feed(data)

    @property
    def seen(self):
        return self._checker.count


@case(reference=False, hosts=(0, 1), timeout=300)
def sending(e):
    """Small and large sends, from several segments, from a file, from a pipe, urgent."""
    needs_faults(e)
    stream = Sender(e)

    def by(size, send):
        def attempt(fault):
            data = stream.next(size)
            result = fault(lambda: send(data))
            stream.took(result, size)
            stream.check()
            return result
        return attempt

    def first(size):
        """The first call of a new connection, which allocates buffers."""
        def attempt(fault):
            new = Sender(e)
            data = new.next(size)
            result = fault(lambda: calls.send(new.near, data))
            new.took(result, size)
            new.check()
            closing(new.near, new.far)
            return result
        return attempt

    Through(e, "first send 5", 2, "EFAULT ENOMEM")(first(5))
    Through(e, "first send 60000", 4, "EFAULT ENOMEM")(first(60000))
    near = stream.near
    Through(e, "send 5", 1, "EFAULT ENOMEM")(by(5, lambda data: calls.send(near, data)))
    # memory of earlier sends may be free again, so that a send allocates nothing
    Through(e, "send 60000", 1, "EFAULT ENOMEM")(by(60000, lambda data: calls.send(near, data)))
    Through(e, "sendmsg in pieces", 2, "EFAULT ENOMEM")(by(9000, lambda data: near.sendmsg([data[:1], data[1:5000], data[5000:]])))
    Through(e, "write", 1, "EFAULT ENOMEM")(by(3000, lambda data: calls.write(near, data)))

    def from_a_file(fault):
        file = os.memfd_create("faults")
        os.write(file, stream.next(20000))
        result = fault(lambda: os.sendfile(near.fileno(), file, 0, 20000))
        os.close(file)
        stream.took(result, 20000)
        stream.check()
        return result

    stream = Sender(e)
    near = stream.near
    Through(e, "sendfile", 0, "EFAULT ENOMEM")(from_a_file)

    def from_a_pipe(fault):
        reader, writer = os.pipe()
        os.write(writer, stream.next(8000))
        result = fault(lambda: calls.splice(reader, near, 8000))
        os.close(reader)
        os.close(writer)
        stream.took(result, 8000)
        stream.check()
        return result

    Through(e, "splice to it", 0, "EFAULT ENOMEM")(from_a_pipe)

    def urgent(fault):
        # urgent data uses a separate connection
        near, far = e.pair()
        result = fault(lambda: calls.send(near, b"!", socket.MSG_OOB))
        if failed(result):
            calls.send(near, b"!", socket.MSG_OOB)
        e.wait(far, select.POLLPRI)
        e.equal(far.recv(1, socket.MSG_OOB), b"!", "the urgent byte")
        closing(near, far)
        return result

    Through(e, "send urgently", 1, "EFAULT ENOMEM")(urgent)
    nothing_left(e)


@case(reference=False, hosts=(0, 1), timeout=300)
def held_back(e):
    """Bytes accepted before a fault are sent at once, as on TCP, although MSG_MORE or TCP_CORK
    would hold the bytes back for 200 ms."""
    needs_faults(e)
    size, cork, number, hit, parts = 150000, 0.2, 0, True, 0
    data = bytes(size)
    while hit:
        number += 1
        # Retries several times, because any machine may occasionally be slow.
        for _ in range(10):
            near, far = e.pair()
            near.set(SOL, socket.SO_SNDBUF, size)
            result, hit = faults.nth(number, lambda: calls.send(near, data, socket.MSG_DONTWAIT))
            start = time.monotonic()
            if not hit or failed(result) or result == size:
                quick = True
            else:
                far.recv_exactly(result)
                quick = time.monotonic() - start < cork * 0.9
                parts += 1
            closing(near, far)
            if quick:
                break
        e.check(quick, f"after fault {number} bytes were held back ten times")
    e.note("faults, in the middle of a call", (number - 1, parts))
    e.check(parts > 2, f"{parts} of {number - 1} faults in the middle of a call")
    nothing_left(e)


@case(reference=False, hosts=(0, 1), timeout=300)
def receiving(e):
    """Small and large receives, into several segments, peeked, and into a pipe."""
    needs_faults(e)
    stream = Sender(e)
    far = stream.far

    def by(size, receive):
        def attempt(fault):
            stream.near.sendall(stream.next(size))
            stream.sent += size
            e.unread(far, size)
            result = fault(lambda: receive(size))
            if not failed(result):
                stream.feed(result)
            stream.check()
            return result
        return attempt

    def in_pieces(size):
        # receives into separate memory, which is compared completely after a call has failed midway
        parts = [bytearray(1), bytearray(5000), bytearray(size - 5001)]
        got = far.recvmsg_into(parts)[0]
        return b"".join(parts)[:got]

    def look(size):
        data = calls.recv(far, size, socket.MSG_PEEK)
        e.check(stream._pattern.at(stream.seen, len(data)) == data, "what is seen by MSG_PEEK")
        return b""

    def by_pipe(size):
        reader, writer = os.pipe()
        try:
            count = calls.splice(far, writer, size)
            return os.read(reader, count)
        finally:
            os.close(reader)
            os.close(writer)

    Through(e, "recv 5", 1, "EFAULT ENOMEM")(by(5, lambda size: calls.recv(far, size)))
    Through(e, "recv 60000", 1, "EFAULT ENOMEM")(by(60000, lambda size: calls.recv(far, size)))
    Through(e, "recvmsg in pieces", 2, "EFAULT ENOMEM")(by(9000, in_pieces))
    Through(e, "recv and leave it", 1, "EFAULT ENOMEM")(by(9000, look))
    Through(e, "splice from it", 0, "EFAULT ENOMEM")(by(8000, by_pipe))
    nothing_left(e)


@case(reference=False, hosts=(0, 1), timeout=600)
def messages(e):
    """Messages of SOCK_SEQPACKET, copied and without a copy. A send that fails sends nothing. A
    receive that fails leaves the message, or drops all of it (EFAULT)."""
    needs_faults(e)
    near, far = seqpacket.pair(e, eager)
    body = pattern.Pattern(8).at(0, MIB // 5)

    def send(size):
        def attempt(fault):
            task = e.task(far.recv, MIB)
            result = fault(lambda: calls.send(near, body[:size]))
            if failed(result):
                near.send(body[:size])
            e.check(task.result() == body[:size], f"a message of {size} bytes after {result}")
            return result
        return attempt

    def receive(size):
        def attempt(fault):
            task = e.task(calls.send, near, body[:size])
            result = fault(lambda: calls.recv(far, MIB))
            task.result()
            near.send(b"next")
            got = [] if failed(result) else [result]
            while not got or got[-1] != b"next":
                got.append(far.recv(MIB))
            e.check(got[:-1] == [body[:size]] or result == "EFAULT" and len(got) == 1, f"{len(got)} messages after {result}")
            return result if failed(result) else "done"
        return attempt

    for size, least in ((5, 0), (60000, 1), (len(body), 1)):
        Through(e, f"send a message of {size}", least, "EFAULT ENOMEM")(send(size))
        Through(e, f"receive a message of {size}", 0, "EFAULT ENOMEM")(receive(size))
    nothing_left(e)


@case(reference=False, hosts=(0, 1), timeout=600)
def zero_copy(e):
    """Blocks of a sender and of a receiver."""
    needs_faults(e)
    size = MIB // 4
    source, target = Memory(size), Memory(size)
    counters = Counters()

    def attempt_by(receiver):
        def attempt(fault):
            near, far = e.pair()
            eager(near)
            eager(far)
            source.map[:] = pattern.Pattern(9).at(0, size)
            target.map[:] = bytes(size)

            def receive(do=at_once):
                at, result = 0, None
                while at < size:
                    got = do(lambda: calls.recv_at(far, target.address + at, size - at, socket.MSG_WAITALL))
                    do = at_once
                    result = got if result is None else result
                    e.check(got != 0, f"the end after {at} bytes")
                    at += 0 if failed(got) else got
                return result

            def send(do=at_once):
                at, result = 0, None
                while at < size:
                    got = do(lambda: calls.send_at(near, source.address + at, size - at))
                    do = at_once
                    result = got if result is None else result
                    at += 0 if failed(got) else got
                return result

            if receiver:
                task = e.task(send)
                result = receive(fault)
            else:
                task = e.task(receive)
                result = send(fault)
            task.result()
            e.check(bytes(target.map) == bytes(source.map), "the bytes")
            closing(near, far)
            return result
        return attempt

    Through(e, "send by zero copy", 1, "EFAULT ENOMEM")(attempt_by(False))
    Through(e, "receive by zero copy", 1, "EFAULT ENOMEM")(attempt_by(True))
    file = os.memfd_create("faults")
    os.write(file, pattern.Pattern(9).at(0, size))

    def from_a_file(fault):
        near, far = e.pair()
        eager(near)
        task = e.task(pattern.receive, far, 9, size, [size], socket.MSG_WAITALL)
        result = fault(lambda: os.sendfile(near.fileno(), file, 0, size))
        at = 0 if failed(result) else result
        while at < size:
            at += os.sendfile(near.fileno(), file, at, size - at)
        e.equal(task.result(), size, "bytes of a file")
        closing(near, far)
        return result

    Through(e, "sendfile by zero copy", 1, "EFAULT ENOMEM")(from_a_file)
    os.close(file)
    gained = counters.gained("zcopy rx_bytes")
    e.check(gained > size, f"{gained} bytes were not copied")
    nothing_left(e)


@case(reference=False, hosts=(0, 1), timeout=300)
def around(e):
    """Options, ioctls, poll(), shutdown() and close()."""
    needs_faults(e)
    near, far = e.pair()

    def told(call):
        def attempt(fault):
            result = fault(call)
            if failed(result):
                call()
            echo(e, near, far)
            return result
        return attempt

    linger = struct.pack("=ii", 0, 0)
    number = struct.pack("=i", 65536)
    Through(e, "setsockopt", 0, "EFAULT ENOMEM")(told(lambda: calls.setsockopt(near, socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, number)))
    Through(e, "setsockopt of the buffers", 0, "EFAULT ENOMEM")(told(lambda: calls.setsockopt(near, SOL, socket.SO_RCVBUF, number)))
    Through(e, "setsockopt of lingering", 0, "EFAULT ENOMEM")(told(lambda: calls.setsockopt(near, SOL, socket.SO_LINGER, linger)))
    Through(e, "setsockopt of IP", 0, "EFAULT ENOMEM")(told(lambda: calls.setsockopt(near, *((41, 67) if e.six else (0, 1)), struct.pack("=i", 16))))
    Through(e, "getsockopt", 0, "EFAULT ENOMEM")(told(lambda: calls.getsockopt(near, socket.IPPROTO_TCP, socket.TCP_INFO, 200)[1]))
    Through(e, "getsockname", 0, "EFAULT ENOMEM")(told(lambda: calls.getsockname(near)[1]))
    Through(e, "getpeername", 0, "EFAULT ENOMEM")(told(lambda: calls.getpeername(near)[1]))
    Through(e, "ioctl", 0, "EFAULT ENOMEM")(told(lambda: calls.ioctl_int(near, consts.SIOCINQ)))

    # More idle descriptors than fit on the kernel's stack, followed by a ready one.
    listener = e.listen()
    pairs = [e.pair(listener) for _ in range(24)]
    watched = [pair[0].fileno() for pair in pairs] + [e.socket().fileno()]
    array = (ctypes.c_char * (8 * len(watched))).from_buffer_copy(b"".join(struct.pack("=ihh", fd, select.POLLIN, 0) for fd in watched))
    Through(e, "poll", 1, "ENOMEM")(told(lambda: calls.plain("poll", array, ctypes.c_ulong(len(watched)), int(e.patience * 1000))))

    def watch(fault):
        poller = select.epoll()
        result = fault(lambda: poller.register(near.fileno(), select.EPOLLIN | select.EPOLLET))
        if failed(result):
            poller.register(near.fileno(), select.EPOLLIN | select.EPOLLET)
        far.sendall(b"wake")
        e.equal(poller.poll(e.patience), [(near.fileno(), select.EPOLLIN)], "what epoll says")
        e.equal(near.recv_exactly(4), b"wake", "data")
        poller.close()
        return result

    Through(e, "epoll_ctl", 1, "ENOMEM")(watch)
    closing(listener, *(sock for pair in pairs for sock in pair))
    closing(near, far)

    def ends(end):
        def attempt(fault):
            near, far = e.pair()
            near.sendall(b"last words")
            result = fault(lambda: end(near))
            if failed(result):
                end(near)
            e.equal(far.drain(), b"last words", "what was sent before the end")
            if near.fileno() >= 0:
                far.sendall(b"an answer")
                far.close()
                e.equal(near.drain(), b"an answer", "what came after it")
            closing(near, far)
            return result
        return attempt

    Through(e, "shutdown", 0, "ENOMEM")(ends(lambda sock: calls.shutdown(sock, socket.SHUT_WR)))
    Through(e, "close", 0, "")(ends(lambda sock: sock.close()))

    def dissolve(fault):
        near, far = e.pair()
        nowhere = struct.pack("=H14x", 0)
        result = fault(lambda: calls.connect(near, nowhere))
        if failed(result):
            calls.connect(near, nowhere)
        e.wait_mask(far, "RDHUP")
        closing(near, far)
        return result

    Through(e, "connect to nobody", 0, "EFAULT ENOMEM")(dissolve)
    nothing_left(e)
