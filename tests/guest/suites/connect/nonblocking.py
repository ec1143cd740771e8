# SPDX-License-Identifier: GPL-2.0-only
"""Non-blocking connect()."""

import select
import socket

from lib import calls, consts
from lib.registry import case

SOL = socket.SOL_SOCKET


def started(e, host, port):
    """Returns a non-blocking socket with connect() in progress, and the result of the call."""
    sock = e.socket()
    sock.setblocking(False)
    return sock, e.error(sock.connect, e.address(host, port))


@case
def success(e):
    listener = e.listen()
    sock, said = started(e, e.there, listener.port)
    e.note("first", said)
    e.note("event", e.wait(sock, select.POLLOUT))
    e.note("error", sock.get(SOL, socket.SO_ERROR))
    e.note("second", e.error(sock.connect, e.address(e.there, listener.port)))
    e.note("third", e.error(sock.connect, e.address(e.there, listener.port)))
    e.note("peer", sock.getpeername()[0])
    far, _ = listener.accept()
    sock.send(b"hello")
    e.note("data", far.recv(10))


@case
def success_without_asking(e):
    """A program polls once after connect(), then sends."""
    listener = e.listen()
    sock, _ = started(e, e.there, listener.port)
    e.wait(sock, select.POLLOUT)
    e.note("mask", sock.mask())
    e.note("send", sock.send(b"hello"))
    far, _ = listener.accept()
    e.note("data", far.recv(10))
    e.note("error", sock.get(SOL, socket.SO_ERROR))


@case
def by_epoll(e):
    listener = e.listen()
    sock = e.socket()
    sock.setblocking(False)
    poller = select.epoll()
    poller.register(sock, select.EPOLLOUT | select.EPOLLIN | select.EPOLLET)
    poller.poll(0)
    e.note("first", e.error(sock.connect, e.address(e.there, listener.port)))
    ready = poller.poll(e.patience)
    while ready and not ready[0][1] & select.EPOLLOUT:
        ready = poller.poll(e.patience)
    e.note("event", ready[0][1])
    e.note("error", sock.get(SOL, socket.SO_ERROR))


@case
def refused(e):
    sock, said = started(e, e.there, e.refused_port())
    e.note("first", said)
    e.note("event", e.wait(sock, select.POLLOUT))
    e.note("error", sock.get(SOL, socket.SO_ERROR))
    e.note("error again", sock.get(SOL, socket.SO_ERROR))
    e.note("mask", sock.mask())
    e.note("peer", e.error(sock.getpeername))
    e.note("recv", e.error(calls.recv, sock, 1))


@case
def refused_seen_by_connect(e):
    sock, _ = started(e, e.there, e.refused_port())
    e.wait(sock, select.POLLOUT)
    listener = e.listen()
    e.note("second", e.error(sock.connect, e.address(e.there, listener.port)))
    e.note("third", e.error(sock.connect, e.address(e.there, listener.port)))
    e.note("event", e.wait(sock, select.POLLOUT))
    e.note("fourth", e.error(sock.connect, e.address(e.there, listener.port)))


@case
def refused_seen_by_send(e):
    sock, _ = started(e, e.there, e.refused_port())
    e.wait(sock, select.POLLOUT)
    e.note("send", e.error(calls.send, sock, b"x", socket.MSG_NOSIGNAL))
    e.note("send again", e.error(calls.send, sock, b"x", socket.MSG_NOSIGNAL))


@case
def refused_seen_by_recv(e):
    sock, _ = started(e, e.there, e.refused_port())
    e.wait(sock, select.POLLIN)
    e.note("recv", e.error(calls.recv, sock, 1))
    e.note("recv again", e.outcome(calls.recv, sock, 1))


@case(timeout=60)
def pending(e):
    """Every call during connection setup."""
    target = e.address(e.silent(), 9)
    sock, said = started(e, *target[:2])
    e.note("first", said)
    e.note("second", e.error(sock.connect, target))
    e.note("another target", e.error(sock.connect, e.address(e.there, 9)))
    e.note("mask", sock.mask())
    e.note("error", sock.get(SOL, socket.SO_ERROR))
    e.note("own name", (sock.getsockname()[0], sock.port > 0))
    e.note("peer", e.error(sock.getpeername))
    e.note("send", e.error(calls.send, sock, b"x", socket.MSG_NOSIGNAL))
    e.note("recv", e.error(calls.recv, sock, 1))
    e.note("recv urgent", e.error(calls.recv, sock, 1, socket.MSG_OOB))
    e.note("listen", e.error(sock.listen, 1))
    e.note("bind", e.error(sock.bind, e.address(e.here, 0)))
    e.note("accept", e.error(sock.accept))
    e.note("inq", e.outcome(calls.ioctl_int, sock, consts.SIOCINQ))
    e.note("outq", e.outcome(calls.ioctl_int, sock, consts.SIOCOUTQ))
    sock.close()


@case(timeout=60)
def pending_and_shutdown(e):
    for how in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR):
        target = e.address(e.silent(), 9)
        sock, _ = started(e, *target[:2])
        e.note(f"shutdown {how}", e.error(sock.shutdown, how))
        e.note(f"mask {how}", sock.mask())
        e.note(f"recv {how}", e.outcome(calls.recv, sock, 1))
        e.note(f"send {how}", e.error(calls.send, sock, b"x", socket.MSG_NOSIGNAL))
        e.note(f"connect {how}", e.error(sock.connect, e.address(e.there, e.listen().port)))


@case(timeout=60)
def pending_then_blocking(e):
    """A second, blocking connect() waits for the first connect() to complete."""
    sock, _ = started(e, *e.address(e.silent(), 9)[:2])
    sock.setblocking(True)
    target = calls.sa(e.there, 9)
    e.note("interrupted", e.interrupt(lambda: calls.connect(sock, target), "connect"))


@case
def closed_at_once(e):
    """Connects that are aborted at once do not affect other connects."""
    listener = e.listen(backlog=256)
    for _ in range(50):
        sock, _ = started(e, e.there, listener.port)
        sock.close()
    late = e.connect(listener)
    late.send(b"late")
    listener.settimeout(e.patience)
    for _ in range(60):
        far, _ = listener.accept()
        far.settimeout(e.patience)
        try:
            if far.recv(10) == b"late":
                break
        except ConnectionResetError:
            pass
        far.close()
    else:
        e.check(False, "the one that stayed was never accepted")
    e.note("accepted", "late")


@case
def many_at_once(e):
    """64 connects are in flight, then all are accepted, each with its own data."""
    listener = e.listen(backlog=128)
    socks = [started(e, e.there, listener.port)[0] for _ in range(64)]
    for number, sock in enumerate(socks):
        e.wait(sock, select.POLLOUT)
        e.equal(sock.get(SOL, socket.SO_ERROR), 0, "SO_ERROR")
        sock.send(b"%d" % number)
    heard = {}
    for _ in socks:
        far, address = listener.accept()
        heard[address[1]] = int(far.recv(10))
    e.note("ports", [heard[sock.port] for sock in socks])


@case
def blocking_send_waits(e):
    """A blocking send on a connecting socket waits for the connection."""
    listener = e.listen()
    sock, _ = started(e, e.there, listener.port)
    sock.setblocking(True)
    e.note("send", e.outcome(calls.send, sock, b"first"))
    far, _ = listener.accept()
    e.note("data", far.recv(10))
    sock, _ = started(e, e.there, e.refused_port())
    sock.setblocking(True)
    e.note("refused", e.error(calls.send, sock, b"first", socket.MSG_NOSIGNAL))


@case
def blocking_recv_waits(e):
    listener = e.listen()
    sock, _ = started(e, e.there, listener.port)
    sock.setblocking(True)
    task = e.task(sock.recv, 10)
    far, _ = listener.accept()
    far.send(b"word")
    e.note("recv", task.result())
