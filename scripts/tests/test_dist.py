# SPDX-License-Identifier: GPL-2.0-only
"""Tests the source tarball: files of the commit alone, the same bytes each time, a dated
changelog."""

import importlib.machinery
import importlib.util
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

loader = importlib.machinery.SourceFileLoader("dist", str(Path(__file__).resolve().parents[1] / "dist"))
dist = importlib.util.module_from_spec(importlib.util.spec_from_loader("dist", loader))
loader.exec_module(dist)


class TestDist(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root, self.out = Path(directory.name) / "root", Path(directory.name) / "out"
        self.root.mkdir()
        self.put("Cargo.toml", '[workspace.package]\nedition = "2021"\nversion = "0.2.0"\n')
        self.put("CHANGELOG.md", "## [0.2.0] - 2026-11-27\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-qm", "a: b")

    def put(self, name, text):
        (self.root / name).write_text(text)

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=self.root, check=True, capture_output=True)

    def test_files_of_the_commit(self):
        self.put("new", "not known to git")
        path = dist.dist(self.root, self.out)
        with tarfile.open(path) as tar:
            self.assertEqual([name for name in tar.getnames() if name != "ib-sdp-0.2.0"], ["ib-sdp-0.2.0/CHANGELOG.md", "ib-sdp-0.2.0/Cargo.toml"])
        self.assertEqual(path.name, "ib-sdp-0.2.0.tar.xz")

    def test_the_same_bytes(self):
        first = dist.dist(self.root, self.out).read_bytes()
        self.assertEqual(dist.dist(self.root, self.out).read_bytes(), first)

    def test_uncommitted_changes(self):
        self.put("CHANGELOG.md", "## [0.2.0] - 2026-11-27\n\nmore\n")
        with self.assertRaisesRegex(SystemExit, "commit"):
            dist.dist(self.root, self.out)

    def test_a_changelog_without_the_version(self):
        self.put("CHANGELOG.md", "## [Unreleased]\n")
        with self.assertRaisesRegex(SystemExit, r"no section \[0.2.0\] with a date"):
            dist.dist(self.root, self.out)


class TestThisTree(unittest.TestCase):
    def test_the_changelog_has_the_version(self):
        self.assertRegex((dist.PROJECT / "CHANGELOG.md").read_text(), rf"(?m)^## \[{dist.version(dist.PROJECT)}\] - ")


if __name__ == "__main__":
    unittest.main()
