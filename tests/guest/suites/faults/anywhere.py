# SPDX-License-Identifier: GPL-2.0-only
"""One fault in the life of a connection, at any place: in a call, in the connection manager's
callbacks, or in a worker, at either end. Accepted bytes arrive, or the connection gets an error. No
call waits for ever, and the next connection works."""

import itertools
import select
import socket
import struct

from lib import calls, consts, faults, pattern
from lib.registry import case
from suites.faults.nth import closing, echo, failed, needs_faults, nothing_left
from suites.lifecycle.states import SOME
from suites.proc.module import refcount
from suites.zcopy.blocks import eager

SIZE = 100000
# Errors of a call that can be repeated after a fault, and errors at the end of a connection.
PASSING = ("ENOMEM", "EFAULT")
# Results of a call that has reached its time limit.
HANGS = ("ETIMEDOUT", "EAGAIN", "EINPROGRESS")
ENDS = ("ECONNRESET", "EPIPE", "EPROTO", "ECONNABORTED", "ENOTCONN")


def again(e, call):
    """Makes a call, and repeats the call if it fails with an injected fault."""
    try:
        return call()
    except OSError as error:
        e.check(calls.errname(error) in PASSING, f"{error!r}")
        return call()


def limited(e, sock):
    """Limits the time of all calls on a socket."""
    for option in (20, 21):
        again(e, lambda option=option: sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("=qq", int(e.patience * 3), 0)))


def session(e, listener):
    """Runs a connection from setup to close. Returns the steps of the connection that succeeded."""
    near = again(e, e.socket)
    limited(e, near)
    got = e.error(near.connect, e.address(e.there, listener.port))
    if got != "ok":
        near.close()
        return f"connect: {got}"
    far, address = None, None
    poller = select.poll()
    poller.register(near.fileno(), consts.POLLRDHUP)
    poller.register(listener.fileno(), select.POLLIN)
    while address != near.getsockname():
        # Sockets that accept(2) returned earlier belong to attempts that failed at the client only.
        # The peer may be closed already.
        ready = [fd for fd, _ in poller.poll(e.patience * 9000)]
        e.check(ready, "a connection that nobody can accept, and whose other end does not end")
        if listener.fileno() not in ready:
            end = e.outcome(calls.recv, near, 1, socket.MSG_DONTWAIT)
            e.check(end == b"" or end in ENDS, f"a connection that nobody can accept, and whose other end says {end!r}")
            near.close()
            return f"accept: {end}"
        made = e.outcome(calls.accept4, listener)
        if failed(made):
            e.check(made in (*PASSING, "ECONNABORTED"), f"accept: {made}")
            continue
        far, address = e.keep(type(near).wrap(made[0], e.domain)), calls.sa_text(made[1])[1:]
    for sock in (near, far):
        limited(e, sock)
        again(e, lambda sock=sock: eager(sock))

    def transfer(source, target, seed):
        stream, checker = pattern.Pattern(seed), pattern.Checker(seed)

        def send():
            at, sizes = 0, itertools.cycle((1, 3000, 50000))
            while at < SIZE:
                told = e.outcome(calls.send, source, stream.at(at, min(next(sizes), SIZE - at)), socket.MSG_NOSIGNAL)
                if told in ENDS:
                    return told
                e.check(not failed(told) or told in PASSING, f"send: {told} after {at} bytes")
                at += 0 if failed(told) else told
            return "whole"

        def receive():
            while checker.count < SIZE:
                data = e.outcome(calls.recv, target, min(40000, SIZE - checker.count), socket.MSG_WAITALL)
                if data in ENDS or data == b"":
                    return data or "the end"
                e.check(not failed(data) or data in PASSING, f"recv: {data} after {checker.count} bytes")
                checker.feed(b"" if failed(data) else data)
            return "whole"

        sender, receiver = e.task(send), e.task(receive)
        receiver.join(e.patience * 9)
        return receiver.result(), sender.result()

    ends = {*transfer(near, far, 1), *transfer(far, near, 2)}
    closing(near, far)
    return ", ".join(sorted(ends))


def rest(e, references):
    """Waits until all work of the last connection has finished."""
    e._keep.clear()
    e.until(lambda: refcount() <= references, lambda: f"{refcount()} references stay, {references} before", e.patience / 2)


def through(e, kind, numbers):
    needs_faults(e)
    listener = e.listen()
    references = refcount()
    e.equal(session(e, listener), "whole", "without a fault")
    ends, hits = {}, 0
    for number in numbers:
        rest(e, references)
        with faults.one(kind, number) as hit:
            end = session(e, listener)
            rest(e, references)
            hits += hit()
        e.check(not any(hang in end for hang in HANGS), f"{kind} {number}: {end}")
        ends[end] = ends.get(end, 0) + 1
        if number % 8 == 0:
            echo(e, *e.pair(listener))
    e.check(hits > len(numbers) // 2, f"{hits} faults only")
    e.note("faults, ends", (hits, ends))
    listener.close()
    nothing_left(e)


@case(reference=False, families=SOME, timeout=600)
def allocations(e):
    through(e, "failslab", range(1, 240, 4))


@case(reference=False, families=SOME, timeout=600)
def pages(e):
    through(e, "fail_page_alloc", range(1, 30))


@case(reference=False, families=SOME, timeout=600)
def copies(e):
    through(e, "fail_usercopy", range(1, 30))
