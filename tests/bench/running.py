# SPDX-License-Identifier: GPL-2.0-only
"""Running programs of the benchmark, inside the guest."""

import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
CPUS = os.cpu_count()


# Factor of all time limits. In instruction-counted runs the guest's clock leaps while it waits for
# a file of the host, which takes long on a busy machine. In instruction-counted runs only the whole
# run has a limit.
patience = 1


def deadline(limit):
    """Returns the deadline in this many seconds, or later if the guest's clock leaps."""
    return time.monotonic() + limit * patience


class Failed(Exception):
    """Raised when a program fails; the message has the details."""


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Program:
    """A running program, whose output goes to files."""

    def __init__(self, words):
        self.words = [str(word) for word in words]
        self.out, self.err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err)
        self.status = None

    def __str__(self):
        return shlex.join(self.words)

    @staticmethod
    def _text(file):
        # The program writes through the same open file description, whose position must not move.
        return os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")

    @property
    def output(self):
        return self._text(self.out)

    def ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.process.pid, os.WNOHANG)
            if pid:
                self.status = self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def why(self):
        words = (self._text(self.err) + "\n" + self.output).strip().splitlines()
        return "; ".join(line.strip() for line in words[-6:] if line.strip("- ")) or "it said nothing"

    def wait(self, limit):
        end = deadline(limit)
        # Sleeps instead of spinning: the guest's processors are for the measured programs.
        while not self.ended():
            if time.monotonic() > end:
                raise Failed(f"`{self}` did not end within {limit:.0f} s: {self.why()}")
            time.sleep(0.02)
        if self.status:
            raise Failed(f"`{self}` ended with status {self.status}: {self.why()}")

    def stop(self):
        if not self.ended():
            self.process.terminate()
            end = time.monotonic() + 3
            while not self.ended() and time.monotonic() < end:
                time.sleep(0.05)
            if not self.ended():
                self.process.kill()
                while not self.ended():
                    time.sleep(0.02)
        self.out.close()
        self.err.close()


def listens(program, port):
    """Returns True if a process in the program's network namespace listens on a TCP port."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{program.process.pid}/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    return True
    return False


@contextlib.contextmanager
def server(words, ready, here=False, limit=30):
    """Starts a program on the other host, or on this host; ready(program) returns true when the
    block may start."""
    program = Program(words if here else ["peer", *words])
    try:
        end = deadline(limit)
        while not ready(program):
            if program.ended():
                raise Failed(f"`{program}` ended with status {program.status}: {program.why()}")
            if time.monotonic() > end:
                raise Failed(f"`{program}` was not ready after {limit} s: {program.why()}")
            time.sleep(0.02)
        yield program
    finally:
        program.stop()


def idle():
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / TICK


class Pair:
    """Runs a server and its client to their ends."""

    def __init__(self, server_words, client_words, ready, limit, here=False):
        with server(server_words, ready, here) as there:
            start, idle_before = time.monotonic(), idle()
            here = Program(client_words)
            self.commands = [str(there), str(here)]
            try:
                here.wait(limit)
                there.wait(15)
            except Failed as failure:
                if not there.ended():
                    raise
                raise Failed(f"{failure}; the server ended with status {there.status}: {there.why()}") from None
            finally:
                if here.status is None:
                    here.stop()
            self.guest_cpu = (time.monotonic() - start) * CPUS - (idle() - idle_before)
            self.here, self.there = here.output, there.output


_next_port = 20000


def port():
    global _next_port
    _next_port += 1
    return _next_port


class Resident:
    """A program that reads its commands from standard input, one line for each run
    (tests/bench/sockets.c). The program is started when first needed."""

    def __init__(self, words):
        self.words, self.process = words, None

    def start(self, words):
        if self.process is None:
            self.err = tempfile.TemporaryFile("w+")
            self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err, bufsize=0, start_new_session=True)
            self.rest = b""
        self.run = [*self.words[:-1], *map(str, words)]
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")

    def __str__(self):
        return shlex.join(self.run)

    def line(self, end):
        """Returns the program's next line. `end`: time limit."""
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise Failed(f"`{self}` did not end in time: {self.why()}")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise Failed(f"`{self}` has ended: {self.why()}")
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def result(self, end):
        """Returns the program's last line of a run."""
        said = ""
        while not (line := self.line(end)).startswith("ended "):
            said = line
        if line != "ended 0":
            raise Failed(f"`{self}` {line}: {self.why()}")
        return said

    def why(self):
        return os.pread(self.err.fileno(), 1 << 16, 0).decode(errors="replace").strip() or "it said nothing"

    def stop(self):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            for file in (self.process.stdin, self.process.stdout, self.err):
                file.close()
            self.process = None
