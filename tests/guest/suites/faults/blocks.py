# SPDX-License-Identifier: GPL-2.0-only
"""Each allocation of a send that returns at once fails, in the call itself: the bytes go otherwise, and what the program writes afterwards
does not arrive."""

import socket

from lib import calls, consts, memory
from lib.registry import case
from suites.faults.nth import Sender, Through, closing, failed, needs_faults, nothing_left
from suites.zcopy import protected

SIZE = 1 << 18
TCP = socket.IPPROTO_TCP


@case(reference=False, families=("v4",), timeout=300)
def returning_at_once(e):
    """One whose peer does not read yet, and whose memory is written to at once."""
    needs_faults(e)
    m = memory.Raw(SIZE)

    def attempt(fault):
        # a new connection, since one whose blocks are touched, or are not to be had, does not try again soon
        new = Sender(e)
        new.near.set(TCP, consts.SDP_ZCOPY_THRESH, 65536)
        new.near.set(TCP, consts.SDP_ASYNC_SEND, 1)
        # its pages are there, so that nothing fails but in the call
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
