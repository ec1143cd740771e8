# SPDX-License-Identifier: GPL-2.0-only
"""Readers that never read, writers that never stop, and slow readers, next to ordinary
connections."""

import socket

from lib import calls, consts, observe, pattern
from lib.registry import case
from suites.overload.crowds import echo, kernel_memory, settled

SOL = socket.SOL_SOCKET
MIB = 1 << 20


def buffered(sock, option):
    return sock.get(SOL, option)


@case(reference=False, timeout=120)
def nobody_reads(e):
    """Thirty writers without readers fill their buffers: the number of buffered bytes is limited,
    other connections are served, and in the end all accepted bytes arrive."""
    listener = e.listen(backlog=32)
    other = e.pair(listener)
    pairs = [e.pair(listener) for _ in range(30)]
    before, taken = kernel_memory(), []
    for number, (near, far) in enumerate(pairs):
        near.setblocking(False)
        stream, at = pattern.Pattern(number), 0
        while isinstance(told := e.outcome(calls.send, near, stream.at(at, 65536)), int):
            at += told
        e.equal(told, "EAGAIN", "a full connection")
        taken.append(at)
        echo(e, *other)
    bounds = [buffered(near, socket.SO_SNDBUF) + buffered(far, socket.SO_RCVBUF) for near, far in pairs]
    for number, (near, far) in enumerate(pairs):
        def lies(near=near, far=far):
            return calls.ioctl_int(far, consts.SIOCINQ) + calls.ioctl_int(near, consts.SIOCOUTQ)

        # both ends count received bytes until the bytes are acknowledged
        e.until(lambda: lies() <= bounds[number], lambda: f"{lies()} bytes lie between them; the buffers are {bounds[number]}")
    grown = kernel_memory() - before
    e.check(grown <= 2 * sum(bounds), f"the kernel's memory grew by {grown}; the buffers are {sum(bounds)}")
    for _ in range(50):
        echo(e, *other)
    for number, (near, far) in enumerate(pairs):
        near.shutdown(socket.SHUT_WR)
        e.equal(pattern.receive(far, number, taken[number] + 1, [65536]), taken[number], "bytes that come out")
        near.close()
        far.close()
    e.note("taken by each, memory of all", (taken[0], grown))
    for sock in (*other, listener):
        sock.close()
    settled(e)


@case(reference=False, timeout=120)
def one_slow(e):
    """One of ten readers of the same listener reads byte by byte: the other readers finish earlier,
    and the slow reader gets all bytes."""
    listener = e.listen(backlog=16)
    total = 2 * MIB
    pairs = [e.pair(listener) for _ in range(10)]
    tasks = [e.task(pattern.send, near, number, total, [30000]) for number, (near, _) in enumerate(pairs)]
    slow = pairs[0][1]
    checker = pattern.Checker(0)
    readers = [e.task(pattern.receive, far, number, total, [65536]) for number, (_, far) in enumerate(pairs) if number]
    while any(reader.is_alive() for reader in readers):
        checker.feed(slow.recv(1))
        e.check(checker.count < total // 2, "the slow one is half done, and the others are not")
    for reader in readers:
        e.equal(reader.result(), total, "bytes of a quick one")
    while checker.count < total:
        checker.feed(slow.recv(65536))
    for task in tasks:
        e.equal(task.result(), total, "bytes sent")
    for near, far in pairs:
        near.close()
        far.close()
    listener.close()
    settled(e)


@case(reference=False, timeout=120)
def blocks_that_nobody_takes(e):
    """Senders send blocks to peers that do not read: pinned memory is limited, and is unpinned at
    the end."""
    listener = e.listen(backlog=16)
    other = e.pair(listener)
    pairs = [e.pair(listener) for _ in range(8)]
    tasks = []
    for number, (near, _) in enumerate(pairs):
        near.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, 4096)
        tasks.append(e.task(pattern.send, near, number, 4 * MIB, [4 * MIB]))
    most = 0
    for _ in range(50):
        echo(e, *other)
        most = max(most, observe.stats()["pinned pages send"])
    e.check(most <= 8 * MIB * 4 // 4096, f"{most} pages are pinned for 8 blocks of 4 MiB")
    for number, (_, far) in enumerate(pairs):
        e.equal(pattern.receive(far, number, 4 * MIB, [MIB]), 4 * MIB, "bytes")
        e.equal(tasks[number].result(), 4 * MIB, "bytes sent")
    e.until(lambda: not observe.stats()["pinned pages send"], "the end of all pinning")
    e.note("pinned at most", most)
    for near, far in (*pairs, other):
        near.close()
        far.close()
    listener.close()
    settled(e)
