# SPDX-License-Identifier: GPL-2.0-only
"""Messages that are sent from the pages of the program."""

import random
import signal
import socket
import struct
import time

from lib import calls, consts
from lib.memory import Memory
from lib.registry import case

from ..zcopy.blocks import Counters, eager, unpinned
from ..zcopy.notified import Told
from . import fill, pair
from .messages import body, result

SIZE = 200_001
EOR, PEEK, TRUNC, DONTWAIT = socket.MSG_EOR, socket.MSG_PEEK, socket.MSG_TRUNC, socket.MSG_DONTWAIT


def ends(e):
    """Returns two connected sockets that send messages of a page or more without a copy."""
    return pair(e, eager)


def sender(e, sock, number, size=SIZE, flags=0):
    """Sends a message while the case continues."""
    return e.task(calls.send, sock, body(number, size), flags)


@case(reference=False, timeout=60, hosts=(1, 2))
def whole(e):
    """A reader with enough space gets a message without a copy, at either end, with its MSG_EOR."""
    near, far = ends(e)
    for source, target in ((near, far), (far, near)):
        for number, space in enumerate((SIZE, SIZE + 1, 1 << 20)):
            def attempt():
                counters = Counters()
                task = sender(e, source, number, flags=EOR if number else 0)
                e.equal(result(target, space), (SIZE, body(number, SIZE), "EOR" if number else ""), "the message")
                e.equal(task.result(), SIZE, "bytes sent")
                return all(counters.gained(f"zcopy {way}_bytes") == SIZE for way in ("tx", "rx"))
            e.lucky(attempt, "the message was copied")
    unpinned(e)


@case(reference=False, timeout=60, hosts=(1, 2))
def little_space(e):
    """A reader without enough space gets the beginning; the rest is dropped."""
    near, far = ends(e)
    for number, space in enumerate((0, 1, 10, 70000, SIZE - 1)):
        task = sender(e, near, number)
        e.equal(result(far, space), (space, body(number, SIZE)[:space], "TRUNC"), f"{space} bytes")
        e.equal(task.result(), SIZE, "bytes sent")
        near.send(b"next")
        e.equal(result(far, 10), (4, b"next", ""), "the next one")
    unpinned(e)


@case(reference=False, timeout=60, hosts=(1, 2))
def peeked(e):
    near, far = ends(e)
    for number, space in enumerate((10, 70000, SIZE)):
        task = sender(e, near, number)
        for flags in (PEEK, PEEK | TRUNC):
            e.equal(result(far, space, flags)[1], body(number, SIZE)[:space], "peeked")
        e.equal(far.recv(SIZE), body(number, SIZE), "received")
        task.result()
    unpinned(e)


@case(reference=False, timeout=60, hosts=(1, 2))
def not_waiting(e):
    """poll(2) reports a message that a receive can then take without waiting."""
    near, far = ends(e)
    for number in range(5):
        task = sender(e, near, number)
        e.equal(e.wait(far), "IN", "poll")
        e.equal(far.recv(SIZE, DONTWAIT), body(number, SIZE), "the message")
        task.result()
    unpinned(e)


@case(reference=False, timeout=60, hosts=(1, 2))
def nobody_reads(e):
    """A send does not wait for a reader, with or without a time-out: the message is sent."""
    for microseconds in (0, 1000):
        near, far = ends(e)
        near.settimeout(None)
        near.set(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, microseconds))
        counters = Counters()
        e.equal(calls.send(near, body(1, SIZE)), SIZE, "bytes sent")
        e.equal(counters.gained("zcopy returned"), 1, "blocks that came back")
        e.equal(near.send(b"next"), 4, "the next one")
        e.equal(far.recv(1 << 20), body(1, SIZE), "the message")
        e.equal(far.recv(10), b"next", "the next one")
    unpinned(e)


@case(reference=False, timeout=60, hosts=(1, 2))
def interrupted(e):
    """Each send among signals sends its message whole, or nothing with EINTR."""
    near, far = ends(e)
    near.settimeout(None)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, True)

    def receive():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        numbers = []
        while data := far.recv(chance.choice((1 << 20, SIZE + 8))):
            number, = struct.unpack("=Q", data[:8])
            e.check(data[8:] == body(number, SIZE), f"message {number}")
            numbers.append(number)
            time.sleep(chance.choice((0, 0, 0.01)))
        return numbers

    chance, sent = random.Random(3), []
    task = e.task(receive)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.003)
    for number in range(e.rounds(60)):
        data = struct.pack("=Q", number) + body(number, SIZE)
        outcome = e.outcome(calls.send, near, data)
        e.check(outcome in (len(data), "EINTR"), f"send gave {outcome}")
        if outcome == len(data):
            sent.append(number)
    signal.setitimer(signal.ITIMER_REAL, 0)
    near.shutdown(socket.SHUT_WR)
    e.equal(task.result(), sent, "messages")
    unpinned(e)


@case(reference=False, timeout=120, hosts=(1, 2))
def several(e):
    """Messages of several threads never mix, and neither do messages that several threads
    receive."""
    near, far = ends(e)
    many, threads = e.rounds(20), 3

    def send(number):
        chance = random.Random(number)
        for _ in range(many):
            size = chance.choice((64, 5000, 70000, SIZE))
            near.send(struct.pack("=II", number, size) + bytes([number]) * size)

    def receive():
        count = 0
        while data := far.recv(chance.choice((1 << 20, SIZE + 8))):
            number, size = struct.unpack("=II", data[:8])
            e.check(len(data) == size + 8 and data[8:] == bytes([number]) * size, f"a message of {len(data)} bytes is mixed")
            count += 1
        return count

    chance = random.Random(7)
    readers = [e.task(receive) for _ in range(2)]
    for task in [e.task(send, number) for number in range(threads)]:
        task.result()
    near.shutdown(socket.SHUT_WR)
    e.equal(sum(task.result() for task in readers), many * threads, "messages")
    unpinned(e)


@case(reference=False, timeout=60, hosts=(1, 2))
def closed(e):
    """Messages are sent until nothing fits; then the peer is closed."""
    near, far = ends(e)
    e.check(fill(e, near, SIZE) > 0, "nothing was sent")
    task = e.task(e.error, calls.send, near, body(1, SIZE))
    task.wait_asleep("sendto")
    far.close()
    e.check(task.result() in ("EPIPE", "ECONNRESET"), f"send: {task.result()}")
    unpinned(e)


@case(reference=False, timeout=60, hosts=(1, 2))
def reset(e):
    """A reset drops a message in the sender's memory. The reader gets the messages before, the
    error once, and then the end."""
    for flags in (0, PEEK):
        near, far = ends(e)
        near.set(socket.SOL_SOCKET, consts.SO_ZEROCOPY, 1)
        memory = Memory(SIZE).fill(5)
        near.send(b"first")
        e.equal(e.wait(far), "IN", "poll")
        e.equal(calls.send_at(near, memory.address, SIZE, consts.MSG_ZEROCOPY), SIZE, "sent")
        near.set(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        near.close()
        e.equal(far.recv(10), b"first", "the message before")
        e.equal(e.error(far.recv, 1 << 20, flags), "ECONNRESET", "the error")
        for _ in range(2):
            e.equal(far.recv(1 << 20, flags), b"", "the end")
        far.close()
    unpinned(e)


@case(reference=False, hosts=(1, 2), timeout=60)
def completion(e):
    """MSG_ZEROCOPY returns at once; its completion reports that the memory was not copied."""
    near, far = ends(e)
    near.set(socket.SOL_SOCKET, consts.SO_ZEROCOPY, 1)
    memory = Memory(SIZE).fill(5)
    for _ in range(3):
        e.equal(calls.send_at(near, memory.address, SIZE, consts.MSG_ZEROCOPY), SIZE, "sent")
        e.equal(far.recv(1 << 20), memory.map[:SIZE], "received")
    e.equal(Told(e, near).wait(3), [0, 0, 0], "the completions")
    unpinned(e)
