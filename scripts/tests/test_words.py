# SPDX-License-Identifier: GPL-2.0-only
"""Tests that the check reports retired names, and no other names."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import words  # noqa: E402

HEAD = "# a comment\n\n"


class TestWords(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)

    def write(self, table, **files):
        """`a__b` stands for src/a/b.rs."""
        self.put("scripts/lib/words.old", HEAD + table)
        for name, text in files.items():
            self.put("src/" + name.replace("__", "/") + ".rs", text)
        return list(words.complaints(self.root))

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_gone_words_do_not_come_back(self):
        found = self.write("Errand src/ 0 CopyJob\n", transport__local="// a mod Errand, once\n\npub(crate) struct Errand {}\n")
        self.assertEqual(found, ["src/transport/local.rs:3: `Errand` is an old word: write CopyJob"])

    def test_only_definitions_count(self):
        self.assertEqual(self.write("over src/ 0 on\n", a="fn f(over: u8) { over_all(); /* fn over */ let s = \"fn over\"; x.over() }\n"), [])
        self.assertEqual(len(self.write("over src/ 0 on\n", a="fn over() {}\nmod over;\n")), 1)

    def test_every_use_of_a_starred_word(self):
        self.assertEqual(len(self.write("*beside src/ 1 aside\n", a="struct A { beside: u8 }\n")), 0)
        found = self.write("*beside src/ 1 aside\n", a="struct A { beside: u8 }\nfn f(a: A) -> u8 { a.beside }\n")
        self.assertEqual(found, ["src/a.rs:1, src/a.rs:2: `beside` is an old word, and 1 is left to be renamed: write aside"])

    def test_below_a_folder(self):
        self.assertEqual(self.write("Block src/protocol/ 0 RdmaSegment\n", memory__block="struct Block;\n"), [])
        self.assertEqual(len(self.write("Block src/protocol/ 0 RdmaSegment\n", protocol__adverts="enum Block {}\n")), 1)
        self.assertEqual(len(self.write("Block src/pages.rs 0 KernelPages\n", pages="struct Block;\n")), 1)

    def test_paths(self):
        self.assertEqual(self.write("tests/storm - 0 syscall_fuzz\n"), [])
        self.put("tests/storm/calls.py", "")
        self.assertEqual(self.write("tests/storm - 0 syscall_fuzz\n"), ["tests/storm: `tests/storm` is an old word: write syscall_fuzz"])

    def test_numbers_only_get_smaller(self):
        table = "Lent src/ 3 Advert, or BlockEntry\nHold src/ 0 Stall\n"
        found = self.write(table, a="struct Lent;\n", b="enum Hold {}\n")
        self.assertEqual(found[0], "scripts/lib/words.old:3: of `Lent` 1 are left, not 3: scripts/lib/words.py --write")
        self.assertEqual(words.lowered(self.root), HEAD + "Lent src/ 1 Advert, or BlockEntry\nHold src/ 0 Stall\n")


class TestHere(unittest.TestCase):
    def test_the_table_is_about_what_there_is(self):
        for row in words.read(words.PROJECT):
            self.assertTrue("/" in row.word or (words.PROJECT / row.below).exists() or not row.left, f"{row.below} of {row.word} is not there")


if __name__ == "__main__":
    unittest.main()
