# SPDX-License-Identifier: GPL-2.0-only
"""Tests that several commands run at once."""

import contextlib
import io
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from passing_on import Interrupted, PassingOn  # noqa: E402


def shell(commands, name, script, limit=60):
    """Returns the status, and the lines that were read."""
    lines = []
    return commands.run(name, ["sh", "-c", script], limit, lines.append), lines


class TestPassingOn(unittest.TestCase):
    def setUp(self):
        self.out = io.StringIO()
        self.enterContext(contextlib.redirect_stdout(self.out))

    def test_output_and_status(self):
        self.assertEqual(shell(PassingOn("/", False), "x", "echo one; echo two; exit 3"), (3, ["one\n", "two\n"]))
        self.assertEqual(self.out.getvalue(), "one\ntwo\n")

    def test_names(self):
        self.assertEqual(shell(PassingOn("/", True), "x", "echo one"), (0, ["one\n"]))
        self.assertEqual(self.out.getvalue(), "x                   | one\n")

    def test_processor_time(self):
        commands = PassingOn("/", False)
        shell(commands, "x", "sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done' & wait")
        self.assertGreater(commands.used["x"], 0.005)

    def test_limit(self):
        """Children are ended, too: no process holds the output open."""
        start = time.monotonic()
        self.assertEqual(shell(PassingOn("/", False), "x", "echo one; sleep 600 & sleep 600", 0.5), ("late", ["one\n"]))
        self.assertLess(time.monotonic() - start, 60)

    def test_end_all(self):
        commands, ends = PassingOn("/", True), []

        def one(name):
            try:
                shell(commands, name, "echo here; sleep 600")
            except Interrupted:
                ends.append(name)

        threads = [threading.Thread(target=one, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        while self.out.getvalue().count("here") < 2:
            time.sleep(0.01)
        commands.end_all()
        for thread in threads:
            thread.join(60)
        self.assertEqual(sorted(ends), ["a", "b"])
        with self.assertRaises(Interrupted):
            shell(commands, "c", "true")


if __name__ == "__main__":
    unittest.main()
