# SPDX-License-Identifier: GPL-2.0-only
"""splice(2) from a socket over a device puts pages of receive buffers into the pipe."""

import socket

from lib import calls, netns, observe, pattern
from lib.registry import case
from suites.data.splicing import drain, pipe
from suites.zcopy.blocks import MIB, Counters, from_pages, unpinned
from suites.zcopy.figures import parameter

MORE, NONBLOCK = 4, 2
PAGES = (32 + 64) * 16          # maximum number of pages of given, posted and unread buffers, with slack


@case(reference=False, timeout=90)
def through(e):
    """A proxy with and without announced lengths: most bytes pass from one device to the other
    without a copy."""
    for flags in (0, MORE):
        near, far = e.pair()
        second, target = e.pair()
        total = 16 * MIB
        reader, writer = pipe(e)
        counters = Counters()

        def proxy():
            while count := calls.splice(far, writer, MIB):
                while count:
                    count -= calls.splice(reader, second, count, flags)
            second.close()

        tasks = [e.task(proxy), e.task(pattern.send, near, 74, total, [200000])]
        e.equal(pattern.receive(target, 74, total, [MIB]), total, "bytes")
        tasks[1].result()
        near.close()
        tasks[0].result()
        given, passed = counters.gained("zcopy spliced"), from_pages(counters)
        print(f"# given {given} of {total}, sent from pages {passed}")
        if not netns.is_one():
            e.check(given > total // 2, f"{given} bytes were given to the pipe")
            e.check(passed > total // 2, f"{passed} bytes were sent from pages")
        unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def small_ones_between(e):
    """A late reader: a message that is partly copied does not prevent later messages from passing
    as pages."""
    near, far = e.pair()
    reader, writer = pipe(e)
    task = e.task(pattern.send, near, 78, 6 * MIB, [MIB])      # for large buffers
    e.equal(pattern.receive(far, 78, 6 * MIB, [100000]), 6 * MIB, "bytes")
    task.result()
    checker, counters = pattern.Checker(79), Counters()
    data = pattern.Pattern(79).at(0, 600000)
    for at in range(0, 600000, 200000):
        near.sendall(data[at:at + 200000], socket.MSG_DONTWAIT)
    e.unread(far, 600000)
    while checker.count < 600000:
        drain(reader, checker, calls.splice(far, writer, MIB))
    if not netns.is_one():
        e.check(counters.gained("zcopy spliced") > 300000, f"{counters.gained('zcopy spliced')} of 600000 bytes were given")


@case(reference=False, timeout=90)
def unread_pipes(e):
    """Pipes without readers: the memory of a connection is bounded, and the connection
    continues."""
    near, far = e.pair()
    pipes = [pipe(e) for _ in range(8)]
    task = e.task(pattern.send, near, 75, 10 * MIB, [MIB])
    before, counts = observe.stats()["buffer pages"], [0] * len(pipes)
    counters = Counters()
    for at, (_, writer) in enumerate(pipes):
        while counts[at] < MIB and (count := e.error_or(calls.splice, far, writer, MIB - counts[at], NONBLOCK)):
            counts[at] += count
    given = counters.gained("zcopy spliced")
    pages = observe.stats()["buffer pages"] - before
    e.check(pages < PAGES, f"{pages} more pages in buffers")
    if not netns.is_one():
        e.check(0 < given < 6 * MIB, f"{given} bytes in the pipes are pages of buffers")
    checker = pattern.Checker(75)
    for (reader, _), count in zip(pipes, counts):
        drain(reader, checker, count)
    while checker.count < 10 * MIB:
        checker.feed(far.recv(MIB))
    task.result()


@case(reference=False, timeout=60)
def under_pressure(e):
    """With little memory for buffers, splice(2) copies bytes to the pipe."""
    near, far = e.pair()
    reader, writer = pipe(e)
    with parameter("max_buffer_memory", 0):
        counters = Counters()
        task = e.task(pattern.send, near, 76, MIB, [MIB])
        checker = pattern.Checker(76)
        while checker.count < MIB:
            drain(reader, checker, calls.splice(far, writer, MIB))
        e.equal(counters.gained("zcopy spliced"), 0, "bytes given")
        task.result()
