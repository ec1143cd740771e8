# SPDX-License-Identifier: GPL-2.0-only
"""Tests that each test named in SECURITY.md exists."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


class Named(unittest.TestCase):
    def setUp(self):
        self.names = re.findall(r"`([^`\n]+)`", (PROJECT / "SECURITY.md").read_text())

    def test_cases_of_the_guest(self):
        listed = subprocess.run([sys.executable, "-B", PROJECT / "tests/guest/run", "--list"], capture_output=True, text=True, check=True).stdout
        cases = {line.split()[0] for line in listed.splitlines()}
        known = cases | {case.rsplit(".", 1)[0] for case in cases}
        suites = {case.split(".")[0] for case in cases}
        named = [name for name in self.names if re.fullmatch(r"[a-z_]+(\.[a-z0-9_]+)+", name) and name.split(".")[0] in suites]
        self.assertGreater(len(named), 50)
        self.assertEqual([name for name in named if name not in known], [])

    def test_no_name_is_a_part_of_one(self):
        """A name that is part of another one could not be searched for."""
        listed = subprocess.run([sys.executable, "-B", PROJECT / "tests/guest/run", "--list"], capture_output=True, text=True, check=True).stdout
        functions = {line.split()[0].rsplit(".", 1)[1] for line in listed.splitlines()}
        self.assertEqual([name for name in self.names if name in functions], [])

    def test_files(self):
        named = [name for name in self.names if re.match(r"(tests|src|scripts|include|tools)/", name) and "..." not in name]
        self.assertGreater(len(named), 3)
        self.assertEqual([name for name in named if not (PROJECT / name).exists()], [])


if __name__ == "__main__":
    unittest.main()
