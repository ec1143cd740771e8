# SPDX-License-Identifier: GPL-2.0-only
"""Several calls want to read the same block of the peer: bytes that do not fit one call are left
for the other calls."""

import select
import threading

from lib.registry import case
from suites.zcopy.blocks import MIB, unpinned
from suites.zcopy.notified import asking, give

PART = 65536


def rest(e, far, left):
    """Checks that the unread bytes of the block also arrive."""
    far.recv_exactly(left)
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
def by_readers(e):
    """Two calls wait for the bytes of a block that the sender does not take back: each call gets
    some bytes."""
    for turn in range(8):
        near, far = asking(e)
        tasks = [e.task(far.recv, PART).wait_asleep("recvfrom") for _ in range(2)]
        views = give(e, near, turn, 1)
        got = sum(len(task.result()) for task in tasks)
        e.check(got >= 2, f"{got} bytes")
        rest(e, far, MIB - got)
        del views
        near.close()
        far.close()


@case(reference=False, families=("v4",), timeout=120)
def by_reader_and_poller(e):
    """One call reads a part of the block while a thread begins to poll: poll reports the unread
    rest."""
    for turn in range(16):
        near, far = asking(e)
        begun = threading.Event()

        def polls():
            poller = select.poll()
            poller.register(far, select.POLLIN)
            begun.wait()
            return poller.poll(e.patience * 500)

        task, watcher = e.task(far.recv, MIB).wait_asleep("recvfrom"), e.task(polls)
        views = give(e, near, turn, 4)
        begun.set()
        got = len(task.result())
        e.check(len(watcher.result()) == 1, f"nothing told of the {4 * MIB - got} bytes that are left")
        rest(e, far, 4 * MIB - got)
        del views
        near.close()
        far.close()
