# SPDX-License-Identifier: GPL-2.0-only
"""One run: boot the guests, run COMMAND in the first, relay between them, and judge the end."""

import collections
import os
import queue
import selectors
import socket
import struct
import threading
import time

from machine import ERR, ERR_READ, EXIT, FAILED, FINISH, OUT, OUT_READ, RUN, TASKS, UP

TIMED_OUT = 124
KERNEL_COMPLAINED = FAILED_TO_RUN = 125
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/sh", "LANG": "C.UTF-8", "TERM": "dumb",
}
COMMAND = 1  # the id of COMMAND among the host's own commands


class Broken(Exception):
    """The guests could not be started, or were lost; the message has the details."""


class Writer:
    """Writes to one of this process's outputs in a thread of its own, so that a slow reader delays
    neither the time-out nor the peer."""

    def __init__(self, fd, written):
        self._fd = fd
        self._written = written
        self._queue = queue.SimpleQueue()
        self.pending = 0
        threading.Thread(target=self._work, daemon=True).start()

    def put(self, data):
        self.pending += len(data)
        self._queue.put(data)

    def _work(self):
        while True:
            data = memoryview(self._queue.get())
            size = len(data)
            try:
                while data:
                    data = data[os.write(self._fd, data):]
            except OSError:
                self._written(self, None)
                return
            self._written(self, size)


class Run:
    def __init__(self, machines, say):
        self.machines = machines
        self.say = say
        self.selector = selectors.DefaultSelector()
        self.status = None
        self.pipe_broken = False
        self._failure = None
        # Writers report through the pair of sockets; a byte wakes the loop up.
        self._done = collections.deque()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self.selector.register(self._wake, selectors.EVENT_READ, None)
        self.out = Writer(1, self._written)
        self.err = Writer(2, self._written)
        for machine in machines:
            self.selector.register(machine.console, selectors.EVENT_READ, (machine, "console"))
            self.selector.register(machine.channel, selectors.EVENT_READ, (machine, "channel"))

    def _written(self, writer, size):
        self._done.append((writer, size))
        self._waker.send(b".")

    # --- the loop -----------------------------------------------------------------------------

    def until(self, condition, seconds):
        """Serves all connections until the condition holds; returns False after a time-out."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self._failure:
                raise Broken(self._failure)
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for machine in self.machines:
                if machine.has_to_send != machine.watched_for_sending:
                    machine.watched_for_sending = machine.has_to_send
                    wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if machine.has_to_send else 0)
                    self.selector.modify(machine.channel, wanted, (machine, "channel"))
            for key, _ in self.selector.select(left):
                if key.data is None:
                    self._take_written()
                else:
                    self._serve(*key.data)
        return True

    def _take_written(self):
        try:
            self._wake.recv(4096)
        except BlockingIOError:
            pass
        while self._done:
            writer, size = self._done.popleft()
            if size is None:
                writer.pending = 0
                if writer is self.out:
                    self.pipe_broken = True
                continue
            writer.pending -= size
            kind = OUT_READ if writer is self.out else ERR_READ
            self.machines[0].send(kind, COMMAND, struct.pack("<I", size))

    def _serve(self, machine, what):
        if what == "console":
            if not machine.read_console():
                self.selector.unregister(machine.console)
                self._lost(machine)
            return
        machine.flush()
        frames = machine.receive()
        if frames is None:
            self.selector.unregister(machine.channel)
            self._lost(machine)
            return
        for frame in frames:
            self._take(machine, *frame)

    def _lost(self, machine):
        """Returns True if QEMU has exited, or is about to."""
        machine.process.wait()
        if not self._failure:
            machine.read_console()
            words = machine.said()
            self._failure = f"the guest {machine.name} ended by itself" + (f"; QEMU said: {words}" if words else "")

    def _take(self, machine, kind, number, data):
        if number >> 24:
            # A frame between the two guests is passed on unchanged.
            other = self.machines[1 if machine is self.machines[0] else 0]
            other.send(kind, number, data)
        elif kind == UP:
            machine.up = True
        elif kind == FAILED:
            self._failure = f"the guest {machine.name} did not get ready: {data.decode(errors='replace')}"
        elif kind == OUT:
            self.out.put(data)
        elif kind == ERR:
            self.err.put(data)
        elif kind == EXIT:
            self.status = struct.unpack("<I", data)[0]
        elif kind == FINISH:
            machine.finished = True

    # --- the steps ----------------------------------------------------------------------------

    def boot(self, seconds):
        if not self.until(lambda: all(machine.up for machine in self.machines), seconds):
            late = " and ".join(machine.name for machine in self.machines if not machine.up)
            raise Broken(f"the guest {late} did not come up within {seconds} s")

    def command(self, arguments, seconds):
        """Runs COMMAND; returns its status, or None when it took too long."""
        environment = [f"{name}={value}".encode() for name, value in ENVIRONMENT.items()]
        data = struct.pack("<II", len(arguments), len(environment))
        data += b"".join(word + b"\0" for word in (b"/", *arguments, *environment))
        self.machines[0].send(RUN, COMMAND, data)

        def ended():
            return self.pipe_broken or self.status is not None and not self.out.pending and not self.err.pending
        self.until(ended, seconds)
        return self.status

    def drain(self, seconds):
        """Writes COMMAND's remaining output, unless this process's own outputs are closed."""
        deadline = time.monotonic() + seconds
        while (self.out.pending or self.err.pending) and time.monotonic() < deadline:
            time.sleep(0.01)
            self._take_written()

    def finish(self, seconds):
        """Lets the agents search for leaks, and waits for the last line of the consoles."""
        for machine in self.machines:
            machine.send(FINISH)
        return self.until(lambda: all(machine.finished and machine.last_line_seen for machine in self.machines), seconds)

    def print_tasks(self):
        """Makes the kernels print the stacks of all tasks, after a time-out."""
        for machine in self.machines:
            machine.send(TASKS)
        self.until(lambda: all(machine.last_line_seen for machine in self.machines), 5)
