# SPDX-License-Identifier: GPL-2.0-only
"""scripts/kmod-deb builds a package of the module for one kernel."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
SCRIPTS = Path(__file__).resolve().parents[1]
RELEASE = "7.2.12+deb13-amd64"
PACKAGE = f"ib-sdp-modules-{RELEASE}"
BANNER = f"\0MZ {RELEASE} (debian-kernel@lists.debian.org) #1 SMP PREEMPT_DYNAMIC Debian 7.2.12-1~bpo13+1 (2026-11-01)\0"


class KmodDeb(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.project = Path(folder.name) / "project"
        self.home = Path(folder.name) / RELEASE
        (self.project / "scripts").mkdir(parents=True)
        (self.project / "debian").mkdir()
        (self.home / "tree/scripts").mkdir(parents=True)
        (self.home / "vmlinuz").write_bytes(BANNER.encode() + b"\xff" * 100)
        (self.home / "tree/.config").write_text('CONFIG_MODULE_SIG_HASH="sha512"\n')
        shutil.copy(SCRIPTS / "kmod-deb", self.project / "scripts")
        for name in ("control", "copyright"):
            shutil.copy(SCRIPTS.parent / "debian" / name, self.project / "debian")
        (self.project / "Cargo.toml").write_text('[workspace.package]\nversion = "3.2.1"\nedition = "2021"\n')
        self.script("prepare", f'[ $1 = --where ] && echo "{self.home}"')
        self.script("module", 'to=build${2:+/$2}; mkdir -p $to; echo module >$to/ib_sdp.ko')
        self.script("in-toolchain", 'while [ $1 != -- ]; do shift; done; shift; case $1 in *strip) echo "$1" >stripped ;; *) exec "$@" ;; esac')
        (self.home / "tree/scripts/sign-file").write_text('#!/bin/sh\necho "$1 $(cat "$2" "$3" | paste -sd" ")" >>"$4"\n')
        (self.home / "tree/scripts/sign-file").chmod(0o755)

    def script(self, name, text):
        (self.project / "scripts" / name).write_text(f"#!/bin/bash\n{text}\n")
        (self.project / "scripts" / name).chmod(0o755)

    def build(self, *arguments, status=0):
        command = [self.project / "scripts/kmod-deb", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout + done.stderr

    def unpacked(self):
        """Returns the folder with the package's files and, in DEBIAN, its control files."""
        [deb] = (self.project / "build/kmod").glob("*.deb")
        self.assertRegex(deb.name, rf"^{re.escape(PACKAGE)}_3\.2\.1_\w+\.deb$")
        out = self.project / "out"
        subprocess.run(["dpkg-deb", "-R", deb, out], check=True)
        return out

    def module(self):
        return (self.unpacked() / f"usr/lib/modules/{RELEASE}/updates/ib_sdp.ko").read_text()

    def test_the_package(self):
        self.assertIn("for linux-image-7.2.12+deb13-amd64 7.2.12-1~bpo13+1\n", self.build())
        self.assertEqual(self.module(), "module\n")
        control = (self.project / "out/DEBIAN/control").read_text()
        for line in (f"Package: {PACKAGE}", f"Depends: linux-image-{RELEASE} (= 7.2.12-1~bpo13+1), kmod", "Conflicts: ib-sdp-dkms"):
            self.assertIn(f"\n{line}\n", f"\n{control}")
        for name in ("preinst", "postinst", "prerm", "postrm"):
            path = self.project / "out/DEBIAN" / name
            self.assertTrue(os.access(path, os.X_OK), name)
            subprocess.run(["sh", "-n", path], check=True)

    def test_another_kernel(self):
        self.build("--kernel", RELEASE)
        self.assertEqual(self.module(), "module\n")

    def test_a_kernel_of_arm64(self):
        release = RELEASE.replace("amd64", "arm64")
        home = self.home.rename(self.home.with_name(release))
        (home / "vmlinuz").write_text(BANNER.replace(RELEASE, release))
        self.script("prepare", f'echo "{home}"')
        self.build()
        self.assertEqual([deb.name for deb in (self.project / "build/kmod").glob("*.deb")], [f"ib-sdp-modules-{release}_3.2.1_arm64.deb"])
        self.assertEqual((self.project / "stripped").read_text(), "aarch64-linux-gnu-strip\n")

    def test_a_signature(self):
        for name in ("key", "cert"):
            (self.project / name).write_text(name)
        self.assertIn(", signed\n", self.build("--key", self.project / "key", "--cert", self.project / "cert"))
        self.assertEqual(self.module(), "module\nsha512 keycert\n")

    def test_half_a_signature(self):
        (self.project / "key").touch()
        self.assertIn("SIGN_KEY, SIGN_CERT", self.build("--key", self.project / "key", status=1))
        self.assertIn("there is no", self.build("--cert", self.project / "none", status=1))

    def test_a_kernel_of_unknown_version(self):
        (self.home / "vmlinuz").write_text("nothing")
        self.assertIn("does not name the version", self.build(status=1))

    def test_a_module_that_is_there(self):
        """The package hides neither the module of make install nor one of DKMS."""
        self.build()
        script = (self.unpacked() / "DEBIAN/preinst").read_text()
        modules = self.project / "modules"
        script = script.replace("/lib/modules", str(modules))

        def status(action):
            return subprocess.run(["sh", "-c", script, "preinst", action], capture_output=True).returncode

        self.assertEqual(status("install"), 0)
        (modules / RELEASE / "updates").mkdir(parents=True)
        self.assertEqual(status("install"), 0)
        (modules / RELEASE / "updates/ib_sdp.ko").touch()
        self.assertEqual((status("install"), status("upgrade")), (1, 0))


if __name__ == "__main__":
    unittest.main()
