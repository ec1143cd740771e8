# SPDX-License-Identifier: GPL-2.0-only
"""RDMA WRITE with a hostile peer: unregistered sinks, and writes to a reader's memory without an
advert."""

import ctypes

from lib import calls, observe, raw
from lib.memory import PAGE, Memory
from lib.raw import (DISCONN, MODECHANGE, RDMARDCOMPL, RDMAWRCOMPL, SINKAVAIL, SINKAVAILCANCEL, SINKCANCELACK, SRCAVAIL, avail, change,
                     word)
from lib.registry import case
from .adverts import RESETS, SIZE, broken, eager, sender
from .messages import BEDS, END, LAST, aborts, echo, nothing_left, works
from .reach import refused

MARK = 0x5A


def pipelined(e, bed, memory):
    """Returns (attacker, victim). Before it returns, the victim has sent a block, so the victim
    accepts SinkAvail."""
    attacker, victim, task, advert = sender(e, bed, memory)
    attacker.send(RDMARDCOMPL, word(advert.rest))
    e.equal(task.result(), SIZE, "the first call")
    return attacker, victim


def reader(e, bed, memory):
    """Returns (attacker, victim, task, advert): the victim waits for bytes, and the attacker has
    received its SinkAvail."""
    for _ in range(5):
        attacker, victim = bed.connect()
        eager(victim)
        attacker.send(MODECHANGE, change(raw.PIPELINED))
        task = e.task(e.outcome, calls.recv_at, victim, memory.address, memory.size)
        message = attacker.expect(SINKAVAIL)
        if message.size == memory.size:
            return attacker, victim, task, message
        attacker.close()
        victim.close()
    return e.check(False, "no victim has advertised all of its memory")


def sinks(*makes, bufs=64):
    """Sends SinkAvails with the correct number of messages."""
    def attack(a, v):
        a.poll()
        a.polite = bufs > 0
        for make in makes:
            if isinstance(make, int):
                a.send(make, bufs=bufs)
            else:
                size, key, address, more = make
                a.send(SINKAVAIL, avail(size, key, address, a.payloads + more), bufs=bufs)
    return attack


GOOD = (65536, 1, 4096, 0)


@case(reference=False, timeout=90, hosts=BEDS)
def violations(e):
    """Violations by a peer concerning its own sinks and the victim's sinks."""
    bed = raw.Bed(e)
    memory = bed.memory(SIZE).fill(1)
    for reason, attack in (
            ("sinkavail_size", sinks((0, 1, 4096, 0))), ("sinkavail_range", sinks((2, 1, END, 0))), ("sinkavail_range", sinks((LAST, 1, END - 1, 0))),
            ("non_discards", sinks((65536, 1, 4096, 1))), ("non_discards", sinks((65536, 1, 4096, -1))), ("non_discards", sinks((65536, 1, 4096, 1 << 31))),
            ("sinkavail_limit", sinks(*[GOOD] * 17)), ("sinkavail_during_cancel", sinks(GOOD, SINKAVAILCANCEL, GOOD, bufs=0))):
        aborts(e, bed, reason, attack, pipelined(e, bed, memory))

    def during(reason, attack):
        """Runs an attack while the victim waits in a call: the call fails."""
        name = f"- aborted {reason}"
        before = observe.stats("peer").get(name, 0)
        attacker, victim, task, advert = (sender if reason == "sinkavail_during_advert" else reader)(e, bed, memory)
        for mid, extended in attack(attacker, advert):
            attacker.send(mid, extended)
        e.until(lambda: observe.stats("peer").get(name, 0) == before + 1,
                lambda: f"{reason}: {[(n, v) for n, v in observe.stats('peer').items() if n.startswith('-')]}")
        result = task.result()
        e.check(result == "EPROTO" or isinstance(result, int), f"{reason}: the call has ended with {result}")
        attacker.close()
        victim.close()
    during("sinkavail_during_advert", lambda a, m: [(SINKAVAIL, avail(65536, 1, 4096, a.payloads))])
    for size in (SIZE + 1, 1 << 31, LAST):
        during("rdmawrcompl_size", lambda a, m, size=size: [(RDMAWRCOMPL, word(size))])
    during("unexpected_rdmawrcompl", lambda a, m: [(RDMAWRCOMPL, word(1)), (RDMAWRCOMPL, word(1))])
    during("unexpected_rdmawrcompl", lambda a, m: [(DISCONN, b""), (RDMAWRCOMPL, word(1))])
    during("unexpected_sinkcancelack", lambda a, m: [(SINKCANCELACK, b"")])
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=90, hosts=BEDS)
def wild(e):
    """SinkAvail of memory that is unregistered, too short, or no longer registered: the WRITE and
    this call fail."""
    bed = raw.Bed(e)
    memory, source = Memory(1 << 20).fill(2), bed.memory(SIZE).fill(1)
    bystander = bed.connect()

    def lent(size, change=lambda lent: (lent.key, lent.address), write=True):
        def make(attacker):
            key, address = change(attacker.lend(memory, write, size=SIZE // 2))
            return size, key, address
        return make

    def gone(attacker):
        piece = attacker.lend(memory, True, size=SIZE // 2)
        ended = attacker.state().ended
        piece.withdraw()
        e.until(lambda: attacker.state().ended > ended, "the end of access")
        return SIZE, piece.key, piece.address

    before = memory.map[SIZE // 2:]
    for what, make in {"key 0": lambda a: (SIZE, 0, 4096), "the largest": lambda a: (SIZE, LAST, END - SIZE), "a kernel address": lambda a: (SIZE, 0, 0xFFFF888000000000),
                       "one byte before": lent(SIZE // 2, lambda p: (p.key, p.address - 1)), "too many": lent(SIZE), "another key": lent(SIZE, lambda p: (p.key ^ 0x55, p.address)),
                       "not to be written": lent(SIZE, write=False), "not any more": gone}.items():
        attacker, victim = pipelined(e, bed, source)
        attacker.poll()
        size, key, address = make(attacker)
        attacker.send(SINKAVAIL, avail(size, key, address, attacker.payloads))
        # the victim has processed the advert when it replies to the next message
        attacker.data(b"x")
        e.equal(victim.recv(1), b"x", "the byte behind the advert")
        task = e.task(e.outcome, calls.send_at, victim, source.address, SIZE)
        broken(e, task, victim, what)
        e.check(memory.map[SIZE // 2:] == before, f"{what}: nothing was written behind what was lent")
        attacker.close()
        victim.close()
    echo(e, *bystander)
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def good(e):
    """Control: WRITEs to a registered sink of either end arrive and are reported."""
    bed = raw.Bed(e)
    memory, source, theirs = Memory(SIZE).fill(2), Memory(SIZE).fill(1), bed.memory(SIZE).fill(1)
    attacker, victim = pipelined(e, bed, theirs)
    piece = attacker.lend(memory, True)
    attacker.poll()
    attacker.send(SINKAVAIL, avail(SIZE, piece.key, piece.address, attacker.payloads))
    attacker.data(b"x")
    e.equal(victim.recv(1), b"x", "the byte behind the advert")
    e.equal(calls.send_at(victim, theirs.address, SIZE), SIZE, "the call")
    e.equal(attacker.expect(RDMAWRCOMPL).size, SIZE, "the report")
    e.check(memory.map[:] == source.map[:], "the bytes")
    piece.withdraw()
    e.until(piece.back, "the memory")
    attacker.close()
    victim.close()
    theirs.fill(2)
    attacker, victim, task, advert = reader(e, bed, theirs)
    e.check(attacker.write(source, 12345, advert.address, advert.key), "the WRITE")
    attacker.send(RDMAWRCOMPL, word(12345))
    e.equal(task.result(), 12345, "the call")
    e.check(theirs.map[:12345] == source.map[:12345], "the bytes")
    echo(e, attacker, victim)
    attacker.close()
    victim.close()
    nothing_left(e, bed)


@case(reference=False, timeout=120, hosts=BEDS)
def outside(e):
    """WRITEs before a reader's memory, after that memory and across its end, and READs of it: no
    memory outside the advert changes, and no byte is read."""
    bed = raw.Bed(e)
    whole = bed.memory(4 * SIZE // PAGE * PAGE).fill(1)

    class Part:
        address, size = whole.address + SIZE + 77, SIZE

    inside = slice(SIZE + 77, 2 * SIZE + 77)
    before = whole.map[:]
    # siw does not check the right to READ
    reads = {} if raw.SIW else {"a READ": (0, 1, False), "a READ of all": (0, SIZE, False)}
    for what, (offset, size, write) in {**reads, "a byte before": (-1, 1, True), "across the beginning": (-1, 2, True), "a byte behind": (SIZE, 1, True),
                                        "across the end": (SIZE - 1, 2, True), "a page behind": (SIZE + PAGE, 1, True), "address 0": (None, 8, True),
                                        "a READ before": (-1, 1, False)}.items():
        attacker, victim, task, advert = reader(e, bed, Part)
        memory = Memory(1 << 17)
        memory.map[:] = bytes([MARK]) * memory.size
        refused(e, attacker, write, memory, size, 0 if offset is None else advert.address + offset, advert.key, what)
        result = task.result()
        e.check(result in RESETS, f"{what}: the call has ended with {result}")
        now = whole.map[:]
        e.check(now[:inside.start] == before[:inside.start] and now[inside.stop:] == before[inside.stop:], f"{what}: the victim's memory")
        e.check(memory.map[:] == bytes([MARK]) * memory.size, f"{what}: nothing was read")
        attacker.close()
        victim.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=120, hosts=BEDS)
def refused_often(e):
    """Each refused WRITE ends the receive call that has advertised its memory, also if the device
    flushes receive requests at once."""
    bed = raw.Bed(e)
    memory, source = bed.memory(SIZE).fill(1), Memory(PAGE)
    for _ in range(e.rounds(80)):
        attacker, victim, task, advert = reader(e, bed, memory)
        refused(e, attacker, True, source, 8, 0, advert.key, "address 0")
        e.check(task.result() in RESETS, "the call")
        attacker.close()
        victim.close()
    nothing_left(e, bed)


@case(reference=False, timeout=120, hosts=BEDS)
def afterwards(e):
    """WRITEs to a reader's memory after its call has returned: because of a report, of Data or of
    close(2), or by another connection."""
    bed = raw.Bed(e)
    memory = bed.memory(SIZE)
    source = Memory(SIZE).fill(3)
    for ending in ("reported", "data", "end"):
        memory.fill(1)
        attacker, victim, task, advert = reader(e, bed, memory)
        if ending == "reported":
            attacker.send(RDMAWRCOMPL, word(10))
        elif ending == "data":
            attacker.data(b"some bytes")
        else:
            attacker.send(DISCONN)
        e.equal(task.result(), 0 if ending == "end" else 10, f"{ending}: the call")
        before = memory.map[:]
        refused(e, attacker, True, source, SIZE, advert.address, advert.key, ending)
        e.check(memory.map[:] == before, f"{ending}: the victim's memory")
        attacker.close()
        victim.close()
    attacker, victim, task, advert = reader(e, bed, memory)
    thief, other = bed.connect()
    before = memory.map[:]
    refused(e, thief, True, source, SIZE, advert.address, advert.key, "another connection's key")
    e.check(memory.map[:] == before, "the victim's memory")
    e.check(attacker.write(source, SIZE, advert.address, advert.key), "where the key is good")
    attacker.send(RDMAWRCOMPL, word(SIZE))
    e.equal(task.result(), SIZE, "the call")
    e.check(memory.map[:] == source.map[:], "the bytes")
    for end in (attacker, victim, thief, other):
        end.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=90)
def goes_on_writing(e):
    """A peer reports bytes and then continues to write: the bytes that the call has returned do not
    change any more."""
    bed = raw.Bed(e)
    memory, source = Memory(SIZE), Memory(SIZE).fill(3)
    for _ in range(10):
        memory.fill(1)
        attacker, victim, task, advert = reader(e, bed, memory)

        def look():
            result = task.result()
            return result, memory.map[:]
        watch = e.task(look)
        attacker.send(RDMAWRCOMPL, word(SIZE))
        while attacker.write(source, SIZE, advert.address, advert.key):
            pass
        result, seen = watch.result()
        e.equal(result, SIZE, "the call")
        e.check(memory.map[:] == seen, "the memory when the call had returned, and now")
        attacker.close()
        victim.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=90)
def no_answer(e):
    """A reader cancels its advert and gets no reply: the call ends by its time-out, and the call of
    a killed process at once."""
    bed = raw.Bed(e)
    memory, other = Memory(SIZE).fill(1), Memory(SIZE).fill(1)
    attacker, victim, task, _ = reader(e, bed, memory)
    second, killed = bed.connect()
    eager(killed)
    second.send(MODECHANGE, change(raw.PIPELINED))
    child = e.child(calls.recv_at, killed, other.address, SIZE)
    second.expect(SINKAVAIL)
    attacker.expect(SINKAVAILCANCEL)
    second.expect(SINKAVAILCANCEL)
    child.kill()
    e.check(task.is_alive(), "the other one still waits")
    e.equal(e.until(lambda: not task.is_alive() and task.result(), "the end of the call", 4 * e.patience), "ECONNABORTED", "its error")
    for end in (attacker, victim, second, killed):
        end.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=60)
def partly_there(e):
    """A call whose memory is mapped only at its beginning sleeps like any other call, although its
    peer accepts SinkAvail."""
    bed = raw.Bed(e)
    attacker, victim = bed.connect()
    eager(victim)
    attacker.send(MODECHANGE, change(raw.PIPELINED))
    # when the message has arrived, the mode change has arrived as well
    attacker.data(b"x")
    e.equal(victim.recv(1), b"x", "the byte behind the change")
    memory, rest = Memory(SIZE // PAGE * PAGE), ctypes.CDLL(None, use_errno=True)
    e.equal(rest.mprotect(ctypes.c_void_p(memory.address + PAGE), ctypes.c_size_t(memory.size - PAGE), 0), 0, "mprotect")
    task = e.task(e.outcome, calls.recv_at, victim, memory.address + PAGE - 100, SIZE // 2).wait_asleep("recvfrom")
    attacker.data(b"abc")
    e.equal(task.result(), 3, "the call")
    attacker.close()
    victim.close()
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def taken_back(e):
    """A reader cancels its advert: the cancel is confirmed, or crosses a report, Data or a
    SrcAvail. After the cancel the stream continues at the same position."""
    bed = raw.Bed(e)
    memory, source = bed.memory(SIZE), Memory(SIZE).fill(3)
    for crossing in ("confirmed", "reported", "data", "advert"):
        memory.fill(1)
        attacker, victim, task, advert = reader(e, bed, memory)
        attacker.expect(SINKAVAILCANCEL)
        if crossing == "confirmed":
            attacker.send(SINKCANCELACK)
            attacker.data(b"0123456789")
        elif crossing == "reported":
            e.check(attacker.write(source, 10, advert.address, advert.key), "the WRITE")
            attacker.send(RDMAWRCOMPL, word(10))
        elif crossing == "data":
            attacker.data(b"0123456789")
        else:
            # the advert is void: the victim's sink takes precedence
            attacker.send(SRCAVAIL, avail(10, 1, 4096))
            attacker.send(SINKCANCELACK)
            attacker.data(b"0123456789")
        e.equal(task.result(), 10, f"{crossing}: the call")
        e.equal(memory.map[:10], source.map[:10] if crossing == "reported" else b"0123456789", "the bytes")
        echo(e, attacker, victim)
        attacker.close()
        victim.close()
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def reported_only(e):
    """A peer reports bytes without writing them: the receive call returns the reported number, with
    the program's own contents. A report of more bytes than the advert has is a violation."""
    bed = raw.Bed(e)
    memory = bed.memory(SIZE).fill(4)
    before = memory.map[:]
    for size in (1, SIZE):
        attacker, victim, task, _ = reader(e, bed, memory)
        attacker.send(RDMAWRCOMPL, word(size))
        e.equal(task.result(), size, "the call")
        e.check(memory.map[:] == before, "the program's own bytes")
        echo(e, attacker, victim)
        attacker.close()
        victim.close()
    attacker, victim, task, _ = reader(e, bed, memory)
    attacker.send(RDMAWRCOMPL, word(SIZE + 1))
    e.equal(task.result(), "EPROTO", "the call that was told of more")
    e.check(memory.map[:] == before, "the program's own bytes")
    attacker.close()
    victim.close()
    nothing_left(e, bed)
