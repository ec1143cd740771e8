# SPDX-License-Identifier: GPL-2.0-only
"""Every method to send and to receive, with the parameters of the module at their bounds.

    env SEED=7 ONLY=sdp_rx_size=8 tests/guest/run ways.extremes    # one of the settings again"""

import errno
import os
import pathlib
import random
import re

from lib.env import Child
from lib.registry import case
from suites.ways.connection import TIME, change, parameter, play

TABLE = (pathlib.Path(__file__).parents[4] / "src/sys/params.def").read_text()
ROWS = re.findall(r"^P\((\w+), (-?\d+), (-?\d+), (-?\w+), 0644,", TABLE, re.M)
# Each connection has its own value.
OTHERS = ("local_transport",)
# Parameters that refuse connections at these values, some over RDMA only.
REFUSING = {"max_sockets_per_user": 0, "max_sockets_per_net": 0, "max_buffer_memory": 0, "sdp_link_layer_ib_only": 1}
STEPS = 12


def values(name, default, least, most):
    bounds = {int(least), int(most.replace("INT_MAX", str(2**31 - 1)))}
    return sorted(bounds | ({0} if int(least) < 0 else set()) - {int(default)}) if name not in OTHERS else []


def settings():
    """Yields each bound alone, then all bounds together."""
    rows = [(row[0], values(*row)) for row in ROWS if row[0] not in OTHERS]
    for name, some in rows:
        for value in some:
            yield f"{name}={value}", {name: value}
    for name, which in (("least", min), ("greatest", max), ("zero", lambda some: min(some, key=abs))):
        yield name, {name: which(some) for name, some in rows if some and REFUSING.get(name) != which(some)}


def attempt(e, seed, number, refusing):
    try:
        return play(e, seed, number, STEPS, {})
    except OSError as error:
        if refusing and error.errno in (errno.ENOBUFS, errno.ENOMEM, errno.ENETUNREACH, errno.ECONNREFUSED, errno.EHOSTUNREACH):
            return 0, None
        raise


@case(reference=False, families=("v4",), timeout=3000, brief=False)
def extremes(e):
    """Data arrives completely, or a limit refuses the connection."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 20))
    e.note("seed", seed)
    before = {row[0]: open(parameter(row[0])).read() for row in ROWS}
    for number, (name, given) in enumerate(settings()):
        if os.environ.get("ONLY") not in (None, name):
            continue
        try:
            for one, value in given.items():
                change(one, value)
            refusing = any(REFUSING.get(one) == value for one, value in given.items())
            for transport in (0, 2):
                count, why = Child(TIME + 60, attempt, e, seed, 4 * number + transport, refusing).result()
                e.check(not why, f"SEED={seed} ONLY={name}: {why}")
                e.check(count or refusing, f"SEED={seed} ONLY={name}: no connection")
        finally:
            for one, value in before.items():
                change(one, value)
