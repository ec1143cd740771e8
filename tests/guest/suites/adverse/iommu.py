# SPDX-License-Identifier: GPL-2.0-only
"""A device with its own DMA addresses and bounce buffers: unsynchronised bytes arrive wrong, and
the kernel reports violations of the DMA API."""

import itertools
import pathlib
import socket
import struct
import time

from lib import adverse, calls, consts, netns, pattern, registry
from lib.registry import case

from ..zcopy import spliced
from ..zcopy.blocks import MIB, Counters, unpinned
from .completions import on_device
from .failures import exchange, works_again

ON, MERGES = 1, 2
# CONFIG_DMA_API_DEBUG of the debug kernel.
DEBUG = pathlib.Path("/sys/kernel/debug/dma-api")
DEVICES = {
    "iommu": dict(iommu=ON),
    "iommu_merges": dict(iommu=ON | MERGES),
}
CASES = (
    "data.stream.random_sizes", "data.buffers.full", "data.oob.far_ahead", "data.flags.peek", "data.files.sendfile",
    "close.closing.with_much_queued", "close.shutdown.behind_data",
    "zcopy.blocks.whole", "zcopy.blocks.written", "zcopy.blocks.in_parts", "zcopy.blocks.interrupted", "zcopy.blocks.both_ways",
    "zcopy.blocks.vectors", "zcopy.blocks.reader_times_out",
    # rxe underlies the devices with an IOMMU, so cases with losses need the workarounds for rxe
    "stress.faults.loss_without_copies",
)


@case(reference=False, families=("v4",), timeout=240)
def both_ways(e):
    """Bytes of every size, copied and not, from and to reused buffers. The module maps no memory in
    atomic context (the kernel would warn), and leaks no mapping."""
    for name, settings in DEVICES.items():
        with adverse.device(e, **settings):
            before = adverse.read("windows")
            e.check(before > 0, "the device has no mappings: it has no addresses of its own")
            # otherwise DMA debugging does not cover sdp_adverse
            e.check(not DEBUG.exists() or " sdp_adverse " in (DEBUG / "dump").read_text(), "its mappings are not noted for what looks at the DMA API")
            for zero_copy, cache in ((False, -1), (True, -1), (False, 1), (True, 1)):
                adverse.behave(**settings)
                netns.parameter("pin_cache", cache)     # pin_cache keeps mappings, which have to be synchronised
                ends = []
                lived = exchange(e, e.listen(), zero_copy, total=3_000_000, told=ends)
                e.check(lived, f"a connection is lost, {name}, without copies {zero_copy}: calls ended with {ends}")
                e.check(adverse.read("mapped") > 0, "nothing was mapped")
                e.check(adverse.read("merged") > 0 or not zero_copy or not settings["iommu"] & MERGES, "no neighbours became one")
            netns.parameter("pin_cache", -1)
            unpinned(e)
            e.until(lambda: adverse.read("windows") <= before, "the end of all mappings")
            if DEBUG.exists():
                # The kernel logs only the first violation.
                said = {name: (DEBUG / name).read_text().strip() for name in ("disabled", "error_count")}
                e.equal(said, {"disabled": "N", "error_count": "0"}, "what looks at the use of the DMA API")


@case(reference=False, families=("v4",), timeout=240)
def failing(e):
    """A device that runs out of DMA addresses: some connections end, or bytes are copied."""
    with adverse.device(e, iommu=ON):
        adverse.behave(iommu=ON, fail_dma=100)
        listener = e.listen()
        for number in range(8):
            exchange(e, listener, number % 2 > 0)
    works_again(e)


@case(reference=False, families=("v4",), timeout=120)
def no_address_now(e):
    """The module retries file pages without a DMA address after a pause, not continuously. The
    bytes arrive once a DMA address is available."""
    with adverse.device(e, iommu=ON):
        near, far, file = spliced.sending(e, MIB)
        adverse.behave(iommu=ON, fail_dma=1000)
        file.send(near)
        time.sleep(5 * spliced.CORK_TIME)
        e.check(0 < adverse.read("mapped") < 50, f"{adverse.read('mapped')} attempts")
        adverse.behave(iommu=ON)
        e.equal(pattern.receive(far, 1, MIB, [MIB]), MIB, "bytes")
        near.close()
        far.close()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
def failing_for_collected_pages(e):
    """The device cannot map file pages for a while: no byte is lost or reordered, and the module
    sends the pages once the device can map them. Pages of a connection that wait to be mapped are
    freed with the connection."""
    for lost in (False, True):
        with adverse.device(e, iommu=ON):
            near, far, file = spliced.sending(e, spliced.PIECE)
            file.send(near)
            e.equal(pattern.receive(far, 1, file.size, [file.size]), file.size, "bytes before that")
            adverse.behave(iommu=ON, fail_dma=1000)
            counters = Counters()
            file.send(near)
            e.equal(calls.ioctl_int(near, consts.SIOCOUTQ), file.size, "bytes that wait")
            e.until(lambda: adverse.read("mapped") > 2, "attempts to map them")
            e.equal(counters.gained("tx_bytes"), 0, "bytes sent meanwhile")
            if lost:
                far.set(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                far.close()
            adverse.behave(iommu=ON)
            if not lost:
                e.equal(pattern.receive(far, 1, file.size, [file.size], socket.MSG_WAITALL), file.size, "bytes")
            unpinned(e)
    works_again(e)


for _device, _case in itertools.product(DEVICES.items(), registry.others(CASES)):
    on_device(*_device, _case, __name__)
