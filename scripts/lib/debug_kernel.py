# SPDX-License-Identifier: GPL-2.0-only
"""The debug kernel: scripts/debug.config on the stock kernel's source, compiled by LLVM.

A configuration, a source and a toolchain have a directory of their own, because other checkouts may
be using another one: CACHE/kernel/debug-HASH/{vmlinux,tree,modules}. Its tree holds only what modules are
built with.
"""

import os
import re

import cache
from cache import Failure, say

# Raise this when the recipe below changes in a way that what it built before is no longer good.
RECIPE = 3
# Each byte of it counts, comments too: what changes there has the kernel compiled anew.
CONFIG = cache.SCRIPTS / "debug.config"
# How many are kept, the one in use included.
KEPT = 2
# Twice as many as processors: the longest of all suites waits for it, and those beside it wait for nothing.
JOBS = 2 * os.cpu_count()

# Left out of KASAN, which costs half of the time there: these folders do not touch the module's memory, or nobody looks for their own
# faults here. What is freed twice, and what lies between allocations, is found without. kernel, lib, net, io_uring, the RDMA
# drivers and fs itself stay in: there a work item, a timer or a wait queue of the module's is used after it was freed.
UNWATCHED = (
    "mm mm/kasan arch/% fs/% block block/% security security/% init ipc drivers/tty% drivers/char% drivers/virtio drivers/base% net/9p"
    " net/netfilter% kernel/entry kernel/trace kernel/bpf"
)

# What no module is built with: sources and objects of the kernel proper.
UNNEEDED = (
    "Documentation LICENSES block certs crypto drivers fs init io_uring ipc kernel lib mm net samples security sound usr virt .af_sdp-debian".split()
)


def lost(wanted, got):
    """The lines of a configuration fragment that the finished configuration does not agree with."""
    values = dict(re.findall(r"(?m)^(CONFIG_\w+)=(.*)$", got))
    for line in wanted.splitlines():
        on, off = re.match(r"(CONFIG_\w+)=(.*)$", line), re.match(r"# (CONFIG_\w+) is not set$", line)
        if on and values.get(on[1]) != on[2] or off and values.get(off[1], "n") != "n":
            yield line


def build(version, tools):
    """The directory of the debug kernel that this checkout wants, compiled if missing from the unpacked source of the stock kernel."""
    mark = cache.fingerprint(RECIPE, version, tools, CONFIG.read_text())
    kernels = cache.make_root() / "kernel"
    piece = kernels / f"debug-{mark[:12]}"
    if not cache.is_complete(piece, mark):
        with cache.locked("kernel-debug"):
            if not cache.is_complete(piece, mark):
                remove_old(kernels, piece)
                compile_all(version, piece, mark)
    os.utime(piece)
    return piece


def remove_old(kernels, piece):
    """Leftovers of builds that were killed, and all but the kernels used last. QEMU reads a kernel when it starts only."""
    for left in kernels.glob(".debug-*"):
        cache.remove(left)
    others = [path for path in kernels.glob("debug-*") if path != piece]
    for path in sorted(others, key=lambda path: path.stat().st_mtime)[:-(KEPT - 1)]:
        cache.remove(path)


def compile_all(version, piece, mark):
    say("kernel-debug", f"compiling a debug kernel from the source of {version}: 10 to 20 minutes on 2 cores, once")
    cache.need_space("the debug kernel", 5000)
    log = cache.root() / "log" / "kernel-debug.log"
    log.unlink(missing_ok=True)
    with cache.building(piece) as new:
        tree = new / "tree"
        with cache.locked("kernel"):  # nobody is preparing the source meanwhile
            cache.run("kernel-debug", "copying the source", ["cp", "-a", "--reflink=auto", cache.root() / "kernel" / version / "tree", tree], log)

        def make(what, *words):
            cache.run("kernel-debug", what, [cache.SCRIPTS / "in-toolchain", "--dir", tree, "make", "LLVM=1", f"-j{JOBS}", *words], log)

        make("cleaning the copy", "mrproper")
        for name in (cache.STAMP, ".af_sdp-preparing"):
            (tree / name).unlink(missing_ok=True)
        (tree / "debug.config").write_text(CONFIG.read_text())
        make("configuring", "KCONFIG_ALLCONFIG=debug.config", "allnoconfig")
        missing = list(lost(CONFIG.read_text(), (tree / ".config").read_text()))
        if missing:
            raise Failure(f"kernel {version} does not take these lines of {CONFIG}:\n  " + "\n  ".join(missing))
        # Its warnings are not ours, and looking for them takes an eighth of the time.
        make("compiling", "vmlinux", "modules", "KCFLAGS=-w", f"KASAN_SANITIZE=$(if $(filter {UNWATCHED},$(obj)),n)")
        make("listing what is built in", f"INSTALL_MOD_PATH={new / 'modules'}", "modules_install")
        for link in (new / "modules").glob("lib/modules/*/build"):
            link.unlink()
        (tree / "vmlinux").rename(new / "vmlinux")
        strip_tree(tree)
        cache.put_in_place(new, piece, mark)
    say("kernel-debug", "ready")


def strip_tree(tree):
    """Leave what modules are built with: an eighth of it."""
    for name in UNNEEDED:
        cache.remove(tree / name)
    for other in (tree / "arch").iterdir():
        if other.is_dir() and other.name != "x86":
            cache.remove(other)
    for other in (tree / "tools").iterdir():
        if other.is_dir() and other.name not in ("objtool", "include", "build"):
            cache.remove(other)
    for path in (tree / "arch/x86").rglob("*.[oac]"):
        path.unlink()
    for path in tree.glob("vmlinux*"):
        if path.name != "vmlinux.symvers":
            path.unlink()
