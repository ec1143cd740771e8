#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Check that retired names do not return: a part of make check.

    scripts/lib/words.py [--write]

scripts/lib/words.old has the retired names, their replacements, and the number of uses left. No use
may be added. After renaming a word, lower the number (--write does so, and raises none). A use is
the definition of a name (fn, struct, enum, trait, type, mod, const, static), and for a word with a
`*` in front every identifier. A word with a `/` is a file or folder.
"""

import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from layers import code, line_of  # noqa: E402

PROJECT = Path(__file__).resolve().parents[2]
TABLE = "scripts/lib/words.old"
_DEFINED = r"\b(?:fn|struct|enum|union|trait|type|mod|const|static)\s+(?:mut\s+)?{}\b"


class Row:
    """Row of the table: a word, the folder it applies to, its replacement, the number of uses left.
    """

    def __init__(self, number, line):
        self.number = number
        self.word, self.below, left, self.instead = line.split(None, 3)
        self.left = int(left)

    def places(self, root, texts):
        """Returns the places of the word in its folder."""
        if "/" in self.word:
            return [self.word] if (root / self.word).exists() else []
        pattern = re.compile(rf"\b{self.word[1:]}\b" if self.word[0] == "*" else _DEFINED.format(self.word))
        return [f"{name}:{line_of(text, match.start())}" for name, text in texts.items() if name.startswith(self.below) for match in pattern.finditer(text)]


def read(root):
    lines = (root / TABLE).read_text().splitlines()
    return [Row(number, line) for number, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]


def sources(root, rows):
    """Returns the code of each file that a row is about, without comments and strings."""
    found = {}
    for below in {row.below for row in rows if "/" not in row.word}:
        for path in sorted((root / below).rglob("*.rs")) if (root / below).is_dir() else [root / below]:
            if path.is_file():
                found[str(path.relative_to(root))] = code(path.read_text())
    return dict(sorted(found.items()))


def complaints(root=PROJECT):
    rows = read(root)
    texts = sources(root, rows)
    for row in rows:
        places = row.places(root, texts)
        word = row.word.lstrip("*")
        if len(places) > row.left:
            more = f", and {row.left} {'is' if row.left == 1 else 'are'} left to be renamed" if row.left else ""
            yield f"{', '.join(places)}: `{word}` is an old word{more}: write {row.instead}"
        elif len(places) < row.left:
            yield f"{TABLE}:{row.number}: of `{word}` {len(places)} are left, not {row.left}: scripts/lib/words.py --write"


def lowered(root=PROJECT):
    """Returns the table, with numbers that are too high lowered to the present ones."""
    rows = read(root)
    texts, lines = sources(root, rows), (root / TABLE).read_text().splitlines(True)
    for row in rows:
        now = len(row.places(root, texts))
        if now < row.left:
            head, number, tail = re.fullmatch(r"(\S+\s+\S+\s+)(\d+)(.*\n)", lines[row.number - 1]).groups()
            lines[row.number - 1] = head + str(now).rjust(len(number)) + tail
    return "".join(lines)


def main():
    if sys.argv[1:] == ["--write"]:
        (PROJECT / TABLE).write_text(lowered())
    elif sys.argv[1:]:
        print(__doc__.strip())
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    complained = list(complaints())
    print("\n".join(complained) or f"no old word has come back; {sum(row.left for row in read(PROJECT))} are left in {TABLE}")
    return 1 if complained else 0


if __name__ == "__main__":
    sys.exit(main())
