# SPDX-License-Identifier: GPL-2.0-only
"""Effects of keepalive and user time-out, tested by a wrong neighbour entry that interrupts the
link."""

import contextlib
import json
import os
import select
import socket
import struct
import time

from lib import calls, netns, observe
from lib.env import OneOf
from lib.registry import case
from lib.tracing import work_of_the_module

SOL, TCP = socket.SOL_SOCKET, socket.IPPROTO_TCP
BEDS = (1, 2)


def unanswered(e):
    """Returns `observe.unanswered`, and 0 on the reference family."""
    return observe.unanswered() if e.sdp else 0


@contextlib.contextmanager
def cut(e):
    """Drops packets from this host to the peer for a while. Yields the value of `unanswered` before
    the cut."""
    device = netns.device()
    right = json.loads(netns.run("peer", "ip -j link show dev " + netns.device("peer")))[0]["address"]
    netns.run("self", f"ip neigh replace {e.there} lladdr 02:00:00:00:00:99 dev {device} nud permanent")
    try:
        yield unanswered(e)
    finally:
        netns.run("self", f"ip neigh replace {e.there} lladdr {right} dev {device} nud reachable")


def lost(e, near, before, what):
    """Checks that the socket has the error of a silent peer, and that the error was counted."""
    e.note("error", e.error(calls.recv, near, 1), sdp=OneOf("ETIMEDOUT", "ECONNRESET"), because=f"the device's retries may give up before the {what}")
    if e.sdp:
        e.equal(unanswered(e), before + 1, "connections that were counted as lost")


def keepalive(sock):
    sock.set(SOL, socket.SO_KEEPALIVE, 1)
    sock.set(TCP, socket.TCP_KEEPIDLE, 1)
    sock.set(TCP, socket.TCP_KEEPINTVL, 1)
    sock.set(TCP, socket.TCP_KEEPCNT, 2)


@contextlib.contextmanager
def probes(e, state):
    """Waits at its end until several probes were sent. On iWARP (siw) a probe is a message, and the
    peer replies by one message at most."""
    before = observe.stats()
    yield

    def since(name):
        return observe.stats()[name] - before[name]

    e.until(lambda: since("keepalive timer") >= 2, f"{state}: two probes")
    if os.path.exists("/sys/class/infiniband/siw0"):
        e.until(lambda: since("received SDP_MID_DATA") >= 2, f"{state}: two replies")
        e.check(since("received SDP_MID_DATA") <= 2 * since("keepalive timer") + 1, f"{state}: too many replies")


@case(timeout=60, hosts=BEDS)
def idle_connection_lives(e):
    """Probes that the peer answers change nothing."""
    near, far = e.pair(prepare=keepalive)
    near.set(TCP, socket.TCP_KEEPCNT, 100)      # a busy machine may answer late
    with probes(e, "idle") if e.sdp else contextlib.nullcontext():
        e.note("quiet", near.mask_when(select.POLLIN, 4))
    e.note("mask", near.mask())
    near.send(b"still here")
    e.note("data", far.recv(20))


def ends(e, near, far):
    near.shutdown(socket.SHUT_WR)
    e.equal(far.recv(1), b"", "the end")


STATES = {
    "this end has ended its stream": lambda e, near, far: ends(e, near, far),
    "the peer has ended its stream": lambda e, near, far: ends(e, far, near),
    "the peer's buffer is full": lambda e, near, far: e.fill(near),
    "this end's buffer is full": lambda e, near, far: e.fill(far),
    "the peer probes too": lambda e, near, far: keepalive(far),
}


@case(reference=False, timeout=120, hosts=(2,))
def probes_in_each_state(e):
    """The peer's kernel replies to probes, whatever its program does."""
    for state, enter in STATES.items():
        near, far = e.pair()
        enter(e, near, far)
        with probes(e, state):
            keepalive(near)
            near.set(TCP, socket.TCP_KEEPCNT, 100)
        e.check("ERR" not in near.mask(), f"{state}: the connection is lost")
        near.close()
        far.close()


@case(timeout=90, hosts=BEDS)
def dead_peer_is_noticed(e):
    near, far = e.pair(prepare=keepalive)
    near.send(b"x")
    far.recv(1)
    with cut(e) as before:
        mask = near.mask_when(select.POLLIN, e.patience * 4)
        e.note("mask", mask)
        lost(e, near, before, "probes do")


@case(timeout=90, hosts=BEDS)
def dead_peer_is_noticed_after_shutdown(e):
    """An end that has shut down its stream still gets an error when the peer dies."""
    near, far = e.pair(prepare=keepalive)
    near.shutdown(socket.SHUT_WR)
    e.equal(far.recv(1), b"", "the end")
    with cut(e) as before:
        e.note("mask", near.mask_when(select.POLLIN, e.patience * 4))
        lost(e, near, before, "probes do")


@case(reference=False, timeout=60)
def nothing_is_due_when_lost(e):
    """A socket with held-back bytes, whose connection is lost and that is not closed, uses no
    processor time."""
    near, far = e.pair()
    near.set(TCP, socket.TCP_CORK, 1)
    near.send(b"held back")
    far.set(SOL, socket.SO_LINGER, struct.pack("=ii", 1, 0))
    far.close()
    e.until(lambda: "ERR" in near.mask(), "the end")
    with work_of_the_module() as count:
        e.quiet(near, 0, 1)
        e.check(count() < 20, f"{count()} work items within a second")


@case(timeout=90, hosts=BEDS)
def late_keepalive(e):
    """Keepalive is enabled when the connection is already idle."""
    near, _ = e.pair()
    with cut(e) as before:
        keepalive(near)
        e.check(near.mask_when(select.POLLIN, e.patience * 4), "nothing was noticed")
        lost(e, near, before, "probes do")


@case(timeout=90)
def user_timeout(e):
    """A connection ends if the peer does not acknowledge data for TCP_USER_TIMEOUT."""
    near, far = e.pair(prepare=lambda sock: sock.set(TCP, socket.TCP_USER_TIMEOUT, 1500))
    near.send(b"x")
    far.recv(1)
    with cut(e) as before:
        start = time.monotonic()
        near.send(b"unheard")
        e.check(near.mask_when(select.POLLIN, e.patience * 4), "nothing was noticed")
        e.check(time.monotonic() - start > 1, "it gave up too early")
        lost(e, near, before, "time-out does")


@case(timeout=180)
def late_connect(e):
    """connect(2) repeats its request for as long as TCP does."""
    e.pair()        # so that both hosts know each other's hardware address
    listener = e.listen()
    near = e.socket()
    with cut(e):
        connects = e.task(near.connect, e.address(e.there, listener.port))
        time.sleep(27)
        e.equal(connects.is_alive(), True, "connect() waits for a silent peer")
    connects.result()
    e.note("mask", near.mask())


@case(timeout=60)
def short_cut_heals(e):
    """A short interruption of the link loses nothing."""
    near, far = e.pair()
    near.send(b"before ")
    e.unread(far, 7)
    with cut(e):
        near.send(b"during ")
        e.quiet(far, select.POLLPRI, 0.3)
    near.send(b"after")
    e.note("data", far.recv_exactly(19))
