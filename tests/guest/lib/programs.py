# SPDX-License-Identifier: GPL-2.0-only
"""Programs started on both hosts by a case."""

import base64
import os
import pathlib
import shutil
import subprocess
import tempfile

from . import netns
from .env import CaseFailure

HERE = pathlib.Path(__file__).resolve().parent.parent / "programs"
CLASSES = HERE.parents[2] / "build" / "programs" / "java"
# One processor for each JVM: HotSpot patches code that other threads execute, and under emulation
# another processor sometimes executes half of the change (one javac in nine crashed).
JAVAC = ["taskset", "1", "javac", "-J-XX:TieredStopAtLevel=1"]
# Options for a quick start, even on a slow machine, and for the same code on both hosts.
# UsePerfData is off because two processes with one pid, in separate namespaces, would share its
# file.
JAVA = ["taskset", "1", "java", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]


class Program:
    """A command on this host, or, by `peer`, on the other host."""

    def __init__(self, e, command, where="self"):
        self.name = command[0]
        self._process = subprocess.Popen(on(where, command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True)
        e.keep(self)

    def output(self, seconds):
        """Returns the program's standard output once it has ended successfully."""
        return self.outputs(seconds)[0]

    def outputs(self, seconds):
        """Like `output`, but with the program's standard error."""
        status, out, err = self.ended(seconds)
        if status:
            raise CaseFailure(f"{self.name} ended with {status}: {(out + err).strip()[-500:]}")
        return out, err

    def ended(self, seconds):
        """Returns the program's status, of any value, and both outputs."""
        try:
            out, err = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            out, err = self._process.communicate()
            raise CaseFailure(f"{self.name} still runs after {seconds:g} s: {(out + err).strip()[-500:]}") from None
        return self._process.returncode, out, err

    def line(self):
        """Returns the next line of the program's standard output."""
        return self._process.stdout.readline()

    def end(self):
        """Ends a program that runs until it is killed."""
        self._process.terminate()
        self._process.communicate()

    def said(self):
        """Ends it. Returns the end of the program's output."""
        self._process.kill()
        out, err = self._process.communicate()
        return (out + err).strip()[-500:]

    def running(self):
        return self._process.poll() is None


def on(where, command):
    """Returns the command that has to be started on this host to run on `host`."""
    if where == "self":
        return command
    if netns.made_here():
        return ["nsenter", f"--net={netns.path('peer')}", *command]
    return ["peer", *command]


def put(e, path, content):
    """Writes a small file on the other host."""
    text = base64.b64encode(content).decode()
    Program(e, ["sh", "-c", f"mkdir -p {os.path.dirname(path)} && echo {text} | base64 -d > {path}"], "peer").output(e.patience * 6)


def compiled(e, name="Transfer", path=""):
    """Returns the folder with the classes of NAME.java, on both hosts: compiled by
    scripts/programs, or once by this function. `path`: other classes that the program uses."""
    if (CLASSES / name).is_dir():
        return str(CLASSES / name)
    if not shutil.which("javac"):
        e.skip("no JDK")
    folder = pathlib.Path(f"/tmp/ib_sdp_classes-{name}")
    if not folder.exists():
        new = tempfile.mkdtemp()
        Program(e, [*JAVAC, "-cp", path, "-d", new, str(HERE / f"{name}.java")]).output(e.patience * 20)
        os.rename(new, folder)
    if not netns.local():
        for file in folder.iterdir():
            put(e, str(file), file.read_bytes())
    return str(folder)
