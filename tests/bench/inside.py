#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Measures, inside the guest. scripts/bench starts it and turns its output into tables and plots.

Arguments: the plan (JSON, from scripts/bench) and the file for the samples. Every sample is one run
of one program against its server on the other host. In each repetition the systems take turns at
each point, so that load on the machine affects all of them equally.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import running
import smc_kernel
from running import CPUS, Failed, Pair, Resident, deadline, listens, port, say

SELF, PEER = "10.77.0.1", "10.77.0.2"
PROGRAMS = ("sockets", "many", "verbs")     # built from this directory
HERE = "127.0.0.1"
smc = None                      # control of SMC in this guest, if SMC is measured
siw = False                     # False if both ends are in one guest
device = "siw"                  # if both hosts are machines: the kind of their RDMA device
ATTEMPTS = 2                    # number of attempts at a sample that fails
GID_INDEX = {}                  # by device: index of the GID with its IPv4 address


# --- the systems -------------------------------------------------------------------------------

# Names that tests/bench/sockets and many use for systems that are measured in several ways.
SYSTEMS = {"smcr": "smc", "smcd": "smc", "smcr large": "smc", "smcd large": "smc", "sdp here": "sdp", "tcp here": "tcp"}


def serve_and_drive(server_words, client_words, words, seconds, limit, here=False):
    """Runs a program of tests/bench at both ends. Returns the command line, and the output of both
    ends.
    """
    pair = Pair([*server_words, "serve", *words], [*client_words, "drive", *words, seconds],
                lambda program: program.output.startswith("listening"), limit, here)
    try:
        return pair.commands, json.loads(pair.here), json.loads(pair.there.split("\n", 1)[1])
    except (ValueError, IndexError):
        raise Failed(f"`{pair.commands[1]}` printed {pair.here!r}, its server {pair.there!r}") from None


def round_trips(here):
    """Returns the result of a program that measures round trips."""
    names = ("median_us", "mean_us", "min_us", "p99_us", "count", "seconds", "events", "empty")
    return {name: here[name] for name in names if name in here} | {
        "guest_cpu_us": here["guest_cpu"] / here["count"] / 2 * 1e6,
        "switches": here["switches"] / here["count"] / 2,
    }


def many(system, mode, size, connections, seconds, here=False):
    """Measures several connections in one thread of each end."""
    words, limit = [mode, HERE if here else PEER, port(), size, connections], seconds * 6 + 30
    if system == "raw":
        clients, servers = (["/tmp/verbs", device, GID_INDEX[device]] for device in ("rxe0", "rxe1"))
    else:
        clients = servers = ["/tmp/many", SYSTEMS.get(system, system)]
    if mode == "idle":
        limit += connections * (0.2 if CPUS > 1 else 0.4)
    commands, driver, _ = serve_and_drive(servers, clients, words, seconds, limit, here)
    return {"commands": commands} | (driver if mode == "idle" else round_trips(driver))


CLIENT = Resident(["/tmp/sockets", "-"])
SERVERS = {False: Resident(["nsenter", "--net=/run/netns/peer", "/tmp/sockets", "-"]), True: Resident(["/tmp/sockets", "-"])}


def by_residents(system, words, options, seconds, here):
    """Runs tests/bench/sockets.c at both ends in resident processes. Returns the command line that
    would start such a process, and the output of both ends."""
    server = SERVERS[here]
    end = deadline(seconds * 6 + 30)
    try:
        server.start([system, "serve", *words])
        if server.line(end) != "listening":
            raise Failed(f"`{server}` does not listen: {server.why()}")
        CLIENT.start([system, "drive", *words, seconds, *options])
        try:
            driver = json.loads(CLIENT.result(end))
        except Failed as failure:
            raise Failed(f"{failure}; of the server: {server.why()}") from None
        return [str(server), str(CLIENT)], driver, json.loads(server.result(end))
    except (Failed, ValueError) as failure:
        # counts all children of the program, too
        for program in (CLIENT, server):
            program.stop()
        raise Failed(str(failure)) from None


def sockets(system, mode, size, connections, seconds, here=False, options=()):
    """Measures TCP, SDP, SMC, rsockets or AF_UNIX, by the same program."""
    # rsockets use an address of an RDMA device, also for local connections
    address = PEER if not here else SELF if system == "rsockets" else HERE
    words = [mode, address, port(), size, connections]
    commands, here, there = by_residents(SYSTEMS.get(system, system), words, options, seconds, here)
    sample = {"commands": commands}
    if "bytes" in here:
        if here["bytes"] != there["bytes"]:
            raise Failed(f"`{commands[1]}` sent {here['bytes']} bytes, but {there['bytes']} came")
        sample |= {
            # the clock starts when the first bytes arrive
            "rate": (there["bytes"] - there["first"]) / there["seconds"],
            "seconds": there["seconds"],
            "bytes": there["bytes"],
            "guest_cpu_per_byte": there["guest_cpu"] / there["bytes"],
            "process_cpu_per_byte": (here["process_cpu"] + there["process_cpu"]) / there["bytes"],
            "sender_cpu_per_byte": here["process_cpu"] / there["bytes"],
        }
    elif mode == "pong":
        sample |= round_trips(here)
    elif mode == "calls":
        sample |= {"send_ns": here["least_ns"], "recv_ns": there["least_ns"], "count": here["count"]}
    else:
        sample |= {"per_second": here["count"] / here["seconds"], "count": here["count"], "seconds": here["seconds"]}
    return sample


class Perftest:
    """Measures raw verbs, event-driven. With -e, perftest takes a number of messages, so the number
    that fills the time is determined first."""

    FEWEST = 5

    def __init__(self):
        self.pace = {}          # by point: messages a second
        self.start_cpu = {}     # of a point: what FEWEST messages cost the guest, with starting and ending the programs; it
        # these programs cannot be measured from outside, and first fill their memory

    def run(self, program, size, connections, count, limit):
        at = port()
        words = [program, "-F", "-e", "-s", size, "-n", count, "-p", at]
        if connections > 1:
            words += ["-q", connections]
        return Pair([*words, "-d", "rxe1", "-x", GID_INDEX["rxe1"]], [*words, "-d", "rxe0", "-x", GID_INDEX["rxe0"], PEER],
                    lambda server: listens(server, at), limit)

    def __call__(self, mode, size, connections, seconds, program=None):
        program = program or {"stream": "ib_send_bw", "pong": "ib_send_lat"}[mode]
        point = (program, size, connections)
        if mode == "stream" and point not in self.start_cpu:
            pairs = [self.run(*point, self.FEWEST, 60) for _ in range(3)]
            self.start_cpu[point] = median(pair.guest_cpu for pair in pairs)
        pace = self.pace.get(point) or (min(2000, 20e6 / size) / connections if mode == "stream" else 200)
        for last in (False, False, True):
            count = max(16, int(pace * seconds))
            pair = self.run(program, size, connections, count, seconds * 20 + 40)
            row = re.search(rf"^ *{size} +\d+ +.*$", pair.here, re.M)
            if not row:
                raise Failed(f"`{pair.commands[1]}` printed no row of results: {pair.here.strip()[-300:]}")
            row = [float(word) for word in row[0].split()]
            if mode == "stream":
                rate = row[3] * (1 << 20)
                span = count * connections * size / rate if rate else 0
            else:
                span = row[5] * 2e-6 * count
            if not span:
                raise Failed(f"`{pair.commands[1]}` measured nothing: {row}")
            pace = count / span
            self.pace[point] = pace
            # A first guess that was far too low does not count as a measurement.
            if span >= seconds * 0.4 or last:
                break
        sample = {"commands": pair.commands, "seconds": span}
        if mode == "pong":
            return sample | {"median_us": row[4], "mean_us": row[5], "min_us": row[2], "p99_us": row[7], "count": count}
        return sample | {
            "rate": rate,
            "bytes": count * connections * size,
            "guest_cpu_per_byte": max(pair.guest_cpu - self.start_cpu[point], 0) / ((count - self.FEWEST) * connections * size),
        }


perftest = Perftest()


def rstream(mode, size, _connections, _seconds):
    """Runs the test program of rsockets: a fixed number of messages, which both sides take as an
    argument.
    """
    at = port()
    count = ["-C", 1, "-I", 200] if mode == "pong" else ["-C", 256, "-I", 1]
    words = ["rstream", "-T", "b", "-p", at, "-S", size, *count]
    # The program does not report when it listens; if the wait is too short, a second attempt
    # follows.
    start = time.monotonic()
    pair = Pair([*words, "-b", PEER], [*words, "-s", PEER], lambda _: time.monotonic() > start + 3, 40)
    row = re.search(r"^custom .*$", pair.here, re.M)
    if not row:
        raise Failed(f"`{pair.commands[1]}` printed no row of results: {pair.here}")
    words = row[0].split()
    # Half of a ping-pong is one transfer, as with the other programs.
    each = float(words[-1])
    return {"commands": pair.commands, "row": row[0]} | ({"median_us": each} if mode == "pong" else {"rate": size / each * 1e6})


UNITS = {"bytes/sec": 1, "KB/sec": 1e3, "MB/sec": 1e6, "GB/sec": 1e9, "ns": 1e-3, "us": 1, "ms": 1e3, "sec": 1e6, "% cpus": 0.01}


def qperf(test, size, seconds):
    """Runs a test of qperf, which waits for completion events if available. qperf's processor
    figures cover the whole host, and this guest is both hosts."""
    at, seconds = port(), max(1, round(seconds))
    words = ["-v", "-to", 30, "-t", seconds, "-m", size, *(["-cm", "1"] if test.startswith("rc_") else [])]
    pair = Pair(["qperf", "-lp", at], ["qperf", "-lp", at, *words, PEER, test, "quit"], lambda server: listens(server, at), seconds * 5 + 60)

    def value(name):
        found = re.search(rf"^ +(?:{name}) += +([\d.]+) (.+?) *$", pair.here, re.M)
        if not found:
            raise Failed(f"`{pair.commands[1]}` printed {pair.here!r}")
        return float(found[1]) * UNITS[found[2]]

    if not test.endswith("bw"):
        return {"commands": pair.commands, "median_us": value("latency")}
    rate = value("bw|send_bw")
    return {"commands": pair.commands, "rate": rate, "seconds": seconds, "bytes": rate * seconds,
            "guest_cpu_per_byte": value("recv_cpus_used") / rate}


# Methods of SDP to send large messages: sdp_zcopy_thresh, zcopy_ways and async_send.
WAYS = {"copy": (0, 3, 0), "read": (4096, 1, 0), "write": (4096, 2, 0), "both": (4096, 3, 0), "adaptive": (-1, 3, 0), "notified": (4096, 3, 0),
        "uring": (4096, 3, 0), "async": (4096, 3, 1), "file": (-1, 3, 0), "file_copy": (0, 3, 0), "messages": (4096, 3, 0),
        "messages_copy": (0, 3, 0)}
# Names that the program uses for methods with other calls.
PROGRAM = {"notified": "notified", "uring": "uring", "file": "file", "file_copy": "file", "messages": "messages", "messages_copy": "messages"}
PARAMETERS = Path("/sys/module/ib_sdp/parameters")


def sent_bytes(name):
    return int(re.search(rf"^{name}\s*: (\d+)", Path("/proc/net/sdpstats").read_text(), re.M)[1])


def by_way(way, mode, size, connections, seconds, options=(), threshold=None):
    """Measures SDP with one method to send large messages, optionally with a threshold."""
    names = ("sdp_zcopy_thresh", "zcopy_ways", "async_send")
    before = [(PARAMETERS / name).read_text() for name in names]
    usual, *others = WAYS[way]
    for name, value in zip(names, (usual if threshold is None else threshold, *others)):
        (PARAMETERS / name).write_text(str(value))
    try:
        counters = [sent_bytes("tx_bytes"), sent_bytes("zcopy tx_bytes")]
        sample = sockets(PROGRAM.get(way, "sdp"), mode, size, connections, seconds, options=options)
        total, direct = sent_bytes("tx_bytes") - counters[0], sent_bytes("zcopy tx_bytes") - counters[1]
        return sample | {"direct_share": direct / total if total else 0}
    finally:
        for name, value in zip(names, before):
            (PARAMETERS / name).write_text(value)


# By message size: steps of the computation that take as long as a synchronous send, by `calibrate`.
calibrated = {}


def calibrate(size, seconds):
    """Finds the number of steps that take as long as a message."""
    if size not in calibrated:
        CLIENT.start(["sdp", "drive", "compute", PEER, 1, size, 1, 1])
        pace = json.loads(CLIENT.result(deadline(30)))["per_second"]
        rate = median(by_way("both", "stream", size, 1, seconds)["rate"] for _ in range(3))
        calibrated[size] = pace * size / rate
        say(f"{size} bytes take {size / rate * 1e6:.0f} us, in which {calibrated[size]:.0f} steps of the computation go")
    return calibrated[size]


def options_of(point, seconds):
    """Returns options of the program for a point, besides its size."""
    options = {name: point[name] for name in ("touch", "pieces", "apart") if name in point}
    if point.get("compute"):
        options["compute"] = round(calibrate(point["size"], seconds) * point["compute"])
    return [f"{name}={value}" for name, value in options.items()]


def by_device(system, mode, size, connections, seconds):
    """Measures TCP, or SDP over a device of the given kind, with the other end in another guest."""
    global device
    if system not in ("tcp", device):
        for there in [], ["peer"]:
            for words in f"del {device}0", f"add {system}0 type {system} netdev eth0":
                subprocess.run([*there, "rdma", "link", *words.split()], check=True)
        device = system
        time.sleep(1)           # rxe's GIDs appear later
    words = [mode, PEER, port(), size, connections]
    name = "tcp" if system == "tcp" else "sdp"
    commands, here, there = serve_and_drive(["/share/sockets", name], ["/tmp/sockets", name], words, seconds, seconds * 6 + 30)
    if mode == "pong":
        return {"commands": commands} | round_trips(here)
    if mode == "connect":
        return {"commands": commands, "per_second": here["count"] / here["seconds"]}
    if here["bytes"] != there["bytes"]:
        raise Failed(f"`{commands[1]}` sent {here['bytes']} bytes, but {there['bytes']} came")
    return {"commands": commands, "rate": (there["bytes"] - there["first"]) / there["seconds"]}


def by_smc(system, mode, size, connections, seconds, here):
    """Measures SMC-R or SMC-D, and rejects a fallback."""
    def least(sample):
        return sample["bytes"] if mode == "stream" else sample["count"] * size

    try:
        return smc.checked(system, lambda: sockets(system, mode, size, connections, seconds, here), least)
    except smc_kernel.FellBack as why:
        raise Failed(str(why)) from None


def measure(point, seconds):
    system, mode, size, connections = (point[name] for name in ("system", "mode", "size", "connections"))
    if siw:
        return by_device(system, mode, size, connections, seconds)
    if system in WAYS:
        return by_way(system, mode, size, connections, seconds, options_of(point, seconds), point.get("threshold"))
    if mode in ("epoll", "edge", "idle"):
        return many(system, mode, size, connections, seconds, point.get("here", False))
    if system == "ib_write":
        return qperf("rc_rdma_write_bw", size, seconds)     # as perftest's polls
    if system.startswith("ib_"):
        return perftest(mode, size, connections, seconds, f"{system}_bw")
    if system == "raw":
        return perftest(mode, size, connections, seconds)
    if system == "rstream":
        return rstream(mode, size, connections, seconds)
    if system.startswith("qperf"):
        return qperf(system.split(" ")[1], size, seconds)
    if SYSTEMS.get(system) == "smc":
        return by_smc(system, mode, size, connections, seconds, point.get("here", False))
    return sockets(system, mode, size, connections, seconds, point.get("here", False))


# -----------------------------------------------------------------------------------------------

def gid_index(device, wanted):
    """Returns the index of the GID with the IPv4 address for the device's RoCE packets; the default
    may be another GID."""
    gid = "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x" % tuple(map(int, wanted.split(".")))
    for index in range(16):
        with contextlib.suppress(OSError):
            if Path(f"/sys/class/infiniband/{device}/ports/1/gids/{index}").read_text().strip() == gid:
                return index
    raise Failed(f"{device} has no GID for {wanted}")


def environment(rdma_core):
    """Returns the environment. `rdma_core`: version of rsockets that is not Debian's, or None."""
    debian = subprocess.run(["dpkg-query", "--show", "--showformat=${Version}", "librdmacm1t64"], capture_output=True, text=True)
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "kernel": os.uname().release,
        "cpus": CPUS,
        "cpu": cpu[1] if cpu else os.uname().machine,
        "clocksource": Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip(),
        # the user land for another architecture has no list of packages
        "rdma_core": rdma_core or debian.stdout or "of Debian",
        "mtu": int(Path("/sys/class/net/eth0/mtu").read_text()),
    }


def good_clock(source):
    """Fails if the guest's clock is too coarse: refined-jiffies has steps of 4 ms."""
    if source not in ("tsc", "kvm-clock", "arch_sys_counter"):
        raise Failed(f"the guest's clock is {source}, not its processor's counter: nothing is measured")


def place(point):
    """Returns the key of a point at which the systems are compared."""
    return point["part"], point["size"], point["connections"], point.get("level")


def in_turn(points, repetition):
    """Yields all points of a repetition, with the numbers of their samples. A different system
    begins in each repetition, so that no system benefits from its position."""
    for _, group in itertools.groupby(points, place):
        group = list(group)
        for number in range(repetition * group[0]["samples"], (repetition + 1) * group[0]["samples"]):
            first = number % len(group)
            yield from ((point, number) for point in group[first:] + group[:first])


def main():
    global siw, smc
    plan, result = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    for program in PROGRAMS:
        shutil.copy(f"/share/{program}", f"/tmp/{program}")
        os.chmod(f"/tmp/{program}", 0o755)
    os.chdir("/tmp")
    siw = plan["siw"]
    for name, address in (("rxe0", SELF), ("rxe1", PEER)):
        if not siw:
            GID_INDEX[name] = gid_index(name, address)
    running.patience = 100 if plan["counted"] else 1
    if plan["rdma_core"]:
        os.environ["RSOCKETS"] = "/share/librdmacm.so.1"
    if plan["smc"]:
        smc = smc_kernel.Smc()
    repeat = plan["repeat"]
    started = time.monotonic()
    done, total = 0, repeat * sum(point["samples"] for point in plan["points"])
    around = environment(plan["rdma_core"])
    good_clock(around["clocksource"])
    with open(result, "w") as file:
        file.write(json.dumps({"environment": around}) + "\n")
        for repetition in range(repeat):
            shown = None
            for point, number in in_turn(plan["points"], repetition):
                what = place(point)
                if what != shown:
                    shown = what
                    left = (time.monotonic() - started) / done * (total - done) if done > 8 else None
                    say(f"repetition {repetition + 1} of {repeat}: {point['part']}, {point['size']} bytes, {point['connections']} at once"
                        + (f"; about {left:.0f} s left" if left else ""))
                for attempt in range(1, ATTEMPTS + 1):
                    sample = {**point, "repetition": number + 1, "at": round(time.monotonic() - started, 3)}
                    try:
                        sample |= measure(point, plan["seconds"])
                    except Failed as failure:
                        sample["error"] = str(failure)
                        say(f"{point['system']}, {point['part']}, {point['size']} bytes, attempt {attempt} of {ATTEMPTS}: {failure}")
                    # Every sample is written at once, so that an aborted run keeps its samples.
                    file.write(json.dumps(sample) + "\n")
                    file.flush()
                    if "error" not in sample:
                        break
                done += 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(f"bench: {failure}")
