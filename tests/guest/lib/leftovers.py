# SPDX-License-Identifier: GPL-2.0-only
"""Objects that must not exist when all sockets are closed."""

import pathlib
import time

from . import netns, observe, raw

REFERENCES = pathlib.Path("/sys/module/ib_sdp/refcnt")


def kernel_pins():
    """Returns the number of pages pinned for I/O in the whole machine, by the kernel's own
    counters."""
    # Each processor keeps some counts until a flush.
    pathlib.Path("/proc/sys/vm/stat_refresh").write_text("1\n")
    words = dict(line.split() for line in open("/proc/vmstat"))
    return int(words["nr_foll_pin_acquired"]) - int(words["nr_foll_pin_released"])


def left(pins=0):
    """Returns sockets, pinned pages and module references, one per line. `pins`: earlier result of
    kernel_pins()."""
    raw.tidy()
    lines = [f"a socket of {where}: {vars(row)}" for where in netns.hosts() for row in observe.rows(where)]
    lines += [f"{count} {name} of {where}" for where in netns.hosts() for name, count in observe.stats(where).items()
              if name.startswith("pinned pages") and count]
    if (now := kernel_pins()) != pins:
        lines.append(f"{now - pins} pinned pages by the kernel's count")
    if (count := int(REFERENCES.read_text())) != 0:
        lines.append(f"{count} references to the module")
    return lines


# Leftovers of earlier cases, which later cases do not wait for; maintained by tests/guest/run.
known = set()


def wait(seconds, pins=0):
    """Returns the new objects that exist after the time limit, or an empty list as soon as there
    are none."""
    deadline = time.monotonic() + seconds
    while (lines := set(left(pins)) - known) and time.monotonic() < deadline:
        time.sleep(0.1)
    return sorted(lines)
