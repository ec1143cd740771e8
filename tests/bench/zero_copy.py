# SPDX-License-Identifier: GPL-2.0-only
"""Measurements and tables of `scripts/bench --zero-copy`: each zero-copy method compared with
copying, and with the raw operation of the same device that it uses. "File" is sendfile(2). The part
"messages" compares messages (SOCK_SEQPACKET) with streams.
tests/bench/asynchronous.py measures the asynchronous sends."""

from figures import difference, figure, goals_of, goals_table, grid, intro, length, lost_table, places, section, standard_graphs

SYSTEMS = ("copy", "read", "write", "both", "adaptive", "file_copy", "file", "ib_send", "ib_read", "ib_write")
WAYS = 7        # number of SDP's methods, the first systems of the list
# Streams and SOCK_SEQPACKET, whose messages have no zero copy by WRITE.
MESSAGES = ("copy", "read", "messages_copy", "messages")
MESSAGE_SIZES = (4096, 65536, 1 << 20)
NAMES = {"copy": "copied", "read": "by READ", "write": "by WRITE", "both": "either", "adaptive": "adaptive",
         "file_copy": "file, copy", "file": "file", "ib_send": "raw SEND", "ib_read": "raw READ", "ib_write": "raw WRITE",
         "messages_copy": "messages, copied", "messages": "messages, by READ"}
COLOURS = {"copy": (200, 30, 40), "read": (230, 140, 30), "write": (150, 60, 160), "both": (120, 120, 30), "adaptive": (20, 20, 20),
           "file_copy": (220, 120, 180), "file": (30, 130, 130),
           "ib_send": (110, 160, 220), "ib_read": (120, 190, 130), "ib_write": (190, 190, 190),
           "messages_copy": (90, 60, 30), "messages": (40, 90, 60)}
FIXED = ("copy", "read", "write", "both")
SIZES = [4096 * 4 ** i for i in range(7)]               # 4 KiB to 16 MiB
AT_ONCE = [2, 4, 8]
AT_ONCE_SIZE = 1 << 20
RAW_SIZE = 1 << 20
# Raw operation of verbs that each method uses.
MADE_OF = {"copy": "ib_send", "read": "ib_read", "write": "ib_write"}
# Nanoseconds counted per instruction.
INSTRUCTION = 2


def plan(options):
    sizes, at_once = ([65536, 1 << 20], [4]) if options.quick else (SIZES, AT_ONCE)
    points = [("throughput", size, 1) for size in sizes] + [("at once", AT_ONCE_SIZE, count) for count in at_once]
    # raw WRITE is measured by a program with a single connection
    chosen = [(*point, system) for point in points for system in SYSTEMS if point[2] == 1 or system != "ib_write"]
    chosen += [("messages", size, 1, system) for size in MESSAGE_SIZES for system in MESSAGES]
    return [{"part": part, "mode": "stream", "size": size, "connections": count, "system": system} for part, size, count, system in chosen]


def _messages(samples, points):
    """Yields the tables of messages beside streams."""
    if not any(point["part"] == "messages" for point in points):
        return
    rows = [(length(size), size, 1) for size in MESSAGE_SIZES]
    pairs = [("messages_copy", "copy"), ("messages", "read"), ("messages", "messages_copy")]
    for title, name, scale, compared in (("throughput, MB/s", "rate", 1e-6, pairs), ("CPU time of the whole guest, ns per byte", "guest_cpu_per_byte", 1e9, pairs),
                                         ("bytes without a copy by the module, of 100", "direct_share", 100, [])):
        yield from section(samples, f"Streams and messages (SOCK_SEQPACKET): {title}", "message", rows, "messages", name, scale, MESSAGES, NAMES, pairs=compared)


def _added(samples, by_size, counted):
    """Returns the guest's work for SDP beyond its work for the raw operation."""
    what, scale = ("Instructions, in millions", 1e9 * 1e9 / INSTRUCTION / 1e6) if counted else ("CPU time, s", 1e9)
    lines = [[label, *(difference(samples, "throughput", way, raw, size, count, "guest_cpu_per_byte", scale) for way, raw in MADE_OF.items())]
             for label, size, count in by_size]
    yield from grid(f"{what}, of the whole guest that SDP adds to the raw operation, per GB: median (lowest to highest)",
                    ["message", *(f"{NAMES[way]} - {NAMES[raw]}" for way, raw in MADE_OF.items())], lines)


def _best(samples, size):
    """Returns the best fixed choice in this run."""
    return max(FIXED, key=lambda system: samples.middle("throughput", system, size, 1, "rate") or 0)


def targets(samples, sizes):
    wanted = [("throughput", way, raw, size, "rate", 0.9) for way, raw in MADE_OF.items() if way != "copy"
              for size in sizes if size >= RAW_SIZE]
    wanted += [("throughput", "adaptive", _best(samples, size), size, "rate", 0.97) for size in sizes]
    return goals_of(samples, wanted, NAMES)


def table(options, around, samples, points, load, goals):
    sizes, _, counts = places(points)
    yield from intro(options, around, load, f"Zero copy on one link, MTU {around['mtu']}")
    yield "The emulated adapter (rxe) copies in software whatever is asked of it; an RDMA adapter does not."
    yield ""
    by_size = [(length(size), size, 1) for size in sizes]
    yield from section(samples, "Throughput, MB/s", "message", by_size, "throughput", "rate", 1e-6, SYSTEMS, NAMES, "adaptive")
    yield from section(samples, "CPU time of the whole guest, ns per byte", "message", by_size, "throughput", "guest_cpu_per_byte", 1e9, SYSTEMS, NAMES, "adaptive")
    yield from section(samples, "CPU time charged to the two processes, ns per byte", "message", by_size, "throughput", "process_cpu_per_byte", 1e9,
                       SYSTEMS[:WAYS], NAMES, "adaptive")
    yield from _added(samples, by_size, options.counted)
    yield from section(samples, f"Several connections at once, messages of {length(AT_ONCE_SIZE)}, MB/s in all", "connections",
                       [(str(count), AT_ONCE_SIZE, count) for count in counts], "at once", "rate", 1e-6, SYSTEMS, NAMES, "adaptive")
    yield from _messages(samples, points)
    shares = [[length(size), *(figure((samples.middle("throughput", system, size, 1, "direct_share") or 0) * 100) for system in SYSTEMS[:WAYS])] for size in sizes]
    yield from grid("Bytes of 100 that the module sent without a copy (the rest: the first send, and copies because the other end was not there)",
                    ["message", *(NAMES[system] for system in SYSTEMS[:WAYS])], shares)
    yield from lost_table(samples, NAMES)
    yield from goals_table(goals)


def graphs(_samples, points):
    return (graph for graph in standard_graphs(points, AT_ONCE_SIZE) if graph[0] != "latency")
