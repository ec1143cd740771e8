# SPDX-License-Identifier: GPL-2.0-only
"""Work requests that complete with an error after a successful post. kernel/sdp_verbs_faults.c
corrupts one request, and the local device or the peer's device reports the error. The connection
ends at both sides, and each side gets its errno. Every page is unpinned, no objects are left on the
devices, and other connections continue."""

import errno
import socket
import time

from lib import calls, faults, pattern
from lib.registry import case
from lib.resources import Nothing
from suites.faults.nth import echo, needs_faults
from suites.zcopy.blocks import MIB, Counters, eager, unpinned
from suites.zcopy.blocks import pair as both

# Device that detects the fault: the device that executes the request, or the peer's device, which
# refuses the request.
HERE, THERE = errno.EINVAL, errno.EACCES
# Error at the end whose device failed, and error at the other end.
OWN, OTHER = "ECONNABORTED", "ECONNRESET"
MOST = 16 * MIB
# Expected errors at the sender and at the receiver.
SENDER, RECEIVER, BOTH = (OWN, OTHER), (OTHER, OWN), (OTHER, OTHER)


def first_error(e, call):
    """Returns the error at which a repeated call stops."""
    done = 0
    while done < MOST:
        result = e.outcome(call)
        if isinstance(result, str) or not result:
            return result
        done += result if isinstance(result, int) else len(result)
    return "no error"


def exchange(e, near, far, size):
    """Transfers bytes until a call fails. Returns the error at either end."""
    source = pattern.Pattern(5).at(0, size)
    sender = e.task(first_error, e, lambda: calls.send(near, source, socket.MSG_NOSIGNAL))
    receiver = e.task(first_error, e, lambda: far.recv(size, socket.MSG_WAITALL))
    return sender.result(), receiver.result()


def fed(e, near, far, size):
    """Like `exchange`, but the receiver waits first, so that the receiver advertises its memory and
    the sender WRITEs."""
    source = pattern.Pattern(5).at(0, size)
    for number in range(MOST // size):
        counters = Counters()
        reader = e.task(e.outcome, far.recv, size, socket.MSG_WAITALL)
        # The reader may advertise only after the first bytes, or not at all.
        until = time.monotonic() + (e.patience / 20 if number else 0)
        while reader.is_alive() and not counters.gained("post_send SDP_MID_SINKAVAIL") and time.monotonic() < until:
            time.sleep(0.001)
        sent = e.outcome(calls.send, near, source, socket.MSG_NOSIGNAL)
        got = reader.result()
        if sent != size or got != source:
            break
    else:
        return None
    return first_error(e, lambda: calls.send(near, source, socket.MSG_NOSIGNAL)) if isinstance(sent, int) else sent, \
        got if isinstance(got, str) else first_error(e, lambda: far.recv(size))


def lent(e):
    """Transfers in which the reader READs the sender's advertised blocks."""
    near, far = e.pair()
    eager(near)
    return near, far


def late(e, name, ways, numbers, pair, size, wanted, exchange=exchange):
    """Injects one fault for each method and number; `wanted` contains the expected errnos of sender
    and receiver.

    If the local device fails, either end may see only the end of the connection: rxe flushes the
    failed request and the waiting receives in different workers. If rxe flushes the receives first,
    the flushed receives close the connection, because a flushed receive has no reason. The peer's
    reply may then arrive before the request's completion. On a busy machine rxe occasionally
    flushes receives first, but not ten times in a row."""
    needs_faults(e)
    if not faults.verbs_possible():
        e.skip("verbs cannot fail in this build (scripts/test-module --debug)")
    nothing = Nothing(e)
    listener = e.listen()
    ends, others = {}, e.pair(listener)
    for way in ways:
        for number in numbers:
            for _ in range(10):
                near, far = pair(e)
                with faults.verb("late_" + name, number, way) as hit:
                    end = exchange(e, near, far, size)
                    was_hit = hit()
                # Either end may advertise too late, so that the request with this number is not
                # posted: the attempt is repeated then.
                if was_hit:
                    e.check(end in (*wanted[way], BOTH), f"{name}, {errno.errorcode[way]}, number {number}: {end}")
                    e.check(not {e.error(calls.send, near, b"x", socket.MSG_NOSIGNAL), e.outcome(far.recv, 1)} - {"EPIPE", b"", OTHER},
                            "what comes afterwards")
                    ends[end] = ends.get(end, 0) + 1
                for sock in (near, far):
                    sock.close()
                echo(e, *others)
                unpinned(e)
                if was_hit and end in wanted[way]:
                    break
            else:
                e.check(False, f"{name}, {errno.errorcode[way]}, number {number}: last {end}, hit: {was_hit}; {ends}")
    e.note(name, ends)
    for sock in (*others, listener):
        sock.close()
    nothing.left("in the end")


@case(reference=False, timeout=300)
def sends(e):
    """SENDs of the sender or of the receiver fail."""
    late(e, "send", (HERE, THERE), (1, 2, 3, 7), lent, MIB, {HERE: (SENDER, RECEIVER), THERE: (BOTH,)})


@case(reference=False, timeout=300)
def receives(e):
    """A receive fails: the message finds no buffer, and the sender's device gets a NAK."""
    late(e, "recv", (HERE,), (1, 2, 5), lambda e: e.pair(), 3000, {HERE: (SENDER, RECEIVER)})


@case(reference=False, timeout=300)
def reads(e):
    """RDMA READs by the receiver fail."""
    late(e, "read", (HERE, THERE), (1, 2, 5), lent, MIB, {HERE: (RECEIVER,), THERE: (BOTH,)})


@case(reference=False, timeout=300)
def writes(e):
    """RDMA WRITEs by the sender fail."""
    late(e, "write", (HERE, THERE), (1, 2, 5), both, MIB, {HERE: (SENDER,), THERE: (BOTH,)}, fed)


@case(reference=False, timeout=300)
def registrations(e):
    """Registrations fail that give the peer access to the sender's memory, or to the receiver's
    memory if the receiver was first."""
    late(e, "register", (HERE,), (1, 2, 5), lent, MIB, {HERE: (SENDER, RECEIVER)})


@case(reference=False, timeout=300)
def registrations_of_a_reader(e):
    """Registrations fail that give the peer access to the receiver's memory. When the receiver
    registers first, the sender may register memory as well."""
    late(e, "register", (HERE,), (1, 2, 3), both, MIB, {HERE: (SENDER, RECEIVER)}, fed)


@case(reference=False, timeout=300)
def ends_of_access(e):
    """Invalidations fail: the device can access the memory until the queue pair is destroyed, and
    no call returns sooner."""
    late(e, "invalidate", (HERE,), (1, 2, 5), lent, MIB, {HERE: (SENDER, RECEIVER)})
