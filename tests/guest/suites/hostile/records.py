# SPDX-License-Identifier: GPL-2.0-only
"""SOCK_SEQPACKET with a hostile peer: invalid message lengths, messages without an end, and Hellos
of peers without messages."""

import socket

from lib import calls, consts, observe, raw
from lib.raw import DATA, DISCONN, MODECHANGE, OOB_PEND, OOB_PRES, PIPELINED, SENDSM, SRCAVAIL, avail, change, word
from lib.registry import case

from .. import seqpacket
from .adverts import RESETS
from .messages import BEDS, LAST, aborts, nothing_left

SOL, TCP = socket.SOL_SOCKET, socket.IPPROTO_TCP
CAP_MESSAGES = 4
# MaxMessage of a socket without SO_RCVBUF.
MOST = 256 * 1024
PART = 2000


class Bed(raw.Bed):
    def __init__(self, e):
        super().__init__(e)
        self.listener.close()
        self.listener = seqpacket.listen(e)

    def connect(self, private=None, near=None):
        return super().connect(private, near or self.e.socket(kind=seqpacket.SEQPACKET))


def message(text, flags=0):
    return word(len(text) | flags) + text


def echo(e, attacker, victim):
    attacker.data(message(b"there", 1 << 31))
    e.equal(victim.recv(100), b"there", "what the victim receives")
    victim.send(b"back", socket.MSG_EOR)
    e.equal(attacker.expect(DATA, payload=True).payload, message(b"back", 1 << 31), "what it sends")


VIOLATIONS = [
    *[lambda a, v, size=size: a.data(word(size)) for size in (0, 1 << 31, MOST + 1, LAST >> 1, LAST)],
    lambda a, v: a.data(message(b"good") + word(0)),
    lambda a, v: [a.data(b"\0") for _ in range(4)],
    *[lambda a, v, part=part: (a.data(part), a.send(DISCONN)) for part in (b"\0", word(1)[:3], word(1), word(2) + b"x")],
    lambda a, v: a.data(message(b"x"), flags=OOB_PRES),
    lambda a, v: a.data(flags=OOB_PEND),
]


@case(reference=False, timeout=120, hosts=BEDS)
def violations(e):
    """Every reason to abort a connection of messages."""
    bed = Bed(e)
    bystander = bed.connect()
    for attack in VIOLATIONS:
        pair = bed.connect()
        pair[0].polite = True
        aborts(e, bed, "record", attack, pair)
    echo(e, *bystander)
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=120)
def never_end(e):
    """A message without an end takes no more memory than MaxMessage, is not readable, and is
    dropped with the connection. In large parts, and byte by byte."""
    bed = Bed(e)
    for part, count in ((PART, (MOST - 1) // PART), (1, 1000)):
        attacker, victim = bed.connect()
        victim.set(SOL, socket.SO_RCVBUF, 4096)
        attacker.polite = True
        attacker.data(message(b"whole"))
        attacker.data(word(MOST) + bytes(part))
        e.unread(victim, 9 + 4 + part)
        e.equal(victim.recv(10), b"whole", "the one before")
        for _ in range(count - 1):
            attacker.data(bytes(part))
        e.unread(victim, 4 + part * count)
        e.equal(e.error(victim.recv, 10, socket.MSG_DONTWAIT), "EAGAIN", "its part")
        e.equal(victim.mask(), "OUT", "poll")
        memory = observe.row_of(victim, "peer").receive
        e.check(memory <= 2 * MOST, f"{memory} bytes unread")
        attacker.fail()
        e.wait_mask(victim, "ERR|HUP")
        e.equal(e.error(victim.recv, 10), "ECONNRESET", "the end")
        e.equal(victim.recv(10), b"", "after that")
        attacker.close()
        victim.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=60)
def adverts(e):
    """The victim refuses an advert that is not exactly one message behind its header: without a
    header, with a part of the header, shorter or longer than the message, with bytes of the message
    before the advert or in its payload, and two adverts of one message."""
    bed = Bed(e)
    body = bytes(range(250)) * 4
    whole = message(body)
    for before, size, inline in ((0, 1000, 0), (3, 1000, 0), (3, 1001, 0), (4, 999, 0), (4, 1001, 0), (4, LAST >> 1, 0), (504, 500, 0), (4, 1000, 500)):
        attacker, victim = bed.connect()
        if before:
            attacker.data(whole[:before])
        attacker.send(SRCAVAIL, avail(size, 1, 4096), whole[before:before + inline])
        attacker.expect(SENDSM)
        attacker.data(whole[before + inline:])
        e.equal(victim.recv(2000), body, f"the message after an advert of {size} bytes behind {before}")
        echo(e, attacker, victim)
    attacker, victim = bed.connect()
    attacker.data(whole[:4])
    attacker.send(MODECHANGE, change(PIPELINED))
    for _ in range(2):
        attacker.send(SRCAVAIL, avail(500, 1, 4096))
    attacker.expect(SENDSM)
    attacker.data(body)
    e.equal(victim.recv(2000), body, "the message after two adverts")
    echo(e, attacker, victim)
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=60)
def lost_read(e):
    """The READ of a message fails: one call returns the error, and later calls the end."""
    bed = Bed(e)
    for size in (1000, 100000):
        attacker, victim = bed.connect()
        task = e.task(e.outcome, calls.recv, victim, size).wait_asleep("recvfrom")
        attacker.data(word(size))
        attacker.send(SRCAVAIL, avail(size, 1, 4096))
        e.check(task.result() in RESETS, f"the call gives {task.result()}")
        e.equal(e.outcome(victim.recv, size), b"", "the call after the error")
        attacker.close()
        victim.close()
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def hellos(e):
    """MaxMessage of a Hello: the victim refuses 0, and takes any other value as a bound. Without
    the capability of messages the connection is a stream, and the listener refuses the
    connection."""
    bed = Bed(e)
    own, other = (socket.inet_pton(e.family, host) for host in (e.here, e.there))
    address = e.address(e.there, bed.listener.port)

    def private(**fields):
        near = e.socket(kind=seqpacket.SEQPACKET)
        bed.private(near, raw.hello(own, other, 5000, **fields))
        return near

    before = observe.stats("peer")["- bad hello"]
    e.equal(e.error(private(cap=CAP_MESSAGES).connect, address), "ECONNREFUSED", "no MaxMessage")
    e.equal(observe.stats("peer")["- bad hello"], before + 1, "the counter")
    for fields in (dict(), dict(message=1), dict(adverts=1), dict(cap=3, more=5, message=100)):
        e.equal(e.error(private(**fields).connect, address), "ECONNREFUSED", f"a stream, by {fields}")
    e.equal(observe.stats("peer")["- bad hello"], before + 1, "the counter after streams")
    for most, limit in ((1, 1), (5000, 5000), (LAST, 2 << 20)):
        near = private(cap=CAP_MESSAGES, message=most)
        near.connect(address)
        victim = e.keep(bed.listener.accept()[0])
        e.equal(victim.get(TCP, consts.SDP_MAX_MESSAGE), limit, "the bound")
        e.equal(e.error(victim.send, bytes(limit + 1)), "EMSGSIZE", "one byte above")
        e.equal(victim.send(b"x"), 1, "a short one")
        near.close()
        victim.close()
    nothing_left(e, bed)


@case(reference=False, timeout=60)
def hello_acks(e):
    """A peer without messages ignores the capability and replies as for a stream: the connector
    refuses, and accept(2) returns no connection."""
    bed = Bed(e)
    for fields in (dict(), dict(adverts=1, size=32784)):
        service = seqpacket.listen(e, "self")
        bed.private(service, raw.hello_ack(**fields))
        victim = e.socket("peer", seqpacket.SEQPACKET)
        e.equal(e.error(victim.connect, e.address(e.here, service.port)), "ECONNREFUSED", f"a HelloAck with {fields}")
        service.setblocking(False)
        e.equal(e.error(service.accept), "EAGAIN", "the backlog")
        service.close()
    service = seqpacket.listen(e, "self")
    bed.private(service, raw.hello_ack(message=10))
    victim = seqpacket.connect(e, service, "peer")
    e.equal(victim.get(TCP, consts.SDP_MAX_MESSAGE), 10, "the bound")
    service.close()
    nothing_left(e, bed)
