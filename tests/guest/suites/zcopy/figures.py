# SPDX-License-Identifier: GPL-2.0-only
"""Statistics of zero copy, the automatic choice of zero copy, and the state that a connection keeps
from one call to the next."""

import contextlib
import mmap
import os
import pathlib
import socket

from lib import calls, consts, observe, pattern
from lib.registry import case
from lib.tracing import end, tracing

from .blocks import MIB, TCP, Counters, before_it_gives_up, pair, pipelined, unpinned, waiting_reader

PARAMETERS = pathlib.Path("/sys/module/ib_sdp/parameters")


@contextlib.contextmanager
def parameter(name, value):
    file = PARAMETERS / name
    before = file.read_text()
    file.write_text(str(value))
    try:
        yield
    finally:
        file.write_text(before)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def info(e):
    """SDP_INFO: a socket's bytes by method, and its adverts."""
    near, far = pair(e)
    carried = {observe.info(sock)["transport"] for sock in (near, far)}
    e.check(len(carried) == 1 and carried <= {1, 2}, f"transports {carried}")
    near.send(b"x" * 1000)
    far.recv_exactly(1000)
    task = e.task(pattern.send, near, 4, 4 * MIB, [MIB])
    e.equal(pattern.receive(far, 4, 4 * MIB, [MIB], socket.MSG_WAITALL), 4 * MIB, "bytes")
    task.result()
    ours, theirs = observe.info(near), observe.info(far)
    for name, value in (("tx_bytes", 4 * MIB + 1000), ("rx_bytes", 0), ("rx_read", 0), ("rx_written", 0), ("src_avail_received", 0)):
        e.equal(ours[name], value, name)
    e.equal(theirs["rx_bytes"], ours["tx_bytes"], "bytes at the other end")
    e.equal((theirs["rx_read"], theirs["rx_written"]), (ours["tx_read"], ours["tx_written"]), "bytes not copied, at both ends")
    e.equal(theirs["src_avail_received"], ours["src_avail_sent"], "SrcAvails")
    e.equal(ours["sink_avail_received"], theirs["sink_avail_sent"], "SinkAvails")
    e.check(ours["src_avail_sent"] + ours["sink_avail_received"] > 0, f"no advert: {ours}")
    raw, length = calls.getsockopt(near, TCP, consts.SDP_INFO, 12)
    e.equal((len(raw), length), (12, 12), "a short buffer")
    raw, length = calls.getsockopt(near, TCP, consts.SDP_INFO, 4096)
    e.equal(length, 8 * len(observe.INFO), "its length")
    e.equal(e.error(calls.setsockopt, near, TCP, consts.SDP_INFO, bytes(8)), "ENOPROTOOPT", "setsockopt")
    near.close()
    e.equal(observe.info(e.socket())["transport"], 0, "transport of a new socket")


@case(reference=False, families=("v4",), timeout=60, messages=True)
def traced(e):
    """sdp_zero_copy reports each segment of memory, at both ends."""
    def attempt():
        with tracing(e, "sdp_zero_copy") as read:
            near, far = pipelined(e)
            ours, theirs = (end(*name[:2]) for name in (near.getsockname(), near.getpeername()))
            task, counters = waiting_reader(e, far, MIB)
            near.sendall(pattern.Pattern(3).at(0, MIB))
            e.equal(len(task.result()), MIB, "bytes")
            if counters.gained("zcopy written") != MIB:
                return False
            found = [(f["local"], f["way"], int(f["done"])) for _, f in read() if int(f["done"])]
            e.check((theirs, "written_by_peer", MIB) in found, f"no reader in {found}")
            written = sum(done for local, way, done in found if (local, way) == (ours, "written"))
            e.equal(written, MIB, "bytes written")
            by_peer = sum(done for local, way, done in found if (local, way) == (ours, "read_by_peer"))
            by_us = sum(done for local, way, done in found if (local, way) == (theirs, "read"))
            e.equal(by_peer, by_us, "bytes read")
            return True
    before_it_gives_up(e, attempt)


@case(reference=False, families=("v4",), timeout=120)
def found_out(e):
    """Without a threshold, both methods are tried, and all bytes arrive."""
    data = memoryview(pattern.Pattern(5).at(0, 64 * MIB))
    with parameter("sdp_zcopy_thresh", -1):
        def attempt():
            near, far = e.pair()
            task = e.task(pattern.receive, far, 5, len(data), [4 * MIB], socket.MSG_WAITALL)
            for at in range(0, len(data), MIB):
                near.sendall(data[at:at + MIB])
            e.equal(task.result(), len(data), "bytes")
            tried = observe.info(near)
            near.close()
            far.close()
            direct = tried["tx_read"] + tried["tx_written"]
            return 0 < direct < tried["tx_bytes"]
        e.lucky(attempt, "a connection has not tried both ways")
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def small_ones_are_copied(e):
    """Sends of less than 64 KiB are always copied."""
    with parameter("sdp_zcopy_thresh", -1):
        near, far = e.pair()
        task = e.task(pattern.send, near, 5, 8 * MIB, [65535])
        e.equal(pattern.receive(far, 5, 8 * MIB, [MIB], socket.MSG_WAITALL), 8 * MIB, "bytes")
        task.result()
        told = observe.info(near)
        e.equal((told["src_avail_sent"], told["tx_written"]), (0, 0), "adverts and bytes")


@case(reference=False, families=("v4",), timeout=120)
def cache(e):
    """With pin_cache, memory that is sent again stays pinned. Memory that replaces the pinned
    memory in the address space is not confused with the pinned memory."""
    with parameter("pin_cache", 1):
        near, far = pair(e)
        counters = Counters()
        memory = mmap.mmap(-1, MIB)

        def send(seed):
            data = pattern.Pattern(seed).at(0, MIB)
            memory[:] = data
            task = e.task(far.recv, MIB, socket.MSG_WAITALL)
            near.sendall(memory)
            e.check(task.result() == data, f"other bytes than were sent, turn {seed}")

        for turn in range(8):
            send(turn)
        e.check(counters.gained("pin cache hits") > 0, "no hits")
        # the same address gets other pages: by remapping, and by a child's copy on write
        for turn in range(8, 12):
            memory.madvise(mmap.MADV_DONTNEED)
            send(turn)
        for turn in range(12, 16):
            child = os.fork()
            if child == 0:
                memory[:] = bytes(MIB)
                os._exit(0)
            os.waitpid(child, 0)
            send(turn)
        near.close()
        far.close()
        memory.close()
    unpinned(e)
