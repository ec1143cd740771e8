# SPDX-License-Identifier: GPL-2.0-only
"""Random calls guided by the module code that the calls reach, on a kernel with KCOV (`env SEED=7
STEPS=20000` for longer).

An input is a few steps of a caller, determined by its random numbers. The guide keeps an input that
reaches new code, and derives later inputs from it: with some numbers changed, truncated, or as the
beginning of one and the end of another. The threads of a process share the kept inputs. Concurrent
calls affect each other, so a seed repeats the random numbers but not the results."""

import ctypes
import fcntl
import mmap
import os
import pathlib
import random
import threading

from lib import faults
from lib.registry import case
from suites.syscall_fuzz.calls import STEPS, rage

KCOV = pathlib.Path("/sys/kernel/debug/kcov")
INIT, ENABLE, DISABLE = 0x80086301, 0x6364, 0x6365
# Number of program counters recorded for one input.
ROOM = 1 << 16
DEED = 8
MOST_KEPT = 300
BITS = 64


class Trace:
    """Program counters within the module that system calls of the calling thread pass."""

    def __init__(self):
        self._file = os.open(KCOV, os.O_RDWR)
        fcntl.ioctl(self._file, INIT, ROOM)
        self._libc = ctypes.CDLL(None)          # Python's own mmap() treats the KCOV file as a file without a length
        self._libc.mmap.restype, self._libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        self._libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._at = self._libc.mmap(None, ROOM * 8, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, self._file, 0)
        self._area = (ctypes.c_uint64 * ROOM).from_address(self._at)
        self._start, self._end = faults.text_of_module()
        fcntl.ioctl(self._file, ENABLE, 0)

    def begin(self):
        self._area[0] = 0

    def reached(self):
        return {pc for pc in self._area[1:self._area[0] + 1] if self._start <= pc < self._end}

    def close(self):
        fcntl.ioctl(self._file, DISABLE, 0)
        self._libc.munmap(self._at, ROOM * 8)
        os.close(self._file)


class Dice(random.Random):
    """Records random numbers; given numbers are replayed first."""

    def begin(self, draws):
        """The given `draws` are used first; None stands for a random number."""
        self._draws, self.shown = draws, []

    def _draw(self):
        at = len(self.shown)
        draw = self._draws[at] if at < len(self._draws) else None
        self.shown.append(super().getrandbits(BITS) if draw is None else draw)
        return self.shown[-1]

    def random(self):
        return (self._draw() >> 11) / (1 << 53)

    def getrandbits(self, bits):
        value = 0
        for _ in range(0, bits, BITS):
            value = value << BITS | self._draw()
        return value >> (-bits % BITS)


class Kept:
    """The kept inputs of a process, and all code that was reached."""

    def __init__(self, seed):
        self._lock, self._dice = threading.Lock(), random.Random(seed)
        self._deeds, self.reached, self.found = [], set(), 0

    def next(self):
        with self._lock:
            dice = self._dice
            if not self._deeds or dice.random() < 0.3:
                return []
            draws = list(dice.choice(self._deeds))
            way = dice.randrange(3)
            if way == 0:
                for _ in range(dice.randrange(1, 5)):
                    draws[dice.randrange(len(draws))] = None
            elif way == 1:
                del draws[dice.randrange(len(draws)):]
            else:
                other = dice.choice(self._deeds)
                draws[dice.randrange(len(draws)):] = other[dice.randrange(len(other)):]
            return draws

    def done(self, draws, reached):
        with self._lock:
            if reached <= self.reached:
                return
            self.reached |= reached
            self.found += 1
            if len(self._deeds) < MOST_KEPT:
                self._deeds.append(draws)
            else:
                self._deeds[self._dice.randrange(MOST_KEPT)] = draws


class Guide:
    """Guides the callers of one process."""

    def __init__(self, seed):
        self._kept = Kept(seed)

    def lead(self, caller, steps):
        caller.dice, trace = Dice(caller.dice.getrandbits(BITS)), Trace()
        try:
            while caller.steps < steps:
                caller.dice.begin(self._kept.next())
                trace.begin()
                for _ in range(min(DEED, steps - caller.steps)):
                    caller.step()
                self._kept.done(caller.dice.shown, trace.reached())
        finally:
            trace.close()

    def found(self):
        return self._kept.reached, self._kept.found


@case(reference=False, families=("v4",), timeout=900)
def guided(e):
    """Does the same as syscall_fuzz.calls.threads, guided by coverage."""
    if not KCOV.exists():
        e.skip("this kernel does not report the code that a call reaches")
    found = rage(e, int(os.environ.get("STEPS", STEPS // 3)), Guide)
    for reached, _ in found:
        e.check(reached, "no code of the module is known to have been reached")
    e.note("program counters in the module", len(set().union(*(reached for reached, _ in found))))
    e.note("deeds that reached what none before them had, by process", [deeds for _, deeds in found])
