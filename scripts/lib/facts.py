# SPDX-License-Identifier: GPL-2.0-only
"""Check that places that state the same fact agree: a part of make check.

The table of parameters is src/sys/params.def, that of socket options in SOL_TCP is in
docs/parameters.md, that of fallback's reasons is the module's own list. Every file and every name
of the code that a document mentions has to exist.
"""

import re
from pathlib import Path

import kernels
import suites

PROJECT = Path(__file__).resolve().parents[2]
# Pages that name files and functions of the sources. In the pages of the second list most names are
# the kernel's, so only files are checked.
PAGES_OF_CODE = ["docs/architecture.md", "docs/locking.md", "docs/glossary.md", "docs/testing.md", "CONTRIBUTING.md"]
PAGES_OF_FILES = ["docs/kernel-notes.md", "docs/protocol.md"]
# Not ours.
KERNELS_NAMES = {"tcp_sock"}


def text(root, name):
    return (root / name).read_text()


def series(root=PROJECT):
    if f"Linux {kernels.supported()}" not in text(root, "README.md"):
        yield f"README.md does not say that the module is for Linux {kernels.supported()}, as scripts/series does"


def supported(root=PROJECT):
    """Checks the table of supported systems in docs/install.md."""
    section = text(root, "docs/install.md").partition("## What is supported\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| ")][2:]
    if not rows:
        yield "docs/install.md has no table of what is supported"
    known = {suite.name for suite in suites.SUITES}
    for architecture, versions, pages, _, state, tests in rows:
        if versions != "any" and set(re.findall(r"\d+\.\d+", versions)) != set(kernels.SERIES):
            yield f"docs/install.md: {architecture} is supported with {versions}, and scripts/series has {kernels.supported()}"
        for name in re.findall(r"`([^`]+)`", tests):
            if name not in known and not name.startswith("make "):
                yield f"docs/install.md: {name}, which shows that {architecture} works, is no suite"
        if "packages, " in state and architecture not in re.findall(r"(?m)^Architecture: (.*)", text(root, "debian/control"))[0].split():
            yield f"docs/install.md: packages are for {architecture}, and debian/control is not"
        for flavour in kernels.FLAVOURS:
            size = flavour.partition("-")[2].replace("k", " KiB") or "4 KiB"
            if flavour.partition("-")[0] == architecture and tests != "none" and not any(row[0] == architecture and size in row[2] for row in rows):
                yield f"docs/install.md: the flavour {flavour} is missing"


def interfaces(root=PROJECT):
    """Checks that the table of interfaces in docs/install.md has exactly the cases of
    connect.interfaces."""
    section = text(root, "docs/install.md").partition("## Interfaces\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[-2] for line in section.splitlines() if line.startswith("| ")]
    named = {name if "." in name else f"connect.interfaces.{name}" for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    cases = {}
    for subject in {"connect.interfaces", *(name.rpartition(".")[0] for name in named)}:
        path = f"tests/guest/suites/{subject.replace('.', '/')}.py"
        found = re.findall(r"(?m)^@case.*\ndef (\w+)", text(root, path)) if (root / path).exists() else ()
        cases[subject] = {f"{subject}.{name}" for name in found}
    for name in sorted(named - set().union(*cases.values())):
        yield f"docs/install.md: {name}, which shows an interface, is no case"
    for name in sorted(cases["connect.interfaces"] - named):
        yield f"docs/install.md: the table of interfaces lacks {name}"


def counters(root=PROJECT):
    """Checks that each counter that the module prints in /proc/net/sdpstats has an entry in sdpstat
    --prometheus."""
    printed = re.findall(r'\bcounter\(\s*to,\s*"([^"]+)"', text(root, "src/socket/netns/proc.rs"))
    table = re.search(r"const LINES: .*?\n\];", text(root, "tools/sdpstat/src/openmetrics.rs"), re.S)[0]
    known = re.findall(r'^    \(\s*"([^"]+)"', table, re.M)
    for name in sorted({name for name in printed if not name.startswith("- ")} ^ set(known)):
        yield f"the counter `{name}` is in only one of src/socket/netns/proc.rs and LINES of tools/sdpstat/src/openmetrics.rs"


def parameters(root=PROJECT):
    """Checks that all lists of the module's parameters agree with src/sys/params.def."""
    rows = re.findall(r"^P\((\w+), (-?\d+), (-?\d+), (-?\w+), \d+, (NET|HOST),", text(root, "src/sys/params.def"), re.M)
    bounds = {name: (value, least, "-" if most == "INT_MAX" else most) for name, value, least, most, _ in rows}
    in_rust = {of: [name for name in names.split() if name != "forgotten"]
               for of, names in re.findall(r"^of_(\w+)! \{\n([^$}]*)\n\}", text(root, "src/sys/net/params.rs"), re.M)}
    told = {
        "docs/parameters.md": {name: match.groups()[1:] for match in re.finditer(r"^\| (`.*?`) \| (-?\d+) \| (-?\d+), (-|-?\d+) \|", text(root, "docs/parameters.md"), re.M)
                               for name in re.findall(r"\w+", match[1])},
        "tools/man/sdp.7": {name: (match[2],) for match in re.finditer(r"^\.It Ar (.*) No \((-?\d+)\)$", text(root, "tools/man/sdp.7"), re.M)
                            for name in match[1].split(" , ")},
        "tools/etc/modprobe.conf": {name: (value,) for name, value in re.findall(r"\b(\w+)=(-?\d+)", text(root, "tools/etc/modprobe.conf"))},
        "src/sys/net/params.rs": {name: () for part in in_rust.values() for name in part},
    }
    # parameters of a namespace are the same in C, in Rust and in the table of docs/parameters.md
    of_net = {name for name, *_, where in rows if where == "NET"}
    page = re.findall(r"^\| `net\.sdp\.(\w+)` \|", text(root, "docs/parameters.md"), re.M)
    for place, those in (("src/sys/net/params.rs", in_rust["namespace"]), ("docs/parameters.md", page)):
        for name in sorted(set(those) ^ of_net):
            yield f"{place}: the sysctl net.sdp.{name} is {'not' if name in of_net else 'only'} there"
    for place, those in told.items():
        for name in sorted(those.keys() ^ bounds.keys()):
            yield f"{place}: the parameter {name} is {'not' if name in bounds else 'only'} there"
        for name in sorted(those.keys() & bounds.keys()):
            if those[name] != bounds[name][:len(those[name])]:
                yield f"{place}: {name} is {', '.join(those[name])} there, and {', '.join(bounds[name])} (default, least, most) in src/sys/params.def"


def function(source, name):
    """Returns the text of a top-level function, formatted by rustfmt."""
    found = re.search(rf"^(?:pub.*? )?fn {name}\b.*?^\}}$", source, re.M | re.S)
    return found[0] if found else ""


def options(root=PROJECT):
    """Checks that the options of SOL_TCP that the module implements, with their bounds, are those
    of docs/parameters.md, and that a case tests each option. SDP's own options are also in sdp(7),
    in the tests' constants and in the code of IPPROTO_SDP sockets."""
    rows = re.findall(r"^\| (`(?:TCP|SDP)_[^|]+) \| ([^|]+) \|", text(root, "docs/parameters.md"), re.M)
    page = {name: values for names, values in rows for name in re.findall(r"`(\w+)`", names)}
    source = text(root, "src/socket/options.rs")
    taken = function(source, "set_tcp")
    set_names = set(re.findall(r"\bc::((?:TCP|SDP)_\w+)", taken))
    names = set_names | set(re.findall(r"\bc::((?:TCP|SDP)_\w+)", function(source, "get_tcp")))
    bounds = dict(re.findall(r"c::(\w+) => o\.\w+ = within\(([^)]*)\)", taken))
    for name in sorted(names ^ page.keys()):
        yield f"the option {name} is in only one of docs/parameters.md and src/socket/options.rs"
    for name in sorted(names & page.keys()):
        if ("read only" in page[name]) != (name not in set_names):
            yield f"docs/parameters.md: {name} can{'' if name in set_names else 'not'} be set"
        if name in bounds:
            least, most = (number(part) for part in bounds[name].split(","))
            if not re.search(rf"(^|[ ,]){least} to {most}\b", page[name]) and not (most == number("i32::MAX") and f"{least} and more" in page[name]):
                yield f"docs/parameters.md: {name} is `{page[name]}` there, and {least} to {most} in src/socket/options.rs"
    cases = "".join(path.read_text() for path in sorted((root / "tests/guest/suites").rglob("*.py")))
    for name in sorted(names - set(re.findall(r"\w+", cases))):
        yield f"no case in tests/guest/suites is about the option {name}"
    header, manual = text(root, "include/uapi/sdp.h"), text(root, "tools/man/sdp.7")
    tests, dual = text(root, "tests/guest/lib/consts.py"), text(root, "src/socket/ipproto/options.rs")
    tcp_lacks = set(re.findall(r"c::(SDP_\w+)", function(dual, "is_sdp") + function(dual, "is_route")))
    for name in sorted(name for name in names if name.startswith("SDP_")):
        value = re.search(rf"#define {name}\s+(\d+)", header)
        if not value or f".It Dv {name} No ({value[1]})" not in manual:
            yield f"{name} is not in sdp(7) with the number of include/uapi/sdp.h"
        elif f"`{name}` ({value[1]})" not in text(root, "docs/parameters.md"):
            yield f"docs/parameters.md does not have {name} with its number, ({value[1]})"
        elif f"\n{name} = {value[1]}\n" not in tests:
            yield f"tests/guest/lib/consts.py does not have {name} with the number of include/uapi/sdp.h"
        if name not in tcp_lacks:
            yield f"{name} is not in is_sdp() of src/socket/ipproto/options.rs, so that TCP gets the option"


def number(word):
    word = word.strip().replace("i32::MAX", str(2**31 - 1))
    shifted = re.fullmatch(r"(\d+) << (\d+)", word)
    return int(shifted[1]) << int(shifted[2]) if shifted else int(word)


def reasons(root=PROJECT):
    """Checks that the module's names of the reasons for TCP are the names in sdp(7)."""
    said = {name for name in re.findall(r'"TCP: ([a-z ]+)"', text(root, "src/conn/fallback.rs"))}
    told = re.search(r"with the reason\n\.Pq ([a-z ,]+) \.", text(root, "tools/man/sdp.7"))
    for name in sorted(said ^ set(told[1].split(", ") if told else ())):
        yield f"the reason `{name}` for TCP is in only one of src/conn/fallback.rs and tools/man/sdp.7"


def links(root, names):
    """Checks that every link of the documentation has a target, headings included."""
    for name in names:
        for target, _, heading in re.findall(r"\]\(([^)#:]*)(#([^):]+))?\)", text(root, name)):
            page = (root / name).parent / target if target else root / name
            if not page.exists():
                yield f"{name} points to {target}, which is not there"
            elif heading and heading not in headings(page.read_text()):
                yield f"{name} points to {target}#{heading}, and there is no such heading"


def purposes(root=PROJECT):
    """Checks that each page of docs/ begins with its purpose."""
    for path in sorted((root / "docs").glob("*.md")):
        lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith(("<!--", "#"))]
        if not lines or not re.match(r"(This page|Short answers) ", lines[0]):
            yield f"docs/{path.name}: the first sentence is not `This page answers ...`"


def headings(page):
    """Returns the anchors that a hosting site generates from the headings."""
    plain = (re.sub(r"[^\w\- ]", "", line.lower()) for line in re.findall(r"^#+ (.*)$", page, re.M))
    return {line.strip().replace(" ", "-") for line in plain}


def paths_in(word):
    """Returns the files or folders that a word of a page names: several if it has a part in braces.
    """
    braces = re.fullmatch(r"([\w./-]*)\{([\w.,-]+)\}([\w./-]*)", word)
    return [braces[1] + part + braces[3] for part in braces[2].split(",")] if braces else [word]


def named(root, tracked):
    """Checks that files and names of the code that a page mentions exist."""
    words = set()
    for name in tracked:
        if name.startswith(("src/", "tests/", "tools/", "include/", "qemu/", "scripts/")) and not name.endswith((".md", ".png")):
            words.update(re.findall(r"\w+", (root / name).read_text(errors="replace")))
    files = ["/" + name for name in tracked]
    folders = {name[:at + 1] for name in files for at in range(len(name)) if name[at] == "/"}
    for page in PAGES_OF_CODE + PAGES_OF_FILES:
        for line_number, line in enumerate(text(root, page).splitlines(), 1):
            for word in re.findall(r"`([^`]+)`", line):
                for path in paths_in(word):
                    file = re.fullmatch(r"[\w.-]+(/[\w.-]+)*\.(rs|c|h|py|def)", path) and not any(name.endswith("/" + path) for name in files)
                    folder = re.fullmatch(r"(src|tests|tools|scripts|qemu|docs)(/[\w.-]+)*/", path) and "/" + path not in folders
                    if file or folder:
                        yield f"{page}:{line_number}: there is no {path}"
                code = re.fullmatch(r"(?:[A-Za-z]\w*::)*([A-Z]\w*[a-z]\w*|[a-z]+_[a-z_]+)(?:\(\))?", word)
                if code and page in PAGES_OF_CODE and not set(re.findall(r"\w+", word)) <= words | KERNELS_NAMES:
                    yield f"{page}:{line_number}: `{word}` is nowhere in the sources"
