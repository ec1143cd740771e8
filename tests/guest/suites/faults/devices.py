# SPDX-License-Identifier: GPL-2.0-only
"""Allocations fail while an RDMA device is added."""

from lib import faults, kmsg, netns
from lib.registry import case
from suites.faults.nth import echo, needs_faults, nothing_left

# Number of allocations that fail in turn: those of adding a device, and some later allocations.
MOST = 3


@case(reference=False, families=("v4",), timeout=180)
def added(e):
    """A device that was added without memory has no SDP, and the kernel log names the device. Once
    the device is removed and added again, SDP uses the device."""
    if netns.is_one():
        e.skip("no RDMA device found")
    needs_faults(e)
    listener, log, ends = e.listen(), kmsg.Log(), []
    delete, add = "rdma link del rxe0", f"rdma link add rxe0 type rxe netdev {netns.device('self')}"
    for number in range(1, MOST + 1):
        log.lines()
        netns.run("self", delete)
        with faults.one("failslab", number) as hits:
            netns.run("self", add)
        named = any("rxe0: ib_sdp: cannot use the device (-12)" in line for line in log.lines())
        near = e.socket()
        if named:
            e.check(e.error(near.connect, e.address(e.there, listener.port)) in ("ENETUNREACH", "ENODEV"), "connect(2) without the device")
        else:
            e.until(lambda near=near: e.error(near.connect, e.address(e.there, listener.port)) in ("ok", "EISCONN"), "a connection by the device")
            listener.accept()[0].close()
        near.close()
        ends.append(("hit" if hits() else "no fault") + (", named" if named else ""))
    e.equal(ends[0], "hit, named", "the first allocation")
    netns.run("self", delete)
    netns.run("self", add)
    e.until(lambda: e.error(e.socket().connect, e.address(e.there, listener.port)) == "ok", "a connection by the device, added again")
    listener.accept()[0].close()
    echo(e, *e.pair(listener))
    e.note("each allocation", ends)
    listener.close()
    nothing_left(e)
