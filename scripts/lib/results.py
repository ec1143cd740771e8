# SPDX-License-Identifier: GPL-2.0-only
"""Reads the output of test runners, and adds up the results."""

import re


class Tally:
    """Counts passed tests, and keeps the names of the others with their reasons."""

    def __init__(self, suite):
        self.suite, self.passed, self.passed_names = suite, 0, set()
        self.seconds = 0    # seconds of the suite, without its builds
        self.processor = 0  # processor seconds of the suite, the same on a busy machine
        self.failures, self.skips = [], []
        self.steps = 0      # of the simulator
        self.unsteady = []  # tests that failed once and passed when tried again, with the first reason; they count as passed

    @property
    def failed(self):
        return len(self.failures)

    def ok(self, count=1, name=None):
        self.passed += count
        self.passed_names.add(name)

    def fail(self, name, why=""):
        self.failures.append((name, why))

    def skip(self, name, why=""):
        self.skips.append((name, why or "no reason given"))

    def passed_again(self, name):
        """Counts a test that failed under this name as passed."""
        self.unsteady += [failure for failure in self.failures if failure[0] == name]
        self.failures = [failure for failure in self.failures if failure[0] != name]
        self.ok(name=name)

    def add(self, other):
        self.passed += other.passed
        self.unsteady += other.unsteady
        self.failures += other.failures
        self.skips += other.skips
        self.steps += other.steps

    def total(self):
        return self.passed + len(self.failures) + len(self.skips)

    def line(self):
        text = f"{self.passed} passed, {self.failed} failed"
        return text + (f", {len(self.skips)} skipped" if self.skips else "")


# Subjects of guest cases by the first part of their names; all others compare socket calls.
SUBJECTS = {
    "Attacks and exhaustion stopped": ("hostile", "overload", "infoleak", "syscall_fuzz", "lifecycle"),
    "RDMA devices unlike rxe, faults": ("adverse", "faults", "stress"),
    "Programs unchanged": ("programs", "preload", "map", "pods", "heavy"),
}


def proved(tallies):
    """Returns one screen of results: a line for each subject with tests in this run."""
    rows = {"Protocol": ("", [])}
    rows |= {name: ("cases", []) for name in ("Socket calls, equal to TCP's", *SUBJECTS, "Debug kernel (KASAN, lockdep, kmemleak)", "Other kernel series")}
    steps = reports = 0
    debug = False
    for tally in tallies:
        kind = tally.suite.partition(":")[0]
        if kind in ("host", "sim"):
            rows["Protocol"][1].append((tally.passed, tally.failed))
            steps += tally.steps
        elif kind in ("debug", "series"):
            name = "Debug kernel (KASAN, lockdep, kmemleak)" if kind == "debug" else "Other kernel series"
            rows[name][1].append((tally.passed, tally.failed))
            debug |= kind == "debug" and bool(tally.passed)
        elif kind in ("guest", "wire", "adverse") or tally.suite == "quick:guest":
            for name, good in [(name, 1) for name in tally.passed_names - {None}] + [(name, 0) for name, _ in tally.failures]:
                first = name.partition(".")[0]
                row = next((row for row, firsts in SUBJECTS.items() if first in firsts), "Socket calls, equal to TCP's")
                rows[row][1].append((good, 1 - good))
        reports += sum("kernel reported a problem" in why for _, why in tally.failures)
    for name, (unit, counts) in rows.items():
        good, bad = sum(count[0] for count in counts), sum(count[1] for count in counts)
        if good + bad:
            more = f", {steps / 1e6:.0f} million steps simulated" if name == "Protocol" and steps else ""
            more += f", {reports} kernel reports" if name.startswith("Debug") and debug else ""
            yield f"{name:42} {good:6} {unit or 'tests'} passed{f', {bad} FAILED' if bad else ''}{more}"
    if reports and not debug:
        yield f"{'Kernel reports':42} {reports:6}"


def table(tallies, builds, seconds, jobs):
    """Returns lines with the time of each suite, the longest first."""
    rows = [(tally.seconds, tally.processor, tally.suite, tally.line()) for tally in tallies]
    rows += [(*took, name, "built") for name, took in builds.items()]
    yield f"{'clock':>9}  {'processor':>9}"
    for took, processor, name, what in sorted(rows, reverse=True):
        yield f"{took:7.0f} s  {processor:7.0f} s  {name:32} {what}"
    yield f"{seconds:7.0f} s  {sum(row[1] for row in rows):7.0f} s  in all, {jobs} at a time"


class Command:
    """A command that is one test by itself: its exit status is the result."""

    def __init__(self, tally):
        self.tally = tally

    def line(self, line):
        pass

    def end(self):
        pass

    def explains(self, status):
        if status == 0:
            self.tally.ok()
        return False


class Simulator(Command):
    """The simulator, which prints how many steps it has made."""

    def line(self, line):
        if found := re.match(r"(\d+) steps in \d+ connections", line):
            self.tally.steps = int(found[1])


class CargoTest:
    """`cargo test`: one line a test, one summary a binary."""

    _TEST = re.compile(r"^test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)(?:, (.*))?$")
    # With output of the test itself in between, its name and its result are on different lines.
    _SUMMARY = re.compile(r"^test result: \S+\. (\d+) passed; (\d+) failed; (\d+) ignored")

    def __init__(self, tally):
        self.tally = tally
        self._reset()

    def _reset(self):
        self.failures, self.ignored = [], []

    def line(self, line):
        match = self._TEST.match(line.rstrip("\n"))
        if match:
            name, result, why = match.groups()
            if result == "FAILED":
                self.failures.append(name)
            elif result == "ignored":
                self.ignored.append((name, why or "ignored by default"))
            return
        match = self._SUMMARY.match(line)
        if match:
            # The numbers come from the summary, the names from the lines before it.
            passed, failed, ignored = map(int, match.groups())
            self.tally.ok(passed)
            for index in range(failed):
                self.tally.fail(self.failures[index] if index < len(self.failures) else "a test of cargo's")
            for index in range(ignored):
                self.tally.skip(*(self.ignored[index] if index < len(self.ignored) else ("a test of cargo's",)))
            self._reset()

    def end(self):
        pass

    def explains(self, status):
        """Returns True if this exit status agrees with the failures read so far."""
        return status == 101 and self.tally.failed > 0


class Unittest:
    """Python's unittest, run with -v, whose standard error is read here."""

    _TEST = re.compile(r"^(?:\S+ \((\S+)\))?.* \.\.\. (?P<result>ok|FAIL|ERROR|skipped '(?P<why>.*)')$")
    # unittest prints the first line of the docstring on the next line, with the result.
    _NAME = re.compile(r"^\S+ \((\S+)\)$")

    def __init__(self, tally):
        self.tally, self._name = tally, None

    def line(self, line):
        line = line.rstrip("\n")
        name = self._NAME.match(line)
        if name:
            self._name = name[1]
        match = self._TEST.match(line)
        name = match and (match[1] or self._name)
        if not name:
            return
        self._name = None
        if match["result"] == "ok":
            self.tally.ok()
        elif match["why"] is not None:
            self.tally.skip(name, match["why"])
        else:
            self.tally.fail(name)

    def end(self):
        pass

    def explains(self, status):
        return status == 1 and self.tally.failed > 0


class Ktap:
    """Parses KTAP, as the kernel's self tests print it, with any depth of subtests.

    A result that follows results of a deeper level only sums up those results and is not counted.
    Missing results of a plan count as one failure.
    """

    _RESULT = re.compile(r"^( *)(ok|not ok) (\d+)(?: (?:- )?(.*?))?(?: *# *(SKIP|TIMEOUT|XFAIL|ERROR)\b *(.*))?$", re.I)
    _PLAN = re.compile(r"^( *)1\.\.(\d+)(?: *# *SKIP *(.*))?$")

    def __init__(self, tally):
        self.tally = tally
        self.levels = {}  # state of the open levels, by indentation
        self.said = []  # comments since the last result, which belong to the next result

    def _level(self, indent):
        return self.levels.setdefault(indent, {"plan": None, "seen": 0, "bad": 0})

    def _close_deeper(self, indent):
        """Closes the levels deeper than this one; returns (results, failures) that were counted
        there."""
        results = failures = 0
        for deeper in sorted(level for level in self.levels if level > indent):
            level = self.levels.pop(deeper)
            results += level["seen"]
            failures += level["bad"]
            if level["plan"] is not None and level["seen"] < level["plan"]:
                self.tally.fail(f"{self.tally.suite}", f"{level['plan']} results were announced at one level and {level['seen']} came")
                failures += 1
        return results, failures

    def line(self, line):
        line = line.rstrip("\n")
        plan = self._PLAN.match(line)
        if plan:
            indent = len(plan[1])
            self._close_deeper(indent)
            self._level(indent)["plan"] = int(plan[2])
            if plan[2] == "0" and plan[3] is not None:
                self.tally.skip(self.tally.suite, plan[3])
            return
        if line.lstrip().startswith("Bail out!"):
            self.tally.fail(self.tally.suite, line.strip())
            self.levels.clear()
            return
        match = self._RESULT.match(line)
        if not match:
            if line.lstrip().startswith("# ") and not line.lstrip().startswith("# Subtest:"):
                self.said.append(line.strip()[2:])
            return
        said, self.said = self.said, []
        indent, result, _, name, directive, why = match.groups()
        indent, name, directive = len(indent), name or "(no name)", (directive or "").upper()
        results, failures = self._close_deeper(indent)
        level = self._level(indent)
        level["seen"] += 1
        if results:
            # This line sums up results that are already counted, unless it has a failure that no
            # lower level reported.
            level["bad"] += failures
            if result == "not ok" and not failures:
                self.tally.fail(name, "failed as a whole")
                level["bad"] += 1
        elif directive == "SKIP":
            self.tally.skip(name, why)
        elif result == "ok" or directive == "XFAIL":
            self.tally.ok(name=name)
        else:
            reason = "timed out" if directive == "TIMEOUT" else why
            self.tally.fail(name, "; ".join(([reason] if reason else []) + said[:3]))
            level["bad"] += 1

    def end(self):
        self._close_deeper(-1)

    def explains(self, status):
        return status == 1 and self.tally.failed > 0
