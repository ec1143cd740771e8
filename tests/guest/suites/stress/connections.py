# SPDX-License-Identifier: GPL-2.0-only
"""Many simultaneous connections, and many consecutive ones."""

import os
import random
import select
import socket
import struct

from lib import calls, observe, pattern
from lib.registry import case

SOL = socket.SOL_SOCKET


def settled(e):
    """Waits until neither host has a socket of the module left."""
    e.until(lambda: not observe.rows("self") and not observe.rows("peer"),
            lambda: f"{len(observe.rows('self'))} and {len(observe.rows('peer'))} sockets stay", patience=e.patience * 9)


def processor_time():
    """Returns the total processor time of the host, in ticks."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    return user + nice + system + irq + softirq


@case(reference=False, timeout=180)
def a_thousand(e):
    """1,000 connections at once, each with data in both directions. Closing connections needs no
    more processor time than opening them: many workers that wait for rxe without sleeping would
    block other tasks."""
    before = processor_time()
    listener = e.listen(backlog=1024)
    pairs = []
    for number in range(1000):
        near = e.connect(listener)
        far, _ = listener.accept()
        pairs.append((near, far))
        near.send(b"from %d" % number)
    beginning = processor_time() - before
    for number, (near, far) in enumerate(pairs):
        e.equal(far.recv(20), b"from %d" % number, "words")
        far.send(b"to %d" % number)
    for number, (near, far) in enumerate(pairs):
        e.equal(near.recv(20), b"to %d" % number, "answer")
    if e.sdp:
        e.check(len(observe.rows("self")) >= 1000, "fewer rows than connections")
    chosen = random.Random(1).sample(range(1000), 30)
    for number in chosen:
        near, far = pairs[number]
        task = e.task(pattern.send, near, number, 100000, [9000])
        e.equal(pattern.receive(far, number, 100000, [8000]), 100000, "bytes")
        task.result()
    before = processor_time()
    for near, far in pairs:
        near.close()
        far.close()
    listener.close()
    if e.sdp:
        settled(e)
        end = processor_time() - before
        # a debug kernel scans all memory during the test
        most = beginning * (3 if os.uname().release.endswith("-debug") else 1)
        e.check(end <= most, f"the end took {end} ticks of the processors, the beginning {beginning}")


@case(reference=False, timeout=120)
def storm(e):
    """Threads that connect, transfer and close as fast as they can."""
    listener = e.listen(backlog=128)
    rounds, threads = 40, 6

    def serve():
        for _ in range(rounds):
            far, _ = listener.accept()
            word = far.recv(100)
            far.sendall(word)
            far.close()

    def knock(number):
        for turn in range(rounds):
            with e.connect(listener) as near:
                word = b"%d %d" % (number, turn)
                near.sendall(word)
                e.equal(near.recv_exactly(len(word)), word, "echo")

    tasks = [e.task(serve) for _ in range(threads)] + [e.task(knock, number) for number in range(threads)]
    for task in tasks:
        task.join(e.patience * 15)
        task.result()
    listener.close()
    if e.sdp:
        settled(e)


@case(reference=False, timeout=120)
def aborted_connects(e):
    """Non-blocking connects are closed or reset at once, in every order, while a server accepts
    other connections."""
    listener = e.listen(backlog=64)
    listener.setblocking(False)
    choice = random.Random(7)
    for turn in range(e.rounds(150)):
        sock = e.socket()
        sock.setblocking(False)
        e.error(sock.connect, e.address(e.there, listener.port))
        way = choice.randrange(4)
        if way == 1:
            sock.setsockopt(SOL, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        elif way == 2:
            sock.mask_when(select.POLLOUT, 0.05)
        elif way == 3:
            e.error(sock.shutdown, socket.SHUT_RDWR)
        sock.close()
        while (made := e.error_or(listener.accept)) is not None:
            made[0].close()
    listener.close()
    again = e.listen()
    near, far = e.pair(again)
    near.send(b"fine")
    e.equal(far.recv(10), b"fine", "data afterwards")
    for sock in (near, far, again):
        sock.close()
    if e.sdp:
        settled(e)


@case(reference=False, timeout=120)
def closing_orders(e):
    """Both ends send and close in random order and by random calls: each reader receives the stream
    without a gap up to some position."""
    listener = e.listen()
    for seed in range(30):
        choice = random.Random(seed)
        near, far = e.pair(listener)

        def end(sock, own, other):
            total = choice.randrange(1, 120000)
            how = choice.choice(("close", "shutdown", "reset", "read"))

            def run():
                sent = e.error(pattern.send, sock, own, total, [5000], socket.MSG_NOSIGNAL)
                if how in ("shutdown", "read"):
                    e.error(sock.shutdown, socket.SHUT_WR)
                if how == "read":
                    checker = pattern.Checker(other)
                    while isinstance(data := e.outcome(calls.recv, sock, 7000), bytes) and data:
                        checker.feed(data)
                if how == "reset":
                    sock.setsockopt(SOL, socket.SO_LINGER, struct.pack("=ii", 1, 0))
                sock.close()
                return sent
            return run

        # A sender whose peer does not read must be able to finish: the totals fit the buffers.
        tasks = [e.task(end(near, seed, seed + 1000)), e.task(end(far, seed + 1000, seed))]
        results = [task.result() for task in tasks]
        e.check(set(results) <= {"ok", "EPIPE", "ECONNRESET"}, f"seed {seed}: {results}")
    listener.close()
    if e.sdp:
        settled(e)


@case(reference=False, timeout=120)
def many_threads(e):
    """Transfers of random sizes on several connections, in both directions, from many threads."""
    listener = e.listen(backlog=32)
    tasks = []
    for number in range(6):
        choice = random.Random(number)
        near, far = e.pair(listener)
        total = choice.randrange(300000, 900000)
        for source, target, seed in ((near, far, number), (far, near, number + 50)):
            tasks.append((total, e.task(pattern.send, source, seed, total,
                                        [choice.randrange(1, 60000) for _ in range(20)])))
            tasks.append((total, e.task(pattern.receive, target, seed, total,
                                        [choice.randrange(1, 60000) for _ in range(20)])))
    for total, task in tasks:
        task.join(e.patience * 15)
        e.equal(task.result(), total, "bytes")
