# SPDX-License-Identifier: GPL-2.0-only
"""Reads kernel messages of a case."""

import contextlib
import os
import re

SPLAT = re.compile(r"WARNING:|BUG:|Oops|KASAN|UBSAN|kernel panic|general protection|possible circular locking|"
                   r"possible recursive locking|inconsistent lock state|suspicious RCU|blocked for more than|"
                   r"soft lockup|rcu_\w+ detected stall|unregister_netdevice: waiting|refcount_t|DEBUG_LOCKS_WARN|"
                   r"sleeping function called|scheduling while atomic|unreferenced object|rust_kernel: panicked")


class Log:
    def __init__(self):
        try:
            self._file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError:
            self._file = None

    def lines(self):
        """Returns the messages since the last call."""
        lines = []
        while self._file is not None:
            try:
                record = os.read(self._file, 8192).decode(errors="replace")
            except BlockingIOError:
                break
            except OSError:         # EPIPE: the ring has overwritten unread records
                continue
            lines.append(record.split(";", 1)[-1].split("\n")[0])
        return lines


def splats(lines):
    """Returns messages that a healthy kernel does not print, with a few lines after them."""
    for index, line in enumerate(lines):
        if SPLAT.search(line):
            return lines[index:index + 25]
    return []


def ask_module():
    """Makes the module log the reasons of failed connections (docs/debugging.md) in the kernel's
    log. The console is excluded because it is slow."""
    with contextlib.suppress(OSError):      # a kernel without dynamic debug
        with open("/proc/dynamic_debug/control", "w") as control:
            control.write("module ib_sdp +p")
        with open("/proc/sys/kernel/printk", "w") as levels:
            levels.write("7 4 1 7")


def failures(lines):
    """Returns the module's messages about failed connections."""
    return [line for line in lines if line.startswith("ib_sdp: ") and " a queue pair for " not in line]
