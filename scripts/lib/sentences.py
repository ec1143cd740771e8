#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Check that the number of sentences that are hard to read does not rise: a part of make check.

    scripts/lib/sentences.py [--write | FILE...]

Reads comments of Rust, C, Python and shell, Markdown and manual pages. Counts in each file the
lines that break one of RULES below, and comment lines longer than 100 columns. Questions are left
alone. scripts/lib/sentences.debts has the number that each file is allowed; a file that has more
fails. --write lowers the numbers. --write also moves the numbers to another file along with the
text, but never raises the sum. With FILE, lists the lines.
"""

import ast
import os
import re
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TABLE = "scripts/lib/sentences.debts"
FOLDERS = ("src", "include", "tools", "tests", "examples", "qemu", "scripts", "docs", "debian", ".ci")
COLUMNS = 100

_COMMENT = re.compile(r"\s*(?:///?!?|/\*+|\*(?![/\w])|#(?!!))\s?")
_PERSON = r"\b(?:\w+ers?|\w+ors?|\w+ants?|users?|person|people|those|they|them|any(?:one|body)|no(?:body| one)|some(?:one|body)|every(?:one|body)|one|others?|m[ae]n|root)"
RULES = [
    ("begins with {}", re.compile(r"(?:^|[.:;] )[*_`]*(Who|Whoever|What|That|Whether|How|Of)\b(?![^.]*\?)")),
    ("`{}` is nobody", re.compile(rf"(?<!\w)(?<!-)(?<![`\"'])(?:(?:{_PERSON})(?:,| and| or)? (?:\w+ ){{0,3}})?\b([Ww]ho(?:ever|m)?)\b(?![^.]*\?)")),
    ("`{}`: code does not talk", re.compile(r"\b((?:re)?tell(?:s|ing)?|told|hear(?:s|d|ing)?|ask(?:s|ed|ing)?)\b", re.I)),
]


def prose(name, text):
    """Returns the number and text of each line of prose, and the raw line if it is a comment."""
    lines = text.splitlines()
    if name.endswith((".rs", ".c", ".h", ".def")):
        found = re.compile(r"\s*(?://|/\*|\*[ /]|\*$)")
        yield from ((number, _COMMENT.sub("", line, count=1), line) for number, line in enumerate(lines, 1) if found.match(line))
    elif name.endswith(".md"):
        code = False
        for number, line in enumerate(lines, 1):
            code ^= line.startswith("```")
            if not code and not line.startswith(("    ", "#", "<!--")):
                yield number, line, ""
    elif re.search(r"\.[1-8]$", name):
        yield from ((number, line, "") for number, line in enumerate(lines, 1) if not line.startswith("."))
    else:
        yield from ((number, _COMMENT.sub("", line, count=1), line) for number, line in enumerate(lines, 1) if re.match(r"\s*#(?!!)", line))
        if name.endswith(".py") or text.startswith("#!/usr/bin/env python3"):
            yield from docstrings(text, lines)


def docstrings(text, lines):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node, clean=False):
            first = node.body[0]
            for number in range(first.lineno, first.end_lineno + 1):
                line = lines[number - 1]
                yield number, line.strip().lstrip('"'), line


def matches(rule, line):
    for match in rule.finditer(line):
        # The second rule covers a person before the verb, if there is one.
        if match.start(1) == match.start() or not re.match(_PERSON, match[0]):
            yield match[1]


def found_in(name, text):
    """Returns the lines of a file that break a rule: (number, reason)."""
    for number, line, comment in prose(name, text):
        plain = re.sub(r"`[^`]*`", "``", line)
        for why, rule in RULES:
            for word in matches(rule, plain):
                yield number, why.format(word)
        if len(comment.expandtabs(8)) > COLUMNS:
            yield number, f"is longer than {COLUMNS} columns"


def files(root):
    for path in sorted([*root.glob("*.md"), *(path for folder in FOLDERS for path in (root / folder).rglob("*"))]):
        known = path.suffix in (".rs", ".c", ".h", ".def", ".py", ".sh", ".md") or re.search(r"/man/.*\.[1-8]$", str(path))
        if path.is_file() and (known or not path.suffix and os.access(path, os.X_OK)):
            text = path.read_text(errors="replace")
            if known or text.startswith("#!"):
                yield str(path.relative_to(root)), text


def counted(root):
    """Returns {file: its lines that break a rule}."""
    everything = ((name, sorted(found_in(name, text))) for name, text in files(root))
    return {name: found for name, found in everything if found}


def read(root):
    lines = (line.split() for line in (root / TABLE).read_text().splitlines() if line.strip() and line[0] != "#")
    return {name: int(number) for number, name in lines}


def complaints(root=PROJECT):
    allowed = read(root)
    for name, found in counted(root).items():
        if len(found) > allowed.get(name, 0):
            shown = "; ".join(f"line {number} {why}" for number, why in found[:8])
            more = f"; {len(found) - 8} more (scripts/lib/sentences.py {name})" if len(found) > 8 else ""
            yield f"{name}: {len(found)} sentences are hard to read, and {allowed.get(name, 0)} are allowed: {shown}{more}. See Words in CONTRIBUTING.md"


def write(root):
    """Returns the new table, or None if the sum would rise."""
    now, allowed = counted(root), read(root)
    if sum(map(len, now.values())) > sum(allowed.values()):
        return None
    head = "".join(line for line in (root / TABLE).read_text().splitlines(True) if line[0] == "#")
    return head + "".join(f"{len(found):4} {name}\n" for name, found in sorted(now.items()))


def main():
    names = sys.argv[1:]
    if names in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if names == ["--write"]:
        text = write(PROJECT)
        if text is None:
            print("there are more than before; reword some first")
            return 1
        (PROJECT / TABLE).write_text(text)
    elif names:
        for name in names:
            for number, why in sorted(found_in(name, Path(name).read_text())):
                print(f"{name}:{number}: {why}")
        return 0
    complained = list(complaints())
    print("\n".join(complained) or f"no file has more than {TABLE} allows, {sum(read(PROJECT).values())} in all")
    return 1 if complained else 0


if __name__ == "__main__":
    sys.exit(main())
