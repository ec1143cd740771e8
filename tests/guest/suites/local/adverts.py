# SPDX-License-Identifier: GPL-2.0-only
"""Adverts that the other end has not polled yet: on local connections no worker polls them, but the
next call that can use them."""

import socket
import struct

from lib import calls, consts, env, pattern
from lib.registry import case
from suites.zcopy.blocks import MIB, Counters, pipelined, waiting_reader

HERE = (0,)
# Number of credits that suffice for an advert but not for its cancel.
TWO = 2
# Offset of tcpi_snd_cwnd in struct tcp_info, and of the next field.
SND_CWND, BEHIND = 80, 84


def credits(sock):
    raw, _ = calls.getsockopt(sock, socket.IPPROTO_TCP, socket.TCP_INFO, BEHIND)
    return struct.unpack_from("=I", raw, SND_CWND)[0]


@case(hosts=HERE, reference=False, families=("v4",))
def found_by_the_sender(e):
    """A send call writes to a waiting reader's memory although the advert caused no event."""
    near, far = pipelined(e)
    e.error(near.recv, 1, socket.MSG_DONTWAIT)      # has it look at all that there is
    task, counters = waiting_reader(e, far, MIB)
    data = pattern.Pattern(6).at(0, MIB)
    near.sendall(data)
    e.check(task.result() == data, "the bytes are others")
    e.equal(counters.gained("zcopy written"), MIB, "bytes that were written")
    e.equal(counters.gained("post_send SDP_MID_SRCAVAIL"), 0, "blocks that were offered nevertheless")


@case(hosts=HERE, reference=False, families=("v4",), timeout=60)
def taken_back_without_credits(e):
    """A reader's time-out expires without credits for a cancel, because the other end has not
    polled for long: the reader wakes that end."""
    near, far = pipelined(e)
    e.error(near.recv, 1, socket.MSG_DONTWAIT)
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sent = 0
    while credits(far) > TWO:
        far.send(b"x")
        sent += 1
        e.check(sent < 1000, "there is no end to the credits")
    e.equal(credits(far), TWO, "credits")
    far.send(b"z", socket.MSG_MORE)     # held, which must not hold the rest
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("=qq", 0, 300000))
    counters = Counters()
    e.equal(e.error(far.recv, MIB), "EAGAIN", "how the call ends")
    e.equal(counters.gained("post_send SDP_MID_SINKAVAIL"), 1, "adverts")
    e.equal(counters.gained("post_send SDP_MID_SINKAVAIL_CANCEL"), 1, "cancels")
    e.equal(near.recv_exactly(sent + 1), b"x" * sent + b"z", "bytes one way")
    near.send(b"y")
    e.equal(far.recv_exactly(1), b"y", "the other way")


@case(hosts=HERE, reference=False, families=("v4",))
def waits_for_credits(e):
    """A detached block waits for credits while a later call copies."""
    near, far = e.pair()
    near.set(socket.SOL_SOCKET, consts.SO_ZEROCOPY, 1)
    expected = bytearray()
    while isinstance(sent := e.outcome(near.send, b"a" * 4096, socket.MSG_DONTWAIT), int):
        expected += b"a" * sent
    block = b"b" * 65536
    e.equal(near.send(block, consts.MSG_ZEROCOPY | socket.MSG_DONTWAIT), 65536, "bytes of the block")
    task = e.task(near.sendall, b"c" * 65536)
    sleeps = {consts.system_calls()["sendto"]}
    e.until(lambda: not task.is_alive() or env.asleep_in(task.native_id) in sleeps, lambda: "the call neither ends nor waits")
    expected += block + b"c" * 65536
    e.check(far.recv_exactly(len(expected)) == expected, "the bytes are others")
    task.result()
