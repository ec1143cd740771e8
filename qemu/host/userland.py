# SPDX-License-Identifier: GPL-2.0-only
"""The guests' user land: a Debian root with the packages of `qemu/packages`. Runs with --programs
have a larger root, with the packages of `qemu/packages.programs` besides. The root of another
architecture has the packages of `qemu/packages.foreign`, unpacked and not configured, because their
programs do not run on this machine.

Each set of inputs has a directory of its own, because guests may still run from the previous root
after the inputs change. A run holds a shared lock on the root that it uses. A run that builds a new
root removes others that no run holds and that none has used for a day, since checkouts of two
versions may take turns.
"""

import contextlib
import fcntl
import os
import subprocess
import time
from pathlib import Path

import cache

# Raise RECIPE when the recipe below changes so that earlier results are unusable.
RECIPE = 1
# A root and its inputs: (name, MB, lists of packages).
BASE = "root", 2200, ("packages",)
PROGRAMS = "programs", 3200, ("packages", "packages.programs")
FOREIGN = 400, ("packages.foreign",)
UNUSED_SECONDS = 86400

QEMU = Path(__file__).resolve().parents[1]


def packages(lists):
    lines = (line.split("#")[0].strip() for name in lists for line in (QEMU / name).read_text().splitlines())
    return [line for line in lines if line]


@contextlib.contextmanager
def root(programs=False, architecture="amd64"):
    """Returns the path of the user land, made if missing, and kept from being removed while in
    use."""
    kind, megabytes, lists = (architecture, *FOREIGN) if architecture != "amd64" else PROGRAMS if programs else BASE
    names = packages(lists)
    mark = cache.fingerprint(RECIPE, cache.SUITE, names)
    piece = cache.make_root() / "guest" / f"{kind}-{mark[:12]}"
    with open(cache.root() / "lock" / piece.name, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        os.utime(lock.fileno())         # time of the last use
        if not cache.is_complete(piece, mark):
            with cache.locked(f"guest-{kind}"):
                if not cache.is_complete(piece, mark):
                    remove_unused(kind, piece)
                    build(piece, mark, names, megabytes, architecture)
        yield piece


def build(piece, mark, names, megabytes, architecture):
    cache.need_space("the guests' user land", megabytes)
    log = cache.root() / "log" / f"guest-{piece.name.partition('-')[0]}.log"
    log.unlink(missing_ok=True)
    unread = [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("man", "doc", "info", "locale")]
    # Without /usr/share/man/man1 the Java packages complain about the manual pages that are left
    # out.
    directories = ['--setup-hook=mkdir -p "$1/usr/share/man/man1"']
    with cache.building(piece) as new:
        cache.debian_root("guest", new, names, log, unread + directories, architecture=architecture)
        # Mount points of the guest, in which the user land itself is read-only.
        for point in ("share", "src", "lib/modules"):
            (new / point).mkdir(parents=True, exist_ok=True)
        cache.put_in_place(new, piece, mark)


def remove_unused(kind, kept):
    for old in kept.parent.glob(f"{kind}-*"):
        if old == kept:
            continue
        with open(cache.root() / "lock" / old.name, "a") as lock:
            if time.time() - os.fstat(lock.fileno()).st_mtime < UNUSED_SECONDS:
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            cache.remove(old)


def compile_python(root):
    """Compiles the guest tests with the root's own Python on the host, where that takes a second;
    in emulation each guest would take that much longer.

    Compiling leaves __pycache__ beside the sources, which guests only read. Without __pycache__ (in
    a root without Python, or in a read-only checkout) the guests compile the tests themselves."""
    libraries = root / "usr/lib/x86_64-linux-gnu"
    command = [root / "usr/lib64/ld-linux-x86-64.so.2", "--library-path", libraries, root / "usr/bin/python3", "-S", "-m", "compileall", "-q", cache.PROJECT / "tests/guest"]
    with contextlib.suppress(OSError):
        subprocess.run(command, env={"PYTHONHOME": str(root / "usr")}, stdin=subprocess.DEVNULL, capture_output=True)
