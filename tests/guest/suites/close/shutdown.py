# SPDX-License-Identifier: GPL-2.0-only
"""shutdown(): each direction alone, and the effect at the peer."""

import select
import signal
import socket

from lib import calls, consts, pattern
from lib.registry import case

BEDS = (1, 2)
RD, WR, RDWR = socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR
NOSIGNAL, DONTWAIT = socket.MSG_NOSIGNAL, socket.MSG_DONTWAIT


@case(hosts=BEDS)
def sending_side(e):
    near, far = e.pair()
    near.send(b"last words")
    e.note("shutdown", e.error(near.shutdown, WR))
    e.note("own mask", near.mask())
    e.note("send", e.error(calls.send, near, b"x", NOSIGNAL))
    e.note("peer's mask", e.wait_mask(far, "RDHUP"))
    e.note("data", far.recv(100))
    e.note("end", [far.recv(100) for _ in range(3)])
    e.note("peer's mask at the end", far.mask())
    e.note("other way", (far.send(b"answer"), near.recv(100)))
    e.note("peer name", near.getpeername()[0])
    e.note("shutdown again", e.error(near.shutdown, WR))


@case(hosts=BEDS)
def receiving_side(e):
    """SHUT_RD: reads return the end of the stream; the module sends no message."""
    near, far = e.pair()
    e.note("shutdown", e.error(near.shutdown, RD))
    e.note("recv", near.recv(10))
    e.note("mask", near.mask())
    e.note("peer's mask", far.mask())
    e.note("send", (near.send(b"still"), far.recv(10)))
    e.note("again", e.error(near.shutdown, RD))


@case(hosts=BEDS)
def receiving_side_with_data(e):
    """After SHUT_RD, data that has arrived stays readable, and later data is readable too."""
    near, far = e.pair()
    far.send(b"before")
    e.unread(near, 6)
    near.shutdown(RD)
    e.note("before", near.recv(10))
    e.note("then", near.recv(10))
    e.note("peer sends", far.send(b"after"))
    e.unread(near, 5)
    e.note("after", near.recv(10))
    e.note("end", near.recv(10))


@case
def receiving_side_wakes(e):
    """SHUT_RD in another thread ends a blocked recv()."""
    for how in (RD, RDWR):
        near, far = e.pair()
        task = e.task(calls.recv, near, 10).wait_asleep("recvfrom")
        near.shutdown(how)
        e.note(f"recv {how}", task.result())
        near, far = e.pair()
        task = e.task(e.wait, near, select.POLLIN).wait_asleep("poll")
        near.shutdown(how)
        e.note(f"poll {how}", "IN" in task.result().split("|"))


@case
def sending_side_wakes(e):
    """SHUT_WR in another thread ends a blocked send()."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    near, _ = e.pair()
    e.fill(near)

    def send_on():
        # TCP may find space in a full buffer: send() then returns the number of accepted bytes
        while True:
            calls.send(near, b"x" * 4000000)

    task = e.task(send_on).wait_asleep("sendto")
    near.shutdown(WR)
    e.note("error", e.error(task.result))


@case(hosts=BEDS)
def both_sides(e):
    near, far = e.pair()
    far.send(b"unread")
    e.unread(near, 6)
    near.send(b"words")
    e.note("shutdown", e.error(near.shutdown, RDWR))
    e.note("mask", near.mask())
    e.note("recv", near.recv(100))
    e.note("recv then", near.recv(100))
    e.note("send", e.error(calls.send, near, b"x", NOSIGNAL))
    e.note("peer reads", far.recv_exactly(6))
    e.note("peer's mask", e.wait_mask(far, "RDHUP"))


@case(hosts=BEDS)
def by_both_ends(e):
    """Both ends call shutdown(SHUT_WR): the connection is closed."""
    near, far = e.pair()
    near.send(b"from near")
    near.shutdown(WR)
    far.send(b"from far")
    far.shutdown(WR)
    e.note("near reads", near.drain())
    e.note("far reads", far.drain())
    e.note("near's mask", e.wait_mask(near, "HUP"))
    e.note("far's mask", e.wait_mask(far, "HUP"))
    e.note("near recv", near.recv(10))
    e.note("far recv", far.recv(10))
    e.note("near send", e.error(calls.send, near, b"x", NOSIGNAL))
    e.note("near error", near.get(socket.SOL_SOCKET, socket.SO_ERROR))
    e.until(lambda: e.error(far.getpeername) == "ENOTCONN", "the end of the connection")
    e.note("far shutdown", e.error(far.shutdown, RDWR))


@case(hosts=BEDS)
def at_the_same_time(e):
    """Both ends call shutdown() at the same time, with data in flight."""
    for turn in range(10):
        near, far = e.pair()
        near.send(b"n" * 1000)
        far.send(b"f" * 1000)
        tasks = [e.task(near.shutdown, WR), e.task(far.shutdown, WR)]
        for task in tasks:
            task.result()
        e.equal(near.drain(), b"f" * 1000, "what near read")
        e.equal(far.drain(), b"n" * 1000, "what far read")
        e.equal(near.get(socket.SOL_SOCKET, socket.SO_ERROR), 0, "near's error")
        e.equal(far.get(socket.SOL_SOCKET, socket.SO_ERROR), 0, "far's error")
        near.close()
        far.close()


@case(hosts=BEDS, timeout=60)
def long_answer(e):
    """One direction is shut down while the other direction transfers many MiB."""
    near, far = e.pair()
    near.send(b"request")
    near.shutdown(WR)
    e.note("request", far.drain())
    total = 10 << 20
    task = e.task(lambda: (pattern.send(far, 71, total, [65536]), far.shutdown(WR)))
    e.equal(pattern.receive(near, 71, total + 1, [100000]), total, "bytes")
    task.result()
    e.note("mask", e.wait_mask(near, "HUP"))


@case(hosts=BEDS, timeout=60)
def behind_data(e):
    """The end of the stream arrives after all sent bytes, for any amount in the queue."""
    near, far = e.pair()
    total = 3 << 20
    task = e.task(lambda: (pattern.send(near, 72, total, [total]), near.shutdown(WR)))
    e.equal(pattern.receive(far, 72, total + 1, [30000]), total, "bytes")
    task.result()
    near, far = e.pair()
    sent = e.fill(near)
    near.shutdown(WR)
    e.equal(len(far.drain()), sent, "bytes of a full socket")


@case(timeout=60)
def never_before_data(e):
    """A reader that polls continuously gets the last bytes, then the end of the stream."""
    listener = e.listen()
    for turn in range(100):
        near, far = e.pair(listener)
        task = e.task(lambda: (near.send(b"last"), near.shutdown(WR)))
        words = []
        while not words or words[-1]:
            data = e.error_or(calls.recv, far, 10, DONTWAIT)
            if data is not None:
                words.append(data)
        e.equal(words, [b"last", b""], f"what was read in turn {turn}")
        task.result()
        near.close()
        far.close()


@case(hosts=BEDS)
def wrong(e):
    near, _ = e.pair()
    e.note("how 3", e.error(calls.shutdown, near, 3))
    e.note("how -1", e.error(calls.shutdown, near, -1))
    e.note("still good", near.send(b"x"))


@case(hosts=BEDS)
def states(e):
    """TCP_INFO's states during closing, except states that depend on timing."""
    near, far = e.pair()

    def state(sock):
        return consts.TCP_STATES[sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]]

    e.note("connected", (state(near), state(far)))
    near.shutdown(WR)
    e.wait_mask(far, "RDHUP")
    e.note("peer, half closed", state(far))
    e.until(lambda: state(near) != "FIN_WAIT1", "the end of FIN_WAIT1")
    e.note("half closed", state(near))
    far.shutdown(WR)
    e.wait_mask(near, "HUP")
    e.until(lambda: state(near) in ("CLOSE", "TIME_WAIT"), lambda: f"the first closer stays {state(near)}")
    e.until(lambda: state(far) == "CLOSE", lambda: f"the peer stays {state(far)}")
    near, far = e.pair()
    near.shutdown(RD)
    e.note("receiving side only", (state(near), state(far)))
    e.note("listening", state(e.listen()))
    e.note("new", state(e.socket()))
