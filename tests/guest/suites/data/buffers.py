# SPDX-License-Identifier: GPL-2.0-only
"""Contents of socket buffers, and the moment when the space of sent bytes is free again."""

import select
import socket

from lib import calls, consts, pattern
from lib.registry import case

BEDS = (1, 2)
DONTWAIT = socket.MSG_DONTWAIT
SOL = socket.SOL_SOCKET


def inq(sock):
    return calls.ioctl_int(sock, consts.SIOCINQ)


def outq(sock):
    return calls.ioctl_int(sock, consts.SIOCOUTQ)


@case(hosts=BEDS)
def counts(e):
    """SIOCINQ counts readable bytes, SIOCOUTQ counts bytes that the peer has not received."""
    near, far = e.pair()
    e.note("at first", (inq(near), outq(near), inq(far), outq(far)))
    near.send(b"x" * 1000)
    e.unread(far, 1000)
    e.note("inq", inq(far))
    e.note("outq", e.until(lambda: outq(near) == 0, "SIOCOUTQ of 0"))
    near.send(b"y" * 500)
    e.unread(far, 1500)
    e.note("two sends", inq(far))
    far.recv(700)
    e.note("after a part", inq(far))
    near.shutdown(socket.SHUT_WR)
    e.wait_mask(far, "RDHUP")
    e.note("with the end", inq(far))
    far.recv(1000)
    e.note("at the end", inq(far))
    e.note("outq at the end", e.until(lambda: outq(near) == 0, "SIOCOUTQ of 0") and outq(near))


@case(hosts=BEDS)
def idle_reader(e):
    """Bytes that fit into the receive buffers are delivered even if the peer's program makes no
    call: the sender's buffer becomes free.
    """
    near, far = e.pair()
    data = pattern.Pattern(54).at(0, 60000)
    near.sendall(data)
    e.until(lambda: outq(near) == 0, "SIOCOUTQ of 0")
    near.close()
    e.check(far.recv_exactly(len(data)) == data, "other bytes have come")
    e.note("end", far.recv(1))


@case(hosts=BEDS, timeout=60)
def small_ones_after_large_ones(e):
    """With a small SO_RCVBUF, a socket can hold several unread small messages, even after large
    messages."""
    listener = e.listen(prepare=lambda sock: sock.setsockopt(SOL, socket.SO_RCVBUF, 65536))
    near, far = e.pair(listener)
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    task = e.task(pattern.send, near, 55, 8 << 20, [1 << 20])
    e.equal(pattern.receive(far, 55, 8 << 20, [100000]), 8 << 20, "bytes")
    task.result()
    for number in range(8):
        near.send(b"%d" % number)
        e.unread(far, number + 1)
    e.note("all of them", far.recv(100, socket.MSG_PEEK | socket.MSG_WAITALL | DONTWAIT))


@case(hosts=BEDS)
def unread_small(e):
    """A socket can hold hundreds of unread small messages."""
    near, far = e.pair()
    words = [b"message %04d" % number for number in range(1000)]
    for word in words:
        e.equal(calls.send(near, word, DONTWAIT), len(word), "what send took")
    total = sum(map(len, words))
    e.unread(far, total)
    e.note("inq", inq(far))
    e.check(far.recv_exactly(total) == b"".join(words), "the words differ")


@case(hosts=BEDS, timeout=60)
def in_flight(e):
    """A sender may be 200 KB ahead of a peer that does not read."""
    near, far = e.pair()
    stream, sent = pattern.Pattern(51), 0
    while sent < 200000:
        sent += calls.send(near, stream.at(sent, 4000), DONTWAIT)
    e.equal(pattern.receive(far, 51, sent, [30000]), sent, "bytes")


@case(hosts=BEDS, timeout=60)
def in_flight_both_ways(e):
    """Like `in_flight`, but with data in both directions at once."""
    near, far = e.pair()
    sent = {}
    for seed, sock in ((52, near), (53, far)):
        stream, count = pattern.Pattern(seed), 0
        while count < 200000:
            count += calls.send(sock, stream.at(count, 4000), DONTWAIT)
        sent[seed] = count
    e.equal(pattern.receive(far, 52, sent[52], [30000]), sent[52], "bytes there")
    e.equal(pattern.receive(near, 53, sent[53], [30000]), sent[53], "bytes back")


@case(hosts=BEDS, timeout=60)
def full(e):
    """A send on a full socket returns EAGAIN; the socket is writable again once the peer has
    read."""
    near, far = e.pair()
    sent = e.fill(near)
    e.check(sent >= 100000, f"only {sent} bytes fit")
    e.note("send", e.error(calls.send, near, b"x" * 100000, DONTWAIT))
    e.note("mask", near.mask())
    e.check(outq(near) > 0, "full, and nothing in SIOCOUTQ")
    e.check(0 < inq(far) <= sent, f"SIOCINQ is {inq(far)} of {sent}")
    poller = e.task(e.wait, near, select.POLLOUT).wait_asleep("poll")
    count = 0
    while count < sent:
        count += len(calls.recv(far, 1 << 20))
    e.note("writable", poller.result())
    e.note("read", count == sent)
    e.note("mask then", e.wait_mask(near, "OUT"))
    e.note("send then", calls.send(near, b"x" * 1000, DONTWAIT))


@case(hosts=BEDS, timeout=60)
def full_by_edge(e):
    """An edge-triggered writer gets an event when the send buffer has space again."""
    near, far = e.pair()
    near.setblocking(False)
    poller = select.epoll()
    poller.register(near.fileno(), select.EPOLLOUT | select.EPOLLET)
    e.note("at first", [mask for _, mask in poller.poll(e.patience)])
    total, stream, sent, checker = 3000000, pattern.Pattern(54), 0, pattern.Checker(54)
    rounds = 0
    while sent < total:
        took = e.outcome(near.send, stream.at(sent, min(100000, total - sent)))
        if took != "EAGAIN":
            sent += took
            continue
        rounds += 1
        while checker.count < sent:
            checker.feed(calls.recv(far, 1 << 20))
        e.check(poller.poll(e.patience), f"no edge after {sent} bytes, all of them read")
    e.check(rounds > 0, "the socket never was full")
    e.equal(checker.count + len(far.recv_exactly(total - checker.count)), total, "bytes")


@case(hosts=BEDS, timeout=60)
def slow_reader(e):
    """One large send, and many small receives."""
    near, far = e.pair()
    total = 700000
    task = e.task(pattern.send, near, 55, total, [total])
    e.equal(pattern.receive(far, 55, total, [1, 100, 3, 2000]), total, "bytes")
    task.result()


@case(timeout=60)
def small_buffers(e):
    """Data passes with the smallest buffers that a program can set."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        listener = e.listen(prepare=lambda sock: sock.set(SOL, option, 1))
        near, far = e.pair(listener, prepare=lambda sock: sock.set(SOL, option, 1))
        task = e.task(pattern.send, near, 56, 100000, [50000])
        e.equal(pattern.receive(far, 56, 100000, [7000]), 100000, "bytes")
        task.result()
        task = e.task(pattern.send, far, 57, 100000, [50000])
        e.equal(pattern.receive(near, 57, 100000, [7000]), 100000, "bytes back")
        task.result()


@case(hosts=BEDS, timeout=60)
def receive_buffer_bounds(e):
    """SO_RCVBUF limits the unread data of a peer."""
    listener = e.listen(prepare=lambda sock: sock.set(SOL, socket.SO_RCVBUF, 20000))
    near, far = e.pair(listener)
    near.set(SOL, socket.SO_SNDBUF, 20000)
    sent = e.fill(near, 4000)
    bound = far.get(SOL, socket.SO_RCVBUF) + near.get(SOL, socket.SO_SNDBUF)
    e.check(sent >= 8000, f"only {sent} bytes fit")
    if e.sdp:       # on TCP the receive window may be larger than the option
        e.check(sent <= 4 * bound, f"{sent} bytes fit into buffers of {bound}")
    count = 0
    while count < sent:
        count += len(calls.recv(far, 1 << 20))
    e.note("all read", count == sent)


@case
def blocked_sender_wakes(e):
    """A reader wakes a blocked send()."""
    near, far = e.pair()
    sent = e.fill(near)
    task = e.task(calls.send, near, b"z" * 300000).wait_asleep("sendto")
    count = 0
    while count < sent + 300000:
        count += len(calls.recv(far, 1 << 20))
    e.note("send", task.result())


@case(hosts=(0, 1), timeout=60)
def larger_send_buffer(e):
    """A larger SO_SNDBUF wakes a blocked send(), which continues although nobody reads."""
    near, far = e.pair()
    near.set(SOL, socket.SO_SNDBUF, 20000)
    sent = e.fill(near)
    task = e.task(calls.send, near, b"z" * 3000).wait_asleep("sendto")
    near.set(SOL, consts.SO_SNDBUFFORCE, 2 << 20)
    e.note("send", task.result())
    count = 0
    while count < sent + 3000:
        count += len(calls.recv(far, 1 << 20))


@case
def unread_on_many(e):
    """Several connections have unread data at the same time."""
    listener = e.listen(backlog=32)
    pairs = [e.pair(listener) for _ in range(10)]
    for seed, (near, _) in enumerate(pairs):
        e.equal(calls.send(near, pattern.Pattern(seed).at(0, 40000), DONTWAIT), 40000, "what send took")
    for seed, (_, far) in reversed(list(enumerate(pairs))):
        e.equal(pattern.receive(far, seed, 40000, [999]), 40000, "bytes")
