# SPDX-License-Identifier: GPL-2.0-only
"""Memory and user copies that fail in the module, on a kernel that can inject such faults."""

import contextlib
import os
import pathlib

KINDS = ("failslab", "fail_page_alloc", "fail_usercopy")
FOLDER = pathlib.Path("/sys/kernel/debug")


def possible():
    return all(os.path.isdir(FOLDER / kind) for kind in KINDS)


def knob(kind, name, value):
    (FOLDER / kind / name).write_text(f"{value}\n")


def text_of_module():
    """Where the module's code is: only what is called from there fails. (The size is of all its memory, and no other
    module is called.)"""
    start = int(pathlib.Path("/sys/module/ib_sdp/sections/.text").read_text(), 16)
    size = int(next(line.split()[1] for line in open("/proc/modules") if line.startswith("ib_sdp ")))
    return start, start + size


@contextlib.contextmanager
def faults(kind, percent):
    start, end = text_of_module()
    for name, value in (("require-start", hex(start)), ("require-end", hex(end)), ("stacktrace-depth", 32),
                        ("times", -1), ("interval", 1), ("verbose", 0), ("task-filter", "N")):
        knob(kind, name, value)
    if kind != "fail_usercopy":
        knob(kind, "ignore-gfp-wait", "N")
    if kind == "fail_page_alloc":
        knob(kind, "min-order", 0)
    knob(kind, "probability", percent)
    try:
        yield
    finally:
        knob(kind, "probability", 0)
