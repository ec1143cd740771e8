# SPDX-License-Identifier: GPL-2.0-only
"""The debug kernel: scripts/debug.config on the stock kernel's source, compiled by LLVM.

Each combination of configuration, source and toolchain has a directory of its own, because
checkouts may differ: CACHE/kernel/debug-HASH/{vmlinux,tree,modules}. The kept tree holds only the
files that modules are built with.
"""

import os
import re

import cache
from cache import Failure, say

# Raise this when the recipe below changes so that earlier results are unusable.
RECIPE = 3
# Each byte of this file counts, comments too: a change recompiles the kernel.
CONFIG = cache.SCRIPTS / "debug.config"
# Number of debug kernels kept, including the one in use.
KEPT = 2
# Number of compiler jobs: twice the processors, because the longest of all suites waits for this
# kernel.
JOBS = 2 * os.cpu_count()

# Folders without KASAN, which costs half of the run time there: their code does not touch the
# module's memory, and faults of their own are not looked for. KASAN detects double frees and
# accesses between allocations without them. kernel, lib, net, io_uring, the RDMA drivers and fs
# itself keep it: they may use a freed work item, timer or wait queue of the module.
UNWATCHED = (
    "mm mm/kasan arch/% fs/% block block/% security security/% init ipc drivers/tty% drivers/char% drivers/virtio drivers/base% net/9p"
    " net/netfilter% kernel/entry kernel/trace kernel/bpf"
)

# Sources and objects of the kernel proper, with which no module is built.
UNNEEDED = (
    "Documentation LICENSES block certs crypto drivers fs init io_uring ipc kernel lib mm net samples security sound usr virt .af_sdp-debian".split()
)


def lost(wanted, got):
    """Returns the lines of a configuration fragment that the finished configuration does not agree
    with."""
    values = dict(re.findall(r"(?m)^(CONFIG_\w+)=(.*)$", got))
    for line in wanted.splitlines():
        on, off = re.match(r"(CONFIG_\w+)=(.*)$", line), re.match(r"# (CONFIG_\w+) is not set$", line)
        if on and values.get(on[1]) != on[2] or off and values.get(off[1], "n") != "n":
            yield line


def build(version, tools):
    """Returns the directory of the debug kernel that this checkout needs. Compiles it, if missing,
    from the stock kernel's unpacked source."""
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
    """Removes leftovers of killed builds, and all kernels but those used last. QEMU reads a kernel
    only at its start."""
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
        with cache.locked("kernel"):  # no other run is preparing the source
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
        # The kernel's own warnings are not about this project, and objtool takes an eighth of the
        # time.
        make("compiling", "vmlinux", "modules", "KCFLAGS=-w", f"KASAN_SANITIZE=$(if $(filter {UNWATCHED},$(obj)),n)")
        make("listing what is built in", f"INSTALL_MOD_PATH={new / 'modules'}", "modules_install")
        for link in (new / "modules").glob("lib/modules/*/build"):
            link.unlink()
        (tree / "vmlinux").rename(new / "vmlinux")
        strip_tree(tree)
        cache.put_in_place(new, piece, mark)
    say("kernel-debug", "ready")


def strip_tree(tree):
    """Keeps only the files that modules are built with: an eighth of the tree's size."""
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
