# SPDX-License-Identifier: GPL-2.0-only
"""Blocks of asynchronous sends that cannot be protected at the moment are sent like blocks without
protection."""

import mmap

from lib import memory
from lib.memory import LIBC
from lib.registry import case
from suites.zcopy.protected import PAGE, Counters, pair, receive, view, write

SIZE = 65536
MOST_MAPPINGS = "/proc/sys/vm/max_map_count"


def refused(counters):
    return {name: counters.gained(f"async unprotected {name}") for name in ("changing", "unsupported", "busy", "pinned", "userfaultfd")}


@case(reference=False, families=("v4",), timeout=60)
def changing(e):
    """Memory that is remapped between the pinning of a block and its protection is not protected:
    its new content arrives."""
    near, far = pair(e)
    first, second = memory.Raw(SIZE).fill(1), memory.Absent(SIZE)
    counters = Counters()
    task = e.task(near.sendmsg, [view(first), view(memory.Raw.at(second.address, SIZE))])
    e.until(second.touched, "the pinning of the second piece, behind that of the first")
    first.replace()
    write(first, 0, 7, SIZE)
    second.close()
    receive(e, far, b"\7" * SIZE + bytes(SIZE))
    e.equal(task.result(), 2 * SIZE, "sent")
    e.equal(refused(counters), {"changing": 1, "unsupported": 0, "busy": 0, "pinned": 0, "userfaultfd": 0}, "refusals")
    e.equal(counters.gained("async blocks"), 0, "blocks")


def crowd(most):
    """Makes one more mapping than the calling process may have. Returns the mappings that the
    caller can unmap again."""
    many = memory.Raw(2 * most * PAGE)
    for n in range(most):
        if LIBC.mprotect(many.address + 2 * n * PAGE, PAGE, mmap.PROT_READ):
            break
    while LIBC.mmap(None, PAGE, mmap.PROT_READ, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, 0) != memory.FAILED:
        pass
    return many


@case(reference=False, families=("v4",), timeout=60)
def unsupported(e):
    """A process at its limit of mappings cannot map a page for a userfaultfd, so its blocks are not
    protected."""
    near, far = pair(e)
    m = memory.Raw(SIZE).fill(3)
    data, most, counters = view(m), 4000, Counters()

    def sender():
        many = crowd(most)
        near.sendall(data)
        many.unmap()

    with open(MOST_MAPPINGS) as file:
        before = file.read()
    try:
        with open(MOST_MAPPINGS, "w") as file:
            file.write(str(most))
        task = e.child(sender)
        receive(e, far, m.bytes)
        task.result()
    finally:
        with open(MOST_MAPPINGS, "w") as file:
            file.write(before)
    e.equal(refused(counters), {"changing": 0, "unsupported": 1, "busy": 0, "pinned": 0, "userfaultfd": 0}, "refusals")
    e.equal(counters.gained("async blocks"), 0, "blocks")
