# SPDX-License-Identifier: GPL-2.0-only
"""A limit of the buffers of all sockets (max_buffer_memory)."""

import ctypes
import errno
import mmap
import select
import socket

from lib import calls, consts, either, observe, pattern, resources
from lib.memory import PAGE
from lib.registry import case
from suites.overload.crowds import echo, kernel_memory, settled
from suites.syscall_fuzz.limits import parameter

MIB = 1 << 20
BLOCK = 64 << 10
LIMIT = 8
PAIRS = 20
# Memory of both ends of a connection at the limit: a few small receive buffers, and one send chunk.
LEAST = 64 << 10


def in_use():
    return observe.stats()["buffer pages"] * PAGE


def send_all_it_takes(e, sock, number, at=0):
    """Sends a pattern from `at` on until the socket is full. Returns the position reached."""
    stream = pattern.Pattern(number)
    while isinstance(told := e.outcome(calls.send, sock, stream.at(at, 65536), socket.MSG_DONTWAIT), int):
        at += told
    e.equal(told, "EAGAIN", "a full connection")
    return at


def fill_all(e, pairs, taken):
    """Returns the number of bytes that each connection accepts without readers, until all
    connections are full."""
    while True:
        before = sum(taken)
        for number, (near, _) in enumerate(pairs):
            taken[number] = send_all_it_takes(e, near, number, taken[number])
        if sum(taken) == before:
            return


@case(reference=False, timeout=120)
def bounded(e):
    """Twenty writers without readers: their memory is limited, other connections continue, and new
    connections are refused. When memory is available again, the waiting tasks wake, and all
    accepted bytes arrive."""
    listener = e.listen(backlog=32)
    other = e.pair(listener)
    pairs = [e.pair(listener) for _ in range(PAIRS)]
    quiet, refused = in_use(), observe.stats()["- limit reached"]
    # plus the memory that one connection allocates at a time while it grows
    most = LIMIT * MIB + MIB + (PAIRS + 1) * LEAST
    taken = [0] * len(pairs)
    with parameter("max_buffer_memory", LIMIT):
        fill_all(e, pairs, taken)
        e.check(LIMIT * MIB // 2 < in_use() <= most, f"{in_use()} bytes of buffers; the limit is {LIMIT * MIB}")
        # The first connections have more than an equal share of the memory, and each later
        # connection has some memory.
        e.check(min(taken) > 0, f"taken: {taken}")
        echo(e, *other)
        # Sends far more bytes than a connection may hold at a time.
        near, far = other
        writer = e.task(lambda: pattern.send(near, 77, 2 * MIB, [100000]))
        e.equal(pattern.receive(far, 77, 2 * MIB, [30000]), 2 * MIB, "bytes that come by and by")
        writer.result()
        e.check(in_use() <= most, f"{in_use()} bytes after a connection that goes on")
        # closing frees some memory, now and a little later
        stuck = pairs[-1][0]

        def filled():
            fill_all(e, pairs, taken)
            return stuck.mask() == "-"

        e.until(filled, "a writer without room")
        late = e.socket()
        e.equal(e.error(late.connect, e.address(e.there, listener.port)), "ENOBUFS", "a new connection")
        e.equal(observe.stats()["- limit reached"], refused + 1, "the counter")
        # A full connection whose peer does not read.
        e.check(calls.ioctl_int(stuck, consts.SIOCOUTQ) < stuck.get(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2, "its own buffer is full")
        e.until(filled, "a full one without room")
        poller = select.epoll()
        poller.register(stuck.fileno(), select.EPOLLOUT | select.EPOLLET)
        e.equal(poller.poll(0), [], "who waits for room")
        sender = e.task(lambda: calls.send(pairs[-2][0], pattern.Pattern(PAIRS - 2).at(taken[-2], 5000)))
        sender.wait_asleep("sendto")
    e.check(poller.poll(e.patience), "who waits for room is told of it")
    e.equal(sender.result(), 5000, "bytes of who waited")
    taken[-2] += 5000
    late.connect(e.address(e.there, listener.port))
    for number, (near, far) in enumerate(pairs):
        near.shutdown(socket.SHUT_WR)
        e.equal(pattern.receive(far, number, taken[number] + 1, [65536]), taken[number], "bytes that come out")
        near.close()
        far.close()
    e.note("before, taken", (quiet, taken))
    e._keep.clear()
    for sock in (*other, listener, late):
        sock.close()
    settled(e)
    e.until(lambda: in_use() == 0, lambda: f"{in_use()} bytes of buffers, and no sockets")


@case(reference=False, timeout=120)
def idle(e):
    """Connections that have sent much and keep buffers free these buffers when other connections
    lack memory."""
    e.needs_wire()      # sends of a local connection go from memory to memory
    listener = e.listen(backlog=32)
    pairs = [e.pair(listener) for _ in range(4)]
    for number, (near, far) in enumerate(pairs):
        writer = e.task(lambda near=near, number=number: pattern.send(near, number, 4 * MIB, [65536]))
        e.equal(pattern.receive(far, number, 4 * MIB, [30000]), 4 * MIB, "bytes")
        writer.result()
        e.until(lambda near=near: not calls.ioctl_int(near, consts.SIOCOUTQ), "that all has arrived")
    kept = in_use()
    with parameter("max_buffer_memory", kept // MIB):
        e.check(kept > 2 * MIB, f"{kept} bytes are kept")
        pairs.append(e.pair(listener))
    e.note("kept, and then", (kept, in_use()))
    e.check(in_use() < kept, "nothing was given back")
    for pair in pairs:
        echo(e, *pair)


@case(reference=False, families=("v4",), timeout=60)
def idle_after_blocks(e):
    """Connections that have sent blocks free their memory regions and lists when idle.
    The connections can use blocks again afterwards."""
    e.needs_wire()
    listener = e.listen(backlog=32)
    pairs = [e.pair(listener) for _ in range(20)]
    block = mmap.mmap(-1, BLOCK)
    block.write(b"b" * BLOCK)
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    for near, _ in pairs:
        near.set(socket.SOL_SOCKET, consts.SO_ZEROCOPY, 1)
        near.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, BLOCK)

    def regions():
        return sum(count for (_, kind), count in resources.resources().items() if kind == "mr")

    before = regions()
    for turn in range(2):
        memory = kernel_memory()
        for near, _ in pairs:
            for _ in range(8):
                e.equal(calls.send_at(near, address, BLOCK, consts.MSG_ZEROCOPY | socket.MSG_DONTWAIT), BLOCK, "bytes of a block")
        e.until(lambda: regions() >= before + len(pairs), lambda: f"{regions()} regions of {len(pairs)} connections with blocks")
        for _, far in pairs:
            e.equal(far.recv_exactly(8 * BLOCK), b"b" * (8 * BLOCK), "the blocks")
        e.until(lambda: regions() == before, lambda: f"{regions()} regions stay, {before} before")
        e.note(f"bytes of the kernel's that stay, turn {turn}", kernel_memory() - memory)


@case(reference=False, families=("v4",), timeout=60)
def at_the_listener(e):
    """A connect request waits for memory, and succeeds when memory is available again."""
    listener = e.listen()
    late = e.socket()
    late.setblocking(False)
    before = observe.stats("peer")["- limit reached"]
    with e.netem("delay 400ms"):
        e.equal(e.error(late.connect, e.address(e.there, listener.port)), "EINPROGRESS", "a connect that begins")
        with parameter("max_buffer_memory", 0):
            e.until(lambda: observe.stats("peer")["- limit reached"] > before, "that the request is counted")
            e.equal(late.mask(), "-", "the connect")
    e.wait(late, select.POLLOUT, e.patience * 3)
    late.setblocking(True)
    echo(e, late, listener.accept()[0])


@case(reference=False, families=("v4",), timeout=60)
def nothing(e):
    """Buffers get no memory at all: existing connections continue, and new connections are refused
    at each attempt."""
    listener = e.listen()
    pair = e.pair(listener)
    with parameter("max_buffer_memory", 0):
        for _ in range(20):
            echo(e, *pair)
            with e.socket() as late:
                e.equal(e.error(late.connect, e.address(e.there, listener.port)), errno.errorcode[errno.ENOBUFS], "a new connection")
        near, far = pair
        # The connection uses TCP where TCP is possible.
        both = either.listen(e)
        with either.counts(e, tcp_limit=1):
            tcp = either.connect(e, both)
        e.equal(either.protocol(tcp), either.TCP, "a socket of IPPROTO_SDP")
        writer = e.task(lambda: pattern.send(near, 5, MIB, [1, 3000, 70000]))
        e.equal(pattern.receive(far, 5, MIB, [10000]), MIB, "bytes")
        writer.result()
    echo(e, *e.pair(listener))
