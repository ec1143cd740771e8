# SPDX-License-Identifier: GPL-2.0-only
"""Memory that shows whether it was written: the kernel poisons freed memory, and does not clear
memory on allocation."""

import pathlib

from suites.zcopy.blocks import MIB, eager

# Kernel command line of the guest for this test (set by scripts/test).
ARGUMENTS = "init_on_alloc=0 slub_debug=P page_poison=1"
# Poison of freed objects and pages, and of objects without a first write.
POISON = (0x6B, 0x5A, 0xAA)
# Contents that other connections have left in buffers.
STALE = 0xC7


def needs_poison(e):
    words = pathlib.Path("/proc/cmdline").read_text().split()
    if not set(ARGUMENTS.split()) <= set(words):
        e.skip(f'memory is not poisoned here (qemu/guest --append "{ARGUMENTS}")')
    slabs = pathlib.Path("/sys/kernel/slab")
    flags = {path.parent.name: path.read_text().strip() for path in slabs.glob("kmalloc-*/poison")}
    e.check(flags and set(flags.values()) == {"1"}, f"poison in objects of {flags or sorted(path.name for path in slabs.glob('*'))}")


def stale(e, listener):
    """A connection that fills its buffers in both directions, then closes."""
    near, far = e.pair(listener)
    data = bytes([STALE]) * MIB
    for source, target in ((near, far), (far, near)) * 2:
        task = e.task(source.sendall, data)
        e.equal(target.recv_exactly(MIB), data, "what was sent")
        task.result()
        eager(source)
    near.close()
    far.close()


def poison_in(raw, least=4):
    """Finds runs of poison bytes, or of bytes of other connections."""
    found = [raw.find(bytes([byte]) * least) for byte in (*POISON, STALE)]
    return [at for at in found if at >= 0]
