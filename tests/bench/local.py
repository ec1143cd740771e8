# SPDX-License-Identifier: GPL-2.0-only
"""Measurements and tables of `scripts/bench --local`: local SDP connections, without RDMA, compared
with TCP, AF_UNIX and rsockets. rsockets use the RDMA device (rxe) for local connections, too,
because they have no other transport."""

from figures import AT_ONCE_SIZE, call_points, goals_of, goals_table, intro, lost_table, standard_graphs, standard_points, standard_sections, watched_points

SYSTEMS = ("sdp", "zcopy", "tcp", "unix", "rsockets")
NAMES = {"sdp": "SDP", "zcopy": "zcopy", "tcp": "TCP", "unix": "AF_UNIX", "rsockets": "rsockets"}
COLOURS = {"sdp": (200, 30, 40), "zcopy": (230, 140, 30), "tcp": (40, 150, 70), "unix": (120, 60, 160), "rsockets": (30, 110, 190)}
SIZES = [64 * 4 ** i for i in range(10)]                # 64 bytes to 16 MiB


def plan(options):
    points = [(*point, SYSTEMS) for point in standard_points(options.quick, SIZES)]
    points += [(*point, ("sdp", "tcp", "unix")) for point in [*watched_points(), *call_points()]]
    return [{"part": part, "mode": mode, "size": size, "connections": count, "system": system, "here": True}
            for part, mode, size, count, systems in points for system in systems]


def targets(samples, sizes):
    large = [size for size in sizes if size >= 65536]
    wanted = [*(("throughput", "sdp", "tcp", size, "rate", 2.0) for size in large), ("latency", "sdp", "tcp", 64, "median_us", 0.7),
              *(("throughput", "sdp", "unix", size, "rate", 1.0) for size in large)]
    return goals_of(samples, wanted, NAMES)


def table(options, around, samples, points, load, goals):
    yield from intro(options, around, load, f"SDP within one machine, and (zcopy) zero copy from 64 KiB, against TCP and AF_UNIX, and rsockets (rdma-core {around['rdma_core']}) over rxe")
    yield from standard_sections(samples, points, AT_ONCE_SIZE, SYSTEMS, NAMES)
    yield from lost_table(samples, NAMES)
    yield from goals_table(goals)


def graphs(_samples, points):
    return standard_graphs(points, AT_ONCE_SIZE)
