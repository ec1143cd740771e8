# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel logged during a case."""

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
        """Lines since the last call."""
        lines = []
        while self._file is not None:
            try:
                record = os.read(self._file, 8192).decode(errors="replace")
            except BlockingIOError:
                break
            except OSError:         # EPIPE: the ring overran us
                continue
            lines.append(record.split(";", 1)[-1].split("\n")[0])
        return lines

    def splats(self):
        """Lines since the last call that no kernel in order writes, with a little of what follows."""
        lines = self.lines()
        for index, line in enumerate(lines):
            if SPLAT.search(line):
                return lines[index:index + 25]
        return []
