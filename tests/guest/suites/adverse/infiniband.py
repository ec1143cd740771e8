# SPDX-License-Identifier: GPL-2.0-only
"""Differences of InfiniBand: paths of a subnet manager with LIDs, no GRH, a P_Key and a service
level; interfaces named by IPoIB; a slow subnet manager (tests/guest/kernel/infiniband.c)."""

import socket
import time

from lib import adverse, either
from lib.registry import case

from .failures import nothing_left, transfer, works_again

LEVEL = 3
TOTAL = 100_000
# A P_Key missing from rxe's ports.
NO_PKEY = 0x8001
LATE = 1.2


@case(reference=False, families=("v4",), timeout=120)
def path(e):
    """The connection request uses the path and the service level of the subnet manager, whatever
    SO_PRIORITY is. With link_layer_ib_only, neither end of the connection would have Ethernet."""
    listener = e.listen()
    with either.parameters(sdp_link_layer_ib_only=1):
        e.equal(e.error(e.socket().connect, e.address(e.there, listener.port)), "ENETUNREACH", "by Ethernet")
        with adverse.device(e, infiniband=1, sm_level=LEVEL):
            for number, priority in enumerate((None, 6), 1):
                near = e.socket()
                if priority is not None:
                    near.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
                near.connect(e.address(e.there, listener.port))
                far = e.keep(listener.accept()[0])
                e.equal(adverse.read("sm_paths"), number, "requests by the subnet manager's path")
                e.equal(transfer(e, (near, far), TOTAL, False), [TOTAL] * 4, "bytes")
                near.close()
                far.close()
    works_again(e)


@case(reference=False, families=("v4",), timeout=120)
def partition(e):
    """The port does not belong to the partition of the path."""
    listener = e.listen()
    with adverse.device(e, infiniband=1, sm_pkey=NO_PKEY):
        got = e.error(e.socket().connect, e.address(e.there, listener.port))
        e.check(got in ("ENETUNREACH", "EHOSTUNREACH"), f"connect() gave {got}")
    works_again(e)


@case(reference=False, families=("v4",), timeout=120)
def late(e):
    """The subnet manager takes more than a second: a blocking connect(2) then succeeds, a
    non-blocking one gets its event, and a closed socket leaves no resource."""
    listener = e.listen()
    with adverse.device(e, infiniband=1, sm_late=int(LATE * 1000)):
        since = time.monotonic()
        near = e.socket()
        near.connect(e.address(e.there, listener.port))
        e.check(time.monotonic() - since >= LATE, "nobody was asked for the path")
        far = e.keep(listener.accept()[0])
        e.equal(transfer(e, (near, far), TOTAL, False), [TOTAL] * 4, "bytes")

        waiting = e.socket()
        waiting.setblocking(False)
        e.equal(e.error(waiting.connect, e.address(e.there, listener.port)), "EINPROGRESS", "without waiting")
        e.check("OUT" in e.wait(waiting, 4), "not told of the connection")
        e.equal(waiting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0, "its error")

        gone = e.socket()
        gone.setblocking(False)
        e.equal(e.error(gone.connect, e.address(e.there, listener.port)), "EINPROGRESS", "without waiting")
        since = time.monotonic()
        gone.close()
        e.check(time.monotonic() - since < LATE / 2, "close() waits for the subnet manager")
        nothing_left(e)
    works_again(e)


@case(reference=False, families=("v4",), timeout=120)
def silent(e):
    """The subnet manager does not reply: connect(2) fails with EHOSTUNREACH, or with EINPROGRESS at
    the end of a time limit."""
    listener = e.listen()
    with adverse.device(e, infiniband=1, sm_silent=1):
        hurried = e.socket()
        hurried.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, (0).to_bytes(8, "little") + (200_000).to_bytes(8, "little"))
        e.equal(e.error(hurried.connect, e.address(e.there, listener.port)), "EINPROGRESS", "with a limit")
        hurried.close()
        got = e.error(e.socket().connect, e.address(e.there, listener.port))
        e.equal(got, "EHOSTUNREACH", "connect()")
        nothing_left(e)
    works_again(e)


@case(reference=False, families=("v4",), timeout=60)
def no_connection_manager(e):
    """A device that neither ib_cm nor iw_cm serves, such as EFA, is not used for SDP: connect(2)
    fails at once, and IPPROTO_SDP sockets use TCP."""
    listener, both = e.listen(), either.listen(e)
    with adverse.device(e, no_cm=1):
        e.equal(e.error(e.socket().connect, e.address(e.there, listener.port)), "ENETUNREACH", "connect()")
        with either.parameters(ipproto_memory=0), either.counts(e, tcp_unreachable=1):
            near = either.connect(e, both)
            e.equal(either.protocol(near), either.TCP, "the protocol")
            either.echo(e, near, either.accept(e, both))
    works_again(e)
