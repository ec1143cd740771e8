# SPDX-License-Identifier: GPL-2.0-only
"""Measurements and tables of `scripts/bench --smc`: SDP against SMC, and both against TCP. Link
measurements compare SDP with SMC-R over rxe; local measurements compare SDP's local transport,
SMC-D's loopback device and AF_UNIX."""

from figures import AT_ONCE_SIZE, intro, length, lost_table, standard_graphs, standard_points, standard_sections
from smc_kernel import BUFFERS, LARGE_BUFFERS

LINK = ("sdp", "smcr", "smcr large", "tcp")
ONE_MACHINE = ("sdp here", "smcd", "smcd large", "tcp here", "unix")
SYSTEMS = LINK + ONE_MACHINE
NAMES = {"sdp": "SDP", "smcr": "SMC-R", "smcr large": "SMC-R+", "tcp": "TCP",
         "sdp here": "SDP, one machine", "smcd": "SMC-D", "smcd large": "SMC-D+", "tcp here": "TCP, one machine", "unix": "AF_UNIX"}
COLUMNS = NAMES | {"sdp here": "SDP", "tcp here": "TCP"}
COLOURS = {"sdp": (200, 30, 40), "smcr": (30, 110, 190), "smcr large": (20, 50, 110), "tcp": (40, 150, 70),
           "sdp here": (240, 140, 140), "smcd": (130, 180, 230), "smcd large": (80, 110, 160), "tcp here": (140, 210, 150), "unix": (120, 60, 160)}
SIZES = [64 * 4 ** i for i in range(10)]                # 64 bytes to 16 MiB


def plan(options):
    return [{"part": part, "mode": mode, "size": size, "connections": count, "system": system, "here": system in ONE_MACHINE}
            for part, mode, size, count in standard_points(options.quick, SIZES) for system in SYSTEMS]


def targets(_samples, _sizes):
    """There are no targets."""
    return ()


def table(options, around, samples, points, load, _goals):
    yield from intro(options, around, load, "SDP and SMC, each against TCP")
    yield f"SMC has buffers of {length(BUFFERS)}, its default, and (SMC-R+, SMC-D+) of {length(LARGE_BUFFERS)}. Its counters say that no byte of it was TCP's."
    for what, systems in ((f"On one link, MTU {around['mtu']}: SDP and SMC-R over rxe", LINK),
                          ("Within one machine: SDP's local transport, SMC-D's loopback device, AF_UNIX", ONE_MACHINE)):
        own, other, large, tcp, *unix = systems
        pairs = [(own, tcp), (other, tcp), (large, tcp), *((own, one) for one in unix), (own, other), (own, large)]
        yield ""
        yield f"--- {what}"
        yield ""
        yield from standard_sections(samples, points, AT_ONCE_SIZE, systems, COLUMNS, pairs)
    yield from lost_table(samples, NAMES)


def graphs(_samples, points):
    return standard_graphs(points, AT_ONCE_SIZE)
