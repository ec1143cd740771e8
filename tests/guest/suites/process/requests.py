# SPDX-License-Identifier: GPL-2.0-only
"""Further io_uring requests: segments, links, registered files, cancellation, multishot."""

import ctypes
import mmap
import os
import socket
import struct

from lib import calls, pattern
from lib.registry import case
from suites.process.uring import LINK, MORE, NOTIF, OP_ACCEPT, OP_RECV, OP_SEND, OP_SEND_ZC, REPORT_USAGE, Ring, answers, buffer_of
from suites.zcopy.blocks import MIB, Counters, pipelined, unpinned

FIXED_FILE, ASYNC, SELECT = 1, 16, 32
OP_SENDMSG_ZC, OP_CANCEL, OP_PROVIDE = 48, 14, 31
MULTISHOT_ACCEPT, MULTISHOT_RECV, HAS_BUFFER, SOCK_NONEMPTY = 1, 2, 1, 4


def message_of(*parts):
    """Returns a struct msghdr for the buffers, and the objects that have to outlive the struct."""
    vectors = (calls.Iovec * len(parts))(*(calls.Iovec(ctypes.addressof(part), len(part)) for part in parts))
    message = buffer_of(struct.pack("=QI4xQQQQi4x", 0, 0, ctypes.addressof(vectors), len(parts), 0, 0, 0))
    return message, vectors


@case(timeout=60)
def pieces(e):
    """SENDMSG_ZC of large and small segments, and of a single segment."""
    ring = Ring(e)
    near, far = e.pair()
    for sizes in ((300_000, 5, 70_000, 1, 16384, 1_000_000), (500_000,), (3,)):
        stream, total = pattern.Pattern(3), sum(sizes)
        parts, at = [], 0
        for size in sizes:
            parts.append(buffer_of(stream.at(at, size)))
            at += size
        message, kept = message_of(*parts)
        task = e.task(pattern.receive, far, 3, total, [total], socket.MSG_WAITALL)
        ring.submit(OP_SENDMSG_ZC, near, ctypes.addressof(message), 1, flags=socket.MSG_WAITALL, tag=1)
        results, told = answers(ring, 1)
        e.note(f"result of {total} bytes", results)
        e.equal(sorted(told), [1], "what was told")
        e.equal(task.result(), total, "bytes")
        e.equal(len(kept), len(sizes), "pieces")


@case(reference=False, families=("v4",), timeout=60)
def pieces_are_not_copied(e):
    """No large segment is copied, and the notification reports zero copy."""
    ring = Ring(e)
    near, far = e.pair()
    parts = [buffer_of(pattern.Pattern(4).at(turn * MIB, MIB)) for turn in range(3)]
    message, _ = message_of(*parts)
    counters = Counters()
    task = e.task(pattern.receive, far, 4, 3 * MIB, [MIB], socket.MSG_WAITALL)
    ring.submit(OP_SENDMSG_ZC, near, ctypes.addressof(message), 1, flags=socket.MSG_WAITALL, tag=1, ioprio=REPORT_USAGE)
    e.equal(answers(ring, 1), ({1: 3 * MIB}, {1: 0}), "result and notification")
    e.equal(task.result(), 3 * MIB, "bytes")
    e.equal(counters.gained("tx_bytes"), 3 * MIB, "bytes, by the counter")
    unpinned(e)


@case(timeout=60)
def linked(e):
    """Linked requests arrive in order, with and without a copy."""
    ring = Ring(e)
    near, far = e.pair()
    sizes = (200_000, 5, 100_000, 7)
    stream, at, parts = pattern.Pattern(5), 0, []
    for size in sizes:
        parts.append(buffer_of(stream.at(at, size)))
        at += size
    task = e.task(pattern.receive, far, 5, at, [at], socket.MSG_WAITALL)
    for tag, part in enumerate(parts):
        last = tag == len(parts) - 1
        ring.submit((OP_SEND_ZC, OP_SEND)[tag % 2], near, ctypes.addressof(part), len(part), flags=socket.MSG_WAITALL, tag=tag,
                    how=0 if last else LINK)
    results, told = {}, []
    while len(results) < 4 or len(told) < 2:
        result, tag, flags = ring.result()
        if flags & NOTIF:
            told.append(tag)
        else:
            results[tag] = result
    e.note("results", results)
    e.equal(sorted(told), [0, 2], "what was told")
    e.equal(task.result(), at, "bytes")


@case(timeout=60)
def linked_behind_a_failure(e):
    """A request linked to one that fails is cancelled."""
    ring = Ring(e)
    near, _ = e.pair()
    words = buffer_of(b"words")
    near.shutdown(socket.SHUT_WR)
    ring.submit(OP_SEND_ZC, near, ctypes.addressof(words), 5, flags=socket.MSG_NOSIGNAL, tag=1, how=LINK)
    ring.submit(OP_SEND, near, ctypes.addressof(words), 5, flags=socket.MSG_NOSIGNAL, tag=2)
    e.note("answers", sorted(ring.result()[1::-1] for _ in range(2)))


@case(timeout=60)
def files_by_number(e):
    """Requests use registered files; the socket's own descriptor may be closed."""
    ring = Ring(e)
    near, far = e.pair()
    ring.register_files(near, far)
    near.close()
    words, room = buffer_of(pattern.Pattern(6).at(0, 100_000)), ctypes.create_string_buffer(100_000)
    ring.submit(OP_RECV, 1, ctypes.addressof(room), 100_000, flags=socket.MSG_WAITALL, tag=1, how=FIXED_FILE)
    ring.submit(OP_SEND_ZC, 0, ctypes.addressof(words), 100_000, flags=socket.MSG_WAITALL, tag=2, how=FIXED_FILE)
    results = {}
    while len(results) < 3:
        result, tag, flags = ring.result()
        results[tag, flags & NOTIF] = 0 if flags & NOTIF else result
    e.note("results", sorted(results.items()))
    e.check(room.raw == words.raw, "other bytes")


@case(timeout=60)
def cancelled(e):
    """Waiting receives and sends are cancelled by their tags; an unknown tag is not found. The
    connection continues after the cancellation."""
    ring = Ring(e)
    near, far = e.pair()
    room = ctypes.create_string_buffer(100)
    ring.submit(OP_RECV, near, ctypes.addressof(room), 100, tag=1)
    ring.submit(OP_CANCEL, -1, 1, tag=2)
    e.note("a receive", sorted(ring.result()[1::-1] for _ in range(2)))
    ring.submit(OP_CANCEL, -1, 1, tag=3)
    e.note("nothing", ring.result()[:2])
    filled = e.fill(near)
    words = buffer_of(bytes(MIB))
    ring.submit(OP_SEND, near, ctypes.addressof(words), MIB, tag=4)
    ring.submit(OP_CANCEL, -1, 4, tag=5)
    e.note("a send", sorted(ring.result()[1::-1] for _ in range(2)))
    far.recv_exactly(filled)
    near.sendall(b"after that")
    e.equal(far.recv_exactly(10), b"after that", "bytes after that")


@case(reference=False, families=("v4",), timeout=60)
def cancelled_behind_blocks(e):
    """The program cancels a SEND_ZC that waits for space. Blocks in flight are not cancelled, and
    all accepted bytes arrive."""
    ring = Ring(e)
    near, far = e.pair()
    most, size = 8, 65536
    area = buffer_of(pattern.Pattern(7).at(0, (most + 1) * size))
    for turn in range(most):
        ring.submit(OP_SEND_ZC, near, ctypes.addressof(area) + turn * size, size, tag=turn)
        e.equal(ring.result(), (size, turn, MORE), "result")
    ring.submit(OP_SEND_ZC, near, ctypes.addressof(area) + most * size, size, tag=100)
    ring.submit(OP_CANCEL, -1, 100, tag=101)
    got = {}
    while not {100, 101} <= set(got):
        result, tag, _ = ring.result()
        got.setdefault(tag, result)
    e.equal((got[100], got[101]), (-125, 0), "the one that waited, and its cancelling")
    ring.submit(OP_CANCEL, -1, 3, tag=102)
    while True:
        result, tag, _ = ring.result()
        if tag == 102:
            break
    e.equal(result, -2, "cancelling of one that is done but for its notification")
    e.equal(pattern.receive(far, 7, most * size, [size], socket.MSG_WAITALL), most * size, "bytes")
    near.sendall(b"after that")
    e.equal(far.recv_exactly(10), b"after that", "bytes after that")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def received_by_a_worker(e):
    """A RECV with IOSQE_ASYNC runs in a worker of io_uring. The worker polls, so no memory is
    advertised. All bytes of the receive arrive, although the ring's task is busy with a send that
    the peer has to read. The ring may be closed during the receive, which cancels the receive."""
    for how in ("data", "cancel", "ring"):
        near, far = pipelined(e)
        ring = Ring(e)
        room = ctypes.create_string_buffer(MIB)
        counters = Counters()
        data = pattern.Pattern(8).at(0, MIB)
        ring.submit(OP_RECV, far, ctypes.addressof(room), MIB, flags=socket.MSG_WAITALL, tag=1, how=ASYNC)
        e.until(lambda ring=ring: ring.polls(OP_RECV), "the worker's poll")
        if how == "data":
            near.sendall(data)
            e.equal(ring.result()[:2], (MIB, 1), "answer")
            e.check(room.raw == data, "other bytes")
            e.equal(counters.gained("post_send SDP_MID_SINKAVAIL"), 0, "sink adverts")
        elif how == "cancel":
            ring.submit(OP_CANCEL, -1, 1, tag=2)
            by_tag = dict(ring.result()[1::-1] for _ in range(2))
            e.check(by_tag[1] in (-4, -125), f"answers {by_tag}")
        ring.close()
        unpinned(e)
        if how != "ring":       # a request in the ring may take bytes until the ring is gone
            near.send(b"later")
            e.equal(far.recv_exactly(5), b"later", f"bytes after the {how}")


@case(timeout=60)
def many_connections(e):
    """One multishot accept returns every connection."""
    ring = Ring(e)
    listener = e.listen()
    ring.submit(OP_ACCEPT, listener, tag=1, ioprio=MULTISHOT_ACCEPT)
    for turn in range(5):
        sock = e.connect(listener)
        result, tag, flags = ring.result()
        e.check(result >= 0, f"accept gave {result}")
        e.note(f"{turn}: tag, and whether more is to come", (tag, flags & MORE))
        os.write(result, b"accepted")
        e.equal(sock.recv_exactly(8), b"accepted", "bytes")
        os.close(result)
    ring.submit(OP_CANCEL, -1, 1, tag=2)
    e.note("the end", sorted(ring.result()[1::-1] for _ in range(2)))


@case(timeout=60)
def many_that_wait(e):
    """One multishot accept finds several connections: its completion reports that more connections
    wait, and the ring returns all connections."""
    ring, turn = Ring(e), 0
    listener = e.listen()

    def finds_more():
        nonlocal turn
        turn += 2
        socks = [e.connect(listener) for _ in range(3)]
        if e.ipproto:
            socks.append(e.keep(e.tcp()))
            socks[-1].connect(e.address(e.there, listener.port))
        e.wait(listener)
        ring.submit(OP_ACCEPT, listener, tag=turn, ioprio=MULTISHOT_ACCEPT)
        got = [ring.result() for _ in socks]
        for result, _, _ in got:
            e.check(result >= 0, f"accept gave {result}")
            os.close(result)
        ring.submit(OP_CANCEL, -1, turn, tag=turn + 1)
        ring.result(), ring.result()
        return all(flags & SOCK_NONEMPTY for _, _, flags in got[:-1]) and not got[-1][2] & SOCK_NONEMPTY

    e.lucky(finds_more, "no completion told of more connections", 3)


@case(timeout=60)
def many_pieces(e):
    """One multishot receive fills several buffers of the ring. The receive ends with an error if
    the ring has no buffers, and with another result at the end of the stream."""
    ring = Ring(e)
    near, far = e.pair()
    size, count = 4096, 4
    area = ctypes.create_string_buffer(size * count)

    def provide(when):
        ring.submit(OP_PROVIDE, count, ctypes.addressof(area), size, tag=50, group=7)
        e.note(f"provided {when}", ring.result()[:2])

    provide("at first")
    ring.submit(OP_RECV, far, tag=1, ioprio=MULTISHOT_RECV, how=SELECT, group=7)
    for turn in range(count):
        word = b"%d" % turn * (turn + 1)
        near.send(word)
        result, tag, flags = ring.result()
        at = (flags >> 16) * size
        e.note(f"piece {turn}", (result, tag, flags & (MORE | HAS_BUFFER)))
        e.equal(area.raw[at:at + len(word)], word, "bytes")
    near.send(b"beyond")
    result, tag, flags = ring.result()
    e.note("without a buffer", (result, tag, flags & (MORE | HAS_BUFFER)))
    provide("again")
    ring.submit(OP_RECV, far, tag=2, ioprio=MULTISHOT_RECV, how=SELECT, group=7)
    result, tag, flags = ring.result()
    e.note("again", (result, tag, area.raw[(flags >> 16) * size:][:6]))
    near.close()
    result, tag, flags = ring.result()
    e.note("the end", (result, tag, flags & MORE))


@case(timeout=60)
def pieces_by_a_ring(e):
    """Like `many_pieces`, but with a ring of buffers, which the program returns by advancing its
    tail."""
    ring = Ring(e)
    near, far = e.pair()
    size, count = 4096, 4
    area = mmap.mmap(-1, size * count)
    buffers = mmap.mmap(-1, mmap.PAGESIZE)
    address, entries = (ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in (area, buffers))

    def give(tail, number):
        struct.pack_into("=QIH", buffers, tail % count * 16, address + number * size, size, number)
        # the ring's tail is stored in the first entry
        struct.pack_into("=H", buffers, 14, tail + 1)

    ring.register_buffer_ring(entries, count, 7)
    for number in range(count):
        give(number, number)
    ring.submit(OP_RECV, far, tag=1, ioprio=MULTISHOT_RECV, how=SELECT, group=7)
    for turn in range(3 * count):
        word = b"%d" % turn * (turn + 1)
        near.send(word)
        result, tag, flags = ring.result()
        number = flags >> 16
        e.note(f"piece {turn}", (result, tag, number, flags & (MORE | HAS_BUFFER)))
        e.equal(area[number * size:][:len(word)], word, "bytes")
        give(count + turn, number)
    near.close()
    result, tag, flags = ring.result()
    e.note("the end", (result, tag, flags & MORE))
