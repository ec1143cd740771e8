# SPDX-License-Identifier: GPL-2.0-only
"""Boundaries of messages, and messages that do not fit."""

import ctypes
import mmap
import os
import random
import select
import socket
import struct
import tempfile

from lib import calls, consts, pattern
from lib.registry import case

from . import drain, fill, pair

PEEK, TRUNC, DONTWAIT, EOR, OOB = socket.MSG_PEEK, socket.MSG_TRUNC, socket.MSG_DONTWAIT, socket.MSG_EOR, socket.MSG_OOB
SOL = socket.SOL_SOCKET
LARGE = 150000
LAST = 2 << 20


def body(number, size):
    return pattern.Pattern(number).at(0, size)


def result(sock, size, flags=0):
    """Returns the result of recvmsg(2), the bytes, and the names of the flags."""
    count, (data,), flags, *_ = calls.recvmsg(sock, [size], flags)
    names = "|".join(name for name, bit in (("EOR", EOR), ("TRUNC", TRUNC), ("OOB", OOB)) if flags & bit)
    return count, data[:min(count, size)], names


@case(hosts=(1, 2))
def boundaries(e):
    """Each receive returns one message, whatever its size."""
    near, far = pair(e)
    sizes = [1, 2, 3, 4, 5, 63, 64, 2043, 2044, 2045, 8188, 8192, 65531, 65532, 65533, 65536, 70000, LARGE]
    for number, size in enumerate(sizes):
        e.note(f"sent {size}", near.send(body(number, size)))
        e.equal(far.recv(LARGE + 1), body(number, size), f"{size} bytes")
    words = [b"%d" % number for number in range(100)]
    for word in words:
        far.send(word)
    e.equal([near.recv(1000) for _ in words], words, "many at once")


@case(hosts=(1, 2))
def truncated(e):
    """The rest of a message that does not fit the buffer is dropped; tests the four combinations of
    PEEK and TRUNC."""
    near, far = pair(e)
    for size in (10, 3000, 100000):
        near.send(body(1, size))
        near.send(b"next")
        for flags in (PEEK, PEEK | TRUNC, TRUNC):
            count, data, names = result(far, 5, flags)
            e.note(f"{size} by {flags}", (count, names))
            e.equal(data, body(1, 5), "the beginning")
        e.equal(far.recv(10), b"next", "the next one")
        near.send(body(2, size))
        near.send(b"next")
        count, data, names = result(far, size - 1)
        e.note(f"all but one of {size}", (count, names))
        e.equal(data, body(2, size - 1), "the bytes")
        e.note(f"after {size}", result(far, 4))


@case(hosts=(1, 2))
def no_space(e):
    """A receive without space drops the message."""
    near, far = pair(e)
    near.send(b"abc")
    near.send(b"def")
    e.note("peeked", result(far, 0, PEEK))
    e.note("first", result(far, 0))
    e.note("second", result(far, 10))


@case(hosts=(1, 2))
def peeked(e):
    near, far = pair(e)
    for number in range(3):
        near.send(body(number, 70000 + number))
    for number in range(3):
        e.equal(far.recv(80000, PEEK), body(number, 70000 + number), "peeked")
        e.equal(far.recv(80000), body(number, 70000 + number), "received")
    e.note("peek offset", e.error(far.set, SOL, 42, 0), sdp="EOPNOTSUPP", because="messages have no offset, as on AF_VSOCK")


@case(hosts=(1, 2))
def records(e):
    """MSG_EOR arrives with its message. AF_UNIX does not transfer MSG_EOR."""
    near, far = pair(e)
    for name, flags in (("not", 0), ("yes", EOR), ("again not", 0)):
        near.send(b"abc", flags)
        e.note(name, result(far, 10), sdp=(3, b"abc", "EOR" if flags else ""), because="AF_UNIX ignores MSG_EOR")
    os.write(near.fileno(), b"def")
    e.note("write", result(far, 2), sdp=(2, b"de", "EOR|TRUNC"), because="write(2) sets MSG_EOR")


@case(hosts=(1, 2))
def empty(e):
    """A send of zero bytes sends nothing, as on AF_VSOCK."""
    near, far = pair(e)
    e.note("sent", near.send(b""))
    near.send(b"x")
    e.note("received", far.recv(10), sdp=b"x", because="AF_UNIX sends a message without bytes")


@case(hosts=(1, 2))
def without_effect(e):
    """Stream options that connections of messages do not have."""
    near, far = pair(e)
    if e.sdp:
        near.set(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    far.set(SOL, socket.SO_RCVLOWAT, 1000)
    near.send(b"abc", consts.MSG_MORE)
    e.note("mask", e.wait(far))
    e.note("waitall", far.recv(100, socket.MSG_WAITALL))
    e.note("send oob", e.error(near.send, b"x", OOB))
    e.note("recv oob", e.error(far.recv, 1, OOB))
    e.note("nothing", e.error(far.recv, 1, DONTWAIT))


@case(reference=False, hosts=(1, 2))
def longest(e):
    """A message of SDP_MAX_MESSAGE bytes is sent, a longer message is refused."""
    for buffer in (None, 16384, 1 << 20):
        near, far = pair(e, lambda sock: buffer and sock.set(SOL, socket.SO_RCVBUF, buffer))
        most = near.get(socket.IPPROTO_TCP, consts.SDP_MAX_MESSAGE)
        e.check(256 << 10 <= most <= LAST, f"{buffer}: {most}")
        for sock in (near, far):
            sock.set(SOL, socket.SO_SNDBUF, 4096)
        e.equal(e.error(near.send, bytes(most + 1)), "EMSGSIZE", "one byte too many")
        for number in range(3):
            task = e.task(near.send, body(number, most))
            e.equal(far.recv(most + 1), body(number, most), "the bytes")
            e.equal(task.result(), most, "sent")
    lone = e.socket(kind=socket.SOCK_SEQPACKET)
    e.equal(e.error(lone.get, socket.IPPROTO_TCP, consts.SDP_MAX_MESSAGE), "ENOTCONN", "unconnected")
    e.equal(e.error(e.socket().get, socket.IPPROTO_TCP, consts.SDP_MAX_MESSAGE), "ENOPROTOOPT", "a stream")


@case(reference=False, timeout=60, hosts=(1, 2))
def beyond_the_buffer(e):
    """A message longer than SO_RCVBUF arrives whole, also after a message that fills SO_RCVBUF, and
    without a waiting call."""
    near, far = pair(e, lambda sock: sock.set(SOL, socket.SO_RCVBUF, 4096))
    for sizes in ((200000,), (60000, 200000), (100, 250000, 1, 250000), (250000, 250000)):
        task = e.task(lambda sizes=sizes: [near.send(body(size, size)) for size in sizes])
        for size in sizes:
            e.equal(e.wait(far), "IN", "poll")
            e.equal(far.recv(300000, DONTWAIT), body(size, size), f"{size} of {sizes}")
        task.result()


@case(timeout=60, hosts=(1, 2))
def full(e):
    """Without space a send waits, or returns EAGAIN and sends nothing. poll(2) and send agree."""
    near, far = pair(e)
    sent = fill(e, near)
    e.check(sent > 1, f"{sent} were sent")
    e.note("again", e.error(near.send, b"x", DONTWAIT))
    e.note("writable", "OUT" in near.mask())
    near.settimeout(None)
    near.set(SOL, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50000))
    e.note("time-out", e.error(calls.send, near, b"late"))
    drain(e, far, sent)
    e.wait(near, select.POLLOUT)
    while "OUT" in near.mask():
        e.equal(near.send(body(0, 50000), DONTWAIT), 50000, "a send after EPOLLOUT")


@case(reference=False, timeout=120, hosts=(1, 2))
def full_of_long_ones(e):
    """A send buffer far above the longest message fills up: the next send returns EAGAIN."""
    near, far = pair(e, lambda sock: sock.set(SOL, socket.SO_RCVBUF, 1 << 20))
    near.set(SOL, consts.SO_SNDBUFFORCE, 16 << 20)
    size = near.get(socket.IPPROTO_TCP, consts.SDP_MAX_MESSAGE)
    sent = fill(e, near, size)
    e.equal(e.error(near.send, bytes(size), DONTWAIT), "EAGAIN", f"after {sent} of {size} bytes")
    e.check("OUT" not in near.mask(), "poll agrees with send")
    for number in range(sent):
        e.equal(int(far.recv(LAST)[:8]), number, "the next message")


@case(timeout=60, hosts=(1, 2))
def interrupted(e):
    """A signal ends a waiting send, which then sends nothing, and a waiting receive."""
    near, far = pair(e)
    e.note("recv", e.interrupt(lambda: calls.recv(near, 10), "recvfrom"))
    sent = fill(e, near)
    e.note("send", e.interrupt(lambda: calls.send(near, b"never" * 1000), "sendto"))
    drain(e, far, sent)
    near.send(b"last")
    e.note("then", far.recv(60000))


@case(timeout=120, hosts=(1, 2))
def several_senders(e):
    """Messages of several threads never mix."""
    near, far = pair(e)
    if not e.sdp:
        near.set(SOL, socket.SO_SNDBUF, 1 << 20)
    many, senders = e.rounds(40), 4
    if e.kind == "tcp":
        many = 5

    def send(number):
        chance = random.Random(number)
        for _ in range(many):
            size = chance.choice((64, 1000, 5000, 65536, 100000))
            near.send(struct.pack("=II", number, size) + bytes([number]) * size)

    tasks = [e.task(send, number) for number in range(senders)]
    counts = [0] * senders
    for _ in range(many * senders):
        data = far.recv(200000)
        number, size = struct.unpack("=II", data[:8])
        e.check(len(data) == size + 8 and data[8:] == bytes([number]) * size, f"a message of {len(data)} bytes is mixed")
        counts[number] += 1
    for task in tasks:
        task.result()
    e.note("messages", [count == many for count in counts])


@case
def bad_memory(e):
    """A message from unreadable memory is not sent; a message that is received into unwritable
    memory is lost."""
    near, far = pair(e)
    page = mmap.PAGESIZE
    for pages in (1, 30):
        area = mmap.mmap(-1, (pages + 1) * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(area))
        calls.libc.munmap(ctypes.c_void_p(start + pages * page), ctypes.c_size_t(page))
        near.send(b"before")
        e.note(f"send {pages}", e.error(calls.send_at, near, start, pages * page + 1))
        near.send(b"behind")
        e.note(f"one {pages}", far.recv(10))
        e.note(f"two {pages}", far.recv(10))
        near.send(body(3, pages * page + 10))
        near.send(b"next")
        e.note(f"recv {pages}", e.error(calls.recv_at, far, start, pages * page + 10))
        e.note(f"next {pages}", far.recv(10))
        far.set(SOL, socket.SO_RCVTIMEO, struct.pack("ll", 1, 0))


@case
def files(e):
    """sendfile(2) and splice(2) to a socket send messages; splice(2) from a socket of messages does
    not work."""
    near, far = pair(e)
    with tempfile.TemporaryFile() as file:
        file.write(body(4, 20000))
        file.flush()
        e.equal(os.sendfile(near.fileno(), file.fileno(), 0, 20000), 20000, "sent")
        got = b""
        while len(got) < 20000:
            got += far.recv(70000)
        e.equal(got, body(4, 20000), "the bytes of the file")
    near.send(b"abc")
    reader, writer = os.pipe()
    e.note("splice", e.error(calls.splice, far.fileno(), writer, 10), sdp="EINVAL", because="a pipe has no messages, as on AF_VSOCK")
    os.close(reader)
    os.close(writer)


@case(timeout=60)
def polled(e):
    """Edge-triggered epoll: each complete message causes one event, a part of a message none."""
    near, far = pair(e)
    poller = select.epoll()
    poller.register(far.fileno(), select.EPOLLIN | select.EPOLLET)
    e.equal(poller.poll(0), [], "at first")
    for size in (10, LARGE):
        task = e.task(near.send, body(size, size))
        e.note(f"edge of {size}", [mask for _, mask in poller.poll(e.patience)])
        e.equal(far.recv(LARGE, DONTWAIT), body(size, size), "the message")
        task.result()
    e.equal(poller.poll(0), [], "after the last one")
