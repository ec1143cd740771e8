# SPDX-License-Identifier: GPL-2.0-only
"""Runs several commands at once, passes on their output as it comes, and parses it."""

import os
import signal
import subprocess
import threading


class Interrupted(Exception):
    """All commands were ended: this command did not start, or was killed."""


class PassingOn:
    """Commands that are running. `named`: prefix each line of output with the command's name.
    """

    def __init__(self, directory, named):
        self._directory, self._named = directory, named
        self._lock = threading.Lock()
        self._running, self._ended = set(), False  # under the lock
        self.used = {}      # processor seconds of the commands of each name, including their children

    def say(self, line):
        """Prints a line, in one write: lines of several commands do not mix."""
        print(f"{line}\n", end="", flush=True)

    def end_all(self):
        """Ends the running commands, and starts no more."""
        with self._lock:
            self._ended = True
            for process in self._running:
                _kill(process)

    def run(self, name, command, limit, read):
        """Runs a command and passes each line of its standard output to `read`. Returns its status,
        or `late` if it took more than `limit` seconds and was ended."""
        with self._lock:
            if self._ended:
                raise Interrupted
            process = subprocess.Popen(command, cwd=self._directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                       errors="replace", bufsize=1, start_new_session=True)
            self._running.add(process)
        late = threading.Event()

        def on_limit():
            late.set()
            _kill(process)

        timer = threading.Timer(limit, on_limit)
        timer.daemon = True
        timer.start()
        try:
            with process.stdout:
                for line in process.stdout:
                    self.say((f"{name:20}| {line}" if self._named else line).rstrip("\n"))
                    read(line)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = status = os.waitstatus_to_exitcode(status)
            self.used[name] = self.used.get(name, 0) + usage.ru_utime + usage.ru_stime
        except BaseException:
            _kill(process)
            process.wait()
            raise
        finally:
            timer.cancel()
            with self._lock:
                self._running.discard(process)
                ended = self._ended
        if ended:
            raise Interrupted
        return "late" if late.is_set() else status


def _kill(process):
    """Ends a command and all its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass        # the command has just ended
