# SPDX-License-Identifier: GPL-2.0-only
"""Frequency of the time-stamp counter that an emulated guest reads.

On a busy host the guest's kernel cannot measure the frequency by the PIT ("tsc: Unable to calibrate
against PIT"), and has no other clock without ACPI. The kernel then counts ticks: times are
multiples of 4 ms.
"""

import ctypes
import mmap
import platform
import time

# rdtsc; shl $32, %rdx; or %rdx, %rax; ret
CODE = bytes.fromhex("0f3148c1e2204809d0c3")
SECONDS = 0.1
# With -icount QEMU's counter is its virtual time in nanoseconds.
COUNTED = 1_000_000


def host():
    """Returns the frequency of this machine's counter in kHz, which the emulator reads. None: the
    host has no such counter."""
    if platform.machine() != "x86_64":
        return None
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(CODE)
    pointer = ctypes.c_char.from_buffer(page)
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(pointer))

    def both():
        """Reads nanoseconds and ticks at the same time: the pair of readings with the least delay
        between them."""
        readings = [(time.monotonic_ns(), read(), time.monotonic_ns()) for _ in range(50)]
        before, ticks, after = min(readings, key=lambda reading: reading[2] - reading[0])
        return (before + after) / 2, ticks

    (start, first), _, (end, last) = both(), time.sleep(SECONDS), both()
    return round((last - first) * 1e6 / (end - start))


def argument(accel):
    """Returns the argument for the guest's kernel, in a list."""
    khz = COUNTED if accel == "icount" else host() if accel == "tcg" else None
    return [f"tsc_early_khz={khz}"] if khz else []
