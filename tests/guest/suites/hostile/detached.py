# SPDX-License-Identifier: GPL-2.0-only
"""A victim with detached blocks (MSG_ZEROCOPY, asynchronous sends), and a peer that reads no block,
never replies to a cancel, or sends false reports."""

import socket

from lib import consts, memory, observe, pattern, raw
from lib.raw import DATA, RDMARDCOMPL, SENDSM, SRCAVAIL, SRCAVAILCANCEL, word
from lib.registry import case
from suites.zcopy import protected
from .messages import nothing_left, works

TCP, SOL = socket.IPPROTO_TCP, socket.SOL_SOCKET
SIZE = 1 << 17
BLOCKS = 3


class Victim:
    """A victim whose blocks are all advertised to the attacker, since both ends are in Pipelined
    mode.
    """

    def __init__(self, e, bed, at_once):
        self._e = e
        self.attacker, self.sock = bed.connect()
        self.memory = memory.Raw(BLOCKS * SIZE)
        self.content = pattern.Pattern(3).at(0, self.memory.size)
        self.memory.bytes = self.content
        if at_once:
            self.sock.set(TCP, consts.SDP_ZCOPY_THRESH, 65536)
            self.sock.set(TCP, consts.SDP_ASYNC_SEND, 1)
        else:
            self.sock.set(SOL, consts.SO_ZEROCOPY, 1)
        flags = 0 if at_once else consts.MSG_ZEROCOPY
        for n in range(BLOCKS):
            piece = protected.view(memory.Raw.at(self.memory.address + n * SIZE, SIZE))
            e.equal(self.sock.send(piece, flags), SIZE, "a send that does not wait")
        self.adverts = [self.attacker.expect(SRCAVAIL) for _ in range(BLOCKS)]

    def writes(self):
        """Writes to the memory of a block, in another task."""
        return self._e.task(protected.write, self.memory, 0, 0x44, self.memory.size)

    def close(self):
        self.attacker.close()
        self.sock.close()


def both(e, bed):
    """Victims of both kinds."""
    return [Victim(e, bed, at_once) for at_once in (False, True)]


def is_over(e, victim, what, errors):
    said = e.until(lambda: victim.sock.get(SOL, socket.SO_ERROR) or None, f"{what}: the end of the connection", 4 * e.patience)
    e.check(said in errors, f"{what}: the error is {said}")


@case(reference=False, families=("v4",), timeout=90)
def reads_nothing(e):
    """The peer reads no block: the kernel charges only the victim's user for the blocks. A closed
    connection with unread blocks ends by TCP_USER_TIMEOUT."""
    bed = raw.Bed(e)
    victims = both(e, bed)
    e.check(observe.stats("peer")["pinned pages send"] > 0, "nothing is pinned")
    works(e, bed)
    for victim in victims:
        victim.sock.set(TCP, socket.TCP_USER_TIMEOUT, 1000)
        victim.sock.close()
    e.until(lambda: not observe.stats("peer")["pinned pages send"], "the end of the pinning", 4 * e.patience)
    for victim in victims:
        victim.writes().result()
        victim.attacker.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=90)
def never_gives_back(e):
    """No reply to SrcAvailCancel: a writer to the block waits for ten seconds, and the connection
    is lost. A reset ends the connection at once."""
    bed = raw.Bed(e)
    patient, reset = Victim(e, bed, True), Victim(e, bed, True)
    tasks = [victim.writes() for victim in (patient, reset)]
    for victim in (patient, reset):
        victim.attacker.expect(SRCAVAILCANCEL)
    works(e, bed)
    before = observe.stats("peer")["- memory withheld"]
    reset.attacker.fail()
    tasks[1].result()
    e.check(tasks[0].is_alive(), "the other one still waits")
    is_over(e, patient, "no answer", (103,))        # ECONNABORTED
    e.equal(observe.stats("peer")["- memory withheld"], before + 1, "the counter")
    tasks[0].result()
    for victim in (patient, reset):
        victim.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=90)
def sent_again_meanwhile(e):
    """A writer waits for a block that the peer does not return. Another socket sends the same
    memory by a blocking call: otherwise the writer would also wait for the second reader, unknown
    to the sender of the block."""
    bed = raw.Bed(e)
    victim = Victim(e, bed, True)
    task = victim.writes()
    victim.attacker.expect(SRCAVAILCANCEL)
    near, far = protected.pair(e)
    counters = protected.Counters()
    again = e.task(near.send, protected.view(memory.Raw.at(victim.memory.address, SIZE)))
    e.until(lambda: counters.gained("async unprotected busy"), "the refusal")
    victim.attacker.fail()
    # the second send is never read
    task.result()
    e.equal(counters.gained("async blocks"), 0, "blocks")
    e.equal(len(far.recv_exactly(SIZE)), SIZE, "bytes")
    again.result()
    victim.close()
    near.close()
    far.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=120)
def answers_wrongly(e):
    """Reports of more bytes than a block has, in one message or several: the connection ends, and
    nothing stays pinned."""
    bed = raw.Bed(e)

    def too_much(attacker):
        attacker.send(RDMARDCOMPL, word(SIZE + 1))

    def more_than_all(attacker):
        for _ in range(BLOCKS):
            attacker.send(RDMARDCOMPL, word(SIZE - 1))
            attacker.send(RDMARDCOMPL, word(2))

    for attack in (too_much, more_than_all):
        for victim in both(e, bed):
            attack(victim.attacker)
            is_over(e, victim, attack.__name__, (71,))      # EPROTO
            victim.writes().result()
            victim.close()
    works(e, bed)
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=120)
def reads_on(e):
    """A peer has refused the blocks, but still reports and reads them. The reports after the
    refusal have no effect, and the peer's READs fail once the victim may write to the memory."""
    bed = raw.Bed(e)
    for at_once in (False, True):
        victim = Victim(e, bed, at_once)
        attacker, (first, *_) = victim.attacker, victim.adverts
        attacker.polite = True
        start = len(first.payload)
        attacker.send(SENDSM)
        for _ in range(2):
            attacker.send(RDMARDCOMPL, word(100))
            attacker.send(SENDSM)
        got = bytes(victim.content[:start])
        while len(got) < len(victim.content):
            message = attacker.expect(DATA, payload=True)
            got += message.payload
            # space for the next blocks
            attacker.data()
        e.check(got == victim.content, "the bytes came otherwise")
        e.until(lambda: not observe.stats("peer")["pinned pages send"], "the end of the pinning")
        victim.writes().result()
        target = memory.Raw(SIZE)
        e.check(not attacker.read(target, SIZE - start, first.address, first.key), "the memory is still to be read")
        e.check(bytes([0x44]) * 100 not in target.bytes, "it has read what was written later")
        victim.close()
    nothing_left(e, bed)


@case(reference=False, families=("v4",), timeout=90)
def has_no_buffers(e):
    """A peer refuses the blocks, and announces buffers for the bytes of the blocks, but does not
    post these buffers. A writer waits for ten seconds, as with a peer that does not reply, and the
    connection is lost."""
    bed = raw.Bed(e)
    victim = Victim(e, bed, True)
    victim.attacker("starve", 1)
    victim.attacker.send(SENDSM, bufs=0xFFFF)
    before = observe.stats("peer")["- memory withheld"]
    task = victim.writes()
    is_over(e, victim, "no buffers", (103,))        # ECONNABORTED
    e.equal(observe.stats("peer")["- memory withheld"], before + 1, "the counter")
    task.result()
    victim.close()
    nothing_left(e, bed)
