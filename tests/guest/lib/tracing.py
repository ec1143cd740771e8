# SPDX-License-Identifier: GPL-2.0-only
"""Reads the output of the tracepoints below events/sdp."""

import contextlib
import os
import pathlib
import re

TRACING = pathlib.Path("/sys/kernel/tracing")
LINE = re.compile(r"\s(?P<event>sdp_\w+): (?P<fields>.*)$")


@contextlib.contextmanager
def tracing(e, *events):
    """Opens a trace instance for these events. Returns a function that reads the trace."""
    instance = TRACING / "instances" / f"sdp-test-{os.getpid()}"
    instance.mkdir()
    try:
        for event in events:
            (instance / "events" / "sdp" / event / "enable").write_text("1")

        def read():
            found = []
            for line in (instance / "trace").read_text().splitlines():
                match = LINE.search(line)
                if match:
                    fields = dict(word.split("=", 1) for word in match["fields"].split(" "))
                    found.append((match["event"], fields))
            return found

        yield read
    finally:
        for event in events:
            (instance / "events" / "sdp" / event / "enable").write_text("0")
        instance.rmdir()


@contextlib.contextmanager
def work_of_the_module():
    """Returns a function that returns the number of executed work items of the module."""
    instance = TRACING / "instances" / f"sdp-work-{os.getpid()}"
    instance.mkdir()
    event = instance / "events" / "workqueue" / "workqueue_execute_start" / "enable"
    try:
        event.write_text("1")
        yield lambda: sum("[ib_sdp]" in line for line in (instance / "trace").read_text().splitlines())
    finally:
        event.write_text("0")
        instance.rmdir()


@contextlib.contextmanager
def durations(function):
    """Returns a function that returns how long each call of a function of the kernel took (s)."""
    instance, group = TRACING / "instances" / f"sdp-time-{os.getpid()}", f"sdp_test_{os.getpid()}"

    def probes(text):
        file = os.open(TRACING / "kprobe_events", os.O_WRONLY | os.O_APPEND)
        os.write(file, text.encode())
        os.close(file)

    probes(f"p:{group}/begins {function}\nr:{group}/ends {function}\n")
    instance.mkdir()
    enable = instance / "events" / group / "enable"
    try:
        enable.write_text("1")

        def read():
            times = {"begins": [], "ends": []}
            for line in (instance / "trace").read_text().splitlines():
                if match := re.search(r"\s(?P<time>[0-9.]+): (?P<event>begins|ends): ", line):
                    times[match["event"]].append(float(match["time"]))
            return [end - begin for begin, end in zip(times["begins"], times["ends"])]

        yield read
    finally:
        enable.write_text("0")
        instance.rmdir()
        probes(f"-:{group}/begins\n-:{group}/ends\n")


def end(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
