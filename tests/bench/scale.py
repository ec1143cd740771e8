# SPDX-License-Identifier: GPL-2.0-only
"""Measurements and tables of `scripts/bench --scale`: thousands of idle connections, over RDMA and
local, compared with TCP. Both ends are in one guest, whose memory is MEMORY."""

from figures import figure, grid, intro, lost_table

SYSTEMS = ("sdp", "tcp", "sdp here", "tcp here", "unix")
NAMES = {"sdp": "SDP, RDMA", "tcp": "TCP", "sdp here": "SDP, one machine", "tcp here": "TCP, one machine", "unix": "AF_UNIX"}
COLOURS = {"sdp": (200, 30, 40), "tcp": (40, 150, 70), "sdp here": (240, 140, 140), "tcp here": (140, 210, 150), "unix": (120, 60, 160)}
LEVELS = (1, 1000, 10000)       # as in many.c
MEMORY = 4096                   # MiB


def plan(options):
    most = 1000 if options.quick else 10000
    return [{"part": "idle", "mode": "idle", "size": 1, "connections": most, "system": system, "here": system not in ("sdp", "tcp")} for system in SYSTEMS]


def targets(_samples, _sizes):
    """There are no targets: the table shows the numbers."""
    return ()


def table(options, around, samples, points, load, _goals):
    yield from intro(options, around, load, f"Idle connections, both ends in one guest of {MEMORY >> 10} GiB")
    most = points[0]["connections"]

    def value(system, name, scale=1):
        got = samples.middle("idle", system, 1, most, name)
        return figure(got and got * scale)

    rows = [("connections made", "count", 1)]
    rows += [(f"made and accepted, us, when there are {level}", f"accept_us_{level}", 1) for level in LEVELS if level <= most]
    rows += [(f"memory of both ends, all told, KiB, of {level}", f"bytes_each_{level}", 1 / 1024) for level in LEVELS[1:] if level <= most]
    rows += [("made one after another, per second", "per_second", 1), ("closed, us", "close_us", 1)]
    yield from grid("", ["", *(NAMES[system] for system in SYSTEMS)], [[label, *(value(system, name, scale) for system in SYSTEMS)] for label, name, scale in rows])
    for system, why in sorted(samples.stopped.items()):
        yield f"  {NAMES[system]}: no more: {why}"
    yield from lost_table(samples, NAMES)


def graphs(_samples, _points):
    return ()
