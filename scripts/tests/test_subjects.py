# SPDX-License-Identifier: GPL-2.0-only
"""Tests that subjects of new commits are checked, also in a clone of part of the history."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import subjects  # noqa: E402


class TestSubjects(unittest.TestCase):
    def test_good(self):
        for subject in ("zcopy: let the peer read spliced pages", "conn, zcopy: post two blocks", "tests: local: wait for the message before reading", "sys/net: drop Net",
                        'Revert "zcopy: let the peer read spliced pages"', "docs: 0.2.0", "sdp-check: add --json", "socket: do not fail MSG_PEEK"):
            self.assertIsNone(subjects.wrong(subject), subject)

    def test_bad(self):
        for subject in ("Tests: nobody takes what has not come", "MSG_PEEK finds the place of its buffer again", "conn: Keep it", "conn:keep it", "conn: fixes it",
                        "conn: keep it; drop that", "conn: " + "a" * 67):
            self.assertIsNotNone(subjects.wrong(subject), subject)


class TestHistory(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name) / "origin"
        self.root.mkdir()
        self.git("init", "-q")
        self.commit("Words of before")
        (self.root / subjects.OWN).parent.mkdir(parents=True)
        (self.root / subjects.OWN).write_text("")
        self.git("add", ".")
        self.commit("The check, by a subject of before")

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=self.root, check=True, capture_output=True)

    def commit(self, subject):
        self.git("commit", "-q", "--allow-empty", "-m", subject)

    def clone(self, *options):
        copy = self.root.parent / "copy"
        subprocess.run(["git", "clone", "-q", *options, f"file://{self.root}", str(copy)], check=True, capture_output=True)
        return copy

    def test_only_those_after_the_check(self):
        self.assertEqual(list(subjects.complaints(self.root)), [])
        self.commit("conn: keep it")
        self.assertEqual(list(subjects.complaints(self.root)), [])
        self.commit("Something else is kept")
        self.assertRegex("".join(subjects.complaints(self.root)), "^[0-9a-f]+ `Something else is kept` is not `area: imperative`, in lower case$")

    def test_a_fresh_clone(self):
        self.commit("Something else is kept")
        self.assertEqual(len(list(subjects.complaints(self.clone()))), 1)

    def test_a_shallow_clone(self):
        self.commit("Something else is kept")
        self.commit("conn: keep it")
        self.assertEqual(list(subjects.complaints(self.clone("--depth", "1"))), [])

    def test_a_shallow_clone_from_before_the_check(self):
        self.commit("Something else is kept")
        self.assertEqual(len(list(subjects.complaints(self.clone("--depth", "3")))), 1)

    def test_no_git(self):
        subprocess.run(["rm", "-rf", ".git"], cwd=self.root, check=True)
        self.assertEqual(list(subjects.complaints(self.root)), [])


class TestThisTree(unittest.TestCase):
    def test_here(self):
        self.assertEqual(list(subjects.complaints()), [])


if __name__ == "__main__":
    unittest.main()
