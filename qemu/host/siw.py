# SPDX-License-Identifier: GPL-2.0-only
"""Builds siw.ko, iWARP over TCP, from the unpacked source of the guest's kernel.

Debian's kernels leave siw out.
"""

import re
import shlex

import cache

# Raise RECIPE when the recipe below changes so that earlier results are unusable.
RECIPE = 2
SOURCE = "drivers/infiniband/sw/siw"


def module(kernel):
    """Returns the path of siw.ko for a boot.Kernel, built in the cache if missing or outdated."""
    tree = kernel.home / "tree"
    source = tree / SOURCE
    if kernel.debug:
        # The debug kernel's tree has no drivers: siw.ko is made from the stock kernel's source.
        stock = f"{kernel.version.removesuffix('-debug')}+*-amd64/tree/{SOURCE}"
        source = next((cache.root() / "kernel").glob(stock), source)
    if not (source / "Makefile").exists() or not (tree / "Module.symvers").exists():
        raise cache.Failure(f"kernel {kernel.version} has no source of siw to build, so --rdma siw does not work with it")
    files = sorted(path for path in source.iterdir() if path.suffix in (".c", ".h") or path.name == "Makefile")
    mark = cache.fingerprint(RECIPE, kernel.mark(), [(path.name, path.read_bytes()) for path in files], (tree / "Module.symvers").stat().st_mtime_ns)
    piece = kernel.home / "siw"
    if not cache.is_complete(piece, mark):
        with cache.locked(f"siw-{kernel.home.name}"):
            if not cache.is_complete(piece, mark):
                cache.need_space("siw", 100)
                with cache.building(piece) as new:
                    build(kernel, tree, files, new)
                    cache.put_in_place(new, piece, mark)
    return piece / "siw.ko"


def build(kernel, tree, files, new):
    work = new / "work"
    work.mkdir()
    for path in files:
        text = path.read_text()
        if kernel.debug:
            # lockdep ends with its first report, which this lock of siw causes
            # (docs/kernel-notes.md).
            text = re.sub(r"\bread_(un)?lock\(&sk->sk_callback_lock\)", r"read_\1lock_bh(&sk->sk_callback_lock)", text)
        (work / path.name).write_text(text)
    arguments = [f"KERNELRELEASE={kernel.version}"] if not kernel.debug else []
    arguments += ["LLVM=1"] if "CONFIG_CC_IS_CLANG=y" in (tree / ".config").read_text() else []
    # The tree has no vmlinux from which BTF could be made. Debugging information would be most of
    # the module.
    command = f"make -s -C {shlex.quote(str(tree))} {' '.join(arguments)} M={shlex.quote(str(work))} CONFIG_RDMA_SIW=m CONFIG_DEBUG_INFO_BTF_MODULES= modules"
    # For another architecture in-toolchain sets CROSS_COMPILE.
    command += f" && ${{CROSS_COMPILE}}strip --strip-debug {shlex.quote(str(work))}/siw.ko"
    cache.say("siw", f"building it for kernel {kernel.version}")
    cache.output([cache.SCRIPTS / "in-toolchain", "--root", kernel.root, "--dir", "/", "sh", "-c", command])
    (work / "siw.ko").rename(new / "siw.ko")
    cache.remove(work)
