# SPDX-License-Identifier: GPL-2.0-only
"""Messages that no peer may send, and unusual but valid messages. The victim is an ordinary socket;
the attacker is a raw peer of the victim's connection."""

import select
import socket
import struct

from lib import observe, raw
from lib.env import CaseFailure
from lib.raw import (ABORT, CHRCVBUF, CHRCVBUFACK, DATA, DISCONN, MODECHANGE, OOB_PEND, OOB_PRES, RDMARDCOMPL, RDMAWRCOMPL, REQ_PIPE, SENDSM,
                     SINKAVAIL, SINKAVAILCANCEL, SINKCANCELACK, SRCAVAIL, SRCAVAILCANCEL, SUSPCOMM, SUSPCOMMACK, avail, change, word)
from lib.registry import case

from ..zcopy.figures import parameter

BEDS = (1, 2)
LAST = (1 << 32) - 1
END = (1 << 64) - 1


def both(bed):
    """A victim that has connected, and a victim that has accepted."""
    yield bed.connect()
    yield bed.accept()


def works(e, bed):
    """A new connection transfers bytes in both directions, after earlier connections have
    failed."""
    attacker, victim = bed.connect()
    echo(e, attacker, victim)
    attacker.close()
    victim.close()


def echo(e, attacker, victim, byte=b"x"):
    attacker.data(byte)
    e.equal(victim.recv(9), byte, "what the victim receives")
    victim.send(byte)
    e.equal(attacker.expect(DATA, payload=True).payload, byte, "what it sends")


def nothing_left(e, bed):
    """No page stays pinned, and closed sockets are freed."""
    bed.tidy()
    for where in ("self", "peer"):
        e.until(lambda where=where: not any(observe.stats(where)[f"pinned pages {way}"] for way in ("send", "recv")), "no page is pinned")
        e.until(lambda where=where: all(row.state in ("LISTEN", "ESTABLISHED", "CLOSE") for row in observe.rows(where)) or None,
                lambda where=where: f"sockets are left: {[vars(row) for row in observe.rows(where)]}", 4 * e.patience)


def aborts(e, bed, reason, attack, pair):
    """The attack ends the victim's connection with EPROTO; the module counts the connection by its
    reason."""
    attacker, victim = pair
    name = f"- aborted {reason}"
    before = observe.stats("peer").get(name, 0)
    attack(attacker, victim)
    e.until(lambda: observe.stats("peer").get(name, 0) > before,
            lambda: f"{reason} was not counted: {[(n, v) for n, v in observe.stats('peer').items() if n.startswith('-')]}")
    e.equal(observe.stats("peer")[name], before + 1, f"{reason}: how often it was counted")
    e.equal(victim.get(socket.SOL_SOCKET, socket.SO_ERROR), 71, f"{reason}: EPROTO")
    e.equal(e.error(victim.send, b"x"), "EPIPE", f"{reason}: the next send")
    e.equal(victim.recv(1), b"", f"{reason}: the next receive")
    e.check("HUP" in victim.mask(), f"{reason}: poll says {victim.mask()}")
    victim.close()
    attacker.close()


def stale(step):
    return lambda a, v: (a.data(), a.data(mseq=a.mseq + step))


def acked(*acks):
    """Sends three messages of the victim. The peer acknowledges the message before them by 0, the
    first by 1, and so on, in the given order."""
    def attack(a, v):
        for _ in range(3):
            v.send(b"x")
            a.expect(DATA, payload=True)
        first = a.seen - 3
        for ack in acks:
            a.data(ack=first + ack)
    return attack


def empty(a, v):
    a.bytes(b"")


def overrun(a, v):
    # without a credit the victim cannot announce more buffers
    for _ in range(100):
        a.data(bufs=0)


def in_mode(mode, *sends):
    def attack(a, v):
        a.polite = True
        a.send(MODECHANGE, change(mode))
        for mid, extended, payload in sends:
            a.send(mid, extended, payload)
    return attack


def each(*sends, bufs=64):
    def attack(a, v):
        for mid, extended, payload in sends:
            a.send(mid, extended, payload, bufs=bufs)
    return attack


SOURCE = avail(100, 1, 4096)
SINK = avail(100, 1, 4096, 0)
# siw refuses an empty message, and ends a connection itself for lack of a receive buffer.
NOT_BY_SIW = (empty, overrun)
VIOLATIONS = [
    ("short", empty),
    *[("short", lambda a, v, n=n: a.bytes(bytes([0xFF]) * n)) for n in (1, 8, 15)],
    *[("short", lambda a, v, mid=mid: a.send(mid)) for mid in raw.EXTENDED],
    ("short", lambda a, v: a.send(SRCAVAIL, bytes(15))),
    *[("length", lambda a, v, n=n: a.data(b"abc", length=n)) for n in (0, 15, 16, 18, 20, 1 << 31, LAST)],
    *[("unknown_mid", lambda a, v, mid=mid: a.send(mid)) for mid in (0x0F, 0x10, 0x22, 0x7F, 0x80, 0xFC)],
    *[("hello_in_stream", lambda a, v, mid=mid, n=n: a.send(mid, bytes(n))) for mid in (0, 1) for n in (0, 76, 180)],
    *[("unexpected_payload", lambda a, v, mid=mid: a.send(mid, bytes(raw.EXTENDED.get(mid, 0)), b"x"))
      for mid in raw.MIDS if mid not in (DATA, SRCAVAIL, SINKAVAIL)],
    ("out_of_band", lambda a, v: a.data(flags=OOB_PRES)),
    ("out_of_band", lambda a, v: a.send(SRCAVAIL, SOURCE, b"x", flags=OOB_PRES)),
    ("out_of_band", lambda a, v: a.send(SENDSM, flags=OOB_PRES)),
    *[("mode", lambda a, v, mode=mode: a.send(MODECHANGE, change(mode))) for mode in (0x30, 0x40, 0x70, 0xB0, 0xF0)],
    *[("sequence", stale(step)) for step in (-2, -1, 0, 2, 1 << 31)],
    ("credits_overrun", overrun),
    *[("ack_beyond_sent", acked(ack)) for ack in (4, 5, (1 << 31) - 100)],
    *[("ack_backwards", acked(ack)) for ack in (-10, 100 - (1 << 31))],
    ("ack_backwards", acked(3, 2)),
    ("ack_backwards", acked(1, 0)),
    ("ack_beyond_sent", acked(1, 4)),
    ("after_disconn", each((DISCONN, b"", b""), (DATA, b"", b"x"))),
    ("after_disconn", each((DISCONN, b"", b""), (SRCAVAIL, SOURCE, b"x"))),
    ("after_disconn", each((DISCONN, b"", b""), (SRCAVAIL, SOURCE, b""))),
    ("second_disconn", each((DISCONN, b"", b""), (DISCONN, b"", b""))),
    ("data_during_advert", each((SRCAVAIL, SOURCE, b""), (DATA, b"", b"x"))),
    ("disconn_during_advert", each((SRCAVAIL, SOURCE, b""), (DISCONN, b"", b""))),
    ("srcavail_mode", in_mode(raw.BUFFERED, (SRCAVAIL, SOURCE, b""))),
    ("srcavail_mode", in_mode(raw.PIPELINED, (SRCAVAIL, SOURCE, b"x"))),
    ("srcavail_limit", each((SRCAVAIL, SOURCE, b""), (SRCAVAIL, SOURCE, b""))),
    ("srcavail_limit", in_mode(raw.PIPELINED, *[(SRCAVAIL, SOURCE, b"")] * 17)),
    ("srcavail_size", each((SRCAVAIL, avail(0, 1, 4096), b""))),
    ("srcavail_size", each((SRCAVAIL, avail(3, 1, 4096), b"abc"))),
    ("srcavail_size", each((SRCAVAIL, avail(2, 1, 4096), b"abc"))),
    ("srcavail_range", each((SRCAVAIL, avail(2, 1, END), b""))),
    ("srcavail_range", each((SRCAVAIL, avail(LAST, 1, END - 1000), b""))),
    # without credits the victim cannot reply to the cancel
    ("srcavail_during_cancel", each((SRCAVAIL, SOURCE, b""), (SRCAVAILCANCEL, b"", b""), (SRCAVAIL, SOURCE, b""), bufs=0)),
    *[("sinkavail_mode", each((SINKAVAIL, avail(size, 1, 4096, 0), b""))) for size in (0, 1, LAST)],
    *[("unexpected_rdmawrcompl", each((RDMAWRCOMPL, word(size), b""))) for size in (0, 1, LAST)],
    *[("mode_change", each((MODECHANGE, change(*mode), b""))) for mode in ((raw.COMBINED,), (raw.COMBINED, True), (raw.BUFFERED, True), (raw.PIPELINED, True))],
    ("mode_change", in_mode(raw.BUFFERED, (MODECHANGE, change(raw.PIPELINED), b""))),
    ("mode_change", in_mode(raw.PIPELINED, (MODECHANGE, change(raw.BUFFERED), b""))),
    ("mode_change", in_mode(raw.PIPELINED, (MODECHANGE, change(raw.PIPELINED), b""))),
    ("mode_change", each((SRCAVAIL, SOURCE, b""), (MODECHANGE, change(raw.BUFFERED), b""))),
    ("unexpected_sinkcancelack", each((SINKCANCELACK, b"", b""))),
    ("unexpected_suspcommack", each((SUSPCOMMACK, b"", b""))),
]


@case(reference=False, timeout=120, hosts=BEDS)
def violations(e):
    """Every reason to abort a connection, and every message by which a peer can cause it."""
    bed = raw.Bed(e)
    bystander = bed.connect()
    for number, (reason, attack) in enumerate(VIOLATIONS):
        if raw.SIW and attack in NOT_BY_SIW:
            continue
        aborts(e, bed, reason, attack, bed.accept() if number % 4 == 3 else bed.connect())
        if number % 10 == 0:
            echo(e, *bystander)
    echo(e, *bystander)
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=60)
def in_the_middle(e):
    """A violation while the victim's program waits in a call: the call returns EPROTO. A sender
    gets EPROTO or EPIPE."""
    bed = raw.Bed(e)
    for call in ("recvfrom", "sendto", "poll"):
        attacker, victim = bed.connect()
        if call == "recvfrom":
            task = e.task(e.error, victim.recv, 10).wait_asleep("recvfrom")
        elif call == "sendto":
            e.fill(victim)
            task = e.task(e.error, victim.send, bytes(100000)).wait_asleep("sendto")
        else:
            task = e.task(victim.mask_when, select.POLLIN, e.patience).wait_asleep("poll")
        attacker.send(0x33)
        e.equal(task.result(), {"recvfrom": "EPROTO", "sendto": "EPROTO", "poll": "IN|ERR|HUP"}[call], f"the end of {call}")
        victim.close()
        attacker.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=60, hosts=BEDS)
def what_came_before(e):
    """Bytes that arrived before a violation can still be read."""
    bed = raw.Bed(e)
    attacker, victim = bed.connect()
    attacker.data(b"good")
    attacker.send(0x33)
    e.wait_mask(victim, "ERR|HUP|IN")
    e.equal(victim.recv(10), b"good", "the bytes")
    e.equal(e.error(victim.recv, 10), "EPROTO", "and then")
    nothing_left(e, bed)


HARMLESS = [
    ("empty data", lambda a: [a.data() for _ in range(300)]),
    ("reserved flags", lambda a: a.data(flags=0xF8)),
    ("a wish for Pipelined", lambda a: a.data(flags=REQ_PIPE)),
    ("urgent, and never so", lambda a: [a.data(flags=OOB_PEND) for _ in range(50)]),
    ("SendSm for nothing", lambda a: [a.send(SENDSM) for _ in range(50)]),
    ("RdmaRdCompl for nothing", lambda a: [a.send(RDMARDCOMPL, word(size)) for size in (0, 1, LAST)]),
    ("SrcAvailCancel for nothing", lambda a: [a.send(SRCAVAILCANCEL) for _ in range(50)]),
    ("SinkAvailCancel for nothing", lambda a: [a.send(SINKAVAILCANCEL) for _ in range(50)]),
    ("ChRcvBufAck for nothing", lambda a: [a.send(CHRCVBUFACK, word(size)) for size in (0, 1, 1 << 20, LAST)]),
    ("ChRcvBuf of any size", lambda a: [a.send(CHRCVBUF, word(size)) for size in (0, 1, 15, 16, 1 << 16, 1 << 20, 1 << 31, LAST) * 4]),
    ("from mode to mode", lambda a: [a.send(MODECHANGE, change(mode)) for mode in (raw.PIPELINED, raw.COMBINED) * 50]),
    ("no more credits for a while", lambda a: [a.data(bufs=0), a.data(bufs=0), a.data()]),
    ("all credits", lambda a: a.data(bufs=0xFFFF)),
    ("an advert, and back", lambda a: [step for _ in range(20) for step in (a.send(SRCAVAIL, SOURCE), a.send(SRCAVAILCANCEL), a.expect(SENDSM))]),
]


@case(reference=False, timeout=120, hosts=BEDS)
def harmless(e):
    """Unusual but valid messages have no effect."""
    bed = raw.Bed(e)
    for what, do in HARMLESS:
        attacker, victim = bed.connect()
        attacker.polite = True
        do(attacker)
        try:
            echo(e, attacker, victim)
        except OSError as error:
            e.check(False, f"{what}: {error}")
        attacker.close()
        victim.close()
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def ends(e):
    """AbortConn, SuspComm and DREQ count as resets, not as violations."""
    bed = raw.Bed(e)
    for mid, extended, counter in ((ABORT, b"", "- reset by peer"), (SUSPCOMM, struct.pack(">Q", 0x1_0000 + 5001), "- suspended by peer"),
                                   (None, b"", "- reset by peer")):
        attacker, victim = bed.connect()
        before = observe.stats("peer")
        if mid is None:
            attacker.fail()
        else:
            attacker.send(mid, extended)
        e.wait_mask(victim, "ERR|HUP")
        e.equal(e.error(victim.recv, 1), "ECONNRESET", f"{mid}")
        after = observe.stats("peer")
        for name in after:
            if name.startswith("- aborted"):
                e.equal(after[name], before.get(name, 0), name)
        e.equal(after[counter], before[counter] + 1, counter)
        attacker.close()
        victim.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=60)
def over_long(e):
    """Messages longer than the victim's receive buffers: the connection ends, and no memory after
    the buffers is written."""
    bed = raw.Bed(e)
    for size in (1 << 16, 1 << 20):
        attacker, victim = bed.connect()
        lost = observe.stats("peer")["- transport error"]
        attacker.data(bytes(size - 16))
        e.wait_mask(victim, "ERR|HUP")
        # the device reports the cause
        error = e.error(victim.recv, 1)
        e.check(error in ("EPROTO", "ECONNABORTED"), f"{size} bytes: {error}")
        e.equal(observe.stats("peer")["- transport error"], lost + 1, "counted as an error of the transport")
        victim.close()
        attacker.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=120)
def last_credits(e):
    """A peer sends payload by its last two credits, or an advert with inline bytes, and cancels.
    The number of unread bytes stays bounded, and a reader continues."""
    bed = raw.Bed(e)
    most = 512 * 1024

    def data(attacker):
        attacker.data(bytes(2000))

    def cancelled(attacker):
        attacker.send(SRCAVAIL, avail(2001, 1, 4096), bytes(2000))
        attacker.send(SRCAVAILCANCEL)
        attacker.expect(SENDSM)

    for attack in (data, cancelled):
        attacker, victim = bed.connect()
        victim.set(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        attacker.polite, attacker.patience = True, 2
        try:
            while (unread := observe.row_of(victim, "peer").receive) < most:
                attack(attacker)
        except CaseFailure:     # no credit any more
            pass
        e.check(32768 < unread < most, f"{attack.__name__}: {unread} bytes unread")
        attacker.patience = None
        e.equal(set(victim.recv_exactly(unread)), {0}, "its bytes")
        e.until(lambda: attacker.poll() is not None and attacker.acknowledged(), "that the victim goes on")
        attacker.close()
        victim.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def hellos(e):
    """Requests without a valid Hello are refused and counted. Unusual but valid Hellos make a
    connection."""
    bed = raw.Bed(e)
    own, other = (socket.inet_pton(e.family, host) for host in (e.here, e.there))
    refused = [dict(mid=1), dict(length=91), dict(length=93), dict(length=0), dict(length=LAST), dict(version=0x11), dict(version=0), dict(version=0x32), dict(ipv=0), dict(ipv=5),
               dict(ipv=15), dict(adverts=0), dict(size=0), dict(size=16), dict(size=LAST), dict(port=0)]
    for fields in refused:
        near = e.socket()
        bed.private(near, raw.hello(own, other, **{"port": 5000, **fields}))
        before = observe.stats("peer")["- bad hello"]
        e.equal(e.error(near.connect, e.address(e.there, bed.listener.port)), "ECONNREFUSED", f"a Hello with {fields}")
        e.equal(observe.stats("peer")["- bad hello"], before + 1, "the counter")
        near.close()
    # addresses of other hosts
    many, loop, mapped = ("ff02::1", "::1", "::ffff:10.77.0.1") if e.six else ("224.0.0.1", "127.0.0.1", "255.255.255.255")
    odd = [socket.inet_pton(e.family, host) for host in (many, loop, mapped)] + [bytes(len(own)), b"\xff" * len(own)]
    for source, target in (*((host, other) for host in odd), *((own, host) for host in odd), (other, own), (own, own)):
        near = e.socket()
        bed.private(near, raw.hello(source, target, 5000))
        e.check(e.error(near.connect, e.address(e.there, bed.listener.port)) != "ok", f"a Hello from {source} to {target}")
        near.close()
    for fields in (dict(bufs=0), dict(bufs=0xFFFF), dict(version=0x2F), dict(adverts=1), dict(adverts=255), dict(cap=11, more=0xFFFF), dict(cap=2, more=0), dict(desired=0),
                   dict(desired=LAST), dict(size=512), dict(size=1 << 16), dict(size=1 << 20)):
        near = e.socket()
        attacker, victim = bed.connect(raw.hello(own, other, 5000, **fields), near)
        try:
            echo(e, attacker, victim)
        except OSError as error:
            e.check(False, f"a Hello with {fields}: {error}")
        attacker.close()
        victim.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=60, hosts=BEDS)
def services_that_never_ask(e):
    """A host has two services: one of an OFED peer, which gets large buffers, and one of this
    module, which gets small buffers."""
    bed = raw.Bed(e)
    ofed, ours = (e.listen("self", 16) for _ in range(2))
    bed.private(ofed, raw.hello_ack(adverts=1, size=32784))

    def size(listener):
        near = e.connect(listener, "peer")
        far, _ = listener.accept()
        (payload,) = struct.unpack_from("=I", near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 20)      # tcpi_rcv_mss
        far.close()
        near.close()
        return payload + 16

    e.equal([size(ofed), size(ofed), size(ours), size(ofed), size(ours)], [2048, 65536, 2048, 65536, 2048], "sizes of buffers")
    nothing_left(e, bed)


@case(reference=False, timeout=60)
def peers_that_never_ask(e):
    """A peer that announces one advert counts as an OFED peer, which never requests larger buffers.
    An OFED peer gets large receive buffers at once, within max_large_sockets."""
    bed = raw.Bed(e)
    request = raw.hello(*(socket.inet_pton(e.family, host) for host in (e.here, e.there)), 5000, adverts=1)

    def connected():
        attacker, victim = bed.connect(request)
        echo(e, attacker, victim)
        (payload,) = struct.unpack_from("=I", victim.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 20)      # tcpi_rcv_mss
        return attacker, victim, payload + 16

    def gone(*ends):
        for end in ends:
            end.close()
        nothing_left(e, bed)

    with parameter("max_large_sockets", 1):
        one, first, size = connected()
        e.equal(size, 65536, "the first one's")
        other, second, size = connected()
        e.equal(size, 8192, "the second one's")
        gone(one, first)
        one, first, size = connected()
        e.equal(size, 65536, "that of one when the first is gone")
        gone(one, first, other, second)
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=60)
def service_that_never_asks(e):
    """A connector has large receive buffers at once if the service's last HelloAck announced one
    advert, within max_large_sockets and the program's SO_RCVBUF."""
    bed, listener = raw.Bed(e), e.listen("self", 16)

    def size(adverts, **fixed):
        victim = e.socket("peer")
        for value in fixed.values():
            victim.set(socket.SOL_SOCKET, socket.SO_RCVBUF, value)
        attacker, victim = bed.accept(raw.hello_ack(adverts=adverts), victim, listener)
        echo(e, attacker, victim)
        (payload,) = struct.unpack_from("=I", victim.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 20)      # tcpi_rcv_mss
        attacker.close()
        victim.close()
        nothing_left(e, bed)
        return payload + 16

    e.equal(size(16), 2048, "with a service that asks")
    e.equal(size(1), 2048, "the first one with a service that does not")
    e.equal(size(1), 65536, "the next one")
    # the kernel doubles the program's value
    e.equal(size(1, rcvbuf=32768), 8192, "of a program that wants little")
    with parameter("max_large_sockets", 0):
        e.equal(size(1), 8192, "one that has no right to large ones")
    e.equal(size(16), 65536, "one with a new service at that address")
    e.equal(size(16), 2048, "that is known then")
    listener.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def hello_acks(e):
    """A connecting socket gets EPROTO if the HelloAck is invalid."""
    bed = raw.Bed(e)
    for fields in (dict(mid=0), dict(length=195), dict(length=197), dict(length=0), dict(length=LAST), dict(version=0x12), dict(adverts=0), dict(size=0), dict(size=16), dict(size=LAST)):
        listener = e.listen("self")
        bed.private(listener, raw.hello_ack(**fields))
        victim = e.socket("peer")
        e.equal(e.error(victim.connect, e.address(e.here, listener.port)), "EPROTO", f"a HelloAck with {fields}")
        victim.close()
        listener.close()
    for fields in (dict(bufs=0), dict(bufs=0xFFFF), dict(version=0x20), dict(adverts=0xFF), dict(size=512), dict(size=1 << 20)):
        attacker, victim = bed.accept(raw.hello_ack(**fields))
        echo(e, attacker, victim)
        attacker.close()
        victim.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=60)
def another_name(e):
    """The module accepts a Hello with the address of the sender's neighbour: getpeername(2) is no
    proof, as SECURITY.md explains. The connection is still with the sender of the Hello."""
    bed = raw.Bed(e)
    neighbour = "fd77::250" if e.six else "10.77.0.250"
    own, other = (socket.inet_pton(e.family, host) for host in (neighbour, e.there))
    attacker, victim = bed.connect(raw.hello(own, other, 5000))
    e.equal(victim.getpeername()[0], neighbour, "who it says that it is")
    echo(e, attacker, victim)
    attacker.close()
    victim.close()
    works(e, bed)
    nothing_left(e, bed)
