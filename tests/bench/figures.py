# SPDX-License-Identifier: GPL-2.0-only
"""Medians, ratios and tables of the samples of scripts/bench."""

from statistics import median


class Samples:
    """Samples of a run. Samples of a part differ by size and number of connections. A part with
    levels of another quantity has these levels instead of the connections."""

    def __init__(self, samples):
        self.good, self.lost = {}, {}
        self.stopped = {}       # by system: reason why the system made no more connections
        for sample in samples:
            if "error" in sample:
                key = (sample["part"], sample["system"], sample["mode"], sample["size"], sample["connections"])
                self.lost.setdefault(key, []).append(sample["error"])
                continue
            if "stopped" in sample:
                self.stopped[sample["system"]] = f"{sample['stopped']}, after {sample['count']}"
            for name, value in sample.items():
                if isinstance(value, (int, float)) and (value > 0 or name == "empty"):
                    key = (sample["part"], sample["system"], sample["size"], sample.get("level", sample["connections"]), name)
                    self.good.setdefault(key, {})[sample["repetition"]] = value

    def all(self, part, system, size, connections, name):
        # One connection equals the throughput test, and is not measured again.
        if part == "at once" and connections == 1:
            part = "throughput"
        return self.good.get((part, system, size, connections, name), {})

    def middle(self, *key):
        values = self.all(*key)
        return median(values.values()) if values else None

    def ratio(self, part, first, second, size, connections, name):
        """Returns the median of the ratios of the repetitions: load on the machine differs between
        repetitions."""
        each = self.ratios(part, first, second, size, connections, name)
        return median(each) if each else None

    def ratios(self, part, first, second, size, connections, name):
        """Returns the ratio of two systems in each repetition."""
        one, other = self.all(part, first, size, connections, name), self.all(part, second, size, connections, name)
        return [one[repetition] / other[repetition] for repetition in sorted(one) if repetition in other]


def length(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1024 else f"{size} B"


def figure(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def with_spread(values, scale=1):
    """Returns the median of some values; if there are several, also half of their range in percent
    of the median."""
    values = [value * scale for value in values]
    if not values:
        return "-"
    middle = median(values)
    half = (max(values) - min(values)) / 2
    return figure(middle) + (f" ±{half / abs(middle):.0%}" if len(values) > 1 and middle else "")


def section(samples, title, head, rows, part, name, scale, systems, names, first="sdp", pairs=None):
    """A table: a row for each (label, size, connections), a column for each system, and the ratios
    of pairs of systems. Without `pairs` compares the first system with each of the others."""
    pairs = [(first, system) for system in systems if system != first] if pairs is None else [pair for pair in pairs if set(pair) <= set(systems)]
    starts = [names[system].split()[0] for system in systems]
    short = {system: start if starts.count(start) == 1 else names[system] for system, start in zip(systems, starts)}
    columns = [head, *(names[system] for system in systems), *(f"{names[one]}/{short[other]}" for one, other in pairs)]
    lines = [[label, *(with_spread(samples.all(part, system, size, count, name).values(), scale) for system in systems),
              *(with_spread(samples.ratios(part, one, other, size, count, name)) for one, other in pairs)]
             for label, size, count in rows]
    yield from grid(title, columns, lines)


def difference(samples, part, one, other, size, connections, name, scale):
    """Returns the difference between the first system and the other: the median, and the lowest and
    highest of the repetitions."""
    first, second = samples.all(part, one, size, connections, name), samples.all(part, other, size, connections, name)
    each = [(first[repetition] - second[repetition]) * scale for repetition in sorted(first) if repetition in second]
    if not each:
        return "-"
    return f"{figure(median(each))} ({figure(min(each))} to {figure(max(each))})"


def grid(title, columns, lines):
    """Formats a table of texts, whose first column is left-aligned. Without lines: nothing."""
    if not lines:
        return
    widths = [max(len(line[i]) for line in [columns, *lines]) for i in range(len(columns))]
    yield title
    for line in [columns, *lines]:
        yield "  " + "  ".join(text.ljust(width) if i == 0 else text.rjust(width) for i, (text, width) in enumerate(zip(line, widths))).rstrip()
    yield ""


def intro(options, around, load, what):
    yield f"{what}: {around['cpus']} processors, {around['cpu']},"
    yield f"kernel {around['kernel']}, samples of {options.seconds:g} s, {options.repeat} repetition{'s' * (options.repeat > 1)}, interleaved."
    yield "Figures are medians, ratios those of samples taken one after the other; ± is half of their range."
    if options.counted:
        yield "Time is counted in instructions, 2 ns each, of one processor at a time."
    else:
        yield f"The machine's load was {load:.1f} before." + (" Something else was running: the figures are rough." if load > 1 else "")
    yield ""


def places(points):
    """Returns the sizes of the throughput, those of the latency, and the numbers of connections."""
    def some(part, name):
        return sorted({point[name] for point in points if point["part"] == part})

    return some("throughput", "size"), some("latency", "size"), sorted({*([1] if some("throughput", "size") else []), *some("at once", "connections")})


AT_ONCE_SIZE = 65536
CALLS = (64, 4096, 65536)   # bytes of the messages whose calls are measured one by one
WATCHED = (2, 100)          # numbers of connections in one epoll(7) set


def standard_points(quick, sizes):
    """Returns the points (part, mode, message size, connections) at which SDP is compared with
    other systems.
    """
    sizes, pongs, at_once = ([64, 4096, 65536, 1 << 20], [64], [4, 16]) if quick else (sizes, [64, 1024, 16384, 65536], [2, 4, 8, 16])
    return [*(("throughput", "stream", size, 1) for size in sizes), *(("latency", "pong", size, 1) for size in pongs),
            *(("at once", "stream", AT_ONCE_SIZE, count) for count in at_once), ("connections", "connect", 1, 1)]


def watched_points():
    """Returns points like `standard_points` at which both ends watch their connections by
    epoll(7)."""
    return [(mode, mode, 64, count) for mode in ("epoll", "edge") for count in WATCHED]


def call_points():
    """Returns points like `standard_points`, for single calls."""
    return [("calls", "calls", size, 1) for size in CALLS]


def call_sections(samples, points, systems, names, pairs=None):
    """Table of the shortest send and receive calls: each call finds space or bytes at once, and
    does not wait.
    """
    there = [system for system in systems if any((point["part"], point["system"]) == ("calls", system) for point in points)]
    for name in ("send", "recv") if there else ():
        yield from section(samples, f"The shortest {name} call, ns", "message", [(length(size), size, 1) for size in CALLS],
                           "calls", f"{name}_ns", 1, there, names, pairs=pairs)


def standard_sections(samples, points, at_once_size, systems, names, pairs=None):
    """Throughput, latency, CPU time and connections of SDP and others."""
    sizes, pongs, counts = places(points)
    by_size = [(length(size), size, 1) for size in sizes]
    others = [system for system in systems if system != "raw"]
    raw = " (raw: less what a short run costs)" if "raw" in systems else ""
    if sizes:
        yield from section(samples, "Throughput, MB/s", "message", by_size, "throughput", "rate", 1e-6, systems, names, pairs=pairs)
    if pongs:
        yield from section(samples, "Latency, half of a ping-pong, waiting by sleep" + " (raw: completion events)" * bool(raw) + ", us", "message",
                           [(length(size), size, 1) for size in pongs], "latency", "median_us", 1, systems, names, pairs=pairs)
    yield from watched_sections(samples, points, systems, names, pairs)
    yield from call_sections(samples, points, systems, names, pairs)
    if sizes:
        yield from section(samples, f"CPU time of the whole guest, both sides and the kernel's threads, ns per byte{raw}", "message",
                           by_size, "throughput", "guest_cpu_per_byte", 1e9, systems, names, pairs=pairs)
        yield from section(samples, "CPU time charged to the two processes, ns per byte", "message",
                           by_size, "throughput", "process_cpu_per_byte", 1e9, others, names, pairs=pairs)
    if counts and counts != [1]:
        yield from section(samples, f"Throughput of several connections at once, messages of {length(at_once_size)}, MB/s in all", "connections",
                           [(str(count), at_once_size, count) for count in counts], "at once", "rate", 1e-6, systems, names, pairs=pairs)
    if any(point["part"] == "connections" for point in points):
        yield from section(samples, "Connections: connect, a byte to and fro, close; per second", "", [("one after another", 1, 1)],
                           "connections", "per_second", 1, others, names, pairs=pairs)


def watched_sections(samples, points, systems, names, pairs=None):
    """Latency with both ends watching many connections by epoll(7), and the context switches for
    each message."""
    rows = {}
    for part in ("epoll", "edge"):
        rows[part] = sorted({(point["size"], point["connections"]) for point in points if point["part"] == part})
        if not rows[part]:
            continue
        there = [system for system in systems if any((point["part"], point["system"]) == (part, system) for point in points)]
        places = [(str(count), size, count) for size, count in rows[part]]
        how = {"epoll": "(raw: a completion channel in it)", "edge": "told of changes only (EPOLLET)"}[part]
        yield from section(samples, f"Latency with epoll at both ends, 64 B on one connection after the other, {how}, us", "connections",
                           places, part, "median_us", 1, there, names, pairs=pairs)
        yield from section(samples, "Events at the driver that were about nothing", "connections", places, part, "empty", 1, there, names, pairs=[])
    for part, label in (("latency", "waiting in recv"), ("epoll", "epoll")):
        there = [system for system in systems if any(samples.middle(part, system, size, count, "switches") for size, count in rows.get(part, [(64, 1)]))]
        if there:
            yield from section(samples, f"Context switches of the whole guest for each message of 64 B, {label}", "connections",
                               [(str(count), size, count) for size, count in rows.get(part, [(64, 1)])], part, "switches", 1, there, names, pairs=pairs)


def standard_graphs(points, at_once_size):
    """Returns plots. Each plot is (file name, title, axes, part, figure, scale, (x, size,
    connections) of each point)."""
    sizes, pongs, counts = places(points)
    by_size = [(size, size, 1) for size in sizes]
    yield "throughput", "Throughput", "message, bytes", "MB/s", "throughput", "rate", 1e-6, by_size
    yield "latency", "Latency, half of a ping-pong", "message, bytes", "us", "latency", "median_us", 1, [(size, size, 1) for size in pongs]
    yield "cpu", "CPU time of the whole guest", "message, bytes", "ns per byte", "throughput", "guest_cpu_per_byte", 1e9, by_size
    yield ("connections", f"Throughput, messages of {length(at_once_size)}", "connections at once", "MB/s in all", "at once", "rate", 1e-6,
           [(count, at_once_size, count) for count in counts])


def goal(what, each, bound, at_least=True):
    """Returns the target of a ratio, and its value in each repetition."""
    ratio = median(each) if each else None
    return {
        "what": what, "bound": bound, "at_least": at_least, "ratio": ratio, "lowest": min(each, default=None), "highest": max(each, default=None),
        "met": None if ratio is None else ratio >= bound if at_least else ratio <= bound,
    }


def goals_of(samples, wanted, names):
    """Returns the targets of several ratios. `wanted`: for each ratio (part, system, reference
    system, size, figure, bound), and the number of connections if it is not 1."""
    for part, system, other, size, name, bound, *connections in wanted:
        count, = connections or [1]
        what = f"{part} at {length(size)}, {names[system]} / {names[other]}" + (f", {count} connections" if connections else "")
        yield goal(what, samples.ratios(part, system, other, size, count, name), bound, part == "throughput")


def lost_table(samples, names):
    if samples.lost:
        yield "Samples that failed (each was tried a second time)"
        for (part, system, _, size, count), errors in sorted(samples.lost.items()):
            yield f"  {names.get(system, system)}, {part}, {length(size)}, {count} at once: {len(errors)}; {errors[-1]}"
        yield ""


def goals_table(goals):
    yield "Targets: median of the ratios of the repetitions (lowest to highest)"
    width = max((len(goal["what"]) for goal in goals), default=0)
    for goal in goals:
        ratio = "-" if goal["ratio"] is None else f"{goal['ratio']:.2f} ({goal['lowest']:.2f} to {goal['highest']:.2f})"
        verdict = {None: "not measured", True: "met", False: "MISSED"}[goal["met"]]
        if goal["met"] is not None and goal["lowest"] < goal["bound"] < goal["highest"]:
            verdict += ", within the spread"
        yield f"  {goal['what']:<{width}}  {'>=' if goal['at_least'] else '<='} {goal['bound']:.2f}  {ratio:<22}  {verdict}"
