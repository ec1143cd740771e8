# SPDX-License-Identifier: GPL-2.0-only
"""Socket calls of GlusterFS's transport with address-family inet-sdp, between hosts and locally."""

import errno
import os
import select
import socket
import struct

from lib import calls, consts, netns
from lib.preload import Way
from lib.registry import case
from lib.sock import Sock

PORT, CALLS, LENGTH = 24007, 20, 40000


def prepared():
    sock = Sock.make(consts.AF_INET_SDP)
    sock.setblocking(False)
    for level, option, value in ((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
                                 (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20), (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
                                 (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 9), (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 42000)):
        sock.setsockopt(level, option, value)
    return sock


class Records:
    """One end, which uses length-prefixed records, and calls writev and recv when epoll reports
    space or data."""

    def __init__(self, e, sock):
        self._e, self._sock, self._in, self._epoll = e, sock, b"", select.epoll()
        self._epoll.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)

    def _wait(self):
        self._e.check(self._epoll.poll(self._e.patience), "nothing comes to pass")

    def send(self, record):
        parts = [struct.pack("!I", len(record)), record[:100], record[100:]]
        while parts:
            try:
                done = os.writev(self._sock.fileno(), parts)
            except BlockingIOError:
                self._wait()
                continue
            while parts and done >= len(parts[0]):
                done -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][done:]

    def receive(self):
        while len(self._in) < 4 or len(self._in) < 4 + struct.unpack("!I", self._in[:4])[0]:
            try:
                part = self._sock.recv(65536)
            except BlockingIOError:
                self._wait()
                continue
            self._e.check(part, "the end of the stream")
            self._in += part
        size = 4 + struct.unpack("!I", self._in[:4])[0]
        record, self._in = self._in[4:size], self._in[size:]
        return record


def connection(e, way):
    """Both ends exchange records on a connection from a privileged port."""
    with netns.inside(way.where):
        listener = e.keep(prepared())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    calls.bind(listener, calls.sa_in(way.host, PORT))
    listener.listen(10)
    near = e.keep(prepared())
    for port in range(1023, 0, -1):
        if e.error(calls.bind, near, calls.sa_in("0.0.0.0", port, consts.AF_INET_SDP)) == "ok":
            break
    e.equal(e.error(calls.connect, near, calls.sa_in(way.host, PORT)), "EINPROGRESS", "connect()")
    e.equal(e.wait(near, select.POLLOUT), "OUT", "what poll() says of it")
    e.equal(near.get(socket.SOL_SOCKET, socket.SO_ERROR), 0, "SO_ERROR")
    e.wait(listener)
    far, peer = listener.accept()
    e.keep(far).setblocking(False)
    e.equal((peer, far.getpeername(), near.getpeername()), (near.getsockname(), near.getsockname(), (way.host, PORT)), "the names")
    e.check(peer[1] < 1024, f"port {peer[1]}")
    return Records(e, near), Records(e, far), listener


def requests(e, way):
    """Requests and answers, one after the other."""
    near, far, listener = connection(e, way)
    with way.carries(CALLS * LENGTH, CALLS * LENGTH):
        for number in range(CALLS):
            record = struct.pack("!I", number) * (LENGTH // 4)
            near.send(record)
            got = far.receive()
            e.check(got == record, f"request {number} is another one")
            far.send(got[::-1])
            e.check(near.receive() == record[::-1], f"answer {number} is another one")
    # the server has ended once the port has no listener
    listener.close()
    again = e.keep(prepared())
    answer = e.error(calls.connect, again, calls.sa_in(way.host, PORT))
    if answer == "EINPROGRESS":
        e.wait(again, select.POLLOUT)
        answer = errno.errorcode[again.get(socket.SOL_SOCKET, socket.SO_ERROR)]
    e.equal(answer, "ECONNREFUSED", "a connect to nobody")


def cases():
    for way_name in ("by_rdma", "locally"):
        def run(e, way_name=way_name):
            with Way(e, way_name) as way:
                requests(e, way)
        run.__name__, run.__doc__ = f"requests_{way_name}", requests.__doc__
        case(run, families=("v4",), reference=False, timeout=60)


cases()
