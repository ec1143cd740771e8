#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Subjects of commits are `area: imperative`: a part of make check.

Checks the commits after the commit that added this file. A shallow clone is checked as far as it
goes, and a tree without git not at all.
"""

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
OWN = "scripts/lib/subjects.py"
COLUMNS = 72
# One or several areas (folders or tools), then the imperative in lower case.
SUBJECT = re.compile(r"[a-z0-9][\w./-]*(, [a-z0-9][\w./-]*)*(: [a-z0-9][\w./-]*)?: [a-z0-9_`/.-]\S*( |$)|Revert \"")
# Forms other than the imperative: "adds", "added", "adding" for "add".
NOT_IMPERATIVE = re.compile(r": (adds?ed|(?:adds|fixes|removes|makes|uses|lets|moves|gives|has|is|are|says|sends|waits|takes|keeps|counts)|(?:added|fixed|removed|moved|changed)|"
                            r"(?:adding|fixing|removing|moving|making)) ")


def git(root, *words):
    result = subprocess.run(["git", "-c", f"safe.directory={root}", *words], cwd=root, capture_output=True, text=True)
    return result.stdout if not result.returncode else None


def wrong(subject):
    """Returns the complaint about a subject, or None."""
    if len(subject) > COLUMNS:
        return f"has {len(subject)} characters, and {COLUMNS} are allowed"
    if not SUBJECT.match(subject):
        return "is not `area: imperative`, in lower case"
    if NOT_IMPERATIVE.search(subject):
        return "is not in the imperative"
    return "is two commits: it has a semicolon" if ";" in subject else None


def complaints(root=PROJECT):
    # The last line is the first commit: the history of a shallow clone is cut off at this commit.
    added = (git(root, "log", "--diff-filter=A", "--format=%H", "--", OWN) or "").split()
    log = git(root, "log", "--no-merges", "--format=%h %s", f"{added[-1]}..HEAD") if added else ""
    for line in (log or "").splitlines():
        commit, _, subject = line.partition(" ")
        if why := wrong(subject):
            yield f"{commit} `{subject}` {why}"


def main():
    complained = list(complaints())
    print("\n".join(complained) or "the subjects of commits are `area: imperative`")
    return 1 if complained else 0


if __name__ == "__main__":
    sys.exit(main())
