#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Check imports between the layers of src/, tools/ and qemu/: a part of make check.

A file imports from its own layer and from lower rows, files do not import one another in a circle,
and files, functions and src/ as a whole have a limit. scripts/lib/layers.debts lists the
exceptions. The list of exceptions may only shrink: an exception that is no longer needed has to be
deleted.

In Rust an import is a path (in `use` or in code) that leads to another file. The import leads to
the file that defines the name, not to those that re-export it; a call of a method has no path, so
it does not count. In C an import is an #include, or a use of another file's function. In Python
an import is an `import` of another file.
"""

import ast
import os.path
import re
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
# Layers from top to bottom. A file belongs to the row with the longest prefix of its path.
ROWS = [
    ["qemu/guest", "qemu/test"],
    ["qemu/host/", "qemu/inside/"],
    ["tools/completions/"],
    ["tools/libsdp/", "tools/sdp-check/", "tools/sdp-run/", "tools/sdpctl/", "tools/sdpstat/"],
    ["tools/info/", "tools/rules/"],
    ["src/ib_sdp.rs"],
    ["src/selftest/"],
    ["src/socket/"],
    ["src/conn/"],
    ["src/transport/"],
    ["src/memory/"],
    ["src/sys/net/", "src/sys/rdma/"],
    ["src/sys/"],
    ["src/protocol/", "src/memory/ring.rs"],
    ["src/sys/vec.rs"],
]
ROOM = {room: len(ROWS) - number for number, row in enumerate(ROWS) for room in row}
FOLDERS = ("src", "tools", "qemu")
# Root files of crates. src/protocol is also a crate of its own, for the host.
ROOTS = re.compile(r"src/ib_sdp\.rs|src/protocol/lib\.rs|tools/[^/]+/(src/(lib|main)\.rs|build\.rs|(tests|examples|benches)/[^/]+\.rs)")
OTHER_ROOT = "src/protocol/lib.rs"
LINES = {"file": 500, "function": 70}
# Total lines of src/, including host tests. layers.debts has the limit, which has to be lowered
# when src/ is this many lines below it.
TOTAL = "total", "src"
TOTAL_SLACK = 1000
DEBTS = "scripts/lib/layers.debts"

_NO_CODE = re.compile(r"""//[^\n]* | (?P<block>/\*) | \b[bc]?r(?P<hash>\#*)".*?"(?P=hash) | "(?:\\.|[^"\\])*" | '(?:\\.[^']*|[^'\\])'""", re.X | re.S)
_C_FUNCTION = re.compile(r"^\w[^;{}\n]*?(\w+)\([^;{}]*\)\s*^\{$.*?^\}", re.M | re.S)
_PARENT = re.compile(r"/mod\.rs$|^tools/.*/src/(lib|main)\.rs$")
_ITEM = re.compile(r"\b(?:fn|struct|enum|union|trait|type|const(?!\s+fn)|static|macro_rules!)\s+(?:mut\s+)?(\w+)")
_PATH = re.compile(r"(?<![\w:])\$?[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)+")


def _spaces(text):
    return re.sub(r"[^\n]", " ", text)


def blank(text, start, end):
    return text[:start] + _spaces(text[start:end]) + text[end:]


def code(text):
    """Returns Rust or C without comments, strings and characters; all else stays where it is."""
    parts, at = [], 0
    while match := _NO_CODE.search(text, at):
        parts.append(text[at : match.start()])
        at, depth = match.end(), 1 if match["block"] else 0
        while depth and (mark := re.compile(r"/\*|\*/").search(text, at)):  # block comments nest
            at, depth = mark.end(), depth + (1 if mark[0] == "/*" else -1)
        at = len(text) if depth else at
        parts.append(_spaces(text[match.start() : at]))
    return "".join(parts) + text[at:]


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def closing(text, at):
    """Returns the position behind the brace that closes the one at `at`."""
    depth = 0
    for brace in re.compile("[{}]").finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    return len(text)


def use_tree(tree, prefix=()):
    """Returns the paths of a `use`, each with the name that it gets; `*` is the name of a glob."""
    head, brace, rest = tree.partition("{")
    head, _, alias = head.partition(" as ")
    path = prefix + tuple(re.findall(r"[\w$]+|\*", head))
    if brace:
        depth, part = 0, ""
        for char in rest.rstrip().removesuffix("}") + ",":
            depth += (char == "{") - (char == "}")
            if char == "," and not depth:
                yield from use_tree(part, path) if part.strip() else ()
                part = ""
            else:
                part += char
    else:
        path = path[:-1] if path[-1] == "self" and path[1:] else path
        yield path, alias.strip() or path[-1]


class Module:
    def __init__(self, file):
        self.file, self.names, self.globs, self.items, self.paths = file, {}, [], set(), []


def is_python(file, text):
    return file.endswith(".py") or text.startswith("#!/usr/bin/env python3")


class Tree:
    """All files, the modules of Rust by path, and the imports between files.

    The path of a module begins with the first file of its crate."""

    def __init__(self, root):
        self.root = root
        self.raw = {}
        for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file()):
            if path.suffix in (".rs", ".c", ".h", ".py") or not path.suffix and os.access(path, os.X_OK):
                text = path.read_text(errors="replace")
                if path.suffix or is_python("", text):
                    self.raw[str(path.relative_to(root))] = text
        self.files = list(self.raw)
        self.total = sum(path.read_bytes().count(b"\n") for path in (root / "src").rglob("*") if path.is_file() and path.suffix != ".pyc")
        self.code = {file: code(text) if file.endswith((".rs", ".c", ".h")) else text for file, text in self.raw.items()}
        self.modules = {}
        roots = [file for file in self.files if ROOTS.fullmatch(file) and file != OTHER_ROOT]
        for file in roots:
            self._module((file,), file, self.code[file])
        # Libraries among the crates of tools/, by their crate names.
        self.crates = {"sdp_" + file.split("/")[1].replace("-", "_"): (file,) for file in roots if file.endswith("/src/lib.rs")}
        self.arrows = {file: {} for file in self.files}  # file -> {imported file: line}
        for path, module in self.modules.items():
            for line, target in module.paths:
                self._arrow(module.file, line, self._file(path, target))
        for file in self.files:
            if file.endswith((".c", ".h")):
                self._includes(file)
        self._calls([file for file in self.files if file.endswith(".c")])
        self._python([file for file in self.files if is_python(file, self.raw[file])])

    def _includes(self, file):
        for match in re.finditer(r'^\s*#\s*include\s+"(.+)"', self.raw[file], re.M):
            near, far = str(Path(file).parent / match[1]), "src/" + match[1]
            if not self.code[file][match.start() : match.end()].isspace():
                self._arrow(file, line_of(self.raw[file], match.start(1)), near if near in self.code else far)

    def _calls(self, files):
        """Returns the C functions of other files in the folder that a file uses."""
        outside, own = {}, {}
        for file in files:
            functions = {match[1]: match[0].startswith("static") for match in _C_FUNCTION.finditer(self.code[file])}
            own[file] = set(functions)
            outside.update({(str(Path(file).parent), name): file for name, static in functions.items() if not static})
        for file in files:
            for match in re.finditer(r"\b\w+\b", self.code[file]):
                if match[0] not in own[file]:
                    self._arrow(file, line_of(self.code[file], match.start()), outside.get((str(Path(file).parent), match[0])))

    def _python(self, files):
        """Finds imports of Python: modules are found by the names of their files, if these are
        below one of FOLDERS.
        """
        names = {Path(file).stem: file for file in files if file.endswith(".py")}
        for file in files:
            for node in ast.walk(ast.parse(self.raw[file])):
                imported = [node.module] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names] if isinstance(node, ast.Import) else []
                for name in imported:
                    self._arrow(file, node.lineno, names.get(name))

    def _arrow(self, file, line, target):
        if target in self.arrows and target != file:
            self.arrows[file].setdefault(target, line)

    def _module(self, path, file, text):
        """Adds a module and the modules inside it. `text` is the module's contents in `file`."""
        module = self.modules[path] = Module(file)
        at = 0
        while match := re.compile(r"\bmod\s+(\w+)\s*([;{])").search(text, at):
            at, inside = match.end(), path + (match[1],)
            if match[2] == "{":
                at = closing(text, at - 1)
                self._module(inside, file, blank(blank(text, 0, match.end()), at - 1, len(text)))
                text = blank(text, match.start(), at)
            elif child := self._child(file, match):
                self._module(inside, child, self.code[child])
        text = re.sub(r"\bpub\(in [^)]*\)", lambda m: " " * len(m[0]), text)
        for use in re.finditer(r"\buse\s+([^;]+);", text):
            for target, name in use_tree(" ".join(use[1].split())):
                module.paths.append((line_of(text, use.start()), target))
                if name == "*":
                    module.globs.append(target[:-1])
                else:
                    module.names[name] = target
            text = blank(text, use.start(), use.end())
        for match in _PATH.finditer(text):
            module.paths.append((line_of(text, match.start()), tuple(re.findall(r"[\w$]+", match[0]))))
        module.items = set(_ITEM.findall(text))

    def _child(self, file, mod):
        """Returns the file of `mod name;` in `file`."""
        folder = Path(file).parent
        if told := re.search(r'#\[path = "([^"]+)"\]\s*(?:pub(?:\([^)]*\))?\s+)?\Z', self.raw[file][: mod.start()]):
            return os.path.normpath(folder / told[1])
        below = folder if ROOTS.fullmatch(file) or file.endswith("/mod.rs") else folder / Path(file).stem
        return next((name for name in (f"{below}/{mod[1]}.rs", f"{below}/{mod[1]}/mod.rs") if name in self.code), None)

    def _find(self, here, path, busy=()):
        """Returns the module that `path` names in module `here`, and True if it names the module
        itself. Returns None if it is not a module of the project."""
        ours = False
        for name in path:
            module, found = self.modules[here], None
            if name in ("crate", "$crate"):
                found = here[:1], True
            elif name in ("self", "super"):
                found = here[:-1] if name == "super" else here, True
            elif name == "*":
                return here, False
            elif here + (name,) in self.modules:
                found = here + (name,), True
            elif name in module.names and (here, name) not in busy:
                found = self._find(here, module.names[name], (*busy, (here, name)))
                if not found:
                    return None
            elif name not in module.items:
                found = self._by_glob(here, name, busy)
            elif not ours:
                return here, False
            if not found and not ours and here[0].startswith("tools/") and name in self.crates:
                found = self.crates[name], True
            if not found:
                return (here, False) if ours else None
            if not found[1]:
                return found
            here, ours = found[0], True
        return here, True

    def _by_glob(self, here, name, busy):
        for target in self.modules[here].globs if (here, name) not in busy else ():
            found = self._find(here, target, (*busy, (here, name)))
            if found and found[1] and (found := self._find(found[0], (name,), (*busy, (here, name)))):
                return found
        return None

    def _file(self, here, path):
        """Returns the file that a path leads to. A path that names no more than a mod.rs leads
        nowhere yet."""
        found = self._find(here, path)
        file = found and self.modules[found[0]].file
        return None if found and found[1] and file.endswith("/mod.rs") else file


def circles(arrows, files):
    """Returns groups of files that import one another. A mod.rs with files below it is passed
    through, and so is the first file of a tool."""
    reach = {}
    for file in files:
        reach[file], todo = set(), [file]
        while todo:
            new = [target for target in arrows[todo.pop()] if target in files and target not in reach[file]]
            reach[file].update(new)
            todo += new
    for group in sorted({tuple(sorted(other for other in reach[file] if file in reach[other])) for file in files if file in reach[file]}):
        parent = next((file for file in group if _PARENT.search(file) and all(other.startswith(file.rpartition("/")[0]) for other in group)), None)
        if parent:
            yield from circles(arrows, set(group) - {parent})
        else:
            yield group


def way_round(arrows, group, start):
    """Returns a shortest circle through `start`, as text."""
    ways = [[start]]
    for way in ways:
        for target, line in arrows[way[-1]].items():
            step = [*way[:-1], f"{way[-1]}:{line}", target]
            if target == start:
                return " -> ".join(step)
            if target in group and not any(target == known[-1] for known in ways):
                ways.append(step)


def functions(file, text):
    """Returns name, first line and number of lines of each function."""
    if file.endswith(".rs"):
        for match in re.finditer(r"\bfn\s+(\w+)", text):
            depth = 0
            for mark in re.compile(r"[()\[\]{;]").finditer(text, match.end()):
                depth += (mark[0] in "([") - (mark[0] in ")]")
                if not depth and mark[0] in "{;":
                    if mark[0] == "{":
                        yield match[1], line_of(text, match.start()), text.count("\n", match.start(), closing(text, mark.start())) + 1
                    break
    elif is_python(file, text):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node.name, node.lineno, node.end_lineno - node.lineno + 1
    else:  # the kernel's style: braces of functions, and only those, stand in the first column
        for match in _C_FUNCTION.finditer(text):
            yield match[1], line_of(text, match.start()), match[0].count("\n") + 1


def room(file):
    return max((room for room in ROOM if file.startswith(room)), key=len, default=None)


def goes_down(file, target):
    here, there = room(file), room(target)
    return not here or not there or here == there or ROOM[there] < ROOM[here]


def findings(tree):
    """Returns all faults except circles: {debt: (size or None, place, remedy)}."""
    found = {}
    inside = {module.file for module in tree.modules.values()}
    for file in tree.files:
        if not room(file):
            found["room", file] = None, f"{file} is in no layer", "add its folder to scripts/lib/layers.py"
        elif file.endswith(".rs") and file not in inside and file != OTHER_ROOT:
            found["module", file] = None, f"{file} has no `mod` that names it", "add a `mod` or delete the file"
        for target, line in tree.arrows[file].items():
            if not goes_down(file, target):
                place = f"{file}:{line} imports {target}, which is in no lower row"
                found["up", file, target] = None, place, "move the needed code to a lower layer, or pass it in from above"
        lines = tree.raw[file].count("\n")
        if lines > LINES["file"]:
            found["file", file] = lines, f"{file} has {lines} lines", "split it by subject"
        for name, line, lines in functions(file, tree.code[file]):
            if lines > LINES["function"]:
                # Functions of one name in one file are added up, so that none is hidden by another
                # of that name.
                lines += found.get(("function", file, name), (0,))[0]
                found["function", file, name] = lines, f"{file}:{line}: {name}() has {lines} lines", "move a part of it to another function"
    found[TOTAL] = tree.total, f"src has {tree.total} lines", "delete as many lines as you add"
    return found


def read(root):
    """Returns the list of debts: {debt: (size or None, number of its line)}, and the circles as
    sets of files."""
    listed, listed_circles = {}, []
    for number, line in enumerate((root / DEBTS).read_text().splitlines(), 1):
        words = line.partition("#")[0].split()
        if words == ["circle"]:
            listed_circles.append(set())
        elif words and line[0].isspace():
            listed_circles[-1].update(words)
        elif words:
            size = int(words.pop()) if words[0] in LINES or words[0] == TOTAL[0] else None
            listed[tuple(words)] = size, number
    return listed, listed_circles


def of_circles(tree, listed):
    """Returns complaints about circles that the list does not have.

    Imports that go up are left out: such imports have complaints of their own, and would make one
    circle of many."""
    arrows = {file: {target: line for target, line in targets.items() if goes_down(file, target)} for file, targets in tree.arrows.items()}
    parts, grown = [[] for _ in listed], set()
    for group in circles(arrows, set(tree.files)):
        known = max(range(len(listed)), key=lambda number: len(listed[number] & set(group)), default=None)
        if known is not None and listed[known] & set(group):
            parts[known].append(group)
            new = [file for file in group if file not in listed[known]]
        else:
            new = group
        if new:
            grown.update(group)
            yield f"{way_round(arrows, group, new[0])} is a circle, new for {', '.join(new)}: move the code that two of them need into a third file"
    for known, groups in zip(listed, parts):
        for file in sorted(known.difference(grown, *groups)):
            yield f"{DEBTS}: {file} is not in that circle any more: delete this line"
        if len(groups) > 1:
            yield f"{DEBTS}: the circle of {groups[0][0]} has come apart: write `circle` above {' and above '.join(group[0] for group in groups)}"


def complaints(root=PROJECT):
    tree = Tree(root)
    found, (listed, listed_circles) = findings(tree), read(root)
    if TOTAL not in listed:
        yield f"{DEBTS}: has no line `total src NUMBER`"
        del found[TOTAL]
    for debt, (size, place, remedy) in found.items():
        allowed, _ = listed.get(debt, (LINES.get(debt[0]), 0))
        if debt not in listed or (size and size > allowed):
            yield f"{place}{f', and {allowed} are allowed' if size else ''}: {remedy}"
    for debt, (size, number) in listed.items():
        if debt not in found:
            yield f"{DEBTS}:{number}: `{' '.join(debt)}` is paid: delete this line"
        elif size and found[debt][0] < size - (TOTAL_SLACK if debt == TOTAL else 0):
            yield f"{DEBTS}:{number}: `{' '.join(debt)}` has got shorter: write {found[debt][0]} for {size}"
    yield from of_circles(tree, listed_circles)


def main():
    complained = list(complaints())
    print("\n".join(complained) or f"layers import downward only, except for the debts in {DEBTS}")
    return 1 if complained else 0


if __name__ == "__main__":
    sys.exit(main())
