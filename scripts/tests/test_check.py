# SPDX-License-Identifier: GPL-2.0-only
"""Tests that each program of make check finds the faults that it is used for."""

import importlib.machinery
import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS / "lib"))

import cache  # noqa: E402

loader = importlib.machinery.SourceFileLoader("check", str(SCRIPTS / "check"))
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
loader.exec_module(check)


class Checkers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run([SCRIPTS / "prepare", "checkers"], check=True)

    def complaints(self, name, text, *words, **options):
        """Returns the command's output for a file of that name and text; the file is in a directory
        that the root sees."""
        (cache.PROJECT / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache.PROJECT / "build") as directory:
            (Path(directory) / name).write_text(text)
            return "\n".join(check.checker(*words, str(Path(directory) / name), **options)())

    def test_an_unused_import(self):
        self.assertIn("F401", self.complaints("a.py", "import os\n", "flake8"))
        self.assertEqual(self.complaints("a.py", "import os\n\nprint(os.name)\n", "flake8"), "")

    def test_words_that_the_shell_splits(self):
        self.assertIn("SC2086", self.complaints("a", "#!/bin/sh\nrm $1\n", "shellcheck"))

    def test_a_section_that_manual_pages_do_not_have(self):
        text = ".Dd $Mdocdate$\n.Dt A 7\n.Os\n.Sh NAME\n.Nm a\n.Nd b\n.Sh %s\nText.\n"
        self.assertIn("unexpected section", self.complaints("a.7", text % "RETURN VALUES", "mandoc", "-Tlint", "-Wwarning", but="Sh ERRORS"))
        self.assertEqual(self.complaints("a.7", text % "ERRORS", "mandoc", "-Tlint", "-Wwarning", but="Sh ERRORS|Dd"), "")

    def test_a_wrong_letter(self):
        self.assertIn("receive", self.complaints("a.md", "They rec" + "ieve it.\n", "codespell"))


if __name__ == "__main__":
    unittest.main()
