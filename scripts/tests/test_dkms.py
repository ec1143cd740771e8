# SPDX-License-Identifier: GPL-2.0-only
"""scripts/dkms/build, which DKMS runs, prints one line if something is missing."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
SCRIPTS = Path(__file__).resolve().parents[1]
PROJECT = SCRIPTS.parent
RUSTC = "rustc 1.85.1 (4eb161250 2025-03-15) (built from a source tarball)"
VERSION = "7.2.12+deb13-amd64"
CONFIG = f'CONFIG_CC_VERSION_TEXT="nonesuch-gcc-99 (Debian) 99"\nCONFIG_RUSTC_VERSION_TEXT="{RUSTC}"\nCONFIG_RUST=y\nCONFIG_DEBUG_INFO_BTF_MODULES=y\n'


class Build(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.bin, self.headers, self.cache, self.sources, self.modules = (self.folder / name for name in ("bin", "headers", "cache", "sources", "modules"))
        for directory in (self.bin, self.headers, self.sources, self.modules):
            directory.mkdir()
        (self.headers / ".config").write_text(CONFIG)
        (self.headers / "Module.symvers").touch()
        library = self.folder / "lib/rustlib/src/rust/library/core/src"
        library.mkdir(parents=True)
        (library / "lib.rs").touch()
        objtool = self.headers / "tools/objtool/objtool"
        objtool.parent.mkdir(parents=True)
        objtool.touch(0o755)
        self.program("rustc", f"[ $1 = --version ] && echo '{RUSTC}' || echo {self.folder}")
        self.program("bindgen", "")
        self.program("apt-get", "echo 'E: nothing is to be had here' >&2; exit 100")
        self.program("dpkg-query", 'case $4 in linux-headers-*) echo 7.2.12-1 ;; *) cat "$0.source" 2>/dev/null ;; esac')

    def program(self, name, text):
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def tree(self, where, mark):
        """Makes a tree that looks prepared, and whose make prints its arguments."""
        (where / "rust").mkdir(parents=True)
        (where / "rust/libkernel.rmeta").touch()
        (where / "Makefile").write_text("CONFIG_DEBUG_INFO_BTF_MODULES = y\n.PHONY: modules\nmodules:\n\t@echo building in $(M) for $(CURDIR) with $(CC), BTF [$(CONFIG_DEBUG_INFO_BTF_MODULES)]\n")
        if mark:
            (where / ".ib-sdp").write_text(mark)

    def environment(self):
        environment = dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}", IB_SDP_CACHE=str(self.cache), IB_SDP_SOURCES=str(self.sources),
                           IB_SDP_MODULES=str(self.modules))
        environment.pop("MAKEFLAGS", None)
        return environment

    def checked(self, status, pattern):
        """Runs dkms/build --check, which writes to standard error alone."""
        command = [f"{SCRIPTS}/dkms/build", "--check", VERSION, self.headers]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, env=self.environment())
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertRegex(done.stderr, pattern)

    def run_it(self, status, stderr=subprocess.PIPE):
        """Runs dkms/build as DKMS does, with all output in a log. Returns the log, and the standard
        error."""
        command = f"( eval '{SCRIPTS}/dkms/build {VERSION} {self.headers}' ) >>log 2>&1; exit $?"
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, stdout=subprocess.PIPE, stderr=stderr, text=True, env=self.environment())
        log = (self.folder / "log").read_text()
        (self.folder / "log").unlink()
        self.assertEqual(done.returncode, status, log + (done.stderr or ""))
        return log, done.stderr

    def complains(self, pattern, lines=1):
        """The last of the lines on standard error has the reason."""
        log, seen = self.run_it(1)
        seen = [line for line in seen.splitlines() if line]
        self.assertEqual(len(seen), lines, seen)
        self.assertRegex(seen[-1], f"^ib-sdp: .*{pattern}")
        self.assertIn(seen[-1], log)

    def test_no_source(self):
        wrong = (r"no module for kernel 7\.2\.12\+deb13-amd64: there is no .*/linux-source-7\.2\.tar\.xz, and fetching it failed "
                 r"\(E: nothing is to be had here\)\. Type: apt update && apt install linux-source-7\.2=7\.2\.12-1 && "
                 r"dkms autoinstall -k 7\.2\.12\+deb13-amd64$")
        self.complains(wrong, 2)
        self.checked(1, r"\Aib-sdp: fetching linux-source-7\.2=.*\nib-sdp: " + wrong)

    def test_the_callers_own_log(self):
        """Messages are appended to the caller's log, and its contents are kept."""
        path = self.folder / "apt.log"
        path.write_text("what was there\n")
        with open(path, "a") as file:
            log, _ = self.run_it(1, stderr=file)
        self.assertIn("there is no", log)
        self.assertRegex(path.read_text(), r"\Awhat was there\n\nib-sdp: fetching .*\n\nib-sdp: no module for .*\n\Z")

    def test_source_of_another_version(self):
        (self.sources / "linux-source-7.2.tar.xz").touch()
        (self.bin / "dpkg-query.source").write_text("7.2.13-1")
        self.complains(r"linux-source-7\.2 is version 7\.2\.13-1, and it was built from 7\.2\.12-1, and .*apt install linux-source-7\.2=7\.2\.12-1 ", 2)

    def test_another_compiler(self):
        self.program("rustc", "echo rustc 1.99.0")
        wrong = rf"was built with {re.escape(RUSTC)}, and .*/bin/rustc is rustc 1\.99\.0\. Type: apt install rustc/\w+ rust-src/\w+ "
        self.complains(wrong)
        self.checked(1, rf"\Aib-sdp: .*{wrong}.*\n\Z")

    def test_no_source_of_the_library(self):
        (self.folder / "lib/rustlib/src/rust/library/core/src/lib.rs").unlink()
        self.checked(1, r"\Aib-sdp: .* the source of Rust's library is not in .*\. Type: apt install rustc/.*\n\Z")

    def test_no_headers(self):
        (self.headers / ".config").unlink()
        self.complains(rf"Type: apt install linux-headers-{re.escape(VERSION)} ")

    def test_headers_without_tools(self):
        (self.headers / "tools/objtool/objtool").unlink()
        self.program("gcc", "exit 1")
        self.checked(1, r"\Aib-sdp: .*no objtool.* Type: apt install libelf-dev && ")

    def test_nothing_is_missing(self):
        (self.sources / "linux-source-7.2.tar.xz").touch()
        self.checked(0, r"\A\Z")

    def test_no_space(self):
        (self.sources / "linux-source-7.2.tar.xz").touch()
        self.program("df", "echo Avail; echo ' 17M'")
        self.complains(r"takes 800 MB in .*, and 17 MB are free$")

    def test_a_damaged_source(self):
        (self.sources / "linux-source-7.2.tar.xz").write_text("no archive")
        log, seen = self.run_it(2)
        self.assertIn("the reason is in DKMS's make.log", seen.splitlines()[-1])
        # No directory is left that a later run could mistake for a tree.
        self.assertEqual([path.name for path in self.cache.iterdir()], [".lock"])

    def test_the_source_that_is_kept(self):
        """The prepared tree has the sources of the kernel's own processor."""
        top = self.folder / "linux-source-7.2"
        for name in ("x86", "arm64", "s390"):
            (top / "arch" / name).mkdir(parents=True)
            (top / "arch" / name / "asm-offsets.c").touch()
        (top / "tools/objtool").mkdir(parents=True)
        (top / "Makefile").write_text("%:\n\t@:\n")
        subprocess.run(["tar", "-C", self.folder, "-cJf", self.sources / "linux-source-7.2.tar.xz", top.name], check=True)
        for config, own in (("", "x86"), ("CONFIG_ARM64=y\n", "arm64")):
            (self.headers / ".config").write_text(CONFIG + config)
            self.run_it(0)
            tree = self.cache / VERSION / "arch"
            self.assertEqual([path.parent.name for path in tree.glob("*/*.c")], [own])

    def test_trees_of_kernels_that_are_gone(self):
        (self.sources / "linux-source-7.2.tar.xz").write_text("no archive")
        for kernel in ("7.2.1", "7.2.2"):
            self.tree(self.cache / kernel, "1 0 0\n")
        (self.modules / "7.2.2/build").mkdir(parents=True)
        (self.cache / "other").mkdir()
        self.run_it(2)
        self.assertEqual({path.name for path in self.cache.iterdir()}, {".lock", "7.2.2", "other"})

    def test_a_prepared_tree_is_kept(self):
        checksum = subprocess.run(["cksum"], input=CONFIG, capture_output=True, text=True).stdout
        self.tree(self.cache / VERSION, f"1 7.2.12-1 {checksum}")
        log, seen = self.run_it(0)
        self.assertEqual(seen, "")
        self.assertIn(f"building in {self.folder} for {self.cache / VERSION} with gcc, BTF []", log)

    def test_btf(self):
        """The BTF of the kernel is taken from its image. An image without BTF does no harm."""
        checksum = subprocess.run(["cksum"], input=CONFIG, capture_output=True, text=True).stdout
        tree, image = self.cache / VERSION, self.modules / VERSION / "vmlinuz"
        self.tree(tree, f"1 7.2.12-1 {checksum}")
        (tree / "scripts").mkdir()
        (tree / "scripts/extract-vmlinux").write_text('cat "$1"')
        image.parent.mkdir()
        # The host may have no binutils.
        self.program("objcopy", 'grep -q BTF "$3" && cp "$3" "${2#.BTF=}"')
        image.write_text("none")
        log, _ = self.run_it(0)
        self.assertIn(f"no BTF in {image}", log)
        self.assertIn("with gcc, BTF []", log)
        image.write_text("BTF")
        log, _ = self.run_it(0)
        self.assertEqual(((tree / "vmlinux").read_text(), "with gcc, BTF [y]" in log), ("BTF", True), log)
        self.assertFalse(list(tree.glob(".btf-*")))

    def test_a_tree_of_other_headers_is_not_taken(self):
        def checksum(text):
            return subprocess.run(["cksum"], input=text, capture_output=True, text=True).stdout

        self.tree(self.cache / VERSION, None)
        for mark in ("1 0 0\n", f"1 7.2.12-1 {checksum(CONFIG + ' ')}", f"1 7.2.12-2 {checksum(CONFIG)}"):
            (self.cache / VERSION / ".ib-sdp").write_text(mark)
            self.complains("there is no .*/linux-source", 2)
        (self.headers / "Module.symvers").write_text("0x0\tib_register_client\tib_core\tEXPORT_SYMBOL\t\n")
        (self.cache / VERSION / ".ib-sdp").write_text(f"1 7.2.12-1 {checksum(CONFIG)}")
        self.complains("there is no .*/linux-source", 2)

    def test_a_module_of_make_install(self):
        there = self.modules / VERSION / "updates/ib_sdp.ko"
        (there.parent / "dkms").mkdir(parents=True)
        there.touch()
        self.program("dpkg-query", "exit 1")
        self.checked(1, rf"\Aib-sdp: .*{re.escape(str(there))} is there, of make install\. Type: make uninstall && dkms autoinstall .*\n\Z")
        self.program("dpkg-query", f"echo ib-sdp-modules-{VERSION}: {there}")
        self.checked(1, rf"\Aib-sdp: .*Type: apt purge ib-sdp-modules-{re.escape(VERSION)} && dkms .*\n\Z")
        there.rename(there.parent / "dkms/ib_sdp.ko.xz")
        (self.sources / "linux-source-7.2.tar.xz").touch()
        self.program("dpkg-query", "echo 7.2.12-1")
        self.checked(0, r"\A\Z")

    def fetched(self, source):
        """Makes apt return a package whose archive has this text."""
        self.program("apt-get", f"shift 6; [ $# = 1 ] && touch source.deb && echo $1 >{self.folder}/asked")
        self.program("dpkg-deb", f"mkdir -p {self.folder}/usr/src && cd {self.folder} && printf '{source}' >usr/src/linux-source-7.2.tar.xz && tar -c ./usr")

    def test_a_source_that_apt_has(self):
        """The source is fetched in the version of the kernel, not in the installed version, and is
        not kept."""
        (self.sources / "linux-source-7.2.tar.xz").touch()
        (self.bin / "dpkg-query.source").write_text("7.2.13-1")
        self.fetched("no archive")
        log, seen = self.run_it(2)
        self.assertEqual((self.folder / "asked").read_text(), "linux-source-7.2=7.2.12-1\n")
        self.assertIn("fetching linux-source-7.2=7.2.12-1, from which kernel", seen)
        self.assertIn("File format not recognized", log)
        self.assertEqual([path.name for path in self.cache.iterdir()], [".lock"])

    def test_a_source_is_fetched_once(self):
        """--check fetches the source for the build."""
        self.fetched("no archive")
        self.checked(0, r"\Aib-sdp: fetching linux-source-7\.2=7\.2\.12-1, .*\n\Z")
        (self.folder / "asked").unlink()
        self.checked(0, r"\A\Z")
        log, seen = self.run_it(2)
        self.assertIn("File format not recognized", log)
        self.assertFalse((self.folder / "asked").exists())
        self.assertEqual([path.name for path in self.cache.iterdir()], [".lock"])

    def test_a_tree_that_the_kernel_was_built_in(self):
        self.tree(self.headers, None)
        log, seen = self.run_it(0)
        self.assertIn(f"for {self.headers} with", log)
        self.assertFalse(self.cache.exists())


class Configuration(unittest.TestCase):
    def test_directives(self):
        """dkms.conf is read by bash."""
        script = 'kernelver=7.2.0 kernel_source_dir=/k; . "$1"; echo "${MAKE[0]}|${BUILT_MODULE_NAME[0]}|$BUILD_EXCLUSIVE_KERNEL"'
        said = subprocess.run(["bash", "-ec", script, "bash", SCRIPTS / "dkms/dkms.conf"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(said, "dkms/build 7.2.0 /k|ib_sdp|^(#SERIES#)([.-]|$)\n")

    def test_a_build_that_cannot_succeed_is_skipped(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "dkms").mkdir()
            (folder / "dkms.conf").write_text((SCRIPTS / "dkms/dkms.conf").read_text().replace("#SERIES#", r"7\.2"))
            (folder / ".config").write_text(CONFIG)
            (folder / "dkms/build").write_text('#!/bin/sh\necho "$@" >&2\nexit "$STATUS"\n')
            (folder / "dkms/build").chmod(0o755)

            def said(action, kernel, status):
                script = 'action=$1 kernelver=$2 kernel_source_dir=$3; . "$3/dkms.conf"; [[ $2 =~ $BUILD_EXCLUSIVE_KERNEL ]] && echo built || echo skipped'
                done = subprocess.run(["bash", "-c", script, "bash", action, kernel, name], capture_output=True, text=True, env=dict(os.environ, STATUS=status))
                return done.stdout.strip(), done.stderr.strip()

            checked = f"--check {VERSION} {name}"
            for action in ("build", "install", "autoinstall"):
                self.assertEqual(said(action, VERSION, "0"), ("built", checked))
                self.assertEqual(said(action, VERSION, "1"), ("skipped", checked))
            # DKMS prints nothing where nothing is built, or for a kernel that the module does not
            # support.
            self.assertEqual(said("status", VERSION, "1"), ("built", ""))
            self.assertEqual(said("autoinstall", "7.20.1", "1"), ("skipped", ""))
            (folder / ".config").write_text("")
            self.assertEqual(said("autoinstall", VERSION, "1"), ("built", ""))

    def test_the_same_compilers(self):
        """The commands that preparing needs are those that scripts/prepare installs."""
        control = (PROJECT / "debian/control").read_text()
        field = re.search(r"(?m)^Package: ib-sdp-dkms\n(?:.*\n)*?Depends: ((?:.*\n)(?: .*\n)*)", control)[1]
        packages = {re.match(r"\s*([\w.+-]+)", part)[1] for part in field.replace("${", "").split(",")}
        own = set(re.search(r'PACKAGES = \(\s*"([^"]*)"\s*"([^"]*)"', (SCRIPTS / "prepare").read_text()).expand(r"\1\2").split())
        # Packages of the debug kernel, of the host's tools, and of the programs that unpack
        # packages.
        others = {"clang", "llvm", "lld", "cargo", "rustfmt", "rust-clippy", "zstd", "cpio", "kmod", "dwarves",
                  # The kernel's headers name the compilers.
                  "libelf-dev", "libdw-dev"}
        self.assertEqual(own - others - packages, set())


if __name__ == "__main__":
    unittest.main()
