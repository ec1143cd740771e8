# SPDX-License-Identifier: GPL-2.0-only
"""Memory and user copies that fail in the module, on a kernel that can inject such faults."""

import contextlib
import os
import pathlib
import subprocess

from .calls import errname

KINDS = ("failslab", "fail_page_alloc", "fail_usercopy")
FOLDER = pathlib.Path("/sys/kernel/debug")
# The kernel module that lets verbs fail.
VERBS = pathlib.Path(__file__).resolve().parents[3] / "build" / "tests" / os.uname().release / "sdp_verbs_faults.ko"


def possible():
    return all(os.path.isdir(FOLDER / kind) for kind in KINDS)


def knob(kind, name, value):
    (FOLDER / kind / name).write_text(f"{value}\n")


def knob_is(kind, name):
    return int((FOLDER / kind / name).read_text())


def text_of_module():
    """Returns the address range of the module's code: only calls from that range fail. (The range
    covers all memory of the module, and no other module is called.)"""
    start = int(pathlib.Path("/sys/module/ib_sdp/sections/.text").read_text(), 16)
    size = int(next(line.split()[1] for line in open("/proc/modules") if line.startswith("ib_sdp ")))
    return start, start + size


def only_the_module(*kinds):
    """Lets these kinds of faults hit calls from the module, in any task."""
    start, end = text_of_module()
    for kind in kinds or KINDS:
        for name, value in (("probability", 0), ("require-start", hex(start)), ("require-end", hex(end)), ("stacktrace-depth", 32),
                            ("times", -1), ("interval", 1), ("space", 0), ("verbose", 0), ("task-filter", "N")):
            knob(kind, name, value)
        if kind in ("failslab", "fail_page_alloc"):
            knob(kind, "ignore-gfp-wait", "N")
        if kind == "fail_page_alloc":
            knob(kind, "min-order", 0)


@contextlib.contextmanager
def faults(kind, percent):
    """Makes calls of a kind fail at random, this many times."""
    only_the_module(kind)
    knob(kind, "probability", percent)
    try:
        yield
    finally:
        knob(kind, "probability", 0)


# A number of faults that no test reaches.
EVERY = 1000000


@contextlib.contextmanager
def several(kind, times, **settings):
    """Makes the next `times` calls of a kind fail, unless the settings choose others. Yields a
    function that returns the number of calls that failed."""
    only_the_module(kind)
    # Marks the kernel's log, so that messages about one kind can be distinguished from later ones.
    pathlib.Path("/dev/kmsg").write_text(f"faults: {kind} {settings}\n")
    for name, value in settings.items():
        knob(kind, name, value)
    knob(kind, "times", times)
    knob(kind, "probability", 100)
    try:
        yield lambda: times - knob_is(kind, "times")
    finally:
        for name, value in (("probability", 0), ("interval", 1), ("space", 0), ("times", -1)):
            knob(kind, name, value)


def once(kind, **settings):
    """Makes one call of a kind fail."""
    return several(kind, 1, **settings)


def one(kind, number):
    """Makes one of the next calls fail, in any task."""
    return once(kind, interval=number)


def nth(number, function):
    """Calls a function in which the n-th allocation or user copy of the module fails, counted for
    this thread alone. Returns its result, or the name of its error, and whether n was reached.
    Requires only_the_module()."""
    file = os.open("/proc/thread-self/fail-nth", os.O_RDWR)
    try:
        os.pwrite(file, b"%d" % number, 0)
        try:
            result = function()
        except OSError as error:
            result = errname(error)
        # Number of calls still to be counted: none if a call has failed.
        left = int(os.pread(file, 20, 0))
        os.pwrite(file, b"0", 0)
        return result, left == 0
    finally:
        os.close(file)


def verbs_possible():
    """Returns true if the module can make verbs fail."""
    if os.path.isdir("/sys/module/sdp_verbs_faults"):
        return True
    return possible() and VERBS.exists() and subprocess.run(["insmod", VERBS]).returncode == 0


@contextlib.contextmanager
def verb(name, number, error, times=1):
    """Makes the n-th of the module's next calls of that function fail, counted as by several()."""
    only_the_module("fail_function")
    inject = FOLDER / "fail_function" / "inject"
    inject.write_text(name)
    try:
        (FOLDER / "fail_function" / name / "retval").write_text(f"{-error & (1 << 64) - 1:#x}")
        # Each call uses 1 of the setting `space`.
        with several("fail_function", times, space=number) as hit:
            yield hit
    finally:
        inject.write_text("!" + name)
