# SPDX-License-Identifier: GPL-2.0-only
"""Connections of messages: socket types, and the end of a connection."""

import errno
import select
import socket
import struct

from lib import calls, consts
from lib.registry import case

from . import SEQPACKET, connect, fill, listen, pair
from .messages import body

SOL, TCP = socket.SOL_SOCKET, socket.IPPROTO_TCP
RESET = struct.pack("ii", 1, 0)


@case(reference=False, hosts=(1, 2))
def identity(e):
    """Type and protocol of a SOCK_SEQPACKET socket: no program may mistake the socket for a TCP
    socket."""
    near, far = pair(e)
    for name, sock in (("near", near), ("far", far)):
        e.equal(sock.get(SOL, socket.SO_TYPE), 5, f"type of {name}")
        e.equal(sock.get(SOL, consts.SO_PROTOCOL), 0, f"protocol of {name}")
    for protocol in (6, 1, 17, 132, 257):
        e.equal(e.error(socket.socket, e.domain, SEQPACKET, protocol), "EPROTONOSUPPORT", f"protocol {protocol}")
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_RDM):
        e.equal(e.error(socket.socket, e.domain, kind, 0), "ESOCKTNOSUPPORT", f"type {kind}")


@case(reference=False, hosts=(1, 2))
def other_types(e):
    """A stream cannot connect to a listener of messages, and a socket of messages cannot connect to
    a stream listener. Streams and messages share the ports."""
    messages, stream = listen(e), e.listen()
    e.equal(e.error(e.connect, messages), "ECONNREFUSED", "a stream to messages")
    e.equal(e.error(connect, e, stream), "ECONNREFUSED", "messages to a stream")
    for held, kind in ((messages, socket.SOCK_STREAM), (stream, SEQPACKET)):
        other = e.socket("peer", kind)
        e.equal(e.error(other.bind, e.address(e.there, held.port)), "EADDRINUSE", "the port")
    near = connect(e, messages)
    near.send(b"works")
    far, _ = messages.accept()
    e.equal(far.recv(10), b"works", "the right type")
    first, second = e.connect(stream), stream.accept()[0]
    first.send(b"works")
    e.equal(second.recv(10), b"works", "the stream")


@case(reference=False, hosts=(1, 2))
def both_types_at_one_port(e):
    """With SO_REUSEPORT a listener of each type shares the port, and each listener gets connections
    of its own type."""
    stream = e.listen(prepare=lambda sock: sock.set(SOL, socket.SO_REUSEPORT, 1))
    messages = e.socket("peer", SEQPACKET).set(SOL, socket.SO_REUSEPORT, 1)
    messages.bind(e.address(e.there, stream.port))
    messages.listen(16)
    for _ in range(5):
        for make, listener, kind in ((e.connect, stream, 1), (lambda listener: connect(e, listener), messages, 5)):
            near = make(listener)
            far, _ = listener.accept()
            near.send(b"x")
            e.equal(far.recv(1), b"x", "what arrives")
            e.equal(far.get(SOL, socket.SO_TYPE), kind, "its type")


@case(hosts=(1, 2))
def shutdown(e):
    """The end of the stream follows the last message."""
    near, far = pair(e)
    for number in range(3):
        near.send(body(number, 70000))
    near.shutdown(socket.SHUT_WR)
    e.note("send", e.error(near.send, b"x", socket.MSG_NOSIGNAL))
    for number in range(3):
        e.equal(far.recv(80000), body(number, 70000), "a message")
    e.note("end", far.recv(10))
    e.note("again", far.recv(10))
    far.send(b"back")
    e.note("back", near.recv(10))
    far.shutdown(socket.SHUT_WR)
    e.note("end back", near.recv(10))


@case(hosts=(1, 2))
def closed(e):
    """close(2) sends the queued messages."""
    near, far = pair(e)
    for number in range(5):
        near.send(body(number, 30000))
    near.close()
    for number in range(5):
        e.equal(far.recv(80000), body(number, 30000), "a message")
    e.note("end", far.recv(10))


@case(reference=False, hosts=(1, 2))
def reset(e):
    """After a reset the program can read complete messages, and then gets the error."""
    near, far = pair(e)
    near.send(b"whole")
    e.wait(far)
    near.set(SOL, socket.SO_LINGER, RESET)
    near.close()
    e.wait_mask(far, "ERR|HUP")
    e.equal(far.recv(10), b"whole", "what came before")
    e.equal(e.error(far.recv, 10), "ECONNRESET", "and then")
    e.equal(far.recv(10), b"", "after that")
    e.equal(e.error(far.send, b"x", socket.MSG_NOSIGNAL), "EPIPE", "a send")


@case(reference=False, hosts=(1, 2))
def waiting_calls(e):
    """The end of a connection ends waiting calls."""
    near, far = pair(e)
    task = e.task(e.error, near.recv, 10).wait_asleep("recvfrom")
    far.set(SOL, socket.SO_LINGER, RESET)
    far.close()
    e.equal(task.result(), "ECONNRESET", "recv")
    near, far = pair(e)
    fill(e, near)
    task = e.task(e.error, lambda: near.send(bytes(50000), socket.MSG_NOSIGNAL)).wait_asleep("sendto")
    far.close()
    e.check(task.result() in ("ECONNRESET", "EPIPE"), f"send: {task.result()}")


@case(reference=False, hosts=(1, 2))
def unconnected(e):
    lone = e.socket(kind=SEQPACKET)
    e.equal(e.error(lone.recv, 1), "ENOTCONN", "recv")
    e.equal(e.error(lone.send, b"x", socket.MSG_NOSIGNAL), "EPIPE", "send")
    e.equal(e.error(listen(e).recv, 1), "ENOTCONN", "recv of a listener")


@case(reference=False, hosts=(1, 2))
def used_again(e):
    """A socket that connects again has no part of an old message, received or unsent."""
    def small(sock):
        sock.set(SOL, socket.SO_RCVBUF, 4096)

    listener, near = listen(e, prepare=small), e.socket(kind=SEQPACKET)
    small(near)
    for number in range(3):
        near.connect(e.address(e.there, listener.port))
        far, _ = listener.accept()
        far.send(b"unread")
        near.send(b"%d" % number)
        e.equal(far.recv(10), b"%d" % number, "the message")
        # only a part of each long message arrives, because an unread message is before it
        near.send(b"unread")
        for sock, other in ((near, far), (far, near)):
            e.equal(sock.send(body(number, 200000)), 200000, "a long message")
            e.unread(other, 100)
        calls.connect(near, struct.pack("=H", socket.AF_UNSPEC) + bytes(26))
        far.close()


@case(reference=False, timeout=60, hosts=(1, 2))
def non_blocking(e):
    """Non-blocking connect(2), accept(2), sends and receives."""
    listener = listen(e)
    near = e.socket(kind=SEQPACKET)
    near.setblocking(False)
    e.check(near.connect_ex(e.address(e.there, listener.port)) in (errno.EINPROGRESS, 0), "connect")
    e.wait(near, select.POLLOUT)
    far, _ = listener.accept()
    e.equal(e.error(near.recv, 10), "EAGAIN", "nothing there")
    far.send(body(1, 200000))
    e.wait(near)
    e.equal(near.recv(300000), body(1, 200000), "the message")
