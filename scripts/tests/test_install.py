# SPDX-License-Identifier: GPL-2.0-only
"""make install and make uninstall: what is put where, and that nothing is left."""

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
TOOLS = ("sdp-run", "sdpctl", "sdpstat", "libsdp.so")


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
        for name in ("sdp-run", "sdpctl", "sdpstat"):
            for file in (f"bash/{name}", f"zsh/_{name}", f"fish/{name}.fish"):
                (self.completions / file).parent.mkdir(parents=True, exist_ok=True)
                (self.completions / file).write_text(file)

    def run_it(self, *words, status=0, options=()):
        command = [SCRIPTS / "install", "--destdir", self.dest, "--tools", self.tools, "--completions", self.completions, *options, *words]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def files(self):
        return {"/" + str(path.relative_to(self.dest)) for path in self.dest.rglob("*") if not path.is_dir()}

    def test_files(self):
        said = self.run_it("--no-module", "install")
        wanted = {
            "/usr/local/bin/sdp-run", "/usr/local/sbin/sdpctl", "/usr/local/sbin/sdpstat", "/usr/local/lib/libsdp.so",
            "/usr/local/include/sdp.h", "/etc/libsdp.conf", "/etc/modprobe.d/ib_sdp.conf", "/usr/local/share/ib_sdp/installed",
            *(f"/usr/local/share/man/man{page[-1]}/{page}" for page in
              ("sdp-run.1", "libsdp.conf.5", "sdp.7", "sdpctl.8", "sdpstat.8")),
            *(f"/usr/local/share/{place}" for tool in ("sdp-run", "sdpctl", "sdpstat") for place in
              (f"bash-completion/completions/{tool}", f"zsh/site-functions/_{tool}", f"fish/vendor_completions.d/{tool}.fish")),
        }
        self.assertEqual(self.files(), wanted)
        self.assertIn(f"installed {len(wanted) - 1} files", said)
        self.assertTrue(os.access(self.dest / "usr/local/bin/sdp-run", os.X_OK))

    def test_settings_say_what_the_module_has(self):
        """The parameters and their defaults, in the sample for modprobe and in sdp(7)."""
        source = (PROJECT / "src/sys/net_helpers.c").read_text()
        names = set(re.findall(r"(?m)^(?:SDP_H_PARAM|module_param_named)\((\w+),", source))
        start = source.index("struct sdp_h_params sdp_h_params = {")
        defaults = dict(re.findall(r"\.(\w+) = (-?\d+),", source[start:source.index("};", start)]))
        wanted = {(name, defaults.get(name, "0")) for name in names}
        self.assertGreater(len(wanted), 10)
        sample = (PROJECT / "tools/etc/modprobe.conf").read_text()
        self.assertEqual(set(re.findall(r"\b(\w+)=(-?\d+)", sample)), wanted)
        # nothing is set, only shown
        self.assertEqual([line for line in sample.splitlines() if line and not line.startswith("#")], [])
        manual = (PROJECT / "tools/man/sdp.7").read_text()
        told = {(name, value) for listed, value in re.findall(r"(?m)^\.It Ar ([\w ,]+) No \((-?\d+)\)", manual) for name in listed.split(" , ")}
        self.assertEqual(told, wanted)

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

    def test_complaints(self):
        self.assertIn("nothing was installed there", self.run_it("uninstall", status=1))
        (self.tools / "sdpctl").unlink()
        self.assertIn("sdpctl is not there", self.run_it("--no-module", "install", status=1))
        self.assertIn("does not begin with /", self.run_it("install", status=1, options=("--prefix", "usr")))


if __name__ == "__main__":
    unittest.main()
