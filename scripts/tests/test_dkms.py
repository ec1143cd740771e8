# SPDX-License-Identifier: GPL-2.0-only
"""What DKMS runs (scripts/dkms/build), where something is missing: one line, which reaches who started DKMS."""

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
CONFIG = f'CONFIG_CC_VERSION_TEXT="nonesuch-gcc-99 (Debian) 99"\nCONFIG_RUSTC_VERSION_TEXT="{RUSTC}"\nCONFIG_RUST=y\n'


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
        self.program("rustc", f"echo '{RUSTC}'")
        self.program("bindgen", "")
        self.program("apt-get", "echo 'E: nothing is to be had here' >&2; exit 100")
        self.program("dpkg-query", 'case $4 in linux-headers-*) echo 7.2.12-1 ;; *) cat "$0.source" 2>/dev/null ;; esac')

    def program(self, name, text):
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def tree(self, where, mark):
        """One that looks prepared, and whose make says what it was told."""
        (where / "rust").mkdir(parents=True)
        (where / "rust/libkernel.rmeta").touch()
        (where / "Makefile").write_text(".PHONY: modules\nmodules:\n\t@echo building in $(M) for $(CURDIR) with $(CC), BTF [$(CONFIG_DEBUG_INFO_BTF_MODULES)]\n")
        if mark:
            (where / ".ib-sdp").write_text(mark)

    def run_it(self, status, stderr=subprocess.PIPE):
        """As DKMS does it: with all output in a log. Returns the log, and what is seen besides."""
        environment = dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}", IB_SDP_CACHE=str(self.cache), IB_SDP_SOURCES=str(self.sources),
                           IB_SDP_MODULES=str(self.modules))
        environment.pop("MAKEFLAGS", None)
        command = f"( eval '{SCRIPTS}/dkms/build {VERSION} {self.headers}' ) >>log 2>&1; exit $?"
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
        log = (self.folder / "log").read_text()
        (self.folder / "log").unlink()
        self.assertEqual(done.returncode, status, log + (done.stderr or ""))
        return log, done.stderr

    def complains(self, pattern, lines=1):
        """The last of so many lines says so."""
        log, seen = self.run_it(1)
        seen = [line for line in seen.splitlines() if line]
        self.assertEqual(len(seen), lines, seen)
        self.assertRegex(seen[-1], f"^ib-sdp: .*{pattern}")
        self.assertIn(seen[-1], log)

    def test_no_source(self):
        self.complains(r"there is no .*/linux-source-7\.2\.tar\.xz: apt install linux-source-7\.2=7\.2\.12-1 "
                       r"\(fetching it failed: E: nothing is to be had here\)$", 2)

    def test_the_callers_own_log(self):
        """What is told is added to a file, whatever its owner has in it."""
        path = self.folder / "apt.log"
        path.write_text("what was there\n")
        with open(path, "a") as file:
            log, _ = self.run_it(1, stderr=file)
        self.assertIn("there is no", log)
        self.assertRegex(path.read_text(), r"\Awhat was there\n\nib-sdp: fetching .*\n\nib-sdp: there is no .*\n\Z")

    def test_source_of_another_version(self):
        (self.sources / "linux-source-7.2.tar.xz").touch()
        (self.bin / "dpkg-query.source").write_text("7.2.13-1")
        self.complains(r"linux-source-7\.2 is version 7\.2\.13-1, and kernel .* was built from 7\.2\.12-1: apt install linux-source-7\.2=7\.2\.12-1 ", 2)

    def test_another_compiler(self):
        self.program("rustc", "echo rustc 1.99.0")
        self.complains(rf"was built with {re.escape(RUSTC)}, and .*/bin/rustc is rustc 1\.99\.0$")

    def test_no_headers(self):
        (self.headers / ".config").unlink()
        self.complains(f"install the headers of kernel {re.escape(VERSION)}$")

    def test_no_space(self):
        (self.sources / "linux-source-7.2.tar.xz").touch()
        self.program("df", "echo Avail; echo ' 17M'")
        self.complains(r"takes 800 MB in .*, and 17 MB are free$")

    def test_a_damaged_source(self):
        (self.sources / "linux-source-7.2.tar.xz").write_text("no archive")
        log, seen = self.run_it(2)
        self.assertIn("the reason is in DKMS's make.log", seen.splitlines()[-1])
        # Nothing is left that a later run could take for a tree.
        self.assertEqual([path.name for path in self.cache.iterdir()], [".lock"])

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
        self.tree(self.cache / VERSION, f"1 {checksum}")
        log, seen = self.run_it(0)
        self.assertEqual(seen, "")
        self.assertIn(f"building in {self.folder} for {self.cache / VERSION} with gcc, BTF []", log)

    def test_a_tree_of_another_configuration_is_not_taken(self):
        self.tree(self.cache / VERSION, "1 0 0\n")
        self.complains("there is no .*/linux-source", 2)

    def fetched(self, source):
        """Has apt give a package whose archive has this text."""
        self.program("apt-get", f"shift 6; [ $# = 1 ] && touch source.deb && echo $1 >{self.folder}/asked")
        self.program("dpkg-deb", f"mkdir -p {self.folder}/usr/src && cd {self.folder} && printf '{source}' >usr/src/linux-source-7.2.tar.xz && tar -c ./usr")

    def test_a_source_that_apt_has(self):
        """It is fetched in the version of the kernel, whatever is installed, and not kept."""
        (self.sources / "linux-source-7.2.tar.xz").touch()
        (self.bin / "dpkg-query.source").write_text("7.2.13-1")
        self.fetched("no archive")
        log, seen = self.run_it(2)
        self.assertEqual((self.folder / "asked").read_text(), "linux-source-7.2=7.2.12-1\n")
        self.assertIn("fetching linux-source-7.2=7.2.12-1, from which kernel", seen)
        self.assertIn("File format not recognized", log)
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

    def test_the_same_compilers(self):
        """What preparing takes is what scripts/prepare installs for it."""
        control = (PROJECT / "debian/control").read_text()
        field = re.search(r"(?m)^Package: ib-sdp-dkms\n(?:.*\n)*?Depends: ((?:.*\n)(?: .*\n)*)", control)[1]
        packages = {re.match(r"\s*([\w.+-]+)", part)[1] for part in field.replace("${", "").split(",")}
        own = set(re.search(r'PACKAGES = \(\s*"([^"]*)"\s*"([^"]*)"', (SCRIPTS / "prepare").read_text()).expand(r"\1\2").split())
        # The debug kernel's, the host's tools', and those by which packages are unpacked.
        others = {"clang", "llvm", "lld", "cargo", "rustfmt", "rust-clippy", "zstd", "cpio", "kmod", "dwarves"}
        self.assertEqual(own - others - packages, set())


if __name__ == "__main__":
    unittest.main()
