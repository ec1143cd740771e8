# SPDX-License-Identifier: GPL-2.0-only
"""MSG_ZEROCOPY: the completion notification of each send in the error queue, and its timing."""

import select
import socket
import struct

from lib import calls, consts
from lib.registry import case

S, ZEROCOPY, ERRQUEUE = socket.SOL_SOCKET, consts.MSG_ZEROCOPY, socket.MSG_ERRQUEUE
MANY = bytes(range(250)) * 400


def notice(e, sock, room=512):
    """Returns the next notification, as (level and type of the message, its length, errno, origin,
    type, code, first, last, offender's family)."""
    data, control, flags, name = sock.recvmsg(100, room, ERRQUEUE)
    e.equal((data, flags & ERRQUEUE), (b"", ERRQUEUE), "data and flags")
    (level, kind, raw), *more = control
    e.equal(more, [], "more messages")
    error, origin, of, code, first, last, family = struct.unpack_from("=IBBBxIIH", raw)
    return level, kind, len(raw), error, origin, of, code, first, last, family


def until(e, sock, last):
    """Returns all notifications up to that of send number `last`, and checks that each number comes
    once and in order."""
    told, next_one = [], 0
    while next_one <= last:
        e.equal(sock.mask_when(0, e.patience), "ERR", "poll() for nothing but errors")
        level, kind, length, error, origin, of, code, first, end, family = notice(e, sock)
        e.equal(first, next_one, "the first number")
        told.append((level, kind, length, error, origin, of, code, family))
        next_one = end + 1
    e.equal(next_one, last + 1, "one after the last number")
    e.equal(sock.mask(0), "-", "poll() when all is told")
    e.equal(e.error(sock.recvmsg, 1, 100, ERRQUEUE), "EAGAIN", "the error queue when all is told")
    return sorted(set(told))


@case(hosts=(1, 2))
def option(e):
    """SO_ZEROCOPY set before connect(), after connect(), and on a listener, whose accepted sockets
    inherit the option."""
    with e.socket() as sock:
        e.note("default", sock.get(S, consts.SO_ZEROCOPY))
        for value in (1, 0, 1):
            sock.set(S, consts.SO_ZEROCOPY, value)
            e.note(f"after {value}, {len(e._noted)}", sock.get(S, consts.SO_ZEROCOPY))
        for wrong in (2, -1):
            e.note(f"set {wrong}", e.error(sock.set, S, consts.SO_ZEROCOPY, wrong))
    near, far = e.pair()
    e.note("after connect()", e.error(near.set, S, consts.SO_ZEROCOPY, 1))
    e.note("what it is", (near.get(S, consts.SO_ZEROCOPY), far.get(S, consts.SO_ZEROCOPY)))
    listener = e.listen("peer", prepare=lambda sock: sock.set(S, consts.SO_ZEROCOPY, 1))
    other = e.socket()
    other.connect(e.address(e.there, listener.port))
    accepted = e.keep(listener.accept()[0])
    e.note("accepted", accepted.get(S, consts.SO_ZEROCOPY))


@case
def told(e):
    """Each send has a notification with its number once the kernel no longer needs the memory; in
    this case after the copy."""
    near, far = e.pair()
    near.set(S, consts.SO_ZEROCOPY, 1)
    e.note("poll() before", near.mask())
    e.note("sent", near.send(MANY[:5000], ZEROCOPY))
    e.equal(far.recv_exactly(5000), MANY[:5000], "the bytes")
    e.note("notification", until(e, near, 0))
    for number in range(1, 4):
        near.send(b"xy", ZEROCOPY)
        e.equal(far.recv_exactly(2), b"xy", "the bytes")
    e.equal(calls.send(near, b"", ZEROCOPY), 0, "no bytes, which are not counted")
    near.send(b"plain")
    e.equal(far.recv_exactly(5), b"plain", "bytes that are not counted either")
    near.sendall(MANY, ZEROCOPY)
    e.equal(far.recv_exactly(len(MANY)), MANY, "many bytes")


@case
def numbers(e):
    """The notifications of many sends cover each number once."""
    near, far = e.pair()
    near.set(S, consts.SO_ZEROCOPY, 1)
    for _ in range(20):
        near.send(b"z" * 100, ZEROCOPY)
    e.equal(far.recv_exactly(2000), b"z" * 2000, "the bytes")
    got = 0
    while got < 20:
        e.equal(near.mask_when(0, e.patience), "ERR", "poll()")
        *rest, first, last, family = notice(e, near)
        e.equal(first, got, "the first number")
        got = last + 1
    e.note("numbers", got)
    e.note("kind", rest)


@case
def unwanted(e):
    """Without SO_ZEROCOPY no notification arrives; a failed send has neither notification nor
    number."""
    near, far = e.pair()
    near.send(b"abc", ZEROCOPY)
    e.equal(far.recv_exactly(3), b"abc", "the bytes")
    e.note("error queue", e.error(near.recvmsg, 1, 100, ERRQUEUE))
    near.set(S, consts.SO_ZEROCOPY, 1)
    e.note("bad memory", e.error(calls.send_at, near, 8, 100, ZEROCOPY))
    e.note("error queue after that", e.error(near.recvmsg, 1, 100, ERRQUEUE))
    near.send(b"abc", ZEROCOPY)
    e.equal(far.recv_exactly(3), b"abc", "the bytes")
    e.note("notification", until(e, near, 0))
    near.shutdown(socket.SHUT_WR)
    e.note("after shutdown()", e.error(near.send, b"abc", ZEROCOPY | socket.MSG_NOSIGNAL))
    e.note("error queue at last", e.error(near.recvmsg, 1, 100, ERRQUEUE))
    with e.socket() as fresh:
        fresh.set(S, consts.SO_ZEROCOPY, 1)
        e.note("error queue of an unconnected one", e.error(fresh.recvmsg, 1, 100, ERRQUEUE))


@case
def little_room(e):
    """A notification is truncated and lost if its control message does not fit."""
    near, far = e.pair()
    near.set(S, consts.SO_ZEROCOPY, 1)
    near.send(b"abc", ZEROCOPY)
    e.equal(far.recv_exactly(3), b"abc", "the bytes")
    e.equal(near.mask_when(0, e.patience), "ERR", "poll()")
    data, control, flags, _ = near.recvmsg(10, 0, ERRQUEUE)
    e.note("without room", (data, control, flags))
    e.note("after that", e.error(near.recvmsg, 1, 100, ERRQUEUE))


@case
def epoll(e):
    """epoll reports a notification even if the program requested no event."""
    near, far = e.pair()
    near.set(S, consts.SO_ZEROCOPY, 1)
    watch = select.epoll()
    watch.register(near, select.EPOLLET)
    near.send(b"abc", ZEROCOPY)
    events = watch.poll(e.patience)
    e.note("events", [mask & select.EPOLLERR for _, mask in events])
    e.equal(far.recv_exactly(3), b"abc", "the bytes")


@case
def closed(e):
    """Unread notifications are freed with the socket."""
    near, far = e.pair()
    near.set(S, consts.SO_ZEROCOPY, 1)
    for _ in range(5):
        near.send(b"abc", ZEROCOPY)
    near.close()
    e.note("the bytes", far.recv_exactly(15))
