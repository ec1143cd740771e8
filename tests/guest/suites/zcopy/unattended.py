# SPDX-License-Identifier: GPL-2.0-only
"""A program whose socket is in an epoll set is busy with other work when it is woken. The module
itself replies to adverts and cancels of the peer. Otherwise the peer's call would wait for the busy
program, and abort the connection after ten seconds."""

import select
import socket

from lib import calls, consts, memory, pattern
from lib.registry import case
from suites.zcopy import protected
from suites.zcopy.blocks import MIB, Counters, pair, pipelined, unpinned, waiting_reader


def watched(e, sock):
    """The socket is in an epoll set that the program does not poll."""
    poller = select.epoll()
    poller.register(sock, select.EPOLLIN | select.EPOLLET)
    e.keep(poller)


def answered(e, counters, name, task):
    """Checks that the kernel has replied, and that the call of the peer has not failed."""
    e.until(lambda: counters.gained(f"post_send SDP_MID_{name}") or not task.is_alive(), f"the {name} of an end that nobody looks at")
    if not task.is_alive():
        task.result()


@case(reference=False, hosts=(0, 1), families=("v4",), timeout=60, messages=True)
def block(e):
    """The kernel refuses an advertised block, and the peer copies as many bytes as fit."""
    near, far = pair(e)
    watched(e, far)
    counters = Counters()
    task = e.task(pattern.send, near, 3, 8 * MIB, [8 * MIB])
    answered(e, counters, "SENDSM", task)
    e.equal(pattern.receive(far, 3, 8 * MIB, [MIB]), 8 * MIB, "bytes")
    e.equal(task.result(), 8 * MIB, "bytes sent")
    unpinned(e)


@case(reference=False, hosts=(0, 1), families=("v4",), timeout=60)
def protected_block(e):
    """The kernel takes back a block of a send that has returned, for a thread that writes to the
    block."""
    near, far = protected.pair(e)
    watched(e, far)
    m = memory.Memory(MIB).fill(1)
    want = bytes(m.map)
    near.send(m.map)
    e.task(protected.write, m, 0, 0x55, MIB).result()
    protected.receive(e, far, want)
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60, messages=True)
def sink(e):
    """A reader's memory is taken back after the reader's time-out, and later bytes arrive."""
    near, far = pipelined(e)
    watched(e, near)
    task, counters = waiting_reader(e, far, MIB)
    answered(e, counters, "SINKCANCEL_ACK", task)
    data = pattern.Pattern(4).at(0, MIB)
    near.sendall(data)
    e.equal(task.result(), data, "data")
    unpinned(e)


@case(reference=False, hosts=(0, 1), families=("v4",), timeout=60)
def small_messages(e):
    """Small messages have as much space as with a waiting reader: a peer can send as many as
    SO_RCVBUF allows."""
    near, far = e.pair()
    watched(e, far)
    task = e.task(lambda: [near.send(b"x" * 100) for _ in range(500)])
    e.equal(task.result(), [100] * 500, "sends")
    e.until(lambda: not calls.ioctl_int(near, consts.SIOCOUTQ), "the arrival of all bytes at an end that nobody looks at")
    e.equal(far.recv_exactly(50000), b"x" * 50000, "data")
    near.shutdown(socket.SHUT_WR)
    e.equal(far.recv(1), b"", "the end")
