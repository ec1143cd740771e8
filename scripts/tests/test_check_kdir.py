# SPDX-License-Identifier: GPL-2.0-only
"""Tests the messages of make KDIR= about a tree that no module can be built against."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
SCRIPTS = Path(__file__).resolve().parents[1]
OURS = "rustc 1.85.1 (4eb161250 2025-03-15)"


class CheckKdir(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name) / "linux"
        for name, text in {
            "Makefile": "rustavailable: ;\n", "rust/libkernel.rmeta": "", "Module.symvers": "symbol\n", "include/config/kernel.release": "7.3.4-generic\n",
            "include/config/auto.conf": f'CONFIG_RUST=y\nCONFIG_INFINIBAND_ADDR_TRANS=y\nCONFIG_RUSTC_VERSION_TEXT="{OURS}"\n',
        }.items():
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / name).write_text(text)
        self.rustc = self.tool("rustc", OURS)
        self.bindgen = self.tool("bindgen", "bindgen 0.71.1")

    def tool(self, name, said):
        path = self.tree.parent / name
        path.write_text(f"#!/bin/sh\necho '{said}'\n")
        path.chmod(0o755)
        return path

    def said(self, status=1, rustc=None):
        command = [SCRIPTS / "check-kdir", self.tree, f"RUSTC={rustc or self.rustc}", f"BINDGEN={self.bindgen}"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stderr

    def test_metadata_without_source(self):
        self.assertEqual(self.said(0), "")

    def test_another_rustc(self):
        said = self.said(rustc=self.tool("rustc", "rustc 1.90.0 (1159e78c4 2025-09-14)"))
        self.assertIn(f"the kernel was built with {OURS}, but {self.rustc} is rustc 1.90.0", said)
        self.assertIn("Install rustc 1.85.1 (Ubuntu: apt install rustc-1.85; rustup: rustup toolchain install 1.85.1)", said)

    def test_no_rustc(self):
        said = self.said(rustc=self.tree / "none")
        self.assertIn(f"none is not installed, and the kernel was built with {OURS}", said)
        self.assertIn("Install rustc 1.85.1 ", said)

    def test_no_metadata(self):
        (self.tree / "rust/libkernel.rmeta").unlink()
        self.assertIn("Ubuntu: apt install linux-lib-rust-7.3.4-generic", self.said())

    def test_a_kernel_without_rust(self):
        config = self.tree / "include/config/auto.conf"
        config.write_text(config.read_text().replace("CONFIG_RUST=y", ""))
        self.assertIn("this kernel is configured without Rust (CONFIG_RUST)", self.said())
