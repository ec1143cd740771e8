# SPDX-License-Identifier: GPL-2.0-only
"""Bytes arrive once and in order, for all sizes and directions."""

import collections
import random
import select
import socket

from lib import calls, pattern
from lib.registry import case

BEDS = (1, 2)
MIB = 1 << 20


@case(hosts=BEDS)
def hello(e):
    near, far = e.pair()
    e.equal(near.send(b"hello"), 5, "sent")
    e.equal(far.recv(100), b"hello", "received")
    e.equal(far.send(b"world!"), 6, "answered")
    e.equal(near.recv(100), b"world!", "answer")


@case(hosts=BEDS, timeout=60)
def sizes(e):
    """One send of each size around every boundary of a buffer or page."""
    near, far = e.pair()
    for size in (1, 2, 3, 7, 15, 16, 17, 31, 48, 63, 64, 65, 100, 255, 256, 257, 511, 512, 1023, 1024, 1500, 2047, 2048,
                 4079, 4080, 4081, 4095, 4096, 4097, 8175, 8176, 8177, 8191, 8192, 8193, 16368, 16384, 16385, 32751,
                 32752, 32753, 32767, 32768, 32769, 65519, 65520, 65521, 65535, 65536, 65537, 131071, 131072, 131073):
        task = e.task(pattern.send, near, size, size, [size])
        e.equal(pattern.receive(far, size, size, [size]), size, f"bytes of a send of {size}")
        task.result()
        e.equal(e.error(far.recv, 1, socket.MSG_DONTWAIT), "EAGAIN", f"more after {size}")


@case(hosts=BEDS, timeout=60)
def large(e):
    """Several MiB by one call."""
    near, far = e.pair()
    for source, target in ((near, far), (far, near)):
        task = e.task(pattern.send, source, 5, 8 * MIB + 1, [8 * MIB + 1])
        e.equal(pattern.receive(target, 5, 8 * MIB + 1, [MIB]), 8 * MIB + 1, "bytes")
        task.result()


@case(hosts=BEDS, timeout=60)
def blocking_send_is_whole(e):
    """A blocking send returns only when all bytes are queued."""
    near, far = e.pair()
    data = pattern.Pattern(9).at(0, 6 * MIB)
    task = e.task(calls.send, near, data)
    e.equal(pattern.receive(far, 9, len(data), [70000]), len(data), "bytes")
    e.equal(task.result(), len(data), "what send returned")


@case(hosts=BEDS)
def nothing(e):
    """Sends and receives of zero bytes."""
    near, far = e.pair()
    e.note("send", calls.send(near, b""))
    e.note("write", calls.write(near, b""))
    e.note("recv", e.outcome(calls.recv, far, 0, socket.MSG_DONTWAIT))
    e.note("read", calls.read(far, 0))
    near.send(b"x")
    e.wait(far)
    e.note("recv with data", calls.recv(far, 0))
    e.note("peek with data", calls.recv(far, 0, socket.MSG_PEEK))
    e.note("still", far.recv(10))


@case(hosts=BEDS)
def no_boundaries(e):
    """Sends leave no boundaries in the stream: the receiver may read in any sizes."""
    near, far = e.pair()
    for word in (b"one", b"", b"two", b"three"):
        near.send(word)
    e.unread(far, 11)
    e.note("first", far.recv(4))
    e.note("rest", far.recv(100))


@case(hosts=BEDS)
def read_and_write(e):
    """read(2) and write(2) behave like recv(2) and send(2)."""
    near, far = e.pair()
    e.note("write", calls.write(near, b"by write"))
    e.note("read", calls.read(far, 100))
    far.setblocking(False)
    e.note("read nothing", e.error(calls.read, far, 100))


@case(hosts=BEDS)
def named_peer(e):
    """sendto() on a connection ignores the address; recvfrom() returns no address."""
    near, far = e.pair()
    e.note("sendto", e.outcome(calls.sendto, near, b"addressed", 0, calls.sa(e.there, 9)))
    e.note("sendto another family", e.outcome(calls.sendto, near, b".", 0, calls.sa_in("10.77.0.2", 9, 1)))
    e.unread(far, 10)
    _, data, flags, namelen, control = calls.recvmsg(far, [100])
    e.note("recvmsg", (data[0][:10], flags, namelen, control))


@case(hosts=BEDS, timeout=60)
def both_ways(e):
    """Both ends send and receive at the same time."""
    near, far = e.pair()
    total = 4 * MIB
    tasks = [e.task(pattern.send, near, 1, total, [70001]), e.task(pattern.send, far, 2, total, [40009]),
             e.task(pattern.receive, near, 2, total, [50021]), e.task(pattern.receive, far, 1, total, [60013])]
    e.equal([task.result() for task in tasks], [total] * 4, "bytes")


@case(hosts=BEDS, timeout=60)
def both_fill_first(e):
    """Both ends fill their buffers before they read: no byte is lost, and no call hangs."""
    near, far = e.pair()
    patterns = {near: 11, far: 12}
    sent = {}
    for sock, seed in patterns.items():
        stream, count = pattern.Pattern(seed), 0
        try:
            while True:
                count += sock.send(stream.at(count, 30000), socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent[sock] = count
    e.check(min(sent.values()) > 0, "nothing was taken")
    e.equal(pattern.receive(near, 12, sent[far], [9999]), sent[far], "bytes back")
    e.equal(pattern.receive(far, 11, sent[near], [10001]), sent[near], "bytes there")


@case(hosts=BEDS, timeout=90)
def byte_by_byte(e):
    """Many sends of one byte, and many receives of one byte."""
    near, far = e.pair()
    task = e.task(pattern.send, near, 3, 20000, [1])
    e.equal(pattern.receive(far, 3, 20000, [4096]), 20000, "bytes sent one by one")
    task.result()
    task = e.task(pattern.send, near, 4, 20000, [20000])
    e.equal(pattern.receive(far, 4, 20000, [1]), 20000, "bytes read one by one")
    task.result()


@case(hosts=BEDS, timeout=60)
def ping_pong(e):
    near, far = e.pair()

    def echo():
        while data := far.recv(65536):
            far.sendall(data)

    task = e.task(echo)
    stream, place = pattern.Pattern(6), 0
    for size in [1, 64, 1000, 5000, 40000] * 40:
        data = stream.at(place, size)
        near.sendall(data)
        e.equal(near.recv_exactly(size), data, f"echo of {size} at {place}")
        place += size
    near.shutdown(socket.SHUT_WR)
    task.result()


@case(hosts=BEDS, timeout=90)
def random_sizes(e):
    """Random sizes and directions from a seed. A failure prints the seed."""
    for seed in range(4):
        choice = random.Random(seed)
        near, far = e.pair()
        total = choice.randrange(200000, 1500000)

        def some():
            return [choice.choice((choice.randrange(1, 100), choice.randrange(1, 5000), choice.randrange(1, 200000)))
                    for _ in range(50)]

        tasks = [e.task(pattern.send, near, seed, total, some()), e.task(pattern.send, far, seed + 100, total, some()),
                 e.task(pattern.receive, near, seed + 100, total, some()),
                 e.task(pattern.receive, far, seed, total, some())]
        e.equal([task.result() for task in tasks], [total] * 4, f"bytes with seed {seed}")
        near.close()
        far.close()


@case(timeout=90)
def random_nonblocking(e):
    """Like `random_sizes`, but in one thread with non-blocking sockets and poll()."""
    for seed in range(3):
        choice = random.Random(seed)
        near, far = e.pair()
        total = 1200000
        ends = []
        for index, sock in enumerate((near, far)):
            sock.setblocking(False)
            ends.append({"sock": sock, "out": pattern.Pattern(seed * 2 + index), "sent": 0,
                         "in": pattern.Checker(seed * 2 + 1 - index)})
        while any(end["sent"] < total or end["in"].count < total for end in ends):
            poller = select.poll()
            for end in ends:
                poller.register(end["sock"].fileno(), (select.POLLOUT if end["sent"] < total else 0) | select.POLLIN)
            e.check(poller.poll(e.patience * 1000),
                    f"seed {seed} is stuck: {[(end['sent'], end['in'].count) for end in ends]}")
            for end in choice.sample(ends, 2):
                if choice.random() < 0.6 and end["sent"] < total:
                    size = min(choice.choice((10, 3000, 100000)), total - end["sent"])
                    sent = e.outcome(end["sock"].send, end["out"].at(end["sent"], size))
                    end["sent"] += sent if isinstance(sent, int) else 0
                else:
                    data = e.outcome(end["sock"].recv, choice.choice((10, 3000, 100000)))
                    if isinstance(data, bytes):
                        end["in"].feed(data)
        e.note(f"seed {seed}", [end["in"].count for end in ends])


@case(hosts=BEDS, timeout=90)
def many_connections(e):
    """Data on many connections at once does not mix."""
    listener = e.listen(backlog=64)
    pairs = [e.pair(listener) for _ in range(20)]
    total = 200000
    tasks = []
    for seed, (near, far) in enumerate(pairs):
        tasks += [e.task(pattern.send, near, seed, total, [7001]), e.task(pattern.receive, far, seed, total, [9001])]
    e.equal([task.result() for task in tasks], [total] * len(tasks), "bytes")


@case(hosts=BEDS)
def while_idle(e):
    """An idle connection between bursts, with the first byte from either side."""
    for first in (0, 1):
        ends = e.pair()
        for turn in range(4):
            source, target = ends[(first + turn) % 2], ends[(first + turn + 1) % 2]
            data = pattern.Pattern(turn).at(0, 100000)
            task = e.task(source.sendall, data)
            e.equal(target.recv_exactly(len(data)), data, f"burst {turn}")
            task.result()


@case
def two_senders(e):
    """Two threads send on one socket: each small message stays whole."""
    near, far = e.pair()
    word = 64

    def speak(letter):
        for _ in range(500):
            near.sendall(letter * word)

    tasks = [e.task(speak, letter) for letter in (b"a", b"b", b"c")]
    data = far.recv_exactly(3 * 500 * word)
    for task in tasks:
        task.result()
    e.equal([data.count(letter) for letter in (b"a", b"b", b"c")], [500 * word] * 3, "letters")
    e.check(all(len(set(data[place:place + word])) == 1 for place in range(0, len(data), word)), "a message was torn")


@case
def two_receivers(e):
    """Two threads receive on one socket: every byte goes to exactly one of the threads."""
    near, far = e.pair()
    parts = []

    def listen():
        while data := far.recv(4096):
            parts.append(data)

    tasks = [e.task(listen) for _ in range(3)]
    total = 500000
    pattern.send(near, 8, total, [3000])
    near.shutdown(socket.SHUT_WR)
    for task in tasks:
        task.result()
    e.equal(collections.Counter(b"".join(parts)), collections.Counter(pattern.Pattern(8).at(0, total)), "the bytes")
