# SPDX-License-Identifier: GPL-2.0-only
"""Tests make install and make uninstall: the paths of all files, and that no file is left."""

import hashlib
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
PROJECT = SCRIPTS.parent
TOOLS = ("sdp-run", "sdp-check", "sdpctl", "sdpstat", "libsdp.so")


class Install(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dest = Path(folder.name) / "dest"
        self.tools = Path(folder.name) / "tools"
        self.completions = Path(folder.name) / "completions"
        self.tools.mkdir()
        for name in TOOLS:
            (self.tools / name).write_text(name)
        for name in ("sdp-run", "sdp-check", "sdpctl", "sdpstat"):
            for file in (f"bash/{name}", f"zsh/_{name}", f"fish/{name}.fish"):
                (self.completions / file).parent.mkdir(parents=True, exist_ok=True)
                (self.completions / file).write_text(file)

    def run_it(self, *words, status=0, options=(), script=SCRIPTS / "install"):
        command = [script, "--destdir", self.dest, "--tools", self.tools, "--completions", self.completions, *options, *words]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def project(self, module):
        """Copies the script into a project with `module` as the script of the module. Returns the
        command for run_it."""
        project = self.dest.parent / "project"
        (project / "scripts").mkdir(parents=True, exist_ok=True)
        for name in ("tools", "include"):
            if not (project / name).exists():
                (project / name).symlink_to(PROJECT / name)
        script = project / "scripts/install"
        shutil.copy(SCRIPTS / "install", script)
        (project / "scripts/module").write_text("#!/bin/bash\nwhile [ $1 != --install ]; do shift; done\n" + module)
        (project / "scripts/module").chmod(0o755)
        return script

    def for_kernel(self, release, text="module"):
        return self.project(f'''
echo "CC [M] something"
mkdir -p "$2/lib/modules/{release}/updates"
echo {text} >"$2/lib/modules/{release}/updates/ib_sdp.ko"
echo "module: depmod (package kmod) is missing: run it" >&2
echo "installed $2/lib/modules/{release}/updates/ib_sdp.ko"
''')

    def files(self):
        return {"/" + str(path.relative_to(self.dest)) for path in self.dest.rglob("*") if not path.is_dir()}

    def test_files(self):
        said = self.run_it("--no-module", "install")
        wanted = {
            "/usr/local/bin/sdp-run", "/usr/local/bin/sdp-check", "/usr/local/bin/sdpctl", "/usr/local/bin/sdpstat", "/usr/local/lib/libsdp.so",
            "/usr/local/include/sdp.h", "/etc/libsdp.conf", "/etc/modprobe.d/ib_sdp.conf", "/usr/local/share/ib_sdp/installed",
            *(f"/usr/local/lib/systemd/system/{unit}" for unit in ("sdp-map@.service", "sdpstat.service", "sdpstat.timer")),
            *(f"/usr/local/share/man/man{page[-1]}/{page}" for page in
              ("sdp-run.1", "libsdp.conf.5", "sdp.7", "sdp-check.8", "sdpctl.8", "sdpstat.8")),
            *(f"/usr/local/share/{place}" for tool in ("sdp-run", "sdp-check", "sdpctl", "sdpstat") for place in
              (f"bash-completion/completions/{tool}", f"zsh/site-functions/_{tool}", f"fish/vendor_completions.d/{tool}.fish")),
        }
        self.assertEqual(self.files(), wanted)
        self.assertIn(f"installed {len(wanted) - 1} files", said)
        self.assertTrue(os.access(self.dest / "usr/local/bin/sdp-run", os.X_OK))

    def test_settings_are_only_shown(self):
        """An installation only prints new settings, whose contents make check compares."""
        sample = (PROJECT / "tools/etc/modprobe.conf").read_text()
        self.assertGreater(len(re.findall(r"\b\w+=-?\d+", sample)), 10)
        self.assertEqual([line for line in sample.splitlines() if line and not line.startswith("#")], [])

    def test_nothing_is_left(self):
        other = self.dest / "usr/local/lib/other"
        self.run_it("--no-module", "install")
        self.run_it("uninstall")
        self.assertEqual(list(self.dest.rglob("*")), [])
        other.parent.mkdir(parents=True)
        other.write_text("somebody else's")
        self.run_it("--no-module", "install")
        self.run_it("uninstall")
        self.assertEqual(self.files(), {"/usr/local/lib/other"})

    def test_places(self):
        options = ("--prefix", "/opt/my sdp", "--sysconfdir", "/opt/etc")
        self.run_it("--no-module", "install", options=options)
        self.assertTrue((self.dest / "opt/my sdp/lib/libsdp.so").is_file())
        self.assertTrue((self.dest / "opt/etc/libsdp.conf").is_file())
        self.run_it("uninstall", options=options)
        self.assertEqual(list(self.dest.rglob("*")), [])

    def test_settings_are_the_owners(self):
        rules = self.dest / "etc/libsdp.conf"
        rules.parent.mkdir(parents=True)
        rules.write_text("# mine\n")
        self.assertIn("is kept", self.run_it("--no-module", "install"))
        self.assertEqual(rules.read_text(), "# mine\n")
        modprobe = self.dest / "etc/modprobe.d/ib_sdp.conf"
        modprobe.write_text("# changed\n")
        self.assertIn("has been changed and is kept", self.run_it("uninstall"))
        self.assertEqual(self.files(), {"/etc/libsdp.conf", "/etc/modprobe.d/ib_sdp.conf"})

    def test_again(self):
        self.run_it("--no-module", "install")
        before = self.files()
        (self.tools / "libsdp.so").write_text("newer")
        self.run_it("--no-module", "install")
        self.assertEqual(self.files(), before)
        self.assertEqual((self.dest / "usr/local/lib/libsdp.so").read_text(), "newer")

    def test_a_module_goes_with_the_rest(self):
        self.run_it("--no-module", "install")
        module = "/lib/modules/7.2.0/updates/ib_sdp.ko"
        (self.dest / module[1:]).parent.mkdir(parents=True)
        (self.dest / module[1:]).write_text("module")
        with open(self.dest / "usr/local/share/ib_sdp/installed", "a") as file:
            file.write(f"{'0' * 64}  {module}\n")
        self.run_it("uninstall")
        self.assertEqual(list(self.dest.rglob("*")), [])

    def test_what_a_version_had_and_the_next_has_not(self):
        self.run_it("--no-module", "install")
        before = self.files()
        page = self.dest / "usr/local/share/man/man9/sdp.9"
        page.parent.mkdir()
        page.write_text("old")
        with open(self.dest / "usr/local/share/ib_sdp/installed", "a") as file:
            file.write(f"{'0' * 64}  /usr/local/share/man/man9/sdp.9\n")
        self.run_it("--no-module", "install")
        self.assertEqual(self.files(), before)
        self.assertFalse(page.parent.exists())
        self.run_it("uninstall")
        self.assertEqual(list(self.dest.rglob("*")), [])

    def test_settings_of_an_earlier_version(self):
        """Settings that are unchanged since the earlier version are replaced."""
        self.run_it("--no-module", "install")
        rules, listed = self.dest / "etc/libsdp.conf", self.dest / "usr/local/share/ib_sdp/installed"
        ours = rules.read_text()
        rules.write_text("# earlier\n")
        checksum = hashlib.sha256(b"# earlier\n").hexdigest()
        listed.write_text(re.sub(r"(?m)^\w+(?=  /etc/libsdp.conf$)", checksum, listed.read_text()))
        self.assertNotIn("kept", self.run_it("--no-module", "install"))
        self.assertEqual(rules.read_text(), ours)
        rules.write_text("# mine\n")
        self.assertEqual(self.run_it("--no-module", "install").count("kept"), 1)
        self.assertIn("has been changed and is kept", self.run_it("uninstall"))
        self.assertEqual(self.files(), {"/etc/libsdp.conf"})

    def test_modules_stay(self):
        """A module of another kernel, or one left out this time, stays; uninstall removes all."""
        first, second = (f"/lib/modules/{release}/updates/ib_sdp.ko" for release in ("7.2.1", "7.2.2"))
        self.run_it("install", script=self.for_kernel("7.2.1"))
        self.run_it("install", script=self.for_kernel("7.2.1", "newer"))
        self.assertEqual((self.dest / first[1:]).read_text(), "newer\n")
        self.run_it("install", script=self.for_kernel("7.2.2"))
        self.assertLessEqual({first, second}, self.files())
        self.run_it("--no-module", "install")
        self.assertLessEqual({first, second}, self.files())
        self.run_it("uninstall")
        self.assertEqual(list(self.dest.rglob("*")), [])

    def test_what_the_module_says(self):
        self.assertIn("depmod (package kmod) is missing: run it", self.run_it("install", script=self.for_kernel("7.2.1")))

    def test_nothing_changes_where_something_fails(self):
        """A failed build of the module, or of another part, changes nothing."""
        fails = self.project("echo some line; echo it does not compile >&2; exit 3\n")
        said = self.run_it("install", script=fails, status=1)
        self.assertRegex(said, r"(?s)it does not compile.*some line\n.*nothing else has been changed|some line.*nothing else.*it does not compile")
        self.assertEqual(list(self.dest.rglob("*")), [])
        self.run_it("install", script=self.for_kernel("7.2.1"))

        def content():
            return {name: (self.dest / name[1:]).read_bytes() for name in self.files()}

        before = content()
        for name in TOOLS:
            (self.tools / name).write_text("newer")
        self.run_it("install", script=self.project("exit 3\n"), status=1)
        self.assertEqual(content(), before)
        (self.completions / "fish/sdpstat.fish").unlink()
        self.run_it("install", script=self.for_kernel("7.2.1", "newer"), status=1)
        self.assertEqual(content(), before)

    def test_complaints(self):
        self.assertIn("nothing was installed there", self.run_it("uninstall", status=1))
        (self.tools / "sdpctl").unlink()
        self.assertIn("sdpctl is not there", self.run_it("--no-module", "install", status=1))
        self.assertIn("does not begin with /", self.run_it("install", status=1, options=("--prefix", "usr")))


if __name__ == "__main__":
    unittest.main()
