# SPDX-License-Identifier: GPL-2.0-only
"""Tests the order of suites, their builds, and the cases that a run without time leaves out."""

import contextlib
import errno
import importlib.util
import io
import sys
import threading
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

import schedule  # noqa: E402
from results import Command, Ktap, Tally, table  # noqa: E402
from schedule import Builds, Places, TimeLeft, single  # noqa: E402
from suites import JOINED, SUITES, TWO_PROCESSORS, Guest, Suite, joined, other_series, turn  # noqa: E402


# Imported without its package, because tests and scripts both have a module named suites.
spec = importlib.util.spec_from_file_location("registry", Path(__file__).resolve().parent.parent.parent / "tests/guest/lib/registry.py")
registry = importlib.util.module_from_spec(spec)
spec.loader.exec_module(registry)


class Commands:
    """Builds nothing, and returns the given status."""

    def __init__(self, **statuses):
        self.ran, self.used, self._statuses = [], {}, statuses

    def run(self, suite, command, limit, read):
        self.ran.append((suite, command[0], limit))
        return self._statuses.get(command[0], 0)


def guest(name):
    return Suite(name, "", Ktap, ["qemu/guest", "--timeout", "5000", "--", "/src/tests/guest/run", "x"], 10)


class TestOrder(unittest.TestCase):
    def test_each_has_its_turn(self):
        names = [suite.name for suite in sorted((suite for suite in SUITES if suite.default), key=lambda suite: turn(suite, 2))]
        self.assertEqual(names[0], "debug:short")
        others = len(other_series())
        self.assertEqual(set(names[1:5 + others]), {"check", "scripts", "host", "sim", *(f"series:{name}" for name in other_series())})
        self.assertEqual(names[5 + others], "guest:data")
        self.assertTrue(names[-2].startswith("wire:"))
        self.assertEqual(names[-1], "siw:short")

    def test_one_by_one(self):
        names = [suite.name for suite in sorted((suite for suite in SUITES if suite.default), key=lambda suite: turn(suite, 1))]
        self.assertEqual(names[-1], "debug:short")


class TestShorter(unittest.TestCase):
    def command(self, name):
        command = next(suite for suite in SUITES if suite.name == name).shorter().command
        return command[command.index("--") + 1:]

    def test_one_version_of_ip(self):
        run = "/src/tests/guest/run"
        self.assertEqual(self.command("guest:hostile"), [run, "--brief", "--in-turn", "hostile"])
        self.assertEqual(self.command("guest:data"), [run, "--brief", "--only", "v4", "data"])
        self.assertEqual(self.command("guest:bind"), [run, "--brief", "bind"])
        self.assertEqual(self.command("debug:short"), ["/src/tests/guest/short"])
        for series in other_series():
            self.assertEqual(self.command(f"series:{series}"), ["/src/tests/guest/short", "calls", "six", "module", "here_calls"])

    def test_within_one_machine(self):
        command = self.command("guest:local-streams")
        self.assertTrue({"data", "close", "poll", "zcopy"} <= set(command))

    def test_one_processor(self):
        def options(name):
            command = next(suite for suite in SUITES if suite.name == name).shorter().command
            return command[1:command.index("--timeout")]

        self.assertEqual(options("guest:data"), ["--cpus", "1"])
        self.assertEqual(options("guest:hostile"), ["--cpus", "1", "--selftest"])
        for name in TWO_PROCESSORS:
            self.assertEqual(options(name), [])
        self.assertEqual(options("wire:data"), ["--hosts", "2"])
        self.assertNotIn("--cpus", next(suite for suite in SUITES if suite.name == "guest:data").command)

    def test_time_is_told_and_a_case_runs_again(self):
        suite = TimeLeft(2).restrict(next(suite for suite in SUITES if suite.name == "guest:hostile").shorter())
        self.assertIn("--in-turn", suite.command)
        self.assertNotIn("--in-turn", single(suite, "hostile.ends.x/v6", "").command)

    def test_every_case_has_its_turn(self):
        families = {}
        for number in range(100):
            case = registry.Case(mock.Mock(__module__="suites.a.b", __name__=f"c{number}"), ("v4", "v6"), True, 30, (1,))
            self.assertEqual(case.family_in_turn(), case.family_in_turn())
            families[case.family_in_turn()] = families.get(case.family_in_turn(), 0) + 1
        self.assertEqual(set(families), {("v4",), ("v6",)})
        self.assertGreater(min(families.values()), 30)
        self.assertEqual(registry.Case(mock.Mock(__module__="suites.a.b", __name__="c"), ("v6",), True, 30, (1,)).family_in_turn(), ("v6",))


class TestJoined(unittest.TestCase):
    chosen = [suite.shorter() for suite in SUITES if suite.default]

    def test_one_guest_for_several(self):
        suites = {suite.name: suite for suite in joined(self.chosen)}
        self.assertEqual(set(suites) & {"guest:data", "guest:close", "wire:data"}, set())
        command = suites["guest:data+close"].command
        self.assertEqual(command[command.index("--") + 1:], ["/src/tests/guest/run", "--brief", "--only", "v4", "data", "close"])
        self.assertIn("--selftest", suites["guest:hostile"].command)

    def test_nothing_is_lost(self):
        def cases(suites):
            return sorted((suite.command[1:3], word) for suite in suites if isinstance(suite, Guest) for word in suite.cases())

        self.assertEqual(cases(joined(self.chosen)), cases(self.chosen))
        self.assertEqual(sorted(part.name for suite in joined(self.chosen) for part in suite.parts), sorted(suite.name for suite in self.chosen))

    def test_only_those_that_run_alike(self):
        named = {suite.name: suite for suite in self.chosen}
        for group in JOINED:
            kinds = {tuple(suite.command[:len(suite.command) - len(suite.cases())]) for suite in (named[name] for name in group)}
            self.assertEqual(len(kinds), 1, group)

    def test_not_if_one_of_them_is_not_wanted(self):
        some = [suite for suite in self.chosen if suite.name != "guest:close"]
        self.assertIn("guest:data", [suite.name for suite in joined(some)])

    def test_what_each_of_them_needs_is_built(self):
        suite = next(suite for suite in joined(self.chosen) if suite.name == "guest:poll+process+proc+wire+kernel")
        commands = Commands()
        Builds(commands, TimeLeft(0)).make(suite)
        self.assertIn("test-module", [Path(command).name for _, command, _ in commands.ran])


class TestTable(unittest.TestCase):
    def test_the_longest_comes_first(self):
        short, long = Tally("short"), Tally("long")
        long.ok(3)
        short.seconds, long.seconds, long.processor = 4, 60, 80
        lines = list(table([short, long], {"module": (20, 15)}, 70, 2))
        self.assertEqual([line[22:].split()[0] for line in lines[1:-1]], ["long", "module", "short"])
        self.assertEqual(lines[1].split(), ["60", "s", "80", "s", "long", "3", "passed,", "0", "failed"])
        self.assertEqual(lines[-1].split()[:4], ["70", "s", "95", "s"])


class TestTimeLeft(unittest.TestCase):
    def at(self, seconds):
        return mock.patch.object(schedule.time, "monotonic", lambda: seconds)

    def test_without_a_limit(self):
        left, suite = TimeLeft(0), guest("guest:x")
        self.assertIs(left.seconds(), None)
        self.assertFalse(left.over())
        self.assertIs(left.restrict(suite), suite)

    def test_guests_are_told(self):
        with self.at(1000):
            left = TimeLeft(2)
        with self.at(1030):
            suite = left.restrict(guest("guest:x"))
            self.assertEqual(suite.command, ["qemu/guest", "--timeout", "990", "--", "/src/tests/guest/run", "--seconds", "90", "x"])
            other = Suite("host", "", Command, ["make"], 10)
            self.assertIs(left.restrict(other), other)
            self.assertFalse(left.over())
        with self.at(1120):
            self.assertTrue(left.over())


class TestSingle(unittest.TestCase):
    def again(self, suite, name, why=""):
        found = single(next(other for other in SUITES if other.name == suite), name, why)
        return found and found.command[found.command.index("--") + 1:]

    def test_as_it_was_run(self):
        run = "/src/tests/guest/run"
        self.assertEqual(self.again("guest:data", "data.stream.sizes/v4"), [run, "--only", "v4", "data.stream.sizes"])
        self.assertEqual(self.again("guest:local", "local.streams.killed/v6/here"), [run, "--here", "--only", "v6", "local.streams.killed"])
        self.assertEqual(self.again("debug:short", "data.stream.sizes/v4"), [run, "--alone", "--only", "v4", "data.stream.sizes"])
        self.assertEqual(self.again("debug:short", "data.stream.sizes/v4/here"), [run, "--here", "--alone", "--only", "v4", "data.stream.sizes"])
        self.assertEqual(self.again("guest:ipproto-calls", "poll.epoll.edge/v4"), [run, "--ipproto", "--only", "v4", "poll.epoll.edge"])

    def test_not_what_is_no_case(self):
        self.assertIs(self.again("guest:data", "the module unloads"), None)
        self.assertIs(self.again("guest:data", "data.stream.sizes/v4", "timed out; somewhere"), None)


class TestBuilds(unittest.TestCase):
    def setUp(self):
        builds = [("one", ["a"], lambda suite: True), ("two", ["b"], lambda suite: suite.name != "guest:y")]
        self.enterContext(mock.patch.object(schedule, "BUILDS", builds))

    def test_once(self):
        commands = Commands()
        builds = Builds(commands, TimeLeft(0))
        self.assertIs(builds.make(Suite("host", "", Command, ["make"], 10)), None)
        self.assertEqual(commands.ran, [])
        self.assertIs(builds.make(guest("guest:y")), None)
        self.assertIs(builds.make(guest("guest:z")), None)
        self.assertEqual([(suite, command) for suite, command, _ in commands.ran], [("guest:y", "a"), ("guest:z", "b")])

    def test_failure_counts_once(self):
        builds = Builds(Commands(b=1), TimeLeft(0))
        first, second = builds.make(guest("guest:x")), builds.make(guest("guest:z"))
        self.assertEqual((first.failures, first.skips), ([("two", "does not build")], []))
        self.assertEqual((second.failures, second.skips), ([], [("guest:z", "two does not build")]))
        self.assertIs(builds.make(guest("guest:y")), None)

    def test_no_space_for_the_debug_kernel(self):
        builds = Builds(Commands(b=errno.ENOSPC), TimeLeft(0))
        tally = builds.make(guest("debug:short"))
        self.assertEqual((tally.failed, len(tally.skips)), (0, 1))

    def test_no_time(self):
        left = TimeLeft(1)
        builds = Builds(Commands(b="late"), left)
        with mock.patch.object(left, "seconds", lambda: 0):
            tally = builds.make(guest("guest:x"))
        self.assertEqual((tally.failed, [name for name, _ in tally.skips]), (0, ["guest:x"]))


class TestPlaces(unittest.TestCase):
    def setUp(self):
        self.places, self.entered = Places(3), threading.Semaphore(0)

    def begin(self, name, leave):
        def hold():
            with self.places.of(guest(name)):
                self.entered.release()
                leave.wait()
        thread = threading.Thread(target=hold)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(leave.set)      # before the join

    def test_two_until_all_is_built(self):
        leave = threading.Event()
        with self.places.of(guest("debug:short")) as built:
            self.begin("guest:x", leave)
            self.assertTrue(self.entered.acquire(timeout=60))
            self.begin("guest:y", leave)
            self.assertFalse(self.entered.acquire(timeout=0.3))
            built()
            self.assertTrue(self.entered.acquire(timeout=60))

    def test_given_back_once(self):
        for _ in range(3):
            with self.places.of(guest("debug:short")) as built:
                built()
            with self.assertRaises(KeyError), self.places.of(guest("debug:short")):
                raise KeyError
        leave = threading.Event()
        for name in "abcd":
            self.begin(f"guest:{name}", leave)
        for _ in range(3):
            self.assertTrue(self.entered.acquire(timeout=60))
        self.assertFalse(self.entered.acquire(timeout=0.3))

    def test_one_by_one(self):
        with Places(1).of(guest("debug:short")) as built:
            built()


class TestJobs(unittest.TestCase):
    def test_given(self):
        with mock.patch.dict(schedule.os.environ, JOBS="3"):
            self.assertEqual(schedule.jobs_here(), 3)
        for wrong in ("0", "x", ""):
            with mock.patch.dict(schedule.os.environ, JOBS=wrong), self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                schedule.jobs_here()


if __name__ == "__main__":
    unittest.main()
