# SPDX-License-Identifier: GPL-2.0-only
"""Patterns of a kernel's messages about its own faults."""

import re

# One line of each kind of report. Taint messages ("loading out-of-tree module taints kernel",
# "module verification failed") do not count, nor do the messages of fault injection.
COMPLAINT = re.compile(
    "|".join((
        r"\bWARNING: ",  # WARN(), lockdep, suspicious RCU usage
        r"\bBUG\b[: ]",  # BUG:, slab's "BUG kmalloc-64", KASAN, KCSAN, KFENCE, soft lockup
        r"kernel BUG at",
        r"\bOops\b",
        r"general protection fault",
        r"unable to handle",
        r"Kernel panic",
        r"UBSAN: ",
        r"KASAN: ",
        r"INFO: task .* blocked for more than",
        r"INFO: rcu\S* .*(?:stall|detected)",
        r"rcu: INFO: .*(?:stall|detected)",
        r"INFO: trying to register non-static key",
        r"INFO: possible ",
        r"INFO: suspicious ",
        r"INFO: inconsistent lock state",
        r"hard LOCKUP|soft lockup",
        r"ODEBUG: ",
        r"DEBUG_LOCKS_WARN_ON",
        r"unreferenced object 0x|kmemleak: \d+ new suspected",
        r"unregister_netdevice: waiting for",
        r"ref_tracker: .*(?:has|leaked)",
        r"list_(?:add|del) corruption",
        r"panicked at",  # Rust
    ))
)
# Advice about the processor's own faults, from kernels whose mitigations are off.
ADVICE = re.compile(r"Spectre V2 : WARNING")
# Number of lines after the first report that are shown with it.
FOLLOWING = 30
SHOWN = 20


class Complaints:
    """Collects the reports of faults from the lines of one console."""

    def __init__(self):
        self.lines = []
        self.first = []

    def look_at(self, line):
        found = COMPLAINT.search(line)
        if found and not ADVICE.search(line):
            self.lines.append(line)
        if self.lines and len(self.first) <= FOLLOWING:
            self.first.append(line)
