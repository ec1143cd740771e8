# SPDX-License-Identifier: GPL-2.0-only
"""Measurements and tables of `make bench`: SDP against raw verbs, rsockets and TCP on one link."""

from figures import AT_ONCE_SIZE, WATCHED, call_points, figure, goals_of, goals_table, intro, length, lost_table, section, standard_graphs, standard_points, standard_sections, watched_points

SYSTEMS = ("sdp", "raw", "rsockets", "tcp")
NAMES = {"sdp": "SDP", "raw": "raw verbs", "rsockets": "rsockets", "tcp": "TCP"}
COLOURS = {"sdp": (200, 30, 40), "raw": (50, 50, 50), "rsockets": (30, 110, 190), "tcp": (40, 150, 70)}
SIZES = [64 * 4 ** i for i in range(8)]                 # 64 bytes to 1 MiB
# Mode and systems of parts with a proxy: by splice(2), or by recv and send. "copy" copies sends.
PROXIES = {"proxy": ("splice", ("sdp", "copy", "tcp")), "relay": ("relay", ("sdp", "tcp"))}
PROXY_NAMES = NAMES | {"copy": "SDP, copied"}
PROXY_SIZE = 1 << 20
CHECKS = (("rstream", "stream", 65536), ("qperf sdp_bw", "stream", 65536), ("qperf rc_bw", "stream", 65536), ("qperf tcp_bw", "stream", 65536),
          ("rstream", "pong", 64), ("qperf sdp_lat", "pong", 64), ("qperf rc_lat", "pong", 64), ("qperf tcp_lat", "pong", 64))


def plan(options):
    """Returns the points of each repetition, in this order: the systems one after another at each
    point."""
    # perftest sets up its queue pairs only once; no comparison is possible.
    points = [(*point, [system for system in SYSTEMS if (point[0], system) != ("connections", "raw")])
              for point in standard_points(options.quick, SIZES)]
    # Debian's rsockets cannot be in an epoll, those of --rdma-core can. Neither rsockets nor a
    # completion channel reports edges.
    watched = ["sdp", "raw", *(["rsockets"] if options.rdma_core else []), "tcp"]
    points += [(*point, watched if point[0] == "epoll" else ["sdp", "tcp"]) for point in watched_points()]
    points += [(*point, ["sdp", "rsockets", "tcp"]) for point in call_points()]
    points += [(part, mode, PROXY_SIZE, 1, systems) for part, (mode, systems) in PROXIES.items()]
    points += [("check", mode, size, 1, [system]) for system, mode, size in CHECKS]
    return [{"part": part, "mode": mode, "size": size, "connections": count, "system": system}
            for part, mode, size, count, systems in points for system in systems]


def targets(samples, sizes):
    wanted = [("throughput", "sdp", "raw", AT_ONCE_SIZE, "rate", 0.9), ("latency", "sdp", "raw", 64, "median_us", 1.15),
              *(("epoll", "sdp", "raw", 64, "median_us", 1.0, count) for count in WATCHED),
              *(("throughput", "sdp", "rsockets", size, "rate", 1.0) for size in sizes if size >= 4096),
              ("latency", "sdp", "rsockets", 64, "median_us", 1.0)]
    return goals_of(samples, wanted, NAMES)


def _proxies(samples, points):
    for part, (mode, systems) in PROXIES.items():
        if not any(point["part"] == part for point in points):
            continue
        rows = [(length(PROXY_SIZE), PROXY_SIZE, 1)]
        for title, name, scale in (("MB/s", "rate", 1e-6), ("CPU time charged to the proxy, ns per byte", "sender_cpu_per_byte", 1e9),
                                   ("CPU time of the whole guest, ns per byte", "guest_cpu_per_byte", 1e9)):
            yield from section(samples, f"A proxy between two connections ({mode}), {title}", "buffer", rows, part, name, scale, systems, PROXY_NAMES)


def table(options, around, samples, points, load, goals):
    yield from intro(options, around, load, f"SDP (as it is by default) against raw verbs, rsockets (rdma-core {around['rdma_core']}) and TCP on one link, MTU {around['mtu']}")
    yield from standard_sections(samples, points, AT_ONCE_SIZE, SYSTEMS, NAMES)
    yield from _proxies(samples, points)
    checks = [(point["system"], point["mode"], point["size"]) for point in points if point["part"] == "check"]
    if checks:
        yield "Cross-checks by other programs (rc_*: raw verbs, qperf's own way of waiting)"
    for system, mode, size in checks:
        value = samples.middle("check", system, size, 1, "rate" if mode == "stream" else "median_us")
        value = figure(value and value * 1e-6) + " MB/s" if mode == "stream" else figure(value) + " us"
        yield f"  {system:<13}  {length(size):>6}  {value:>12}"
    yield ""
    yield from lost_table(samples, NAMES)
    yield from goals_table(goals)


def graphs(_samples, points):
    return standard_graphs(points, AT_ONCE_SIZE)
