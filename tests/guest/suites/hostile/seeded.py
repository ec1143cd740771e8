# SPDX-License-Identifier: GPL-2.0-only
"""Random attacks from a seed (`env SEED=7 tests/guest/run hostile.seeded`; --notes and every
failure print the seed).

Each connection has a number. The actions of attacker and victim depend only on seed and number, so
`env SEED=7 ONLY=123` runs connection 123 alone. The order of simultaneous actions depends on the
machine."""

import os
import random
import select
import socket
import traceback

from lib import calls, consts, either, observe, raw
from lib.env import CaseFailure
from lib.memory import Memory
from lib.raw import DATA, EXTENDED, MIDS, MODECHANGE, RDMARDCOMPL, SENDSM, SINKAVAIL, SRCAVAIL, SRCAVAILCANCEL, avail, change, word
from lib.registry import case
from .messages import LAST, nothing_left, works

CONNECTIONS = 150
ENDS = {"EPROTO", "ECONNRESET", "EPIPE", "ETIMEDOUT", "ECONNABORTED"}
WORDS = (0, 1, 2, 15, 16, 17, 4095, 4096, 32768, 65535, 65536, 1 << 20, (1 << 31) - 1, 1 << 31, LAST - 1, LAST)
SHORTS = (0, 1, 2, 3, 4, 8, 64, 0xFFFE, 0xFFFF)
SPACE = 1 << 18


class Victim:
    """An ordinary program at the victim's socket: it reads, writes, or both, until a call fails."""

    def __init__(self, e, sock, dice):
        self._e, self._sock, self._memory = e, sock, Memory(SPACE).fill(3)
        if dice.random() < 0.7:
            sock.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, 4096)
        ways = dice.choice(((self._read,), (self._write,), (self._read, self._write), (self._watch,), (self._watch, self._write)))
        self.errors = []
        self._tasks = [e.task(way, random.Random(dice.random())) for way in ways]

    def _until_error(self, call, most=400):
        for _ in range(most):
            result = self._e.outcome(call)
            if result == 0 or isinstance(result, str) and result != "EAGAIN":
                break
        self.errors.append(result)

    def _read(self, dice):
        target = Memory(SPACE)
        flags = (0, 0, 0, socket.MSG_WAITALL, socket.MSG_PEEK, socket.MSG_DONTWAIT, socket.MSG_OOB, socket.MSG_TRUNC)

        def call():
            flag = dice.choice(flags)
            result = self._e.outcome(calls.recv_at, self._sock, target.address, dice.choice((1, 100, 4096, 5000, SPACE)), flag)
            return 1 if flag == socket.MSG_OOB and result in ("EINVAL", "EAGAIN") else result
        self._until_error(call)

    def _write(self, dice):
        self._until_error(lambda: self._e.outcome(calls.send_at, self._sock, self._memory.address, dice.choice((1, 100, 4096, 20000, SPACE)),
                                                  dice.choice((0, 0, 0, socket.MSG_DONTWAIT, socket.MSG_MORE, socket.MSG_OOB))))

    def _watch(self, _):
        def call():
            self._sock.mask_when(select.POLLIN, self._e.patience)
            result = self._e.outcome(self._sock.recv, 70000, socket.MSG_DONTWAIT)
            return len(result) if isinstance(result, bytes) else result
        self._until_error(call)

    def wait(self, patience):
        for task in self._tasks:
            task.join(patience)

    def end(self):
        for task in self._tasks:
            task.result()
        for error in self.errors:
            self._e.check(not isinstance(error, str) or error in ENDS | {"EAGAIN"}, f"a call has ended with {error}")


class Attacker:
    def __init__(self, peer, dice):
        self._raw, self._dice, self._memory = peer, dice, Memory(SPACE).fill(4)
        self._lent = []

    def _mostly(self, right, odd, chance=0.95):
        return right if self._dice.random() < chance else self._dice.choice(odd)

    def _word(self):
        return self._dice.choice((*WORDS, self._dice.getrandbits(32)))

    def act(self):
        """Performs one action; returns false when the connection has failed."""
        return self._dice.choices((self._any, self._data, self._lend, self._answer, self._change, self._reach), (30, 25, 15, 25, 10, 3))[0]()

    def _frame(self, mid, extended, payload=b""):
        dice, peer = self._dice, self._raw
        fields = {"flags": self._mostly(0, (1, 2, 3, 4, 0xF8, 0xFF)), "bufs": self._mostly(64, SHORTS, 0.8)}
        if dice.random() < 0.02:
            fields["mseq"] = dice.choice((0, peer.mseq, peer.mseq + 2, self._word()))
        if dice.random() < 0.05:
            fields["ack"] = dice.choice((peer.seen - 1, peer.seen + 1, 0, self._word()))
        if dice.random() < 0.02:
            fields["length"] = self._word()
        return peer.send(mid, extended, payload, **fields)

    def _payload(self, chance=0.5):
        return self._dice.randbytes(self._dice.choice((1, 2, 100, 2000))) if self._dice.random() < chance else b""

    def _any(self):
        dice = self._dice
        mid = self._mostly(dice.choice(MIDS), range(256), 0.97)
        length = self._mostly(EXTENDED.get(mid, 0), range(24), 0.98)
        extended = b"".join(word(self._word()) for _ in range(6))[:length]
        return self._frame(mid, extended, self._payload(0.5 if mid in (DATA, SRCAVAIL, SINKAVAIL) else 0.02))

    def _data(self):
        return self._frame(DATA, b"", self._payload(0.8))

    def _change(self):
        return self._frame(MODECHANGE, change(self._dice.choice((0, 0x10, 0x20, 0x20, 0x20)), self._dice.random() < 0.1))

    def _lend(self):
        """Sends a SrcAvail of memory that may exist; sometimes cancels the advert, or frees the
        memory first."""
        dice, size = self._dice, self._dice.choice((1, 4096, 5000, 65536, SPACE - 5000))
        try:
            piece = self._raw.lend(self._memory, dice.random() < 0.05, dice.randrange(4000), size)
        except OSError:         # the maximum number of adverts exists, or the connection is broken
            return self._frame(SRCAVAILCANCEL, b"")
        if dice.random() < 0.1:
            piece.withdraw()
        self._frame(SRCAVAIL, avail(self._mostly(size, WORDS, 0.9), self._mostly(piece.key, WORDS), piece.address + self._mostly(0, (-1, 1, 1 << 63))),
                    self._payload(0.2))
        if dice.random() < 0.3:
            return self._frame(SRCAVAILCANCEL, b"")
        return True

    def _answer(self):
        """Reacts to an advert of the victim: reads the memory, reports the advert as read, or
        reports it without reading."""
        dice, peer = self._dice, self._raw
        messages = peer.poll()
        advert = next((message for message in messages if message.mid == SRCAVAIL), None)
        if advert is None:
            return peer.state().failure == ""
        left = advert.size - len(advert.payload)
        if dice.random() < 0.5 and not peer.read(Memory(SPACE), max(1, left), advert.address + len(advert.payload), advert.key):
            return False
        for part in dice.choice(((left,), (left,), (left // 2, left - left // 2), (left // 3,), (left + 1,), (0, left), (self._word(),), ())):
            self._frame(RDMARDCOMPL, word(part))
        return dice.random() < 0.6 or self._frame(SENDSM, b"")

    def _reach(self):
        dice = self._dice
        if dice.random() < 0.5:
            return self._raw.read(Memory(4096), 64, self._word() << 12, self._word())
        return self._raw.write(Memory(4096), 64, self._word() << 12, self._word())


def play(e, bed, seed, number):
    dice = random.Random(seed * 1000003 + number)
    hello = None
    if dice.random() < 0.3:
        hello = {"bufs": dice.choice(SHORTS), "adverts": dice.choice((1, 2, 16, 255)), "size": dice.choice((512, 2064, 4096, 32784, 1 << 20))}
    if dice.random() < 0.5:
        own, other = (socket.inet_pton(e.family, host) for host in (e.here, e.there))
        peer, sock = bed.connect(hello and raw.hello(own, other, dice.choice(SHORTS[1:]), **hello))
    else:
        peer, sock = bed.accept(hello and raw.hello_ack(**hello))
    peer.polite = dice.random() < 0.2
    peer.patience = e.patience / 20
    victim, attacker = Victim(e, sock, dice), Attacker(peer, dice)
    for _ in range(dice.choice((1, 5, 20, 60))):
        try:
            if not attacker.act():
                break
        except CaseFailure:     # no buffer space or no credit: the victim accepts no further message
            break
    # An attacker that leaves without a message delays a victim with a request in flight for
    # seconds; a waiting victim never notices the disconnect.
    way = dice.choices(("fail", "leave", "drop"), (60, 39, 1))[0]
    peer(way)
    if way == "drop":
        victim.wait(e.patience / 4)
        peer.close()
    try:
        victim.end()
    except CaseFailure as error:
        row = observe.row_of(sock, "peer")
        raise CaseFailure(f"{way}, {[task._function.__name__ for task in victim._tasks]}, {victim.errors}, {row and vars(row)}: {error}") from None
    sock.close()
    peer.close()
    return victim.errors


def aborted():
    return sum(count for name, count in observe.stats("peer").items() if name.startswith("- aborted"))


@case(reference=False, timeout=280)
def connections(e):
    """Consecutive connections, each with some dozens of messages and a program at the victim's
    end."""
    seed = int(os.environ.get("SEED", "1"))
    only = os.environ.get("ONLY")
    e.note("seed", seed)
    bed = raw.Bed(e)
    with either.parameters(ack_time=3):
        for number in [int(only)] if only else range(e.rounds(CONNECTIONS)):
            before = aborted(), observe.stats("peer")["- transport error"]
            try:
                errors = play(e, bed, seed, number)
                if "EPROTO" in errors:
                    e.check(aborted() > before[0] or observe.stats("peer")["- transport error"] > before[1], "EPROTO, and nothing was counted")
                if number % 50 == 49:
                    works(e, bed)
                    nothing_left(e, bed)
            except (CaseFailure, OSError) as error:
                places = [f"{entry.name}:{entry.lineno}" for entry in traceback.extract_tb(error.__traceback__)]
                raise CaseFailure(f"seed {seed}, connection {number}: {error} ({' '.join(places)})") from error
    works(e, bed)
    nothing_left(e, bed)
