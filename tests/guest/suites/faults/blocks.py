# SPDX-License-Identifier: GPL-2.0-only
"""Fails each allocation of a non-blocking send, one after another, in the call itself. The module
sends the bytes by another method, notifications are correct, and later writes of the program to its
memory do not arrive."""

import os
import socket

from lib import calls, consts, memory
from lib.registry import case
from suites.faults.nth import Sender, Through, closing, failed, needs_faults, nothing_left
from suites.zcopy import protected
from suites.zcopy.blocks import Counters, eager
from suites.zcopy.notified import Told
from suites.zcopy.spliced import MORE

SIZE = 1 << 18
TCP = socket.IPPROTO_TCP


@case(reference=False, families=("v4",), timeout=300)
def returning_at_once(e):
    """An asynchronous send whose peer does not read yet, and whose program writes to the memory at
    once."""
    needs_faults(e)
    m = memory.Raw(SIZE)

    def attempt(fault):
        # uses a new connection: after a write fault or failed pinning, an old connection does not
        # soon retry
        new = Sender(e)
        new.near.set(TCP, consts.SDP_ZCOPY_THRESH, 65536)
        new.near.set(TCP, consts.SDP_ASYNC_SEND, 1)
        # maps the memory before, so that only allocations of the call fail
        m.bytes = new.next(SIZE)
        result = fault(lambda: calls.send_at(new.near, m.address, SIZE))
        task = e.task(protected.write, m, 0, 0x5A, SIZE)
        new.sent += 0 if failed(result) else result
        new.check()
        task.result()
        closing(new.near, new.far)
        return result

    counters = protected.Counters()
    Through(e, "a send that returns at once", 2, "EFAULT ENOMEM")(attempt)
    e.check(counters.gained("async blocks") > 0, "none has returned at once")
    nothing_left(e)


@case(reference=False, families=("v4",), timeout=300)
def notified(e):
    """MSG_ZEROCOPY: a failed call has no notification number. Every successful call has a
    notification, whichever method transfers its bytes."""
    needs_faults(e)
    m = memory.Raw(SIZE)

    def attempt(fault):
        new = Sender(e)
        new.near.set(socket.SOL_SOCKET, consts.SO_ZEROCOPY, 1)
        m.bytes = new.next(SIZE)
        result = fault(lambda: calls.send_at(new.near, m.address, SIZE, consts.MSG_ZEROCOPY | socket.MSG_DONTWAIT))
        new.sent += 0 if failed(result) else result
        new.check()
        Told(e, new.near).wait(int(not failed(result)))
        closing(new.near, new.far)
        return result

    counters = Counters()
    Through(e, "a send with MSG_ZEROCOPY", 2, "EFAULT ENOMEM ENOBUFS")(attempt)
    e.check(counters.gained("post_send SDP_MID_SRCAVAIL") > 0, "none was a block")
    nothing_left(e)


@case(reference=False, families=("v4",), timeout=300)
def collected(e):
    """Pages of a pipe sent with MSG_MORE, and the events that flush these pages."""
    needs_faults(e)
    reader, writer = os.pipe()

    def attempt(fault):
        new = Sender(e)
        eager(new.near)
        sent = []
        os.write(writer, new.next(8192))

        def both():
            sent.append(calls.splice(reader, new.near, 4096, MORE))
            sent.append(calls.splice(reader, new.near, 4096))
            return sum(sent)

        result = fault(both)
        if sum(sent) < 8192:
            os.read(reader, 8192)
        new.sent += sum(sent)
        new.check()
        closing(new.near, new.far)
        return result

    Through(e, "splice in two calls", 1, "EFAULT ENOMEM")(attempt)
    os.close(reader)
    os.close(writer)
    nothing_left(e)
