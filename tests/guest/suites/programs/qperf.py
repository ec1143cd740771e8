# SPDX-License-Identifier: GPL-2.0-only
"""qperf, unmodified: qperf has supported AF_SDP since 2007."""

import re
import shutil

from lib import netns, observe
from lib.programs import Program
from lib.registry import case

UNITS = {"KB/sec": 1e3, "MB/sec": 1e6, "GB/sec": 1e9, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1}


def measure(e, *words, host=None, where="peer"):
    """Runs qperf on this host against a server, by default on the peer. Returns qperf's figures in
    bytes per second and seconds."""
    if not shutil.which("qperf"):
        e.skip("qperf is not installed")
    server = Program(e, ["qperf"], where)
    host = host or e.there
    try:
        text = Program(e, ["qperf", "-ws", "60", host, *words]).output(e.patience * 12)
    finally:
        Program(e, ["qperf", "-ws", "60", host, "quit"]).output(e.patience * 8)
        server.output(e.patience)
    return {name: float(value.replace(",", "")) * UNITS[unit]
            for name, value, unit in re.findall(r"(\w+)\s*=\s*([\d.,]+) (\S+)", text)
            if unit in UNITS}, text


# qperf creates its SDP sockets with family 27, so it uses IPv4.
@case(reference=False, families=("v4",), hosts=(1, 2), timeout=180)
def bandwidth(e):
    before = observe.stats()["tx_bytes"]
    numbers, text = measure(e, "-t", "2", "sdp_bw")
    e.check(numbers.get("bw", 0) > 1e6, f"sdp_bw: {text!r}")
    moved = observe.stats()["tx_bytes"] - before
    e.check(moved >= numbers["bw"] * 1.5, f"SDP carried {moved} bytes, qperf says {numbers['bw']:.0f} each second")


@case(reference=False, families=("v4",), hosts=(1, 2), timeout=180)
def latency(e):
    before = observe.stats()["tx_bytes"]
    numbers, text = measure(e, "-t", "2", "sdp_lat")
    e.check(0 < numbers.get("latency", 0) < 0.1, f"sdp_lat: {text!r}")
    e.check(observe.stats()["tx_bytes"] > before, "SDP carried nothing")


@case(reference=False, families=("v4",), hosts=(2,), timeout=300, brief=False)
def sizes(e):
    """Sends messages from one byte to a MiB."""
    numbers, text = measure(e, "-t", "1", "-oo", "msg_size:1:1M:*32", "-vu", "sdp_bw", "sdp_lat")
    e.check(text.count("bw ") >= 5 and text.count("latency ") >= 5, f"qperf said {text!r}")


@case(reference=False, families=("v4",), timeout=180)
def on_one_machine(e):
    """Runs qperf to 127.0.0.1, an address without an RDMA device."""
    before = netns.local_transport(True)
    try:
        sent = observe.stats()["tx_bytes"]
        numbers, text = measure(e, "-t", "1", "sdp_bw", "sdp_lat", host="127.0.0.1", where="self")
        e.check(numbers.get("bw", 0) > 1e6 and 0 < numbers.get("latency", 0) < 0.1, f"qperf said {text!r}")
        e.check(observe.stats()["tx_bytes"] - sent >= numbers["bw"] * 0.75, "SDP has carried less")
    finally:
        netns.local_transport(before)
