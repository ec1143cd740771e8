# SPDX-License-Identifier: GPL-2.0-only
"""Tests that the sum agrees with the output of the runners."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from results import CargoTest, Ktap, Simulator, Tally, Unittest, proved  # noqa: E402


def read(parser, text):
    tally = Tally("suite")
    reader = parser(tally)
    for line in text.splitlines(True):
        reader.line(line)
    reader.end()
    return tally


class Proved(unittest.TestCase):
    def tally(self, suite, *passed, failed=(), count=0):
        tally = Tally(suite)
        for name in passed:
            tally.ok(name=name)
        tally.ok(count)
        for name, why in failed:
            tally.fail(name, why)
        return tally

    def lines(self, *tallies):
        return [" ".join(line.split()) for line in proved(tallies)]

    def test_by_subject(self):
        sim = self.tally("sim", count=1)
        sim.steps = 100_000_000
        found = self.lines(self.tally("host", count=400), sim, self.tally("check", count=1),
                           self.tally("guest:overload+stress", "overload.crowds.a/v4", "stress.faults.loss/v4", "stress.faults.b/v6"),
                           self.tally("guest:data", "data.oob.a/v4", failed=[("data.oob.b/v4", "")]), self.tally("guest:programs", "programs.redis.a/v4"),
                           self.tally("debug:short", "data.oob.a/v4", failed=[("debug:short", "the guest's kernel reported a problem")]))
        self.assertEqual(found, [
            "Protocol 401 tests passed, 100 million steps simulated",
            "Socket calls, equal to TCP's 1 cases passed, 1 FAILED",
            "Attacks and exhaustion stopped 1 cases passed",
            "RDMA devices unlike rxe, faults 2 cases passed",
            "Programs unchanged 1 cases passed",
            "Debug kernel (KASAN, lockdep, kmemleak) 1 cases passed, 1 FAILED, 1 kernel reports"])

    def test_make_quick(self):
        found = self.lines(self.tally("quick:guest", "data.oob.a/v4", "zcopy.blocks.b/v6"), self.tally("quick:check", failed=[("quick:check", "ended with status 1")]))
        self.assertEqual(found, ["Socket calls, equal to TCP's 2 cases passed"])

    def test_a_report_of_a_stock_kernel(self):
        found = self.lines(self.tally("guest:data", failed=[("guest:data", "the guest's kernel reported a problem, or did not start (see above)")]))
        self.assertEqual(found[-1], "Kernel reports 1")

    def test_steps(self):
        self.assertEqual(read(Simulator, "100000000 steps in 812 connections, 9.1 s (1 steps/s)\n").steps, 100_000_000)


class KtapReading(unittest.TestCase):
    def check(self, text, passed, failed, skipped):
        tally = read(Ktap, text)
        self.assertEqual((tally.passed, tally.failed, len(tally.skips)), (passed, failed, skipped), tally.failures)
        return tally

    def test_flat(self):
        self.check("TAP version 13\n1..3\nok 1 a\nnot ok 2 b\nok 3 c # SKIP no device\n", 1, 1, 1)

    def test_sums_are_not_counted(self):
        text = "KTAP version 1\n1..2\n  KTAP version 1\n  # Subtest: one\n  1..2\n  ok 1 a\n  not ok 2 b\nnot ok 1 one\n"
        text += "  KTAP version 1\n  1..1\n  ok 1 c\nok 2 two\n"
        tally = self.check(text, 2, 1, 0)
        self.assertEqual(tally.failures[0][0], "b")

    def test_three_levels(self):
        text = "1..1\n  1..1\n    1..2\n    ok 1 - a\n    not ok 2 - b\n  not ok 1 - inner\nnot ok 1 - outer\n"
        self.check(text, 1, 1, 0)

    def test_sum_that_knows_more(self):
        self.check("1..1\n  1..1\n  ok 1 a\nnot ok 1 one\n", 1, 1, 0)

    def test_what_was_promised_and_did_not_come(self):
        self.check("1..2\n  1..5\n  ok 1 a\n  ok 2 b\n", 2, 2, 0)

    def test_bail_out(self):
        self.check("1..4\nok 1 a\nBail out! no socket\n", 1, 1, 0)

    def test_timeout(self):
        tally = self.check("1..1\nnot ok 1 a # TIMEOUT\n", 0, 1, 0)
        self.assertEqual(tally.failures, [("a", "timed out")])

    def test_what_was_said_before_a_failure_is_its_reason(self):
        tally = self.check("1..2\n# fine\nok 1 a\n# SDP 'ok', TCP 'EIO'\nnot ok 2 b\n", 1, 1, 0)
        self.assertEqual(tally.failures, [("b", "SDP 'ok', TCP 'EIO'")])

    def test_noise_between(self):
        self.check("1..2\n# ok 7 comment\nok, that was noise\nok 1 a\n[  3.1] console\nok 2 b\n", 2, 0, 0)

    def test_skip_has_its_reason(self):
        self.assertEqual(self.check("1..1\nok 1 a # SKIP no IPv6\n", 0, 0, 1).skips, [("a", "no IPv6")])

    def test_whole_run_skipped(self):
        self.check("1..0 # SKIP nothing to do\n", 0, 0, 1)


class Adding(unittest.TestCase):
    def test_what_passed_again_is_listed(self):
        tally = read(Ktap, "1..2\n# too late\nnot ok 1 a.b.c/v4\nok 2 d\n")
        tally.passed_again("a.b.c/v4")
        total = Tally("all")
        total.add(tally)
        self.assertEqual((total.line(), total.unsteady), ("2 passed, 0 failed", [("a.b.c/v4", "too late")]))


class CargoReading(unittest.TestCase):
    def test_several_binaries(self):
        text = "running 3 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest a::d ... ignored, slow\n\nfailures:\n    a::c\n\n"
        text += "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
        text += "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
        tally = read(CargoTest, text)
        self.assertEqual((tally.passed, tally.failures, tally.skips), (6, [("a::c", "")], [("a::d", "slow")]))

    def test_output_between_name_and_result(self):
        tally = read(CargoTest, "test a ... noise\nFAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\n")
        self.assertEqual(tally.failed, 1)


class UnittestReading(unittest.TestCase):
    def test_documented_or_not(self):
        text = "test_a (m.C.test_a) ... ok\ntest_b (m.C.test_b)\nWhat it says. ... FAIL\ntest_c (m.C.test_c)\nMore. ... skipped 'no kernel'\n"
        tally = read(Unittest, text + "\n----\nRan 3 tests in 0.1s\n\nFAILED (failures=1, skipped=1)\n")
        self.assertEqual((tally.passed, tally.failures, tally.skips), (1, [("m.C.test_b", "")], [("m.C.test_c", "no kernel")]))


if __name__ == "__main__":
    unittest.main()
