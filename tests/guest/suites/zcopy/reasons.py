# SPDX-License-Identifier: GPL-2.0-only
"""Reasons for copies in SDP_INFO of each end. Each case provokes one reason, and the module counts
no other reason."""

import os
import resource
import select
import socket

from lib import calls, consts, memory, netns, observe, pattern
from lib.registry import case

from .blocks import MIB, TCP, Counters, pair, pipelined, unpinned, waiting_reader
from .figures import parameter

# Reasons, and the names of their counters in sdpstats.
REASONS = {"src_avail_returned": "zcopy returned", "src_avail_refused": "zcopy refused", "crossed": "zcopy void",
           "unpinnable": "zcopy unpinnable"}
SIZE = 60000                # fits the buffers, so that a send need not wait for a reader


class Ends:
    """A pair of sockets, and the counters before the pair was made."""

    def __init__(self, e):
        self.e, self.counters = e, Counters()
        self.near, self.far = pair(e)

    def reasons(self, *others):
        """Returns the reasons counted by each end. The sum of the socket's reasons and the reasons
        of other sockets equals sdpstats."""
        told = [{name: observe.info(sock)[name] for name in REASONS} for sock in (self.near, self.far, *others)]
        for name, total in REASONS.items():
            self.e.equal(sum(one[name] for one in told), self.counters.gained(total), f"{name} of both ends, and in sdpstats")
        return [{name: value for name, value in one.items() if value} for one in told[:2]]

    def copied(self, size):
        """Checks that `size` bytes were sent from near to far, and that all bytes were copied."""
        ours, theirs = observe.info(self.near), observe.info(self.far)
        self.e.equal((ours["tx_bytes"], ours["tx_read"], ours["tx_written"]), (size, 0, 0), "bytes sent, and not copied")
        self.e.equal((theirs["rx_bytes"], theirs["rx_read"], theirs["rx_written"]), (size, 0, 0), "bytes received, and not copied")
        return ours, theirs

    def close(self):
        self.near.close()
        self.far.close()


@case(reference=False, families=("v4",), timeout=60, messages=True)
def too_small(e):
    """Sends below the threshold do not count as reasons, because zero copy is not tried."""
    ends = Ends(e)
    for sock in (ends.near, ends.far):
        sock.set(TCP, consts.SDP_ZCOPY_THRESH, 65536)
    total = 20 * 65535
    task = e.task(pattern.send, ends.near, 1, total, [65535])
    e.equal(pattern.receive(ends.far, 1, total, [MIB], socket.MSG_WAITALL), total, "bytes")
    task.result()
    ours, theirs = ends.copied(total)
    e.equal((ours["src_avail_sent"], theirs["sink_avail_sent"]), (0, 0), "adverts")
    e.equal(ends.reasons(), [{}, {}], "reasons")
    # sends one byte more, so that zero copy is used
    task = e.task(pattern.send, ends.near, 2, 65536, [65536])
    e.equal(pattern.receive(ends.far, 2, 65536, [65536], socket.MSG_WAITALL), 65536, "bytes")
    task.result()
    ours, theirs = observe.info(ends.near), observe.info(ends.far)
    e.check(ours["src_avail_sent"] + theirs["sink_avail_sent"] > 0, "no advert")


@case(reference=False, families=("v4",), timeout=60)
def sender_does_not_wait(e):
    """Non-blocking sends do not count either."""
    ends = Ends(e)
    data = pattern.Pattern(2).at(0, MIB)
    task = e.task(pattern.receive, ends.far, 2, MIB, [MIB])
    sent = 0
    while sent < MIB:
        e.wait(ends.near, select.POLLOUT)
        done = e.outcome(calls.send, ends.near, data[sent:], socket.MSG_DONTWAIT)
        sent += done if isinstance(done, int) else 0
    e.equal(task.result(), MIB, "bytes")
    ours, _ = ends.copied(MIB)
    e.equal(ours["src_avail_sent"], 0, "adverts")
    e.equal(ends.reasons(), [{}, {}], "reasons")


@case(reference=False, families=("v4",), timeout=60, messages=True)
def not_taken_up(e):
    """An unread block is returned."""
    ends = Ends(e)
    data = pattern.Pattern(3).at(0, SIZE)
    e.equal(calls.send(ends.near, data), SIZE, "bytes sent")
    e.equal(ends.reasons(), [{"src_avail_returned": 1}, {}], "reasons")
    e.equal(ends.far.recv_exactly(SIZE), data, "data")
    ours, theirs = ends.copied(SIZE)
    e.equal((ours["src_avail_sent"], theirs["src_avail_received"]), (1, 1), "adverts")


@case(reference=False, families=("v4",), timeout=60, messages=True)
def reader_does_not_wait(e):
    """A block that meets a non-blocking reader is refused, and counted as returned at the
    sender."""
    data = pattern.Pattern(4).at(0, SIZE)

    def attempt():
        ends = Ends(e)
        task = e.task(calls.send, ends.near, data)
        e.until(lambda: observe.info(ends.far)["src_avail_received"], "an advert")
        got = e.outcome(calls.recv, ends.far, SIZE, socket.MSG_DONTWAIT)
        got = got if isinstance(got, bytes) else b""
        e.equal(task.result(), SIZE, "bytes sent")
        e.equal(got + ends.far.recv_exactly(SIZE - len(got)), data, "data")
        ends.copied(SIZE)
        found = ends.reasons()
        e.equal(found[0], {"src_avail_returned": 1}, "reasons of the sender")
        ends.close()
        if found[1]:        # or the sender's time-out ended first
            e.equal(found[1], {"src_avail_refused": 1}, "reasons of the reader")
        return found[1]
    e.lucky(attempt, "nothing was refused")


def without_memlock(function):
    """Runs a function in a process that may not lock memory."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    return function()


def copied_by_the_sender(e, ends, task, others=()):
    """Checks that a sender whose memory could not be pinned has advertised nothing and counts the
    reason, and that the reader counts no reason."""
    e.equal(pattern.receive(ends.far, 5, MIB, [MIB]), MIB, "bytes")
    task.result()
    ours, _ = ends.copied(MIB)
    e.equal(ours["src_avail_sent"], 0, "adverts")
    near, far = ends.reasons(*others)
    e.check(near.pop("unpinnable", 0) > 0, "the sender says nothing")
    e.equal((near, far), ({}, {}), "other reasons")


def refused_by_the_reader(e, attempt):
    """Checks that a reader whose memory cannot be pinned refuses an advert and counts the reason.
    `attempt` reads while a block is advertised, and returns the counters of both ends."""
    def refused():
        nonlocal near, far
        near, far = attempt()
        return far.pop("src_avail_refused", 0)      # or the sender lost patience first
    near, far = {}, {}
    e.lucky(refused, "nothing was refused")
    e.check(far.pop("unpinnable", 0) > 0, "the reader does not say why")
    e.check(near.pop("src_avail_returned", 0) > 0, "nothing was returned")
    e.equal((near, far), ({}, {}), "other reasons")


def offered(e, ends):
    """Sends a block, and waits until the peer has received its advert."""
    task = e.task(pattern.send, ends.near, 6, MIB, [MIB])
    e.until(lambda: observe.info(ends.far)["src_avail_received"], "an advert")
    return task


def take(ends):
    return pattern.receive(ends.far, 6, MIB, [MIB], socket.MSG_WAITALL)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def over_memlock(e):
    """A process at either end must not lock memory."""
    ends = Ends(e)
    copied_by_the_sender(e, ends, e.child(without_memlock, lambda: pattern.send(ends.near, 5, MIB, [MIB])))

    if netns.is_one():
        return      # a local reader pins nothing

    def attempt():
        ends = Ends(e)
        task = offered(e, ends)
        e.equal(e.child(without_memlock, lambda: take(ends)).result(), MIB, "bytes")
        task.result()
        found = ends.reasons()
        if found[1]:
            ends.copied(MIB)
        ends.close()
        return found

    refused_by_the_reader(e, attempt)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def sending_over_budget(e):
    """A sender runs next to another sender that uses the whole limit and whose pages are not mapped
    yet.
    """
    ends = Ends(e)
    first, reader = pair(e)
    absent = memory.Absent(MIB, memory.PAGE)    # the first byte is in the SrcAvail, and is read before any page is pinned
    e.keep(absent)
    with parameter("max_pinned_send", 0):
        other = e.task(first.sendall, absent.map)
        e.until(absent.touched, "the other sender at its memory")
        copied_by_the_sender(e, ends, e.task(pattern.send, ends.near, 5, MIB, [MIB]), (first, reader))
        absent.give(bytes(MIB))
        e.equal(reader.recv_exactly(MIB), bytes(MIB), "data of the other one")
        other.result()


@case(reference=False, families=("v4",), timeout=60, messages=True)
def receiving_over_budget(e):
    """A reader runs next to another reader that uses the whole limit."""
    with parameter("max_pinned_receive", 0):
        def attempt():
            ends = Ends(e)
            sender, first = pair(e)
            absent = memory.Absent(MIB)
            e.keep(absent)
            send = e.task(sender.sendall, bytes(SIZE))
            e.until(lambda: observe.info(first)["src_avail_received"], "an advert to the other reader")
            other = e.task(first.recv_into, absent.map, SIZE, socket.MSG_WAITALL)
            e.until(absent.touched, "the other reader at its memory")
            task = offered(e, ends)
            e.equal(take(ends), MIB, "bytes")
            task.result()
            absent.give(bytes(MIB))
            e.equal(other.result(), SIZE, "bytes of the other one")
            send.result()
            found = ends.reasons(sender, first)
            if found[1]:
                ends.copied(MIB)
            for sock in (ends.near, ends.far, sender, first):
                sock.close()
            return found

        refused_by_the_reader(e, attempt)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def no_memory_of_a_program(e):
    """Memory of a device has no pages."""
    with memory.of_a_device(e) as device:
        ends = Ends(e)
        with memoryview(device) as view:
            task = e.task(ends.near.sendall, view)
            e.equal(ends.far.recv_exactly(len(device)), device[:], "data")
            task.result()
        ends.copied(len(device))
        near, far = ends.reasons()
        e.check(near.pop("unpinnable", 0) > 0, "the sender says nothing")
        e.equal((near, far), ({}, {}), "other reasons")


@case(reference=False, families=("v4",), timeout=120, messages=True)
def crossed(e):
    """A block that is written to the reader's memory does not count as returned."""
    with e.netem("delay 100ms"):
        def attempt():
            near, far = pipelined(e)
            before = [observe.info(sock) for sock in (near, far)]
            task = e.task(far.recv, MIB, socket.MSG_WAITALL)
            e.until(lambda: observe.info(far)["sink_avail_sent"], "a sink advert")
            # the block is in flight
            data = pattern.Pattern(7).at(0, MIB)
            near.sendall(data)
            e.check(task.result() == data, "other bytes")
            told = [observe.info(sock) for sock in (near, far)]
            near.close()
            far.close()
            ours, theirs = ({name: now[name] - then[name] for name in now} for now, then in zip(told, before))
            e.equal((theirs["crossed"], ours["tx_bytes"], theirs["rx_bytes"]), (0, MIB, MIB), "that the reader has crossed, and bytes")
            if ours["crossed"]:     # otherwise the test was too slow
                e.check(ours["sink_avail_received"] > 0 and ours["tx_written"] > 0, f"none was written: {ours}, {theirs}")
            return ours["crossed"]
        e.lucky(attempt, "none met")


@case(reference=False, families=("v4",), timeout=60, messages=True)
def no_credits(e):
    """A sender whose peer does not read waits for receive buffers, and counts a stall; the peer
    counts no stall."""
    ends = Ends(e)
    e.equal(observe.info(ends.near)["credit_stalls"], 0, "before anything was sent")
    e.fill(ends.near)
    told = [observe.info(sock)["credit_stalls"] for sock in (ends.near, ends.far)]
    e.check(told[0] > 0 and told[1] == 0, f"waits {told}")
    e.equal(ends.reasons(), [{}, {}], "reasons")


@case(reference=False, families=("v4",), timeout=60, messages=True)
def without_reads(e):
    """A device without READs: a large send waits for a reader, and bytes queued before it are still
    sent. Neither a signal nor other senders lose or mix any bytes. A signal also ends a reader's
    call."""
    def advertising():
        """Returns a pair whose far end has advertised before."""
        near, far = pipelined(e)
        task, _ = waiting_reader(e, far, MIB)
        near.sendall(bytes(MIB))
        task.result()
        return near, far

    near, far = advertising()
    with parameter("zcopy_ways", 2):
        near.send(b"x" * 100, socket.MSG_MORE)
        sent, caught = e.interrupt_self(lambda: calls.send(near, b"z" * (4 * MIB), 0), "sendto")
        e.check(caught == 1 and sent in range(1, 4 * MIB), f"{sent} bytes that an interrupted call has sent")
        last = e.task(near.send, b"y" * 100)
        e.check(far.recv_exactly(200 + sent) == b"x" * 100 + b"z" * sent + b"y" * 100, "other bytes than before, of and after the call")
        last.result()
    near.close()
    far.close()
    near, far = advertising()
    small, large, rounds = 20000, MIB, 8
    with parameter("zcopy_ways", 2):
        senders = [e.task(lambda: [near.sendall(b"a" * large) for _ in range(rounds)]),
                   e.task(lambda: [near.sendall(b"b" * small) for _ in range(rounds * 10)])]
        got = [0, 0]
        while left := rounds * (large + 10 * small) - sum(got):
            part = far.recv_exactly(min(left, 10000))
            got[0] += part.count(b"a")
            got[1] += part.count(b"b")
        e.equal(got, [rounds * large, rounds * 10 * small], "bytes of each sender")
        for sender in senders:
            sender.result()
        near, far = pipelined(e)
        e.equal(e.interrupt_self(lambda: calls.recv(far, MIB), "recvfrom"), ("EINTR", 1), "recv() that a signal has met")
    unpinned(e)
