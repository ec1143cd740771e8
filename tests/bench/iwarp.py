# SPDX-License-Identifier: GPL-2.0-only
"""Measurements and tables of `scripts/bench --siw`: SDP over iWARP (siw) against SDP over RoCE
(rxe) and TCP, between two guests on one wire. siw does not connect within one machine."""

from figures import AT_ONCE_SIZE, goals_table, intro, lost_table, section, length, standard_graphs, standard_points

SYSTEMS = ("siw", "rxe", "tcp")
NAMES = {"siw": "SDP/siw", "rxe": "SDP/rxe", "tcp": "TCP"}
COLOURS = {"siw": (120, 60, 160), "rxe": (200, 30, 40), "tcp": (40, 150, 70)}
SIZES = [64, 1024, 4096, 65536, 1 << 20]


def plan(options):
    return [{"part": part, "mode": mode, "size": size, "connections": count, "system": system}
            for part, mode, size, count in standard_points(options.quick, SIZES) if part != "at once" for system in SYSTEMS]


def targets(_samples, _sizes):
    return []


def table(options, around, samples, points, load, goals):
    yield from intro(options, around, load, f"SDP (as it is by default) over siw and over rxe, and TCP, between two guests of one machine, MTU {around['mtu']}")
    for part, title, name, scale in (("throughput", "Throughput, MB/s", "rate", 1e-6), ("latency", "Latency, half of a ping-pong, waiting by sleep, us", "median_us", 1),
                                     ("connections", "Connections: connect, a byte to and fro, close; per second", "per_second", 1)):
        rows = [(length(size), size, 1) for size in sorted({point["size"] for point in points if point["part"] == part})]
        if rows:
            yield from section(samples, title, "message", rows, part, name, scale, SYSTEMS, NAMES, pairs=[("siw", "tcp"), ("siw", "rxe"), ("rxe", "tcp")])
    yield from lost_table(samples, NAMES)
    yield from goals_table(goals)


def graphs(_samples, points):
    return standard_graphs(points, AT_ONCE_SIZE)
