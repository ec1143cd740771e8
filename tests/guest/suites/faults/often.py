# SPDX-License-Identifier: GPL-2.0-only
"""Repeated random faults and temporary shortage of memory, on a connection that transfers data. A
caller that gets ENOMEM or EFAULT calls again. Accepted bytes arrive once and in order, or both ends
get an error because the connection is lost. No call waits for ever: a call that hangs after the
faults have ended is a failure."""

import itertools
import socket
import time

from lib import calls, consts
from lib.env import asleep_in
from lib.faults import KINDS, faults, knob, knob_is
from lib.registry import case
from suites.faults.anywhere import ENDS, PASSING, limited, rest
from suites.faults.nth import closing, echo, failed, needs_faults, nothing_left
from suites.lifecycle.states import THOROUGH
from suites.proc.module import refcount
from suites.zcopy.blocks import eager

SENDERS, MOST_MESSAGES, MOST_BYTES = 3, 300, 200000
# Period of a sender's bytes (prime, so that no message is a multiple), and the shift of the
# sender's number within a byte.
PERIOD, WHOSE = 61, 64


def stream(sender):
    return bytes(sender * WHOSE + at % PERIOD for at in range(PERIOD * 4000))


class Streams:
    """Bytes of several senders over one connection: the bytes of each sender are in order; senders
    may interleave."""

    def __init__(self, e):
        self._e, self._streams, self.counts = e, [stream(sender) for sender in range(SENDERS)], [0] * SENDERS
        self._others = [bytes(byte for byte in range(256) if byte // WHOSE != sender) for sender in range(SENDERS)]

    def feed(self, data):
        for sender, (whole, others) in enumerate(zip(self._streams, self._others)):
            part, at = data.translate(None, others), self.counts[sender] % PERIOD
            self._e.check(part == whole[at:at + len(part)], f"bytes of sender {sender} after {self.counts[sender]}")
            self.counts[sender] += len(part)


def again(call, errors):
    """Repeats a call after each fault and returns its result. Counts the faults that calls
    reported."""
    while failed(told := call()) and told in PASSING:
        errors[told] = errors.get(told, 0) + 1
    return told


class Transfer:
    """Several senders at one end, and one reader at the other end."""

    def __init__(self, e, near, far, sizes, after=0, then=lambda: None):
        """The function calls `then` once the given number of bytes has arrived."""
        # Counts of the errors of calls.
        self.errors = {}
        self._e, self._near, self._far, self._sizes = e, near, far, sizes
        self._after, self._then, self.has_come_far = after, then, False
        self._streams, self._wholes = Streams(e), [stream(sender) for sender in range(SENDERS)]
        self.reader = e.task(self._listen)
        self.senders = [e.task(self._speak, sender) for sender in range(SENDERS)]

    def _speak(self, sender):
        """Returns the number of bytes taken, and the error."""
        count = 0
        for size in itertools.islice(itertools.cycle(self._sizes), MOST_MESSAGES):
            if count > MOST_BYTES:
                break
            while size:
                at = count % PERIOD
                told = again(lambda: self._e.outcome(calls.send, self._near, self._wholes[sender][at:at + size], socket.MSG_NOSIGNAL), self.errors)
                if failed(told):
                    return count, told
                count, size = count + told, size - told
        return count, "whole"

    def _listen(self):
        while True:
            if not self.has_come_far and self.arrived >= self._after:
                self._then()
                self.has_come_far = True
            data = again(lambda: self._e.outcome(calls.recv, self._far, 30000), self.errors)
            if failed(data) or not data:
                return data or "the end"
            self._streams.feed(data)

    @property
    def arrived(self):
        return sum(self._streams.counts)

    def is_over(self):
        return not any(task.is_alive() for task in self.senders)

    def sleeps(self):
        """Returns true if all tasks sleep."""
        asleep = {consts.system_calls()[name] for name in ("sendto", "recvfrom")}
        return all(not task.is_alive() or asleep_in(task.native_id) in asleep for task in (self.reader, *self.senders))

    def end(self):
        """Returns the result of the transfer: whole, or the error of a lost connection."""
        e = self._e
        for task in self.senders:
            task.join(e.patience * 9)
        e.check(not any(task.is_alive() for task in self.senders), f"senders wait, {self._streams.counts} have arrived")
        told = [task.result() for task in self.senders]
        ends = {end for _, end in told}
        if ends == {"whole"}:
            again(lambda: e.error(self._near.shutdown, socket.SHUT_WR), self.errors)
        self.reader.join(e.patience * 9)
        counts = self._streams.counts
        e.check(not self.reader.is_alive(), f"the reader waits; it has {counts}, and senders {told}")
        end = self.reader.result()
        if ends == {"whole"} and end == "the end":
            e.equal(counts, [count for count, _ in told], "bytes by sender")
            return "whole"
        e.check(ends <= {"whole", *ENDS} and end in ENDS, f"senders {told}, reader {end}, {counts} have arrived")
        e.check(all(got <= count for got, (count, _) in zip(counts, told)), f"{counts} of {told}")
        return f"lost: {end}"


def at_random(e, sizes, prepare=lambda sock: None):
    needs_faults(e)
    listener = e.listen()
    references = refcount()
    for kind in KINDS:
        ends, hits = {}, {}
        for percent in (1, 3, 10, 30) * (10 if THOROUGH else 1):
            rest(e, references)
            near, far = e.pair(listener)
            for sock in (near, far):
                limited(e, sock)
                prepare(sock)
            with faults(kind, percent):
                moving = Transfer(e, near, far, sizes)
                end = moving.end()
                closing(near, far)
            ends[end] = ends.get(end, 0) + 1
            for name, count in moving.errors.items():
                hits[name] = hits.get(name, 0) + count
            echo(e, *e.pair(listener))
        e.note(kind, (ends, hits))
        # An established connection needs no further allocation to continue.
        e.check(ends.get("whole", 0), f"{kind}: {ends}")
    listener.close()
    nothing_left(e)


@case(reference=False, hosts=(0, 1), timeout=300)
def small(e):
    """Several senders on one socket, small messages."""
    at_random(e, (64,))


@case(reference=False, hosts=(0, 1), timeout=300)
def all_sizes(e):
    """Sizes up to several receive buffers, which grow during the transfer."""
    at_random(e, (1, 64, 3000, 9000, 20000))


@case(reference=False, hosts=(0, 1), timeout=300)
def lent(e):
    """Blocks are pinned, and the peer reads the blocks, if pinning succeeds."""
    at_random(e, (64, 5000, 70000), eager)


@case(reference=False, hosts=(0, 1), timeout=300)
def short_for_a_while(e):
    """During a transfer all allocations of the module begin to fail, or only the allocations that
    may not wait, until enough calls have failed or the transfer stops. When memory is available
    again, the transfer completes without further action."""
    needs_faults(e)
    listener, most = e.listen(), 100000
    for kind, patient in itertools.product(("failslab", "fail_page_alloc"), "NY"):
        ends, told, failures = {}, 0, 0
        for after in range(0, 300000, 10000) if THOROUGH else (0, 30000, 100000):
            near, far = e.pair(listener)
            for sock in (near, far):
                limited(e, sock)
            with faults(kind, 0):
                knob(kind, "ignore-gfp-wait", patient)
                knob(kind, "times", most)
                moving = Transfer(e, near, far, (3000, 20000), after, lambda: knob(kind, "probability", 100))
                e.until(lambda: moving.has_come_far, "bytes")
                before, since = None, time.monotonic()
                while time.monotonic() < since + e.patience / 80 and sum(moving.errors.values()) < 300 and not moving.is_over():
                    if before != moving.arrived or not moving.sleeps():
                        before, since = moving.arrived, time.monotonic()
                    time.sleep(0.01)
                failures += most - knob_is(kind, "times")
            end = moving.end()
            ends[end] = ends.get(end, 0) + 1
            told += sum(moving.errors.values())
            closing(near, far)
            echo(e, *e.pair(listener))
        e.note(f"{kind}, {'those that may not wait' if patient == 'Y' else 'all'}", (ends, failures, told))
        e.equal(set(ends), {"whole"}, f"{kind}, {patient}: ends")
    listener.close()
    nothing_left(e)
