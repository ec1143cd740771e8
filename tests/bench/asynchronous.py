# SPDX-License-Identifier: GPL-2.0-only
"""Measurements and tables of `scripts/bench --async`: asynchronous sends, compared with copied ones
and with synchronous zero copy. The tests are those of the paper on AZ-SDP (Balaji, Bhagvat, Jin and
Panda, 2006).

From 4 KiB on, a block of a synchronous send, of MSG_ZEROCOPY or of SEND_ZC is transferred by READ
or by WRITE. Four sends of SEND_ZC, and eight blocks of the others, are in flight at a time."""

from figures import figure, goal, goals_table, grid, intro, length, lost_table, section

SYSTEMS = ("copy", "both", "notified", "uring", "async")
NAMES = {"copy": "copied", "both": "sync. zcopy", "notified": "MSG_ZEROCOPY", "uring": "SEND_ZC", "async": "AZ-SDP", "adaptive": "adaptive"}
COLOURS = {"copy": (200, 30, 40), "both": (50, 50, 50), "notified": (220, 120, 180), "uring": (230, 140, 30), "async": (30, 130, 130), "adaptive": (90, 90, 200)}
# Raw READ of this size: upper bound for zero copy by READ, from this size on.
RAW, RAW_NAME, RAW_SIZE = "ib_read", "raw READ", 256 * 1024
REPEAT, SECONDS, BETWEEN = 10, 0.3, 0.15
KIB, MIB = 1024, 1 << 20
PAIRS = [(system, "both") for system in SYSTEMS if system != "both"]
# Computation between two messages, in percent of the time of a synchronous message.
COMPUTED = {("overlap", 64 * KIB): (0, 50, 100), ("overlap", MIB): (0, 25, 50, 75, 100), ("overlap of pieces", MIB): (0, 50)}
PIECES = 16
# Scattered segments begin and end within pages; adaptive sends choose between copy and zero copy.
SCATTERED, SCATTERED_SIZE, SCATTERED_APART, SCATTERED_SYSTEMS = (4, 16, 64), MIB, 1000, (*SYSTEMS, "adaptive")
TOUCHED = (1, 2, 4, 8, 16, 32, 64)
TOUCHED_SIZE = 64 * KIB
CLIENTS, CLIENTS_SIZE = (4, 16), 64 * KIB
AT_ONCE, AT_ONCE_SIZE = (2, 4, 8), MIB
# Numbers of connections of one thread. Fan-out sends the same memory on all of them.
FANS, FAN_SIZE = {"fan-in": (4,), "fan-out": (2, 4, 8)}, MIB


def plan(options):
    def point(part, mode, size, connections=1, **more):
        return {"part": part, "mode": mode, "size": size, "connections": connections, **more}

    quick = options.quick
    points = [point("latency", "pong", size) for size in (64 * KIB, MIB)]
    points += [point("throughput", "stream", size) for size in (16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB)[quick:5 - quick]]
    for (part, size), levels in COMPUTED.items():
        more = {"pieces": PIECES} if "pieces" in part else {}
        # with counted instructions the processors take turns, so no work is done in parallel
        points += [point(part, "stream", size, level=level, compute=level / 100, **more) for level in levels
                   if (not quick or level in (0, 50)) and not (options.counted and level)]
    points += [point("scattered", "stream", SCATTERED_SIZE, level=pieces, pieces=pieces, apart=SCATTERED_APART) for pieces in SCATTERED[quick:]]
    points += [point("touches", "stream", TOUCHED_SIZE, level=sends, touch=sends) for sends in (TOUCHED if not quick else (1, 8, 64))]
    points += [point("hot spot", "pong", CLIENTS_SIZE, clients) for clients in CLIENTS[:2 - quick]]
    points += [point("at once", "stream", AT_ONCE_SIZE, count) for count in (AT_ONCE if not quick else (4,))]
    points += [point(fan, fan, FAN_SIZE, count) for fan, counts in FANS.items() for count in counts if count == 4 or not quick]

    def systems(one):
        if one["part"] == "scattered":
            return SCATTERED_SYSTEMS
        return SYSTEMS + (RAW,) * (one["part"] == "throughput" and one["size"] >= RAW_SIZE)

    def chosen(one, system):
        return {"threshold": -1} if one["part"] == "scattered" and system not in ("copy", "both") else {}

    return [one | {"system": system} | chosen(one, system) for one in points for system in systems(one)]


def _kept(samples, part, system, size, level):
    """Throughput with a computation between sends, as a fraction of the throughput without it, in
    each repetition."""
    alone, beside = (samples.all(part, system, size, at, "rate") for at in (0, level))
    return [beside[repetition] / alone[repetition] for repetition in sorted(beside) if repetition in alone]


def _targets(samples):
    def against(part, system, size, level, bound):
        what = {"throughput": "throughput", "touches": f"written to after {level} sends, throughput"}[part]
        return goal(f"{what} at {length(size)}, {NAMES[system]} / {NAMES['both']}", samples.ratios(part, system, "both", size, level, "rate"), bound)

    yield against("throughput", "uring", 256 * KIB, 1, 1.0)
    yield against("throughput", "uring", MIB, 1, 1.15)
    yield against("throughput", "async", MIB, 1, 1.2)
    for part, bound in (("overlap", 0.97), ("overlap of pieces", 0.95)):
        for system in ("notified", "uring", "async"):
            yield goal(f"{part} at {length(MIB)}, {NAMES[system]}: kept beside a computation of half the time", _kept(samples, part, system, MIB, 50), bound)
    for sends in TOUCHED:
        yield against("touches", "async", TOUCHED_SIZE, sends, 0.95)


def targets(samples, _sizes):
    return [one for one in _targets(samples) if one["ratio"] is not None]


def _overlaps(samples, points):
    for part, size in COMPUTED:
        levels = sorted({point["level"] for point in points if (point["part"], point["size"]) == (part, size)})
        if not levels:
            continue
        rows = [(f"{level} %", size, level) for level in levels]
        pieces = f" in {PIECES} pieces" if "pieces" in part else ""
        yield from section(samples, f"Messages of {length(size)}{pieces}, a computation between two of them, of the time of a synchronous one; MB/s",
                           "computation", rows, part, "rate", 1e-6, SYSTEMS, NAMES, pairs=PAIRS)
        kept = [[f"{level} %", *(figure(goal("", _kept(samples, part, system, size, level), 0)["ratio"]) for system in SYSTEMS)] for level in levels[1:]]
        if kept:
            yield from grid("What it keeps of the throughput without a computation", ["computation", *(NAMES[system] for system in SYSTEMS)], kept)


def table(options, around, samples, points, load, goals):
    yield from intro(options, around, load, f"Sends that do not wait, on one link, MTU {around['mtu']}")

    def rows(part, name, label=str):
        places = sorted({(point.get("level", point["connections"]), point["size"]) for point in points if point["part"] == part})
        return [(label(size if name == "size" else at), size, at) for at, size in places]

    def shown(title, head, part, name, scale, label=str):
        there = rows(part, head if head == "size" else "at", label)
        if there:
            yield from section(samples, title, head, there, part, name, scale, SYSTEMS, NAMES, pairs=PAIRS)

    yield from shown("Throughput, MB/s", "size", "throughput", "rate", 1e-6, length)
    by_raw = [row for row in rows("throughput", "size", length) if row[1] >= RAW_SIZE]
    if by_raw:
        yield from section(samples, "The same and the device's own READ, several under way", "size", by_raw, "throughput", "rate", 1e-6, (*SYSTEMS, RAW),
                           NAMES | {RAW: RAW_NAME}, pairs=[(system, RAW) for system in SYSTEMS])
    yield from shown("CPU time of the whole guest, ns per byte", "size", "throughput", "guest_cpu_per_byte", 1e9, length)
    yield from shown("CPU time charged to the two processes, ns per byte", "size", "throughput", "process_cpu_per_byte", 1e9, length)
    yield from shown("CPU time charged to the sender, ns per byte", "size", "throughput", "sender_cpu_per_byte", 1e9, length)
    yield from shown("Bytes without a copy, of 100", "size", "throughput", "direct_share", 100, length)
    yield from shown("Latency, half of a ping-pong, us", "size", "latency", "median_us", 1, length)
    yield from shown("The same: CPU time of the whole guest, us a message", "size", "latency", "guest_cpu_us", 1, length)
    yield from _overlaps(samples, points)
    scattered = rows("scattered", "pieces")
    if scattered:
        yield from section(samples, f"Messages of {length(SCATTERED_SIZE)} in pieces that begin and end within pages, as sends choose by themselves "
                           f"({NAMES['both']}: always), MB/s", "pieces", scattered, "scattered", "rate", 1e-6, SCATTERED_SYSTEMS, NAMES,
                           pairs=[(system, "copy") for system in SCATTERED_SYSTEMS if system != "copy"])
        yield from section(samples, "The same: bytes without a copy, of 100", "pieces", scattered, "scattered", "direct_share", 100, SCATTERED_SYSTEMS, NAMES,
                           pairs=[])
    yield from shown(f"The memory is written to after some sends of {length(TOUCHED_SIZE)}, as soon as it may be, MB/s", "sends", "touches", "rate", 1e-6)
    yield from shown("The same: CPU time of the whole guest, ns per byte", "sends", "touches", "guest_cpu_per_byte", 1e9)
    yield from shown(f"Hot spot: clients at once, each a ping-pong of {length(CLIENTS_SIZE)}, half of it, us", "clients", "hot spot", "median_us", 1)
    yield from shown("The same: CPU time of the whole guest, us a message", "clients", "hot spot", "guest_cpu_us", 1)
    yield from shown(f"Streams at once, messages of {length(AT_ONCE_SIZE)}, MB/s in all", "streams", "at once", "rate", 1e-6)
    yield from shown("The same: CPU time of the whole guest, ns per byte", "streams", "at once", "guest_cpu_per_byte", 1e9)
    for fan, what in zip(FANS, ("one thread takes from connections", "one thread sends on connections")):
        yield from shown(f"{fan.capitalize()}: {what}, messages of {length(FAN_SIZE)}, MB/s in all", "connections", fan, "rate", 1e-6)
    yield from lost_table(samples, NAMES | {RAW: RAW_NAME})
    yield from goals_table(goals)


def graphs(_samples, points):
    """Returns the plots, in the format of figures.standard_graphs."""
    def places(part, size=None):
        return sorted({(point.get("level", point["connections"]), point["size"]) for point in points
                       if point["part"] == part and size in (None, point["size"])})

    def by_size(part):
        return [(size, size, at) for at, size in places(part)]

    def by_level(part, size=None):
        return [(at, size, at) for at, size in places(part, size)]

    yield "throughput", "Throughput", "message, bytes", "MB/s", "throughput", "rate", 1e-6, by_size("throughput")
    yield "cpu", "CPU time of the whole guest", "message, bytes", "ns per byte", "throughput", "guest_cpu_per_byte", 1e9, by_size("throughput")
    yield "latency", "Latency, half of a ping-pong", "message, bytes", "us", "latency", "median_us", 1, by_size("latency")
    for part, size in COMPUTED:
        yield (f"{part}-{size}".replace(" ", "-"), f"Computation between sends, messages of {length(size)}" + f" in {PIECES} pieces" * ("pieces" in part),
               "computation, of 100 of a message's time", "MB/s", part, "rate", 1e-6, by_level(part, size))
    yield "touches", f"Memory written to after some sends of {length(TOUCHED_SIZE)}", "sends", "MB/s", "touches", "rate", 1e-6, by_level("touches")
    yield "hot-spot", f"Ping-pong of several clients, {length(CLIENTS_SIZE)}", "clients", "us", "hot spot", "median_us", 1, by_level("hot spot")
    streams = by_level("at once")
    yield "streams", f"Streams at once, messages of {length(AT_ONCE_SIZE)}", "streams", "MB/s in all", "at once", "rate", 1e-6, [(1, AT_ONCE_SIZE, 1)] * bool(streams) + streams
