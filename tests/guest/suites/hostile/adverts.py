# SPDX-License-Identifier: GPL-2.0-only
"""Zero copy with a hostile peer: adverts of unregistered memory, false reports, and silence."""

import os
import signal
import socket
import time

from lib import calls, consts, either, observe, raw
from lib.memory import Memory
from lib.raw import CHRCVBUF, DATA, RDMARDCOMPL, SENDSM, SRCAVAIL, SRCAVAILCANCEL, avail, word
from lib.registry import case
from .messages import BEDS, END, LAST, echo, nothing_left, works

SIZE = 100000
# siw refuses requests once the peer has ended the connection.
RESETS = ("ECONNRESET", "EPIPE", "ETIMEDOUT", *["ECONNABORTED"] * raw.SIW)


def eager(victim):
    victim.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, 4096)


def ofed_hello(e):
    return raw.hello(*(socket.inet_pton(e.family, host) for host in (e.here, e.there)), 5000, adverts=1, size=2048)


def sender(e, bed, memory, size=None):
    """Returns (attacker, victim, task, advert): the victim sends the memory, and the attacker has
    received its advert. Replaces a victim that was too slow and therefore copied."""
    for _ in range(5):
        attacker, victim = bed.connect()
        eager(victim)
        task = e.task(e.outcome, calls.send_at, victim, memory.address, memory.size if size is None else size)
        message = attacker.expect(SRCAVAIL, DATA)
        if message.mid == SRCAVAIL:
            return attacker, victim, task, message
        attacker.close()
        victim.close()
    return e.check(False, "no victim has advertised")


def broken(e, task, victim, what, errors=RESETS):
    """Checks the end of a sender's call: the call returns the bytes of the SrcAvail or of a report,
    and the next call the error; or the call returns the error at once. On siw a call may return all
    bytes, because its WRITEs complete when TCP has accepted them."""
    result = e.until(lambda: not task.is_alive() and [task.result()], f"{what}: the end of the call", 4 * e.patience)[0]
    if isinstance(result, int) and 0 < result < SIZE + raw.SIW:
        result = e.until(lambda: isinstance(result := e.outcome(victim.send, b"x"), str) and result, f"{what}: the error")
    e.check(result in errors, f"{what}: the call has ended with {result}")


@case(reference=False, timeout=120, hosts=BEDS)
def wild_sources(e):
    """SrcAvail of memory that is unregistered, too short, or no longer registered: the READ and
    this call fail."""
    bed = raw.Bed(e)
    memory = Memory(1 << 20).fill(1)
    bystander = bed.connect()

    def lost():
        # with iWARP the device that refuses the READ ends the connection
        return observe.unanswered("peer") + observe.stats("peer")["- reset by peer"]

    def lent(size, change=lambda lent: (lent.key, lent.address), write=False):
        def make(attacker):
            piece = attacker.lend(memory, write, size=SIZE)
            key, address = change(piece)
            return avail(size, key, address)
        return make

    def gone(attacker):
        piece = attacker.lend(memory, size=SIZE)
        piece.withdraw()
        e.until(lambda: attacker.state().ended == 1, "the end of access")
        return avail(SIZE, piece.key, piece.address)

    attacks = {
        "key 0": lambda a: avail(SIZE, 0, 4096), "key 1": lambda a: avail(SIZE, 1, 4096), "the largest": lambda a: avail(SIZE, LAST, END - SIZE),
        "address 0": lambda a: avail(SIZE, LAST, 0), "a kernel address": lambda a: avail(SIZE, 0, 0xFFFF888000000000),
        "one byte too many": lent(SIZE + 1), "very many": lent(LAST), "one byte before": lent(SIZE, lambda p: (p.key, p.address - 1)),
        "another key": lent(SIZE, lambda p: (p.key ^ 0x55, p.address)), "not to be read": lent(SIZE, write=True), "not any more": gone,
    }
    if raw.SIW:     # siw does not check the right to READ
        del attacks["not to be read"]
    with either.parameters(ack_time=3):
        for what, make in attacks.items():
            attacker, victim = bed.connect()
            before = lost()
            target = bed.memory(1 << 20).fill(2)
            task = e.task(e.outcome, calls.recv_at, victim, target.address, 1 << 20).wait_asleep("recvfrom")
            attacker.send(SRCAVAIL, make(attacker))
            error = task.result()
            if isinstance(error, int):
                # the peer may read advertised memory; access beyond that memory makes the next call
                # fail
                e.check(0 < error <= SIZE and target.map[:error] == memory.map[:error], f"{what}: {error} bytes")
                error = e.outcome(calls.recv_at, victim, target.address, 1 << 20)
            e.check(error in RESETS, f"{what}: {error}")
            e.equal(lost(), before + 1, f"{what}: the counter")
            attacker.close()
            victim.close()
    echo(e, *bystander)
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=60)
def lent_in_part(e):
    """READs of scattered segments, of which the last ones fail: the program gets the bytes read so
    far, and the next call returns the error."""
    bed = raw.Bed(e)
    memory, target = Memory(1 << 20).fill(1), Memory(1 << 20).scatter()
    attacker, victim = bed.connect()
    piece = attacker.lend(memory, size=memory.size - SIZE)
    task = e.task(e.outcome, calls.recv_at, victim, target.address, target.size).wait_asleep("recvfrom")
    attacker.send(SRCAVAIL, avail(memory.size, piece.key, piece.address))
    got = task.result()
    e.check(isinstance(got, int) and 0 < got < memory.size, f"the call: {got}")
    e.check(target.map[:got] == memory.map[:got], "other bytes")
    e.check(e.outcome(victim.recv, 1) in RESETS, "the next call gives no error")
    attacker.close()
    victim.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def lost_in_the_middle(e):
    """A receive call has read some bytes when its next READ fails: the call returns these bytes.
    The next call returns the error and not an end of the stream, because the peer has not sent an
    end."""
    bed = raw.Bed(e)
    for pair in (bed.connect, bed.accept):
        attacker, victim = pair()
        target = bed.memory(SIZE).fill(2)
        task = e.task(e.outcome, calls.recv_at, victim, target.address, SIZE, socket.MSG_WAITALL).wait_asleep("recvfrom")
        attacker.data(b"first")
        attacker.send(SRCAVAIL, avail(SIZE, 1, 4096))
        e.equal(task.result(), 5, "the call")
        e.check(e.outcome(victim.recv, 1) in RESETS, "the next call gives no error")
        e.equal(victim.recv(1), b"", "the call after the error")
        attacker.close()
        victim.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def good_source(e):
    """Control case: the victim can read, report and cancel an advert of registered memory."""
    bed = raw.Bed(e)
    memory, target = Memory(SIZE).fill(1), bed.memory(SIZE).fill(2)
    for pair in (bed.connect, bed.accept):
        attacker, victim = pair()
        piece = attacker.lend(memory)
        task = e.task(calls.recv_at, victim, target.address, SIZE).wait_asleep("recvfrom")
        attacker.send(SRCAVAIL, avail(SIZE, piece.key, piece.address))
        e.equal(attacker.expect(RDMARDCOMPL, SENDSM).size, SIZE, "the report")
        e.equal(task.result(), SIZE, "the call")
        e.check(target.map[:] == memory.map[:], "the bytes")
        piece.withdraw()
        e.until(piece.back, "the memory")
        echo(e, attacker, victim)
        target.fill(2)
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def nobody_reads(e):
    """Adverts to a victim whose program does not receive, with and without a cancel; then the
    victim closes."""
    bed = raw.Bed(e)
    for back in (False, True):
        attacker, victim = bed.connect()
        attacker.send(SRCAVAIL, avail(SIZE, 1, 4096))
        if back:
            attacker.send(SRCAVAILCANCEL)
            attacker.expect(SENDSM)      # the answer to a cancel needs no reader
            echo(e, attacker, victim)
        victim.close()
        attacker.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=60, hosts=BEDS)
def only_a_little(e):
    """Adverts that a call cannot or will not read: the kernel requests the bytes as Data."""
    bed = raw.Bed(e)
    attacker, victim = bed.connect()
    for flags, size in ((socket.MSG_DONTWAIT, SIZE), (socket.MSG_PEEK | socket.MSG_DONTWAIT, SIZE), (socket.MSG_DONTWAIT, 1)):
        attacker.send(SRCAVAIL, avail(SIZE, LAST, 4096))
        e.until(lambda: e.outcome(victim.recv, size, flags) == "EAGAIN" and attacker.poll(), "an answer")
        attacker.data()
        echo(e, attacker, victim)
    nothing_left(e, bed)


@case(reference=False, timeout=90, hosts=BEDS)
def false_reports(e):
    """RdmaRdCompl of more bytes than were advertised, in one message or several, also after a
    cancel: the connection ends."""
    bed = raw.Bed(e)
    memory = bed.memory(SIZE).fill(1)
    for cancelled in (False, True):
        for sizes in ((SIZE + 1,), (LAST,), (1 << 31, 1 << 31), (SIZE // 2, SIZE // 2 + 1), (0, 0, LAST), (SIZE - 2, 3)):
            attacker, victim, task, advert = sender(e, bed, memory)
            e.equal(advert.size, SIZE, "the advert")
            if cancelled:
                attacker.expect(SRCAVAILCANCEL)
            before = observe.stats("peer").get("- aborted rdmardcompl_size", 0)
            for size in sizes:
                attacker.send(RDMARDCOMPL, word(size))
            e.until(lambda: observe.stats("peer").get("- aborted rdmardcompl_size", 0) == before + 1, "the counter")
            result = task.result()
            # bytes reported earlier count as sent
            e.check(result == "EPROTO" or isinstance(result, int) and 0 < result < SIZE, f"{sizes}: {result}")
            attacker.close()
            victim.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=90, hosts=BEDS)
def too_late_reports(e):
    """Any number of reports and refusals of a complete or refused advert have no effect."""
    bed = raw.Bed(e)
    memory = bed.memory(SIZE).fill(1)
    for number in range(2):
        attacker, victim, task, advert = sender(e, bed, memory)
        # more messages than the initial credits
        attacker.polite = True
        if number:
            attacker.expect(SRCAVAILCANCEL)
        attacker.send(RDMARDCOMPL, word(advert.rest))
        for _ in range(10):
            attacker.send(RDMARDCOMPL, word(SIZE))
            attacker.send(SENDSM)
        e.equal(task.result(), SIZE, "the call")
        echo(e, attacker, victim)
        attacker.close()
        victim.close()
    nothing_left(e, bed)


@case(reference=False, timeout=90, hosts=BEDS)
def partly(e):
    """The attacker reports a part and refuses the rest, at once or after the cancel: the stream
    continues at that position."""
    bed = raw.Bed(e)
    memory = bed.memory(SIZE).fill(1)
    for cancelled in (False, True):
        for read in (0, 1, 4095, SIZE - 2):
            attacker, victim, task, advert = sender(e, bed, memory)
            attacker.polite = True
            if cancelled:
                attacker.expect(SRCAVAILCANCEL)
            if read:
                attacker.send(RDMARDCOMPL, word(read))
            attacker.send(SENDSM)
            at = len(advert.payload)
            got = advert.payload + memory.map[at:at + read]
            while len(got) < SIZE:
                message = attacker.expect(DATA, SRCAVAIL, CHRCVBUF)
                if message.mid == SRCAVAIL:
                    attacker.send(SENDSM)
                got += message.payload
                attacker.data()
            e.check(got == memory.map[:], f"{read} bytes were read: the stream")
            e.equal(task.result(), SIZE, "the call")
            attacker.close()
            victim.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=90)
def no_answer(e):
    """The attacker neither reads an advert nor replies to its cancel: the call ends by its
    time-out, and the call of a killed process at once."""
    bed = raw.Bed(e)
    memory = Memory(SIZE).fill(1)
    attacker, victim, task, _ = sender(e, bed, memory)
    attacker.expect(SRCAVAILCANCEL)
    child_attacker, child_victim = bed.connect()
    eager(child_victim)
    child = e.child(calls.send_at, child_victim, memory.address, SIZE)
    child_attacker.expect(SRCAVAIL)
    child_attacker.expect(SRCAVAILCANCEL)
    e.check(observe.stats("peer")["pinned pages send"] > 0, "pages are pinned")
    child.kill()
    e.check(task.is_alive(), "the other one still waits")
    broken(e, task, victim, "no answer", ("ECONNABORTED",))
    works(e, bed)
    for end in (attacker, victim, child_attacker, child_victim):
        end.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=90, brief=False)
def ofed_answers_late(e):
    """An OFED peer drops a cancel that arrives during its READ, and refuses the advert when its
    program reads again."""
    bed = raw.Bed(e)
    memory = Memory(SIZE).fill(1)
    attacker, victim = bed.connect(ofed_hello(e))
    eager(victim)
    attacker.send(SENDSM)       # the victim then knows that the peer supports adverts
    attacker.data(b"x")
    e.equal(victim.recv(1), b"x", "the first byte")
    task = e.task(e.outcome, calls.send_at, victim, memory.address, SIZE)
    attacker.expect(SRCAVAIL)
    attacker.expect(SRCAVAILCANCEL)
    time.sleep(12)
    e.check(task.is_alive(), "the call waits")
    attacker.send(SENDSM)
    attacker.expect(DATA, payload=True)
    e.equal(e.until(lambda: not task.is_alive() and [task.result()], "the end of the call")[0], SIZE, "bytes")
    attacker.close()
    victim.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=90)
def killed(e):
    """A sender is killed while the peer reads its advert: the READ ends, and the bytes read count
    as sent, as on TCP. The module waits one second for the READ to end. A slow machine may need
    more than one second, so one success is enough."""
    bed = raw.Bed(e)
    memory, into = Memory(SIZE).fill(1), Memory(SIZE)
    for _ in range(8):
        attacker, victim = bed.connect()
        eager(victim)
        child = e.child(calls.send_at, victim, memory.address, SIZE)
        advert = attacker.expect(SRCAVAIL)
        os.kill(child.pid, signal.SIGKILL)
        attacker.expect(SRCAVAILCANCEL)
        try:
            done = attacker.read(into, advert.rest, advert.address + len(advert.payload), advert.key)
            attacker.send(RDMARDCOMPL, word(advert.rest))
            alive = done and not victim.get(socket.SOL_SOCKET, socket.SO_ERROR)
        except OSError:
            alive = False
        child.kill()
        if alive:
            echo(e, attacker, victim)
        attacker.close()
        victim.close()
        if alive:
            break
    e.check(alive, "what was read has been sent")
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=90)
def interrupted(e):
    """A signal while the peer has an advert and is silent: the call waits for the peer's report,
    and for nothing else."""
    bed = raw.Bed(e)
    memory = Memory(SIZE).fill(1)
    attacker, victim = bed.connect()
    eager(victim)

    def call():
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.siginterrupt(signal.SIGUSR1, True)
        return e.outcome(calls.send_at, victim, memory.address, SIZE)
    child = e.child(call)
    attacker.expect(SRCAVAIL)
    os.kill(child.pid, signal.SIGUSR1)
    attacker.expect(SRCAVAILCANCEL)
    attacker.send(RDMARDCOMPL, word(999))
    attacker.send(SENDSM)
    result = child.result()
    # the signal may arrive after the call's own time-out; the call then continues
    e.check(isinstance(result, int) and 999 <= result <= SIZE, f"what it has sent: {result}")
    attacker.close()
    victim.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=150)
def dies(e):
    """The attacker disconnects during a transfer, with or without a message: calls end, and no page
    stays pinned."""
    bed = raw.Bed(e)
    memory, target = Memory(1 << 20).fill(1), Memory(1 << 20)
    with either.parameters(ack_time=3):
        for way in ("fail", "leave", "drop"):
            attacker, victim, task, _ = sender(e, bed, memory)
            attacker(way)
            broken(e, task, victim, way)
            victim.close()
            attacker.close()

            attacker, victim = bed.connect()
            piece = attacker.lend(memory)
            task = e.task(e.outcome, calls.recv_at, victim, target.address, 1 << 20, socket.MSG_WAITALL).wait_asleep("recvfrom")
            attacker.send(SRCAVAIL, avail(1 << 20, piece.key, piece.address))
            e.until(attacker.arrived, "the advert's arrival")
            attacker(way)
            result = e.until(lambda: not task.is_alive() and [task.result()], "the end of the receiver's call", 4 * e.patience)[0]
            e.check(result in RESETS or isinstance(result, int), f"{way}: the receiver's {result}")
            victim.close()
            attacker.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=90)
def no_buffers(e):
    """A peer posts no receive buffers, whatever it announces: non-blocking calls do not wait,
    blocking calls can be killed, and close(2) does not block."""
    bed = raw.Bed(e)
    memory = Memory(1 << 20).fill(1)
    for bufs in (0, 3, 0xFFFF):
        attacker, victim = bed.connect()
        attacker("starve", 1)
        attacker.data(bufs=bufs)
        # an advertised block would make the connection fail when the process of the sender is
        # killed
        victim.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, 0)
        took = 0
        while isinstance(n := e.outcome(calls.send_at, victim, memory.address, 1 << 20, socket.MSG_DONTWAIT), int):
            took += n
        e.check(0 < took < 1 << 24, f"{took} bytes were taken")
        e.equal(n, "EAGAIN", "the next call")
        child = e.child(calls.send_at, victim, memory.address, 1 << 20).wait_asleep("sendto")
        child.kill()
        victim.set(socket.SOL_SOCKET, socket.SO_SNDTIMEO, b"\0" * 8 + (1000).to_bytes(8, "little"))
        e.equal(e.outcome(calls.send_at, victim, memory.address, 1 << 20), "EAGAIN", "a call with a time limit")
        victim.close()
        attacker.close()
    works(e, bed)
    nothing_left(e, bed)
