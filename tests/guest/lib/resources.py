# SPDX-License-Identifier: GPL-2.0-only
"""Counts the PDs, CQs, QPs and MRs of RDMA devices, and checks that the numbers return to the
earlier ones."""

import json
import re
import subprocess

from lib import leftovers, netns

# Default of the parameter spare_queues.
KEPT = 16


def resources():
    """Returns the number of each kind of object that the RDMA devices have."""
    text = subprocess.run(["rdma", "-j", "resource", "show"], capture_output=True, text=True, check=True).stdout
    return {(device["ifname"], kind): count for device in json.loads(text) for kind, count in device.items()
            if kind in ("pd", "cq", "qp", "mr", "srq")}


def queues(free=False):
    """Returns the numbers of the module's completion queues on all devices; with `free`, of those
    without a queue pair."""
    shown = "".join(netns.run(where, "rdma resource show cq") for where in netns.hosts())
    lines = [line for line in shown.splitlines() if "[ib_sdp]" in line and (not free or re.search(r"\busers 0\b", line))]
    return sorted({re.search(r"dev \S+ cqn \d+", line).group() for line in lines})


def same(now, before):
    """Returns True if both counts are the same, except for cached queues of later connections: two
    completion queues and a protection domain each."""
    kept = {device: now[device, "pd"] - before[device, "pd"] for device, kind in before if kind == "pd"} if now.keys() == before.keys() else None
    return kept is not None and all(
        abs(kept[device]) <= KEPT and count - before[device, kind] == {"pd": 1, "cq": 2}.get(kind, 0) * kept[device] for (device, kind), count in now.items())


class Nothing:
    """Checks that the resources after a block are those before it."""

    def __init__(self, e):
        self._e = e
        self._before = None
        self.left()
        self._before = resources()

    def left(self, what="before"):
        e = self._e
        for thing in e._keep:
            if hasattr(thing, "close"):
                thing.close()
        e._keep.clear()
        left = leftovers.wait(e.patience * 9)
        e.check(not left, f"{what}: " + "; ".join(left))
        if self._before is not None:
            e.until(lambda: same(resources(), self._before), lambda: f"{what}: {resources()} on the devices, before {self._before}", e.patience * 3)
