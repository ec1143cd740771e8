# SPDX-License-Identifier: GPL-2.0-only
"""Creates as many sockets as the limits allow."""

import contextlib

from lib import observe
from lib.registry import case


@contextlib.contextmanager
def parameter(name, value):
    path = f"/sys/module/ib_sdp/parameters/{name}"
    with open(path) as file:
        before = file.read()
    with open(path, "w") as file:
        file.write(str(value))
    try:
        yield
    finally:
        with open(path, "w") as file:
            file.write(before)


@case(reference=False, families=("v4",))
def sockets(e):
    """At the limits of a user and of a namespace, socket(2) fails with ENOBUFS, and the module
    counts the failure. Other users are affected only if they share the limit."""
    for name, others in (("max_sockets_per_user", "a socket"), ("max_sockets_per_net", "ENOBUFS")):
        e.until(lambda: not observe.rows(), "no sockets of others")
        before = observe.stats()["- limit reached"]
        with parameter(name, 3):
            mine = [e.socket() for _ in range(3)]
            e.equal(e.outcome(e.socket), "ENOBUFS", f"{name}: one more")
            e.equal(e.as_user(e.socket), others, f"{name}: another user's")
            e.equal(e.outcome(e.socket, "peer"), "a socket", f"{name}: in another namespace")
            mine.pop().close()
            e.equal(e.outcome(e.socket), "a socket", f"{name}: in place of a closed one")
        e.equal(observe.stats()["- limit reached"], before + 1 + (others == "ENOBUFS"), f"{name}: the counter")
        e.equal(e.outcome(e.socket), "a socket", "with the limit away")
        for sock in [thing for thing in e._keep if hasattr(thing, "close")]:
            sock.close()
