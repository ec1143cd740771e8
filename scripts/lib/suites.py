# SPDX-License-Identifier: GPL-2.0-only
"""The suites of scripts/test: the command of each, and the builds that it needs."""

import ast
import os
import re

import kernels
from cache import PROJECT, SCRIPTS
from results import CargoTest, Command, Ktap, Simulator, Unittest


class Suite:
    """One command and how its output is read."""

    def __init__(self, name, what, parser, command, limit, default=True):
        self.name, self.what, self.parser, self.command = name, what, parser, command
        self.limit, self.default = limit, default
        self.parts = [self]     # suites that a combined suite stands for

    def shorter(self):
        """Returns the suite as `make test` runs it."""
        return self


class Guest(Suite):
    """Cases in a guest."""

    def cases(self):
        """Returns the words of the suite's command that select cases."""
        words = self.command[self.command.index("--") + 2:]
        last = max((at for at, word in enumerate(words) if word.startswith("--") or words[at - 1] == "--only"), default=-1)
        return words[last + 1:]

    def shorter(self):
        kind, _, directory = self.name.partition(":")
        command = list(self.command)
        if kind == "guest" and self.name not in TWO_PROCESSORS:
            command[1:1] = ["--cpus", "1"]
        program = command.index("--") + 1
        if not (kind == "guest" and "both_versions" in NEEDS.get(directory, {}) or {"--only", "--in-turn"} & set(map(str, command[program:]))):
            command.insert(program + 1, "--in-turn")
        command.insert(program + 1, "--brief")
        if self.name == "siw:short":
            command[-len(SIW_ALL):] = SIW
        return Guest(self.name, self.what, self.parser, command, self.limit, self.default)


def guest(name, what, options, arguments, limit, default=True):
    """Returns a suite that runs in a guest. `options`: for qemu/guest. `limit`: seconds for the
    command in the guest."""
    command = ["qemu/guest", *options, "--timeout", str(limit), "--", "/src/tests/guest/run", *arguments]
    # The host's limit is for a guest that does not keep its own limit; it includes the time to
    # build what is missing.
    return Guest(name, what, Ktap, command, limit + 3600, default)


# Guest suites of `make test`: all guest suites except those for the debug kernel only. Longer
# suites run by name (`make test SUITES=debug:data`), or all together by SUITES=all. The suites
# begin in this order.
STEADY = ("data", "zcopy", "connect", "close", "hostile", "local", "programs", "process", "ipproto", "options", "seqpacket", "poll", "bind", "lifecycle", "overload",
          "kernel", "create", "preload", "map", "pods", "proc", "stress", "infoleak", "without_ipv6", "syscall_fuzz", "wire", "ways")


GUEST_SUITES = PROJECT / "tests" / "guest" / "suites"


def needs(directory):
    """Reads the requirements of a suite: `GUEST` in its __init__.py, a dictionary with some of
    these keys.

    selftest: it needs the module's self-test. append: options for the guest's kernel command line.
    debug_only: only the debug kernel can run it. only: the version of IP that covers both, in one
    guest and between two ("wire"). both_versions: it tests differences between them, so that `make
    test` runs each case with both; of all other suites it runs each case with one, half of them
    with IPv4. mixed: it also runs on devices unlike rxe."""
    found = re.search(r"(?m)^GUEST = (.*)$", (GUEST_SUITES / directory / "__init__.py").read_text())
    return ast.literal_eval(found[1]) if found else {}


NEEDS = {path.parent.name: needs(path.parent.name) for path in sorted(GUEST_SUITES.glob("*/__init__.py"))}
RAW = [name for name, says in NEEDS.items() if "selftest" in says]
# Cases of the mixed suites that make test runs.
MIX = ["connect.nonblocking.success", "connect.listening.backlog", "data.stream.random_sizes", "data.stream.two_senders", "data.oob.in_bulk", "data.files.splice_out",
       "data.flags.waitall_large", "data.buffers.full", "close.closing.with_much_queued", "close.shutdown.behind_data", "poll.epoll.edge",
       "process.sharing.fork", "zcopy.blocks.both_ways", "zcopy.blocks.written", "zcopy.blocks.reader_interrupted"]

# Cases of make quick.
QUICK = ["data.stream.both_ways", "data.stream.random_sizes", "data.flags.peek", "data.flags.waitall_large", "data.oob.stops_at_mark", "data.vectors.shapes",
         "data.buffers.full", "zcopy.blocks.written", "zcopy.blocks.both_ways", "zcopy.blocks.in_parts", "zcopy.waitall.part_of_it", "zcopy.notified",
         "ipproto.chosen.takes_all", "ipproto.chosen.peer_with_tcp_only", "ipproto.chosen.non_blocking"]

# Programs that are tested by a form (tests/guest/lib/forms.py).
FORMS = [path.stem for path in sorted((GUEST_SUITES / "programs").glob("*.py")) if "from lib.forms import" in path.read_text()]


# Suites whose guest has two processors in `make test`, because they test concurrency. Two emulated
# processors spend up to half of their time on waiting for each other, so all other guests have one.
# The debug kernel has two processors as well (AT_ONCE in tests/guest/short); with two guests each
# guest has one.
TWO_PROCESSORS = {f"guest:{name}" for name in ("local", "local-streams", "overload", "stress", "adverse-short", "syscall_fuzz")}


def only(name):
    kind, _, directory = name.partition(":")
    version = NEEDS[directory].get("only", {}).get(kind)
    return ["--only", version] if version else []


def guest_suites():
    """Directories of tests/guest/suites. Each suite runs in a guest of its own, so that a broken
    kernel does not affect the others."""
    # The suites that need no wire run once more with both ends in one namespace.
    here = ["--here", "local", "connect", "bind.ports.device_of_listener", "bind.ports.ephemeral_range", "process.uring", "process.requests"]
    streams = ["data", "close", "poll", "zcopy"]
    for directory in sorted(GUEST_SUITES.glob("*/")):
        sources = [path.read_text(errors="replace") for path in directory.glob("*.py")]
        if directory.name == "heavy":
            yield guest("guest:heavy", "programs that have a form, and large packages: each way", ["--programs"], ["--every", "heavy"], GUEST_SECONDS, False)
        if not any("@case" in source for source in sources):
            continue
        says = NEEDS[directory.name]
        options = ["--selftest"] if "selftest" in says else []
        options += ["--append", says["append"]] if "append" in says else []
        cases = here if directory.name == "local" else [directory.name]
        if "debug_only" not in says:
            yield guest(f"guest:{directory.name}", "in a guest, each case on TCP and on SDP", options, [*only(f"guest:{directory.name}"), *cases], GUEST_SECONDS,
                        directory.name in STEADY)
        if cases is here:
            yield guest("guest:local-streams", "suites about streams, within one namespace", options, ["--in-turn", "--here", *streams], GUEST_SECONDS)
            cases = here + streams
        yield guest(f"debug:{directory.name}", "the guest suite on the debug kernel", ["--kernel", "debug", *options], cases, DEBUG_SECONDS, False)
        if directory.name == "programs":
            yield guest("guest:programs-every", "programs, and those that have a form by TCP, sdp-run and a mapping, each to the peer, on one machine, and to a peer without SDP", [],
                        ["--every", *(f"programs.{name}" for name in FORMS)], GUEST_SECONDS, False)
            yield guest("wire:programs-every", "programs where one of two machines has no module: the server's, and the client's", ["--hosts", "2"],
                        ["--every", "programs.without"], GUEST_SECONDS, False)
        if "mixed" in says:
            yield guest(f"adverse:{directory.name}", "on devices unlike rxe, a different device for each case, by a seed that is printed", [],
                        ["--adverse", "0", "--alone", directory.name], 2 * GUEST_SECONDS, False)
        if directory.name == "adverse":
            # this suite has a fixed seed, so that only a change makes a difference; the suites
            # above use any seed
            yield guest("guest:adverse-mixed", "cases of other suites on devices that are unlike rxe", [],
                        ["--adverse", "1", "--alone", "--only", "v4", *MIX], GUEST_SECONDS)
            some = ["adverse.completions.answers", "adverse.limits", "adverse.polling", "adverse.failures", "adverse.infiniband",
                    "adverse.iommu.both_ways", "adverse.iommu.failing", "adverse.iommu.iommu_stress_faults_loss_without_copies"]
            yield guest("guest:adverse-short", "one exchange on each device unlike rxe, and on devices that fail", [], some, GUEST_SECONDS)
        if directory.name == "ipproto":
            some = ["--ipproto", "connect.nonblocking", "close.shutdown", "poll.epoll", "options.tcp", "process.uring", "process.requests", "zcopy.notified"]
            yield guest("guest:ipproto-calls", "cases of other suites on sockets of IPPROTO_SDP", [], some, GUEST_SECONDS)
            every = ["--ipproto", "connect", "bind", "close", "poll", "options", "data", "process", "zcopy"]
            yield guest("guest:ipproto-all", "all cases that can run on sockets of IPPROTO_SDP", [], every, 4 * GUEST_SECONDS, False)
        if any(re.search(r"hosts=(BEDS|\([^)]*2)", source) for source in sources):
            name = f"wire:{directory.name}"
            yield guest(name, "with two guests on one wire", ["--hosts", "2", *options], [*only(name), directory.name], GUEST_SECONDS,
                        directory.name in STEADY and "wire" not in says.get("named", ()))


class Short(Suite):
    """A selection from all guest suites, on another kernel."""

    def shorter(self):
        # Another series of the stock kernel tests the module's calls into the kernel. Hostile peers
        # and the preload library do not depend on the kernel's series.
        parts = ["calls", "six", "module", "here_calls"] if self.name.startswith("series:") else []
        return Short(self.name, self.what, self.parser, [*self.command, *parts], self.limit, self.default)


def short(name, what, kernel, limit, default=True):
    command = ["qemu/guest", "--kernel", kernel, "--selftest", "--timeout", str(limit), "--", "/src/tests/guest/short"]
    return Short(name, what, Ktap, command, limit + 3600, default)


def other_series():
    """The supported series, except the one that all other suites run on."""
    return [series for series in kernels.SERIES if series != kernels.series_of(os.environ.get("AF_SDP_KERNEL") or kernels.SERIES[0])]


# The longest suite, by far if its kernel has to be compiled first.
LONGEST = "debug:short"

# Cases of siw:short, and more of them for make test-all. siw connects between two machines only.
SIW = ["create", "connect.listening.backlog", "options.tcp.syn_count", "options.timers.idle_connection_lives", "options.timers.dead_peer_is_noticed",
       "poll.states.reset", "poll.epoll.edge", "poll.epoll.connect_edges", "data.stream", "zcopy.blocks.both_ways", "zcopy.blocks.in_parts",
       "data.buffers.full", "close.closing", "close.shutdown.behind_data", "ipproto.chosen", "ipproto.mpa", "seqpacket.messages.boundaries",
       "seqpacket.messages.beyond_the_buffer", "hostile.reach.outside", "hostile.reach.of_others", "hostile.sinks.outside", "hostile.sinks.refused_often"]
SIW_ALL = ["create", "connect.listening", "options.tcp.syn_count", "options.timers", "poll", "data", "close", "seqpacket", "ipproto.chosen", "ipproto.mpa",
           "ipproto.route", "ipproto.users", "zcopy", "hostile"]


# Limits for hangs only: a machine many times slower than the present one stays within them.
GUEST_SECONDS = 3600
DEBUG_SECONDS = 14400
BUILD_SECONDS = 14400
# Builds that the guest suites need: name, command, and suites that need it. Builds run first, so
# that a suite's time limit covers its tests only.
BUILDS = [
    ("module", [SCRIPTS / "module"], lambda suite: not suite.name.startswith("debug:")),
    ("debug module", [SCRIPTS / "module", "--debug"], lambda suite: suite.name.startswith("debug:") and suite.name != LONGEST),
    ("test-module", [SCRIPTS / "test-module"], lambda suite: suite.name in {"guest:kernel", "guest:adverse", "guest:adverse-short", "guest:adverse-mixed"} or suite.name.startswith("adverse:")),
    ("test-module for the debug kernel", [SCRIPTS / "test-module", "--debug"],
     lambda suite: suite.name in {"debug:kernel", "debug:adverse", "debug:faults", LONGEST}),
    *((f"self-test for {series}", [SCRIPTS / "module", "--selftest", "--kernel", series, "--", "KRUSTFLAGS=--cfg sdp_selftest -Cdebuginfo=0 -Dwarnings", "KCFLAGS=-Werror"],
       lambda suite, name=f"series:{series}": suite.name == name)
      for series in [*other_series(), "next"]),
    *((f"self-test for {flavour}", [SCRIPTS / "module", "--selftest", "--kernel", flavour], lambda suite, name=f"{flavour}:short": suite.name == name)
      for flavour in kernels.FLAVOURS[1:]),
    *((f"test-module for {kernel}", [SCRIPTS / "test-module", "--kernel", kernel], lambda suite, name=name: suite.name == name)
      for kernel, name in [*((series, f"series:{series}") for series in [*other_series(), "next"]), *((flavour, f"{flavour}:short") for flavour in kernels.FLAVOURS[1:])]),
    ("self-test", [SCRIPTS / "module", "--selftest"], lambda suite: suite.name in {"siw:short", *(f"{kind}:{name}" for kind in ("guest", "wire") for name in RAW)}),
    ("debug self-test", [SCRIPTS / "module", "--selftest", "--debug"], lambda suite: suite.name in {f"debug:{name}" for name in [*RAW, "short"]}),
    ("sdpstat", [SCRIPTS / "cargo", "build", "--release", "--locked", "-p", "sdpstat"], lambda suite: True),
    ("sdp-check", [SCRIPTS / "cargo", "build", "--release", "--locked", "-p", "sdp-check"], lambda suite: suite.name.endswith(":programs")),
    ("preload library", [SCRIPTS / "cargo", "build", "--release", "--locked", "-p", "libsdp", "-p", "sdp-run"],
     lambda suite: suite.name.endswith((":preload", ":programs", ":programs-every", ":heavy", ":ipproto", ":without_ipv6")) or suite.name.startswith("series:")),
    ("sdpctl", [SCRIPTS / "cargo", "build", "--release", "--locked", "-p", "sdpctl"], lambda suite: suite.name.endswith((":map", ":pods", ":programs", ":programs-every", ":heavy"))),
    ("programs", [SCRIPTS / "programs"], lambda suite: suite.name.endswith((":pods", ":programs", ":programs-every", ":heavy"))),
]
SUITES = [
    Suite("check", "checks of the sources (make check)", Command, ["scripts/check"], 5400),
    Suite("scripts", "unit tests of the scripts", Unittest, ["sh", "-c", "exec python3 -B -m unittest discover -v -s scripts/tests 2>&1"], 600),
    Suite("host", "the protocol core and the tools, by cargo", CargoTest, ["scripts/cargo", "test", "--locked", "--workspace", "--no-fail-fast"], 5400),
    Suite("sim", "the simulator: connections with random events, checked at every step", Simulator,
          ["scripts/cargo", "run", "--release", "--locked", "-p", "sdp-sim", "--", "--steps", "100000000"], 5400),
    *guest_suites(),
    guest("siw:short", "on iWARP (siw), with two guests on one wire", ["--rdma", "siw", "--hosts", "2", "--selftest"], ["--alone", *SIW_ALL], GUEST_SECONDS),
    Suite("quick:check", "the checks of the sources that take seconds", Command, ["scripts/check", "--fast"], 600, False),
    guest("quick:guest", "a choice from data, zcopy and ipproto", [], ["--in-turn", "--brief", *QUICK], 600, False),
    short(LONGEST, "some of all guest suites on the debug kernel", "debug", DEBUG_SECONDS),
    *(short(f"series:{series}", f"some of all guest suites on Debian's kernel of {series}", series, GUEST_SECONDS) for series in other_series()),
    short("series:next", "some of all guest suites on a future kernel (make next)", "next", GUEST_SECONDS, False),
    *(short(f"{flavour}:short", f"the same on Debian's kernel {flavour}, emulated", flavour, GUEST_SECONDS, False) for flavour in kernels.FLAVOURS[1:]),
    Suite("kdir", "the module against headers as Arch and Ubuntu ship them", Command, ["scripts/test-kdir"], 3600, False),
    Suite("systemd", "services by SDP under systemd, and Secure Boot, in guests of their own", Command, ["scripts/test-systemd"], 10800, False),
    Suite("deb-arm64", "the packages for arm64: cross-compiled, and used in an emulated guest", Command, ["scripts/test-deb-arm64"], 7200, False),
    Suite("deb", "the Debian packages: built, installed in a root of their own, used in a guest, purged", Command, ["scripts/test-deb"], 10800, False),
]


# Suites that share a guest in `make test`, because a boot and its end take longer than many a
# suite. Suites that are likely to break a kernel have a guest of their own.
JOINED = [
    ("guest:bind", "guest:connect", "guest:create", "guest:options"), ("guest:poll", "guest:process", "guest:proc", "guest:wire", "guest:kernel"),
    ("guest:data", "guest:close"), ("guest:overload", "guest:stress", "guest:adverse-short"),
    ("guest:local", "guest:local-streams"), ("guest:preload", "guest:map", "guest:pods"),
    ("wire:data", "wire:close"), ("wire:bind", "wire:ipproto", "wire:preload", "wire:zcopy", "wire:seqpacket"),
]


def joined(suites):
    """Returns the suites; a group that is complete becomes one suite, in the place of the group's
    first suite."""
    named = {suite.name: suite for suite in suites}
    for group in JOINED:
        parts = [named.get(name) for name in group]
        if not all(parts):
            continue
        at, words = parts[0].command.index("--") + 2, [word for part in parts for word in part.cases()]
        options = parts[0].command[at:len(parts[0].command) - len(parts[0].cases())]
        together = Guest(f"{group[0]}+{'+'.join(name.partition(':')[2] for name in group[1:])}", f"{parts[0].what}: {len(parts)} suites",
                         Ktap, [*parts[0].command[:at], *options, *words], sum(part.limit for part in parts))
        together.parts = parts
        suites = [together if suite is parts[0] else suite for suite in suites if suite not in parts[1:]]
    return suites


def turn(suite, jobs):
    """Returns the key by which the suites are sorted, for `jobs` suites at once."""
    kind, _, directory = suite.name.partition(":")
    if suite.name == LONGEST:
        # the longest suite begins first or alone, since other suites would wait for the longest one
        return (0 if jobs > 1 else 4), 0
    if not directory or kind == "series":
        return 1, 0
    directory = re.split("[-+]", directory)[0]
    return 2 + (kind != "guest"), STEADY.index(directory) if directory in STEADY else len(STEADY)
