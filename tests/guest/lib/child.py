# SPDX-License-Identifier: GPL-2.0-only
"""Runs one case in its own process, so that a hang or a leak affects that case only."""

import faulthandler
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
import traceback

from .env import CaseFailure, Env, Skip, Task


class Outcome:
    """Result of a run: status is ok, fail, skip, hang; notes in their order; text is the reason."""

    def __init__(self):
        self.status, self.text, self.notes = "fail", "", []


def _inside(case, kind, six, writer, patience, fatal):
    def sink(item):
        raw = pickle.dumps(item)
        os.write(writer, struct.pack("=I", len(raw)) + raw)

    process = os.getpid()

    def task_failed(error):
        if isinstance(error, OSError) and error.errno in fatal:
            sink(("fail", f"a task got {error!r}"))
            if os.getpid() != process:
                os.kill(process, signal.SIGKILL)
            os._exit(0)

    Task.on_error = task_failed if fatal else None
    env = Env(kind, six, sink, patience)
    try:
        case.function(env)
        if not env._noted and not env.checks:
            raise CaseFailure("the case has no notes")
        sink(("ok", ""))
    except Skip as reason:
        sink(("skip", str(reason)))
    except CaseFailure as reason:
        sink(("fail", f"{reason} ({_place(reason)})" + _tasks(reason)))
    except OSError as error:
        sink(("fail", f"unexpected {error!r} ({_place(error)})" + _tasks(error)))
    except BaseException as error:
        sink(("fail", traceback.format_exc().strip() + _tasks(error)))
    finally:
        for function in reversed(env.at_end):
            function()


def _place(error):
    """Returns the lines of the case, innermost last."""
    return ", ".join(f"{entry.filename.rsplit('/', 1)[-1]}:{entry.lineno}"
                     for entry in traceback.extract_tb(error.__traceback__) if "/suites/" in entry.filename)


def _tasks(reason):
    """Returns lines with other errors in tasks of the case: of two calls on one connection, only
    one gets the reason of the failure."""
    for thread in threading.enumerate():
        if isinstance(thread, Task):
            thread.join(0.2)
    return "".join(f"\na task got {error!r} ({_place(error)})" for error in Task.errors if error is not reason)


def _kernel_stacks(group):
    """Returns the kernel stacks of a hung case's threads."""
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(pid)) != group:
                continue
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/stack") as file:
                    lines.append(f"kernel stack of {pid}/{thread}: " + " < ".join(
                        line.split()[-1].split("+")[0] for line in file.read().splitlines()[:8]))
        except OSError:
            continue
    return lines


def _stop(pid, errors):
    """Prints Python's own stacks, then kills the whole process group. Returns False if even SIGKILL
    does not end the group."""
    stacks = _kernel_stacks(pid)
    try:
        os.kill(pid, signal.SIGABRT)
    except ProcessLookupError:
        pass
    gone = _reap(pid, 2)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    gone = gone or _reap(pid, 20)
    os.lseek(errors, 0, os.SEEK_SET)
    stacks += [line.decode(errors="replace") for line in os.read(errors, 65536).splitlines()[:40]]
    if not gone:
        stacks.insert(0, "SIGKILL does not end it")
    return "\n".join(stacks)


def _reap(pid, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.005)
    return False


def run(case, kind, six, scale=1.0, fatal=()):
    """Runs a case for one family and returns its Outcome. One of the `fatal` errnos in any thread
    or child ends the case: other threads might wait for bytes that never arrive."""
    outcome = Outcome()
    reader, writer = os.pipe()
    errors = os.memfd_create("stderr")
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            os.close(reader)
            os.dup2(errors, 2)
            os.dup2(os.open("/dev/null", os.O_RDWR), 0)
            os.dup2(errors, 1)
            faulthandler.enable(all_threads=True)
            _inside(case, kind, six, writer, 10.0 * scale, fatal)
        finally:
            os._exit(0)
    os.close(writer)
    buffer, deadline, ended = b"", time.monotonic() + case.timeout * scale, False
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    while not ended:
        if not poller.poll(max(0, deadline - time.monotonic()) * 1000):
            break
        part = os.read(reader, 1 << 16)
        if not part:
            outcome.text = "the case's process died"
            break
        buffer += part
        while len(buffer) >= 4 and len(buffer) >= 4 + (size := struct.unpack_from("=I", buffer)[0]):
            item, buffer = pickle.loads(buffer[4:4 + size]), buffer[4 + size:]
            if item[0] == "note":
                outcome.notes.append(item[1:])
            else:
                outcome.status, outcome.text, ended = item[0], item[1], True
    else:
        # Ends threads and children that the case has left.
        ended = _reap(pid, 30 * scale)
        if not ended:
            outcome.status, outcome.text = "fail", outcome.text + "\nits process did not end"
    os.close(reader)
    if not ended and outcome.text == "":
        outcome.status = "hang"
        outcome.text = f"hung for {case.timeout * scale:g} s\n" + _stop(pid, errors)
    elif not ended:
        outcome.text += "\n" + _stop(pid, errors)
    else:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os.close(errors)
    return outcome
