# SPDX-License-Identifier: GPL-2.0-only
"""A reader with several pieces of its memory out, and a peer that fills them as it likes: not to the end, with messages in between,
when they are taken back, and beyond what is allowed. The call has the bytes of the stream, in their order, or an error."""

import random
import socket
import struct

from lib import calls, observe, pattern, raw
from lib.memory import Memory
from lib.raw import DISCONN, MODECHANGE, OOB_PRES, RDMAWRCOMPL, SINKAVAIL, SINKAVAILCANCEL, SINKCANCELACK, change, word
from lib.registry import case
from ..zcopy.figures import parameter
from .adverts import RESETS, eager
from .messages import LAST, nothing_left, works

PIECES, PIECE, OUT = 7, 65536, 4
ROOM = PIECES * PIECE


class Writer:
    """A peer that keeps the account of what it has written and sent, and of the reader's memory."""

    def __init__(self, attacker, seed=0):
        self.raw, self.stream = attacker, bytearray()
        self._pattern, self._at = pattern.Pattern(seed), 0
        self._source = Memory(PIECE)
        self._counted = 0
        self.out, self.cancelled, self.answers = [], False, True

    def look(self):
        for message in self.raw.heard():
            if message.mid == SINKAVAIL:
                if struct.unpack(">I", message.extended[16:20])[0] == self._counted:
                    self.out.append(message)
                else:
                    self._counted -= 1
            elif message.mid == SINKAVAILCANCEL:
                # all may have come back before
                self.cancelled = bool(self.out)
        if self.cancelled and self.answers:
            self.answer()

    def answer(self):
        """Confirms that the memory is the reader's again, if there is anything to confirm."""
        if self.out:
            self.raw.send(SINKCANCELACK)
        self.out, self.cancelled = [], False

    def next(self, size):
        data = self._pattern.at(self._at, size)
        self._at += size
        return data

    def write(self, size=PIECE):
        """Writes to the oldest piece, and says so. False if there is none."""
        self.look()
        if not self.out:
            return False
        advert = self.out[0]
        size = min(size, advert.size)
        if size:
            data = self.next(size)
            self._source.map[:size] = data
            if not self.raw.write(self._source, size, advert.address, advert.key):
                raise AssertionError(f"the WRITE was not carried out: {self.raw.state().failure}")
            self.stream += data
        self.raw.send(RDMAWRCOMPL, word(size))
        self._over()
        return True

    def _over(self):
        self.out.pop(0)
        # nothing is left that could be taken back
        self.cancelled = self.cancelled and bool(self.out)

    def data(self, size, flags=0):
        """Sends bytes, in place of the oldest piece if there is one."""
        self.look()
        data = self.next(size)
        self.raw.data(data, flags=flags)
        self.stream += data[:-1] if flags & OOB_PRES else data
        if self.out:
            self._over()
        else:
            self._counted += 1


def reader(e, bed, seed=0):
    """(writer, victim, task): a call that waits for all of its room, whose first piece was filled, and four others are out."""
    for _ in range(5):
        attacker, victim = bed.connect()
        eager(victim)
        attacker.polite = True
        attacker.send(MODECHANGE, change(raw.PIPELINED))
        task = e.task(e.outcome, calls.recvmsg, victim, [PIECE] * PIECES, socket.MSG_WAITALL)
        writer = Writer(attacker, seed)
        writer.answers = False
        e.until(lambda: writer.look() or writer.out, "the first piece")
        writer.write()
        # a slow one takes them back before all are out, and is not answered
        e.until(lambda: writer.look() or len(writer.out) == OUT or writer.cancelled, "the others")
        if len(writer.out) == OUT:
            writer.answers = True
            return writer, victim, task
        attacker.close()
        victim.close()
    return e.check(False, "no victim has advertised four pieces")


def given(task):
    """The bytes that the call gave, or its error."""
    result = task.result()
    if isinstance(result, str):
        return result
    count, buffers, *_ = result
    return b"".join(buffers)[:count]


def end(e, what, writer, victim, task):
    """The peer's stream ends: the call has all of it, and so has who reads on."""
    writer.look()
    writer.raw.send(DISCONN)
    got = given(task)
    if not isinstance(got, str):
        while part := victim.recv(ROOM):
            got += part
    if got != writer.stream:
        place = next((at for at, (one, two) in enumerate(zip(got, writer.stream)) if one != two), "the end")
        e.check(False, f"{what}: {got if isinstance(got, str) else len(got)} in place of {len(writer.stream)} bytes, others from {place} on")
    writer.raw.close()
    victim.close()


def wait_for_cancel(e, writer):
    writer.answers = False
    e.until(lambda: writer.look() or writer.cancelled, "the reader's cancel")


def late(e, w):
    """Writes to memory that the reader wants back, and confirms the rest."""
    wait_for_cancel(e, w)
    w.write(7)
    w.write(PIECE)
    w.answer()


def late_all(e, w):
    """There is nothing left to confirm."""
    wait_for_cancel(e, w)
    for size in (7, PIECE, 0, 9):
        w.write(size)
    w.answer()


def unasked(e, w):
    """Writes to a piece whose turn has not come, which it does not report."""
    memory = Memory(PIECE).fill(9)
    for advert in w.out[1:]:
        e.check(w.raw.write(memory, PIECE, advert.address, advert.key), "a WRITE to what is out")
    w.write(10)


def combined(e, w):
    """Pieces are void when the mode changes."""
    w.write(10)
    w.raw.send(MODECHANGE, change(raw.COMBINED))
    w.out, w.answers = [], False


ORDERS = {
    "all of them": lambda e, w: [w.write() for _ in range(PIECES - 1)],
    "one that is short": lambda e, w: [w.write(size) for size in (100, PIECE, PIECE)],
    "all short": lambda e, w: [w.write(size) for size in (1, 2, 3, 4)],
    "almost full": lambda e, w: [w.write(PIECE - 1) for _ in range(4)],
    "nothing in one": lambda e, w: [w.write(size) for size in (0, PIECE, 0, PIECE)],
    "short behind full ones": lambda e, w: [w.write(size) for size in (PIECE, 5, PIECE)],
    "bytes in between": lambda e, w: (w.data(50), w.write(1000), w.data(20), w.write(PIECE)),
    "bytes, and one behind": lambda e, w: (w.data(2000), w.data(1), w.data(7), w.write(5)),
    "bytes behind a short one": lambda e, w: (w.write(3), w.data(1999), w.write(PIECE), w.data(11)),
    "bytes for each": lambda e, w: [w.data(size) for size in (1, 2, 3, 4, 5, 6)],
    "an urgent one in between": lambda e, w: (w.data(10, OOB_PRES), w.write(100), w.data(10), w.write(PIECE)),
    "the end": lambda e, w: None,
    "written too early": unasked, "another mode": combined, "late": late, "late, and all": late_all,
}


@case(reference=False, timeout=240)
def orders(e):
    """Whatever comes back short, or as a message: the call has the bytes in their order."""
    bed = raw.Bed(e)
    with parameter("recv_adverts", OUT):
        before = observe.stats("peer")
        for what, order in ORDERS.items():
            writer, victim, task = reader(e, bed)
            order(e, writer)
            end(e, what, writer, victim, task)
        e.check(observe.stats("peer")["zcopy shifted"] > before["zcopy shifted"], "nothing was moved")
        e.check(observe.stats("peer")["zcopy sinks ahead"] > before["zcopy sinks ahead"], "nothing was ahead")
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=400)
def any_order(e):
    """The same at random, from a seed for each connection, while the reader takes back what it likes."""
    bed = raw.Bed(e)
    with parameter("recv_adverts", OUT):
        for seed in range(25):
            dice = random.Random(seed)
            writer, victim, task = reader(e, bed, seed)
            for _ in range(dice.randrange(2, 12)):
                if len(writer.stream) + PIECE > ROOM:
                    break
                writer.answers = dice.random() < 0.7
                size = dice.choice((0, 1, 100, 4095, 4096, 4097, PIECE - 1, PIECE, PIECE))
                if dice.random() < 0.3 or not writer.write(size):
                    writer.data(dice.choice((1, 100, 2000)))
                if writer.out and dice.random() < 0.2:
                    # it has lost patience, or wants back what is behind a hole
                    wait_for_cancel(e, writer)
            writer.answers = True
            end(e, f"seed {seed}", writer, victim, task)
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=120)
def violations(e):
    """More than there is room for, more reports than pieces, and a confirmation that nobody asked for."""
    bed = raw.Bed(e)
    full, short = (RDMAWRCOMPL, word(PIECE)), (RDMAWRCOMPL, word(1))
    with parameter("recv_adverts", OUT):
        for reason, attack in (
                ("rdmawrcompl_size", [full, (RDMAWRCOMPL, word(PIECE + 1))]), ("rdmawrcompl_size", [(RDMAWRCOMPL, word(LAST))]),
                ("unexpected_rdmawrcompl", [full] * PIECES), ("unexpected_rdmawrcompl", [short] * (OUT + 1)),
                ("unexpected_rdmawrcompl", [full, (DISCONN, b""), full]), ("unexpected_sinkcancelack", [full, (SINKCANCELACK, b"")])):
            name = f"- aborted {reason}"
            before = observe.stats("peer").get(name, 0)
            writer, victim, task = reader(e, bed)
            writer.raw.polite = False
            for message in attack:
                writer.raw.send(*message)

            def aborted():
                if observe.stats("peer").get(name, 0) == before + 1:
                    return True
                if short in attack and writer.raw.acknowledged():
                    # a quick reader had four others out before the last report: they take those
                    for message in attack:
                        writer.raw.send(*message)
                return False

            e.until(aborted, lambda: f"{reason}: {[(n, v) for n, v in observe.stats('peer').items() if n.startswith('-')]}")
            got = given(task)
            e.check(got == "EPROTO" or not isinstance(got, str) and len(got) >= PIECE, f"{reason}: the call has ended with {got}")
            writer.raw.close()
            victim.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, timeout=180)
def afterwards(e):
    """WRITEs to any of the pieces when the call has returned: nothing is changed."""
    bed = raw.Bed(e)
    with parameter("recv_adverts", OUT):
        for place in range(OUT):
            writer, victim, task = reader(e, bed)
            adverts = list(writer.out)
            writer.write(100)
            end_of = writer.raw
            e.until(lambda: writer.look() or not writer.out, "the reader's cancel")
            end_of.send(DISCONN)
            e.equal(given(task), bytes(writer.stream), "the call")
            memory = Memory(PIECE).fill(3)
            e.check(not end_of.write(memory, PIECE, adverts[place].address, adverts[place].key), f"piece {place}: it was carried out")
            end_of.close()
            victim.close()
    nothing_left(e, bed)


@case(reference=False, timeout=120)
def outside(e):
    """Bytes across the end of one piece do not reach the next one."""
    bed = raw.Bed(e)
    with parameter("recv_adverts", OUT):
        for offset, size in ((PIECE - 1, 2), (-1, 2), (PIECE, 1)):
            writer, victim, task = reader(e, bed)
            advert = writer.out[1]
            memory = Memory(PIECE).fill(3)
            e.check(not writer.raw.write(memory, size, advert.address + offset, advert.key), f"{size} bytes at {offset} were written")
            got = given(task)
            e.check(got in RESETS or got == bytes(writer.stream), f"the call has ended with {got if isinstance(got, str) else len(got)}")
            writer.raw.close()
            victim.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=90)
def no_answer(e):
    """All of them are taken back, and nobody answers: the call ends by itself, and a killed one at once."""
    bed = raw.Bed(e)
    with parameter("recv_adverts", OUT):
        writer, victim, task = reader(e, bed)
        wait_for_cancel(e, writer)
        second, killed = bed.connect()
        eager(killed)
        second.polite = True
        second.send(MODECHANGE, change(raw.PIPELINED))
        child = e.child(calls.recvmsg, killed, [PIECE] * PIECES, socket.MSG_WAITALL)
        other = Writer(second)
        other.answers = False
        e.until(lambda: other.look() or other.out, "the first piece")
        other.write()
        e.until(lambda: other.look() or other.cancelled, "the cancel")
        child.kill()
        got = e.until(lambda: not task.is_alive() and [given(task)], "the end of the call", 4 * e.patience)[0]
        e.equal(got, bytes(writer.stream), "what it gave")
        e.equal(e.error(victim.recv, 1), "ECONNABORTED", "the error behind")
    for one in (writer.raw, victim, second, killed):
        one.close()
    nothing_left(e, bed)
    works(e, bed)
