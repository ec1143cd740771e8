# SPDX-License-Identifier: GPL-2.0-only
"""Builds the files that a guest boots from: a kernel and a small initramfs."""

import lzma
import os
import shlex
import shutil
import struct
import subprocess
from pathlib import Path

import cache
import kernels
import tsc
from cache import Failure

# Raise RECIPE when the recipe below changes so that earlier results are unusable.
RECIPE = 2

CROSS_COMPILER = {"arm64": "aarch64-linux-gnu-gcc"}

INSIDE = Path(__file__).resolve().parents[1] / "inside"

# Modules for mounting the user land, and for the network. The guest loads the two sets side by
# side. A name that the kernel's list of modules lacks is assumed to be built in.
ROOT_MODULES = ["9pnet_virtio", "9p", "overlay"]
NETWORK_MODULES = ["veth", "virtio_net", "rdma_rxe", "rdma_ucm", "ib_uverbs", "ib_umad", "rdma_cm", "ib_cm", "ipv6"]


class Kernel:
    """Paths of the parts of one kernel in the cache."""

    def __init__(self, name):
        words = {"stock": [], "debug": ["debug"]}.get(name, ["--kernel", name])
        self.home = Path(prepare("--where", *words))
        # The compilers that the kernel was built with.
        self.root = (self.home / "root" if (self.home / "root").exists() else cache.root() / "toolchain").resolve()
        debug = self.debug = name == "debug"
        # The debug kernel is built unpacked.
        self.image = self.home / ("vmlinux" if debug else "vmlinuz")
        versions = sorted((self.home / "modules/lib/modules").glob("*/modules.dep"))
        self.modules = versions[-1].parent if versions else None
        self.version = (self.home / "tree/include/config/kernel.release").read_text().strip()
        self.architecture = kernels.architecture_of(self.version)

    def arguments(self, accel):
        """Returns arguments for the kernel that only this kernel needs."""
        if self.architecture != "amd64":
            return []
        # The debug kernel counts ticks in spite of the TSC. A busy host loses ticks, which makes
        # the time-outs of the slow debug kernel longer, as it needs.
        return ["tsc=unstable" if self.debug else "tsc=reliable", *tsc.argument(accel)]

    def mark(self):
        about = self.image.stat()
        return (str(self.home), about.st_size, about.st_mtime_ns)


def prepare(*words):
    """Runs scripts/prepare. Runs scripts/prepare, and returns its output."""
    done = subprocess.run([cache.SCRIPTS / "prepare", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failure(f"scripts/prepare {' '.join(words)} failed (status {done.returncode})")
    return done.stdout.strip()


def files(kernel):
    """Returns (kernel image, initramfs) to boot, made if missing."""
    sources = sorted(path for path in INSIDE.rglob("*") if path.is_file())
    mark = cache.fingerprint(RECIPE, kernel.mark(), ROOT_MODULES, NETWORK_MODULES, [path.read_bytes() for path in sources])
    piece = cache.make_root() / "guest" / f"boot-{mark[:12]}"
    if not cache.is_complete(piece, mark):
        with cache.locked("guest-boot"):
            if not cache.is_complete(piece, mark):
                cache.need_space("what the guests boot from", 200)
                remove_old(piece)
                with cache.building(piece) as new:
                    build(kernel, new)
                    cache.put_in_place(new, piece, mark)
    image = piece / "vmlinux"
    return (image if image.exists() else kernel.image), piece / "initramfs"


def remove_old(kept):
    """Removes old boot files except a few: QEMU reads boot files at its start only, and a run may
    be starting."""
    old = sorted(kept.parent.glob("boot-*"), key=lambda path: path.stat().st_mtime)
    for path in old[:-4]:
        cache.remove(path)


def build(kernel, new):
    agent = compile_agent(kernel, new)
    extract_image(kernel.image, new / "vmlinux")
    archive = Archive()
    archive.directory("dev")
    archive.node("dev/console", 5, 1)
    archive.node("dev/null", 1, 3)
    for name in ("proc", "sys", "new", "layer", "lower", "lower-modules", "modules"):
        archive.directory(name)
    archive.file("init", agent.read_bytes(), 0o755)
    archive.file("setup", (INSIDE / "setup").read_bytes(), 0o755)
    loaded = set()
    for name, modules in (("root", ROOT_MODULES), ("network", NETWORK_MODULES)):
        order = []
        for module in modules:
            for path in with_dependencies(kernel, module):
                if path not in loaded:
                    loaded.add(path)
                    order.append(path)
        names = []
        for path in order:
            # Modules are unpacked here, once, rather than in every guest.
            data = unsigned(lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes())
            names.append(path.name.removesuffix(".xz"))
            archive.file(f"modules/{names[-1]}", data)
        archive.file(f"modules/{name}", "".join(f"{name}\n" for name in names).encode())
    module = compile_module(kernel, new)
    if module:
        archive.file("modules/stale_int3.ko", module)
        archive.file("modules/emulated", b"stale_int3.ko\n")
    (new / "initramfs").write_bytes(archive.bytes())
    agent.unlink()


def unsigned(module):
    """Returns a kernel module without its signature. In emulation verifying the signature takes
    longer than loading the module."""
    mark = b"~Module signature appended~\n"
    if not module.endswith(mark):
        return module
    # Before the mark is struct module_signature, 12 bytes. These 12 bytes end in the length of the
    # signature before them.
    end = len(module) - len(mark)
    return module[:end - 12 - int.from_bytes(module[end - 4:end], "big")]


def with_dependencies(kernel, name):
    """Returns the files of a module and of its dependencies, in the order of loading."""
    if not kernel.modules:
        return []
    wanted = name.replace("-", "_")
    for line in (kernel.modules / "modules.dep").read_text().splitlines():
        path, _, needed = line.partition(":")
        if os.path.basename(path).split(".")[0].replace("-", "_") == wanted:
            return [kernel.modules / part for part in (*reversed(needed.split()), path)]
    return []


def compile_agent(kernel, new):
    """Compiles the first process of the guests. The first process is linked statically, because it
    runs before the user land is mounted, and in any user land."""
    sources = sorted(INSIDE.glob("*.c"))
    result = new / "agent"
    command = ["cc", "-static", "-O2", "-Wall", "-o", result, *sources]
    if kernel.architecture != "amd64":
        command[0] = CROSS_COMPILER[kernel.architecture]
    if shutil.which(command[0]) and subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0:
        return result
    # This machine has no compiler, or no static C library: the root that the kernel is prepared in
    # has both.
    cache.output([cache.SCRIPTS / "in-toolchain", "--root", kernel.root, "--dir", "/", *command])
    return result


def compile_module(kernel, new):
    """Compiles stale_int3.ko, which emulation with several processors needs: stale_int3.c gives the
    reason."""
    tree = kernel.home / "tree"
    if kernel.architecture != "amd64" or not (tree / "Module.symvers").exists():
        return None
    # The toolchain sees the work directory, and the checkout stays clean.
    work = new / "stale_int3"
    shutil.copytree(INSIDE / "stale_int3", work)
    llvm = ["LLVM=1"] if "CONFIG_CC_IS_CLANG=y" in (tree / ".config").read_text() else []
    release = [] if kernel.debug else [f"KERNELRELEASE={kernel.version}"]
    # Without debugging information, which would be nearly all of the module's size.
    command = f"make -s -C {shlex.quote(str(tree))} {' '.join(llvm + release)} M={shlex.quote(str(work))} modules && strip --strip-debug {shlex.quote(str(work))}/stale_int3.ko"
    cache.output([cache.SCRIPTS / "in-toolchain", "--root", kernel.root, "--dir", "/", "sh", "-c", command])
    module = (work / "stale_int3.ko").read_bytes()
    cache.remove(work)
    return module


def extract_image(vmlinuz, result):
    """Returns the kernel proper, out of its compressed image.

    QEMU starts an unpacked kernel by PVH, past the real-mode start and without unpacking anything
    in emulation, which saves two seconds of every boot. If unpacking fails, the compressed image
    boots.
    """
    image = vmlinuz.read_bytes()
    if image[0x202:0x206] != b"HdrS":
        return
    sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[(sectors + 1) * 512 + offset:][:length - 4]
    if payload[:4] != b"\x28\xb5\x2f\xfd":
        return
    if shutil.which("zstd"):
        zstd = ["zstd"]
    elif (cache.root() / "toolchain/usr/bin/zstd").exists():
        zstd = [cache.SCRIPTS / "in-toolchain", "--dir", "/", "zstd"]
    else:
        return
    with open(result, "wb") as file:
        done = subprocess.run([*zstd, "-dcq"], input=payload, stdout=file, stderr=subprocess.DEVNULL)
    if done.returncode:
        result.unlink()


class Archive:
    """A cpio archive that the kernel unpacks."""

    def __init__(self):
        self._parts = []
        self._number = 0

    def _add(self, name, mode, data=b"", device=(0, 0)):
        self._number += 1
        fields = (self._number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        self._parts += [head, bytes(-len(head) % 4), data, bytes(-len(data) % 4)]

    def directory(self, name):
        self._add(name, 0o040755)

    def file(self, name, data, mode=0o644):
        self._add(name, 0o100000 | mode, data)

    def node(self, name, major, minor):
        self._add(name, 0o020600, device=(major, minor))

    def bytes(self):
        self._add("TRAILER!!!", 0)
        self._number = 0
        data = b"".join(self._parts)
        return data + bytes(-len(data) % 512)
