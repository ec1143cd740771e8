# SPDX-License-Identifier: GPL-2.0-only
"""A device that is unlike rxe: what tests/guest/kernel/sdp_adverse.c has rxe do."""

import contextlib
import os
import pathlib
import subprocess

BUILT = pathlib.Path(__file__).resolve().parents[3] / "build" / "tests" / os.uname().release / "sdp_adverse.ko"
PARAMETERS = pathlib.Path("/sys/module/sdp_adverse/parameters")


def load():
    """Whether the module is there."""
    if PARAMETERS.exists():
        return True
    return BUILT.exists() and subprocess.run(["insmod", BUILT]).returncode == 0


def behave(**settings):
    """From now on the device does this, and nothing else."""
    for file in PARAMETERS.iterdir():
        if file.name != "seed" or "seed" in settings:
            file.write_text(str(int(settings.get(file.name, 0))))


@contextlib.contextmanager
def device(e, **settings):
    """The device does this meanwhile."""
    if not load():
        e.skip("the module is not built (scripts/test-module)")
    behave(**settings)
    try:
        yield
    finally:
        behave()
