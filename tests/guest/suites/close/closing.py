# SPDX-License-Identifier: GPL-2.0-only
"""close(2): effects at the peer, in every order, and the duration of the call."""

import os
import select
import socket
import struct
import time

from lib import calls, consts, pattern
from lib.registry import case

BEDS = (1, 2)
NOSIGNAL, DONTWAIT = socket.MSG_NOSIGNAL, socket.MSG_DONTWAIT
SOL = socket.SOL_SOCKET


def linger(sock, seconds, on=1):
    sock.setsockopt(SOL, socket.SO_LINGER, struct.pack("=ii", on, seconds))


@case(hosts=BEDS)
def plain(e):
    """One end closes without unread bytes: the peer reads all bytes, then the end of the stream."""
    for first in (0, 1):
        ends = e.pair()
        closer, other = ends[first], ends[1 - first]
        closer.send(b"last words")
        closer.close()
        e.note(f"{first}: mask", e.wait_mask(other, "RDHUP"))
        e.note(f"{first}: data", other.recv(100))
        e.note(f"{first}: end", other.recv(100))
        e.note(f"{first}: peer name", other.getpeername()[0] == (e.here, e.there)[first])
        e.note(f"{first}: close", e.error(other.close))


@case(reference=False, families=("v4",), timeout=120)
def slow_reader(e):
    """Bytes sent before close(2) arrive however slow the reader is, as long as the reader makes
    progress. (Earlier versions dropped the bytes after 60 s.)"""
    e.needs_wire()
    near, far = e.pair()
    sent = e.fill(near)
    near.close()
    got, start = 0, time.monotonic()
    while part := far.recv(sent // 30):
        got += len(part)
        if time.monotonic() < start + 65:
            time.sleep(5 if got < sent // 2 else 0)
    e.equal(got, sent, "bytes")


@case(hosts=BEDS)
def send_to_closed(e):
    """Sending to a closed peer: the first send succeeds, the next returns the error, and later ones
    EPIPE."""
    near, far = e.pair()
    far.close()
    e.wait_mask(near, "RDHUP")
    e.note("end", near.recv(10))
    e.note("first send", e.outcome(calls.send, near, b"x", NOSIGNAL))
    e.note("mask", e.wait_mask(near, "ERR"))
    e.note("second send", e.outcome(calls.send, near, b"x", NOSIGNAL))
    e.note("mask then", near.mask())
    e.note("third send", e.outcome(calls.send, near, b"x", NOSIGNAL))
    e.note("recv", e.outcome(calls.recv, near, 10))
    e.note("peer name", e.error(near.getpeername))


@case(hosts=BEDS)
def send_to_closed_seen_by_recv(e):
    near, far = e.pair()
    far.close()
    e.wait_mask(near, "RDHUP")
    near.send(b"x")
    e.wait_mask(near, "ERR")
    e.note("recv", e.outcome(calls.recv, near, 10))
    e.note("again", e.outcome(calls.recv, near, 10))
    e.note("error", near.get(SOL, socket.SO_ERROR))


@case(hosts=BEDS)
def unread_data(e):
    """Closing with unread data resets the connection."""
    near, far = e.pair()
    near.send(b"never read")
    e.unread(far, 10)
    far.close()
    e.note("mask", e.wait_mask(near, "HUP|ERR"))
    e.note("error", near.get(SOL, socket.SO_ERROR))
    e.note("error again", near.get(SOL, socket.SO_ERROR))
    e.note("mask then", near.mask())
    e.note("recv", e.outcome(calls.recv, near, 10))
    e.note("send", e.outcome(calls.send, near, b"x", NOSIGNAL))


@case(hosts=BEDS)
def unread_data_seen_by_calls(e):
    for call in ("recv", "send", "peek", "urgent", "sendmsg"):
        near, far = e.pair()
        near.send(b"never read")
        e.unread(far, 10)
        far.close()
        e.wait_mask(near, "HUP|ERR")
        function = {"recv": lambda: calls.recv(near, 10), "send": lambda: calls.send(near, b"x", NOSIGNAL),
                    "peek": lambda: calls.recv(near, 10, socket.MSG_PEEK),
                    "urgent": lambda: calls.recv(near, 1, socket.MSG_OOB),
                    "sendmsg": lambda: near.sendmsg([b"x"], [], NOSIGNAL)}[call]
        e.note(call, [e.outcome(function), e.outcome(function)])


@case(hosts=BEDS)
def data_before_reset(e):
    """A reset discards unread bytes, or leaves the bytes in order, followed by the error."""
    near, far = e.pair()
    near.send(b"never read")
    far.send(b"on its way")
    e.unread(near, 10)
    e.unread(far, 10)
    far.close()
    e.wait_mask(near, "HUP|ERR")
    e.note("inq", calls.ioctl_int(near, consts.SIOCINQ) in (0, 10))
    first = e.outcome(calls.recv, near, 100)
    e.note("first read", first)
    e.note("second read", e.outcome(calls.recv, near, 100))


@case(hosts=BEDS)
def linger_zero(e):
    """SO_LINGER with a time of 0: close() resets."""
    for first in (0, 1):
        ends = e.pair()
        closer, other = ends[first], ends[1 - first]
        linger(closer, 0)
        closer.send(b"lost or not")
        closer.close()
        e.note(f"{first}: mask", e.wait_mask(other, "HUP|ERR"))
        e.note(f"{first}: error", other.get(SOL, socket.SO_ERROR))
        e.note(f"{first}: send", e.error(calls.send, other, b"x", NOSIGNAL))


@case(hosts=BEDS)
def linger_zero_after_end(e):
    """A reset after the end of the stream."""
    near, far = e.pair()
    far.shutdown(socket.SHUT_WR)
    e.wait_mask(near, "RDHUP")
    linger(far, 0)
    far.close()
    e.note("mask", e.wait_mask(near, "HUP|ERR"))
    e.note("error", near.get(SOL, socket.SO_ERROR))


@case(hosts=BEDS, timeout=60)
def linger_waits(e):
    """SO_LINGER with a time: close() returns once all bytes have arrived."""
    near, far = e.pair()
    sent = e.fill(near)
    linger(near, 20)
    task = e.task(near.close)
    e.equal(len(far.drain()), sent, "bytes")
    far.close()
    task.result()
    e.note("closed", True)


@case(hosts=BEDS, timeout=60)
def linger_runs_out(e):
    """close(2) waits no longer than SO_LINGER allows, and the data still arrives."""
    near, far = e.pair()
    sent = e.fill(near)
    linger(near, 1)
    start = time.monotonic()
    near.close()
    took = time.monotonic() - start
    e.check(0.9 <= took, f"close() took {took:.2f} s with a linger time of 1 s and a full buffer")
    e.equal(len(far.drain()), sent, "bytes")


@case(hosts=BEDS, timeout=60)
def linger_for_a_word(e):
    """close(2) waits for the arrival of the last bytes, however few, and not for the peer's end."""
    near, far = e.pair()
    near.send(b"word")
    linger(near, 30)
    start = time.monotonic()
    near.close()
    e.check(time.monotonic() - start < 20, "close() waited for the end of the peer's stream")
    e.equal(far.drain(), b"word", "bytes")
    near, far = e.pair()
    linger(near, 1)
    with e.netem("loss 100%"):
        near.send(b"word")
        start = time.monotonic()
        near.close()
        took = time.monotonic() - start
    e.check(0.9 <= took, f"close() took {took:.2f} s with a linger time of 1 s and no peer")
    e.equal(far.drain(), b"word", "late bytes")


@case
def linger_nonblocking(e):
    """close() of a non-blocking socket lingers too, as on TCP."""
    near, far = e.pair()
    near.send(b"word")
    near.setblocking(False)
    linger(near, 5)
    near.close()
    e.note("data", far.drain())


@case(timeout=60)
def linger_interrupted(e):
    """A signal ends a lingering close(); the data still arrives."""
    listener = e.listen()

    def run():
        # The child makes the connection and has the only descriptor: its last close() lingers.
        near = e.connect(listener)
        linger(near, 60)
        sent = e.fill(near)
        number = near.detach()
        e._keep.clear()
        return sent, e.interrupt_self(lambda: calls.plain("close", number), "close")

    child = e.child(run)
    far, _ = listener.accept()
    sent, result = child.result()
    e.note("close", result)
    e.equal(len(far.drain()), sent, "bytes")


@case(hosts=BEDS)
def linger_option(e):
    near, _ = e.pair()
    e.note("default", near.getsockopt(SOL, socket.SO_LINGER, 8))
    for on, seconds in ((1, 5), (0, 7), (1, 0), (2, 3), (1, -1), (1, 1 << 30)):
        linger(near, seconds, on)
        e.note(f"{on} {seconds}", struct.unpack("=ii", near.getsockopt(SOL, socket.SO_LINGER, 8)))
    e.note("short", e.error(calls.setsockopt, near, SOL, socket.SO_LINGER, b"\1\0\0\0"))


@case(hosts=BEDS, timeout=60)
def with_much_queued(e):
    """close() right after a large send: all of the data arrives."""
    for first in (0, 1):
        ends = e.pair()
        closer, other = ends[first], ends[1 - first]
        total = 2 << 20
        task = e.task(lambda: (pattern.send(closer, 81, total, [total]), closer.close()))
        e.equal(pattern.receive(other, 81, total + 1, [20000]), total, f"bytes, closer {first}")
        task.result()
        e.equal(other.get(SOL, socket.SO_ERROR), 0, "error")


@case(hosts=BEDS, timeout=60)
def full_then_closed(e):
    """The bytes of a full send buffer arrive even if close(2) does not wait."""
    near, far = e.pair()
    sent = e.fill(near)
    near.close()
    e.equal(len(far.drain()), sent, "bytes")
    e.equal(far.get(SOL, socket.SO_ERROR), 0, "error")


@case(hosts=BEDS)
def both_at_once(e):
    for turn in range(20):
        near, far = e.pair()
        if turn % 2:
            near.send(b"word")
            e.equal(far.recv(10), b"word", "word")
        tasks = [e.task(near.close), e.task(far.close)]
        for task in tasks:
            task.result()
    e.note("turns", turn)


@case
def during_recv(e):
    """close(2) of a descriptor in one thread does not disturb recv(2) in another thread: the socket
    exists until recv(2) ends."""
    near, far = e.pair()
    task = e.task(calls.recv, near.fileno(), 10).wait_asleep("recvfrom")
    near.close()
    far.send(b"late")
    e.note("recv", task.result())
    e.note("peer sees", e.wait_mask(far, "RDHUP"))


@case
def during_poll(e):
    near, far = e.pair()
    task = e.task(e.wait, near, select.POLLIN).wait_asleep("poll")
    near.close()
    far.send(b"late")
    e.note("poll", task.result())


@case
def during_send(e):
    near, far = e.pair()
    sent = e.fill(near)
    task = e.task(calls.send, near.fileno(), b"y" * 500000).wait_asleep("sendto")
    near.close()
    e.equal(len(far.drain()), sent + 500000, "bytes")
    e.note("send", task.result())


@case
def during_accept(e):
    """close(2) of a listener in one thread does not wake accept(2) in another thread; accept(2)
    still gets one connection."""
    listener = e.listen()
    address = e.address(e.there, listener.port)
    task = e.task(calls.accept4, listener.fileno()).wait_asleep("accept4")
    listener.close()
    near = e.socket()
    e.note("connect", e.error(near.connect, address))
    e.check(task.result()[0] > 0, "accept() failed")


@case(hosts=BEDS)
def peer_blocked_in_recv(e):
    """A blocked recv() returns after the peer's close(), and after the peer's reset."""
    for way in ("close", "reset"):
        near, far = e.pair()
        task = e.task(calls.recv, far, 10)
        if way == "reset":
            linger(near, 0)
        near.close()
        e.note(way, e.outcome(task.result))


@case(hosts=BEDS, timeout=60)
def peer_blocked_in_send(e):
    """A blocked send() returns after the peer's reset."""
    near, far = e.pair()
    e.fill(near)

    def send_on():
        # TCP may find space in a full buffer: send() then returns the number of accepted bytes
        while True:
            calls.send(near, b"x" * 4000000, NOSIGNAL)

    task = e.task(send_on)
    far.close()
    e.note("send", e.error(task.result))


@case(hosts=BEDS)
def peer_in_poll(e):
    """close() and reset of the peer wake sleepers in poll() and epoll."""
    for way in ("close", "reset"):
        near, far = e.pair()
        task = e.task(far.mask_when, select.POLLIN | consts.POLLRDHUP, e.patience)
        if way == "reset":
            linger(near, 0)
        near.close()
        bits = task.result().split("|")
        e.note(way, ("IN" in bits, "RDHUP" in bits))


@case(hosts=BEDS)
def after_half_close(e):
    """close() after shutdown(), called by the peer or by the same end."""
    near, far = e.pair()
    near.shutdown(socket.SHUT_WR)
    e.note("end", far.recv(10))
    far.send(b"goodbye")
    far.close()
    e.note("data", near.recv(10))
    e.note("end back", near.recv(10))
    e.note("mask", e.wait_mask(near, "HUP"))
    e.note("error", near.get(SOL, socket.SO_ERROR))


@case(hosts=BEDS)
def data_for_a_closed_half(e):
    """Data for an end that called shutdown() and then close(): the sender gets a reset."""
    near, far = e.pair()
    near.shutdown(socket.SHUT_WR)
    near.close()
    e.note("end", far.recv(10))
    e.note("send", e.outcome(calls.send, far, b"unwanted", NOSIGNAL))
    e.note("mask", e.wait_mask(far, "ERR"))
    e.note("error", far.get(SOL, socket.SO_ERROR))


@case(hosts=BEDS, timeout=60)
def reset_in_transfer(e):
    """A reset during a large transfer: the bytes read are correct, and the error is reported.
    """
    near, far = e.pair()
    task = e.task(lambda: e.outcome(pattern.send, near, 82, 50 << 20, [65536], NOSIGNAL))
    e.equal(pattern.receive(far, 82, 3 << 20, [100000]), 3 << 20, "bytes before the reset")
    linger(far, 0)
    far.close()
    e.note("sender", task.result() in ("ECONNRESET", "EPIPE"))


@case
def duplicates(e):
    """Only close() of the last descriptor ends the connection."""
    near, far = e.pair()
    other = os.dup(near.fileno())
    near.close()
    os.write(other, b"by the other")
    e.note("data", far.recv(100))
    os.close(other)
    e.note("end", far.recv(100))


@case(hosts=BEDS)
def names_after(e):
    """Local and peer address of a closed connection."""
    near, far = e.pair()
    far.close()
    e.wait_mask(near, "RDHUP")
    e.note("peer after its close", near.getpeername()[0])
    near.shutdown(socket.SHUT_WR)
    e.wait_mask(near, "HUP")
    e.note("own at the end", near.getsockname()[0])
    e.until(lambda: e.error(near.getpeername) == "ENOTCONN", "the end of the peer's name")
