# SPDX-License-Identifier: GPL-2.0-only
"""A device that differs from rxe: rxe as changed by tests/guest/kernel/adverse.c and iommu.c."""

import contextlib
import os
import pathlib
import random
import shutil
import subprocess

from . import netns

BUILT = pathlib.Path(__file__).resolve().parents[3] / "build" / "tests" / os.uname().release / "sdp_adverse.ko"
PARAMETERS = pathlib.Path("/sys/module/sdp_adverse/parameters")


def load():
    """Loads the module. Returns true if the module is loaded."""
    if PARAMETERS.exists():
        return True
    if not BUILT.exists() or not shutil.which("rdma") or subprocess.run(["insmod", BUILT]).returncode != 0:
        return False
    # applies to new queues and regions only; earlier ones are cached for new connections
    renew()
    return True


def behave(**settings):
    """Applies the settings for a case. Returns them."""
    for file in PARAMETERS.iterdir():
        if file.stat().st_mode & 0o200 and (file.name != "seed" or "seed" in settings):
            file.write_text(str(int(settings.get(file.name, 0))))


def read(name):
    return int((PARAMETERS / name).read_text().translate({ord("Y"): "1", ord("N"): "0"}))


def has_iommu():
    """Returns true if devices can have an IOMMU: the kernel lets a module implement it."""
    return read("iommu_possible")


def renew():
    """Creates the devices of both hosts again."""
    for where, name in zip(netns.hosts(), ("rxe0", "rxe1")):
        device = netns.device(where)
        netns.run(where, f"rdma link del {name}")
        netns.run(where, f"rdma link add {name} type rxe netdev {device}")


@contextlib.contextmanager
def device(e, **settings):
    """Applies settings to the device during a block."""
    if not load():
        e.skip("the module is not built (scripts/test-module), or the rdma tool is missing")
    behave(**settings)
    renewed = settings.get("iommu", 0)
    if renewed:
        if not has_iommu():
            e.skip("this kernel has no DMA operations of devices")
        renew()
    try:
        yield
    finally:
        behave()
        if renewed:
            renew()


# Settings that affect only the timing of programs, with their maximum, and settings that change the
# methods of sending blocks.
UNSEEN = {"unarmed": 1, "one": 1, "none": 3, "spurious": 50, "late": 300, "sent_late": 1000, "received_late": 300, "elsewhere": 1, "busy": 2}
IN_BLOCKS = {"limits": 1}
# Settings that wake pollers without an event. With EPOLLET a wakeup without an event is one more
# edge, which epoll(7) allows.
FOR_NOTHING = ("spurious", "none")


def suits(case, settings):
    """Returns true if the case must behave as on TCP with these settings of the device."""
    return not case.name.startswith("poll.epoll.edge") or not any(name in settings for name in FOR_NOTHING)


class Mixture:
    """Runs all cases, each on a device chosen by a seed, all of them with an IOMMU."""

    def __init__(self, seed):
        self._seed = seed

    def begin(self):
        """Returns true if such devices are possible in this kernel."""
        if not load():
            return False
        if has_iommu():
            behave(iommu=3)
            renew()
        return True

    def behave(self, case):
        """Applies the settings for a case; returns them as text."""
        dice = random.Random(f"{self._seed} {case.name}")
        may = UNSEEN if case.suite == "zcopy" or "zero_copy" in case.name else UNSEEN | IN_BLOCKS
        may = {name: most for name, most in may.items() if suits(case, [name])}
        settings = {name: dice.randint(1, may[name]) for name in dice.sample(list(may), dice.randint(1, 4))}
        behave(iommu=3, seed=dice.randint(1, 1 << 30), **settings)
        return f"by --adverse {self._seed}: {settings}"
