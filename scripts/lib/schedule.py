# SPDX-License-Identifier: GPL-2.0-only
"""Limits of a run of scripts/test: its time, the number of suites at once, the retries, and the
builds that suites need."""

import contextlib
import errno
import os
import re
import sys
import threading
import time
from pathlib import Path

from results import Ktap, Tally
from suites import BUILDS, BUILD_SECONDS, LONGEST, Suite


# Seconds that a guest may continue after the time limit: for the cases that have begun, and for the
# checks at its end.
LAST_SECONDS = 900


class TimeLeft:
    """Time limit of a run, if it has one."""

    def __init__(self, minutes):
        self._minutes = minutes
        self._end = time.monotonic() + 60 * minutes if minutes else None

    def seconds(self):
        """Returns the remaining seconds; None if there is no limit."""
        return None if self._end is None else max(0, int(self._end - time.monotonic()))

    def over(self):
        return self.seconds() == 0

    def why(self):
        return f"the {self._minutes} minutes of MINUTES were over"

    def restrict(self, suite):
        """Returns the suite, with an option by which its guest begins no case once the time is
        over, and a limit for its end."""
        left = self.seconds()
        if left is None or suite.parser is not Ktap:
            return suite
        program = suite.command.index("--") + 1
        command = [*suite.command[:program + 1], "--seconds", str(left), *suite.command[program + 1:]]
        limit = command.index("--timeout") + 1
        command[limit] = str(min(int(command[limit]), left + LAST_SECONDS))
        return Suite(suite.name, suite.what, suite.parser, command, suite.limit)


def single(suite, name, why):
    """Returns a suite that runs only the failed case; None if the failure is not a case, or if it
    hung."""
    case = re.fullmatch(r"(\w+\.\w+\.\w+)/(v[46])(/here)?", name)
    if suite.parser is not Ktap or not case or why.startswith("timed out"):
        return None
    inside = suite.command.index("--") + 2
    options = [word for word in suite.command[inside:] if word.startswith("--") and word not in ("--only", "--here", "--in-turn")]
    options += ["--here"] if case[3] else []
    options += ["--alone"] if suite.command[inside - 1].endswith("/short") else []
    command = [*suite.command[:inside - 1], "/src/tests/guest/run", *options, "--only", case[2], case[1]]
    return Suite(f"{suite.name} again", f"{name} by itself", Ktap, command, suite.limit)


class Retries:
    """Number of failed cases that may be run again, by all suites together."""

    def __init__(self, left):
        self._left, self._lock = left, threading.Lock()

    def take(self, wanted):
        with self._lock:
            enough = 0 < wanted <= self._left
            self._left -= wanted if enough else 0
            return enough


class Places:
    """Limits the suites that run at once. The debug kernel takes longest to build, and in the end
    all suites would wait for it, so its suite holds two places until the kernel is built."""

    def __init__(self, jobs):
        self._jobs, self._free = jobs, threading.Semaphore(jobs)

    @contextlib.contextmanager
    def of(self, suite):
        """Takes a place for a suite. Returns a function that waits until all builds of a suite are
        done."""
        more = [None] * (suite.name == LONGEST and self._jobs > 1)
        for _ in [None, *more]:
            self._free.acquire()

        def built():
            if more:
                more.pop()
                self._free.release()

        try:
            yield built
        finally:
            built()
            self._free.release()


class Builds:
    """Builds what suites need. Each target is built once, by the suite that needs it first."""

    def __init__(self, commands, time_left):
        self._commands, self._time_left = commands, time_left
        self._locks = {name: threading.Lock() for name, _, _ in BUILDS}
        self._statuses = {}     # names of what was built; each name is accessed under its lock
        self.took = {}          # seconds by the clock and of processors of each build

    def make(self, suite):
        """Returns a Tally with the failed builds of the suite; None if all succeeded."""
        if suite.parser is not Ktap:
            return None
        for name, command, used_by in BUILDS:
            if not any(used_by(part) for part in suite.parts):
                continue
            with self._locks[name]:
                first = name not in self._statuses
                if first:
                    left = self._time_left.seconds()
                    start, used = time.monotonic(), self._commands.used.get(suite.name, 0)
                    self._statuses[name] = self._commands.run(suite.name, command, BUILD_SECONDS if left is None else left, lambda line: None)
                    self.took[name] = time.monotonic() - start, self._commands.used.get(suite.name, 0) - used
                status = self._statuses[name]
            if not status:
                continue
            tally = Tally(suite.name)
            if status == errno.ENOSPC and suite.name == LONGEST:
                tally.skip(suite.name, "there is no disk space for the debug kernel; the required space is printed above")
            elif status == errno.ENODATA and suite.name.startswith("series:"):
                tally.skip(suite.name, "the mirror does not have this kernel any more")
            elif status == "late" and self._time_left.over():
                tally.skip(suite.name, f"not begun: {name} was not built when {self._time_left.why()}")
            elif first:
                tally.fail(name, "does not build")
            else:
                tally.skip(suite.name, f"{name} does not build")
            return tally
        return None


def jobs_here():
    """Returns the number of suites to run at once: one more than the processors, because cases wait
    for timers and peers. A guest takes up to 3 GiB."""
    if "JOBS" in os.environ:
        jobs = os.environ["JOBS"]
        if not jobs.isdigit() or int(jobs) < 1:
            sys.exit(f"test: JOBS={jobs} is no number of suites to run at once")
        return int(jobs)
    free = int(re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())[1])
    return max(1, min(len(os.sched_getaffinity(0)) + 1, free // (4 << 20), 4))
