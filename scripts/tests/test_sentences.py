# SPDX-License-Identifier: GPL-2.0-only
"""Tests that sentences that are hard to read are counted, and that the numbers only fall."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import sentences  # noqa: E402


class TestRules(unittest.TestCase):
    def found(self, text, name="src/a.rs"):
        return [f"{number} {why}" for number, why in sentences.found_in(name, text)]

    def test_how_a_sentence_begins(self):
        self.assertEqual(self.found("/// What is left.\nfn f() {} // What is left\n/// Bytes left. Whether it is open.\n"), ["1 begins with What", "3 begins with Whether"])
        self.assertEqual(self.found("/// Returns what is left.\n/// Offset of it.\n"), [])

    def test_questions(self):
        self.assertEqual(self.found("Why does it wait? Who holds the lock? What now?\n", "docs/faq.md"), [])
        self.assertEqual(self.found("# What is copied\n\nWhat is copied.\n", "docs/faq.md"), ["3 begins with What"])

    def test_who(self):
        self.assertEqual(self.found("// the user who has made it, and processes of others who wait; users whose memory it is\n"), [])
        self.assertEqual(self.found("// wakes who waits\n// to whom it belongs\n"), ["1 `who` is nobody", "2 `whom` is nobody"])

    def test_verbs_of_people(self):
        self.assertEqual(self.found("/* it is told\n * and asks\n * the task, the retailer: `ask` */\n"),
                         ["1 `told`: code does not talk", "2 `asks`: code does not talk"])

    def test_width(self):
        self.assertEqual(self.found("\t// " + 89 * "a" + "\n"), [])
        self.assertEqual(self.found("\t// " + 90 * "a" + "\n"), ["1 is longer than 100 columns"])
        self.assertEqual(self.found("let a = 0;" + 100 * " " + "\n"), [])

    def test_strings_and_code_are_no_comments(self):
        self.assertEqual(self.found('let s = "What is told";\n*told = 1;\n'), [])
        self.assertEqual(self.found("    $ ask\n```\nask\n```\nask\n", "docs/a.md"), ["5 `ask`: code does not talk"])

    def test_python_and_pages(self):
        self.assertEqual(self.found('"""What it is."""\n\ndef f():\n    """Does it.\n\n    Ask it."""\n    # told\n    ask = "told"\n', "scripts/a.py"),
                         ["7 `told`: code does not talk", "1 begins with What", "6 `Ask`: code does not talk"])
        self.assertEqual(self.found(".It Ar ask\nThe peer is asked.\n", "tools/man/a.7"), ["2 `asked`: code does not talk"])


class TestDebts(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        self.put(sentences.TABLE, "# head\n   2 src/a.rs\n")

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_only_growth_fails(self):
        self.put("src/a.rs", "// told\n// told\n")
        self.assertEqual(list(sentences.complaints(self.root)), [])
        self.put("src/a.rs", "// told\n")
        self.assertEqual(list(sentences.complaints(self.root)), [])
        self.put("src/a.rs", "// told\n" * 3)
        self.assertIn("src/a.rs: 3 sentences are hard to read, and 2 are allowed: line 1 `told`", "".join(sentences.complaints(self.root)))

    def test_a_new_file_has_none(self):
        self.put("tools/b.py", "# told\n")
        self.assertIn("tools/b.py: 1 sentences are hard to read, and 0 are allowed", "".join(sentences.complaints(self.root)))

    def test_text_that_moves(self):
        self.put("src/b.rs", "// told\n// told\n")
        self.assertEqual(sentences.write(self.root), "# head\n   2 src/b.rs\n")
        self.put("src/a.rs", "// told\n")
        self.assertIsNone(sentences.write(self.root))

    def test_this_tree_is_read(self):
        names = [name for name, _ in sentences.files(sentences.PROJECT)]
        for name in ("README.md", "docs/testing.md", "src/conn/mod.rs", "src/sys/params.def", "scripts/check", "qemu/guest", "tools/man/sdp.7", "include/uapi/sdp.h"):
            self.assertIn(name, names)


if __name__ == "__main__":
    unittest.main()
