# SPDX-License-Identifier: GPL-2.0-only
"""Devices that fail: accepted bytes arrive completely or both ends get an error, no call waits for
ever, and no resource is left. Random choices come from the seed (`env ADVERSE_SEED=7
tests/guest/run adverse`)."""

import contextlib
import os
import random
import select
import shutil
import socket
import struct

from lib import adverse, either, netns, pattern
from lib.env import CaseFailure
from lib.registry import case

from ..faults.nth import nothing_left
from ..zcopy.blocks import eager

SEED = int(os.environ.get("ADVERSE_SEED", "1"))
TOTAL = 400_000
# Possible errors of a call after a lost connection, or without memory.
LOST = ("ECONNABORTED", "ECONNRESET", "EPIPE", "ETIMEDOUT", "ENOTCONN")
REFUSED = (*LOST, "ECONNREFUSED", "ENOMEM", "ENETUNREACH", "EHOSTUNREACH", "ENETRESET", "ENODEV", "EADDRNOTAVAIL", "EINVAL")
# Settings that can end a connection, one at a time.
FAILURES = {
    "create": dict(fail_create=200),
    "post": dict(fail_post=30),
    "reg": dict(fail_reg=300),
}
# enum ib_event_type
EVENTS = {"DEVICE_FATAL": 8, "PORT_ACTIVE": 9, "PORT_ERR": 10, "LID_CHANGE": 11, "PKEY_CHANGE": 12, "SM_CHANGE": 13,
          "CLIENT_REREGISTER": 17, "GID_CHANGE": 18}


class Lost(Exception):
    """The connection could not be made."""


def connected(e, listener, zero_copy):
    """Returns both ends of a new connection."""
    near = e.socket()
    got = e.error(near.connect, e.address(e.there, listener.port))
    if got != "ok":
        e.check(got in REFUSED, f"connect() gave {got}")
        raise Lost(got)
    while select.select([listener, near], [], [], e.patience * 3)[0]:
        if not select.select([listener], [], [], 0)[0]:
            got = e.error(near.recv, 1)
            e.check(got in LOST, f"recv() of what nobody accepted gave {got}")
            raise Lost(got)
        far = e.keep(listener.accept()[0])
        # the listener may have accepted a connection although the connector's connect() has failed
        if e.outcome(far.getpeername) == near.getsockname():
            break
        far.close()
    else:
        raise CaseFailure("connect() succeeded, but accept() has neither a connection nor an error")
    if zero_copy:
        eager(near)
        eager(far)
    return near, far


def send(e, source, *args):
    """A send(2) that fails for lack of memory accepts no bytes: the program then ends its
    stream."""
    if (sent := e.outcome(pattern.send, source, *args)) == "ENOMEM":
        e.outcome(source.shutdown, socket.SHUT_WR)
    return sent


def transfer(e, pair, total, zero_copy, during=lambda: None):
    """Sends the given number of bytes in both directions. Returns the errors of the calls."""
    sizes, flags = ([65536, 130_000], socket.MSG_WAITALL) if zero_copy else ([1, 70_000, 3000], 0)
    tasks = []
    for seed, (source, target) in enumerate((pair, pair[::-1])):
        tasks.append(e.task(send, e, source, seed, total, sizes, socket.MSG_NOSIGNAL))
        tasks.append(e.task(e.outcome, pattern.receive, target, seed, total, [130_000], flags))
    during()
    ends = [task.result() for task in tasks]
    for sent, received, peer_sent in (ends[0], ends[3], ends[2]), (ends[2], ends[1], ends[0]):
        e.check(sent in (total, "ENOMEM", *LOST), f"calls ended with {ends}")
        # as on TCP, one call of a socket returns the error, and the next call the end of the
        # stream; a reader of a stream that ends early gets the same results
        told = received in LOST or sent != total
        e.check(received == total or told or peer_sent == "ENOMEM", f"calls ended with {ends}")
    return ends


def exchange(e, listener, zero_copy, during=lambda: None, total=TOTAL, told=None):
    """Runs one connection. Returns true if the connection survived. `told` collects the errors of
    the calls."""
    try:
        pair = connected(e, listener, zero_copy)
    except Lost:
        during()
        return False
    ends = transfer(e, pair, total, zero_copy, during)
    for sock in pair:
        sock.close()
    if told is not None:
        told += ends
    return ends == [total] * 4


def works_again(e):
    """Checks that no resource of earlier connections is left and that a new connection works."""
    nothing_left(e)
    e.check(exchange(e, e.listen(), False), "a connection is lost though nothing fails any more")
    e.check(exchange(e, e.listen(), True), "a connection is lost though nothing fails any more")
    nothing_left(e)


def failing(name, settings):
    def run(e):
        """Connections that a fault hits end; all other connections continue."""
        # each connection creates its own queues
        with either.parameters(spare_queues=0), adverse.device(e, seed=SEED, **settings):
            listener = e.listen()
            ends = [exchange(e, listener, number % 2 > 0) for number in range(12)]
            e.check(not all(ends), "nothing has failed")
        works_again(e)
    run.__name__ = name
    run.__module__ = __name__
    case(run, reference=False, families=("v4",), timeout=180)


for _name, _settings in FAILURES.items():
    failing(_name, _settings)


@case(reference=False, families=("v4",), timeout=180)
def mapping(e):
    """Memory that does not fit into one memory region is copied."""
    with adverse.device(e, seed=SEED, fail_map=400):
        listener = e.listen()
        for _ in range(6):
            e.check(exchange(e, listener, True), "a connection is lost")
    works_again(e)


@case(reference=False, families=("v4",), timeout=180)
def elsewhere(e):
    """The device reports events late, merged, and on another processor."""
    for late in (0, 300):
        with adverse.device(e, elsewhere=1, late=late, spurious=20):
            for zero_copy in (False, True):
                e.check(exchange(e, e.listen(), zero_copy), "a connection is lost")
    works_again(e)


@case(reference=False, families=("v4",), timeout=180)
def by_itself(e):
    """Idle and busy queue pairs enter the error state spontaneously: waiting tasks get the
    error."""
    with adverse.device(e, seed=SEED):
        listener = e.listen()
        pair = connected(e, listener, False)
        tasks = [e.task(e.outcome, sock.recv, 10).wait_asleep("recvfrom") for sock in pair]
        adverse.behave(fatal=1000)
        for task in tasks:
            e.check(task.result() in LOST, f"recv() gave {task.result()}")
        for zero_copy in (False, True, False, True):
            ends = exchange(e, listener, zero_copy, lambda: adverse.behave(fatal=700), 1 << 24)
            e.check(not ends, "a connection has lived on")
    works_again(e)


@case(reference=False, families=("v4",), timeout=180)
def told(e):
    """Asynchronous events of the device and its port do not end a connection."""
    with adverse.device(e):
        for name, number in EVENTS.items():
            ends = exchange(e, e.listen(), False, lambda: adverse.behave(event=number))
            e.check(ends, f"a connection is lost by {name}")
    works_again(e)


# Random settings of a device, each with its maximum.
LIBERTIES = {
    "unarmed": 1, "one": 1, "none": 4, "spurious": 60, "late": 3000, "sent_late": 3000, "received_late": 3000, "elsewhere": 1, "limits": 15,
    "fail_create": 100, "fail_post": 10, "fail_map": 300, "fail_reg": 100, "busy": 3,
}
ROUNDS = 12


def mixed(e, removes):
    """Random settings and random events during transfers, with and without a device removal."""
    dice = random.Random(SEED)
    device = netns.device()

    def happens():
        what = dice.choice(("nothing", "fatal", "event"))
        if what == "fatal":
            (adverse.PARAMETERS / "fatal").write_text("300")
        if what == "event":
            (adverse.PARAMETERS / "event").write_text(str(dice.choice(list(EVENTS.values()))))
        if removes:
            netns.run("self", "rdma link del rxe0")

    for turn in range(e.rounds(ROUNDS)):
        settings = {name: dice.randint(1, LIBERTIES[name]) for name in dice.sample(list(LIBERTIES), dice.randint(1, 5))}
        try:
            with adverse.device(e, seed=SEED + turn, **settings):
                listener = e.listen()
                try:
                    for zero_copy in (False, True) if not removes else (turn % 2 > 0,):
                        exchange(e, listener, zero_copy, happens)
                finally:
                    if removes:
                        netns.run("self", f"rdma link add rxe0 type rxe netdev {device}")
            nothing_left(e)
        except CaseFailure as failure:
            raise CaseFailure(f"ADVERSE_SEED={SEED}, round {turn}, {settings}: {failure}") from failure
    works_again(e)


@case(reference=False, families=("v4",), timeout=600)
def at_random(e):
    """All kinds of failures, mixed."""
    mixed(e, False)


@case(reference=False, families=("v4",), timeout=600)
def removed(e):
    """The device is removed during transfers."""
    if not shutil.which("rdma"):
        e.skip("no rdma tool")
    mixed(e, True)


@case(reference=False, families=("v4",), timeout=180)
def scheduled_late(e):
    """A processor stops between the arrival of a packet and its processing, while another task
    destroys the packet's QP (docs/kernel-notes.md)."""
    with adverse.device(e, seed=SEED, scheduled_late=15):
        listener = e.listen()
        for _ in range(e.rounds(12)):
            pairs = []
            for _ in range(4):
                with contextlib.suppress(Lost):
                    pairs.append(connected(e, listener, False))
            tasks = [e.task(e.outcome, pattern.send, far, 1, 1 << 24, [3000], socket.MSG_NOSIGNAL) for _, far in pairs]
            for near, _ in pairs:
                near.recv(1)
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                near.close()
            for task in tasks:
                e.check(task.result() in LOST, f"send() gave {task.result()}")
            for _, far in pairs:
                far.close()
    works_again(e)
