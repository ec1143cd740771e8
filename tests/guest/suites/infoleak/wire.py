# SPDX-License-Identifier: GPL-2.0-only
"""Every byte on the wire was written for its message: a capture of each kind of message, checked
byte by byte. The programs send only the letter A; all other bytes are known, or are zero. Stale
memory contents would differ: the memory was freed and poisoned, or belongs to other connections."""

import socket
import struct
import time

from lib import calls
from lib.registry import case
from lib.raw import DATA, EXTENDED, HELLO, HELLOACK, MIDS, MODECHANGE, SINKAVAIL, SRCAVAIL, Message, hello, hello_ack
from lib.wire import NAMES, Capture
from suites.infoleak.memory import needs_poison, stale
from suites.wire.session import over
from suites.zcopy.blocks import MIB, Counters, eager

LETTER = b"A"
# Connection-manager messages: offset of the private data after the MAD header.
PRIVATE = {0x10: 140, 0x12: 84, 0x13: 36, 0x14: 8, 0x15: 12, 0x16: 8}
REQ, REP = 0x10, 0x13
# Headers between BTH and payload by opcode: of SEND, of WRITE (first, only), and of READ's
# response.
SENDS, SEND_BEGINS = (0, 1, 2, 4), (0, 4)
BEHIND = {0: 0, 1: 0, 2: 0, 4: 0, 6: 16, 7: 0, 8: 0, 10: 16, 13: 4, 14: 0, 15: 4, 16: 4}
DATAGRAM = 0x64


def frames(path):
    """Yields opcode and contents after the BTH, up to the padding, of each RoCE frame in the
    file."""
    raw = open(path, "rb").read()
    at = 24
    while at < len(raw):
        length, = struct.unpack_from("=I", raw, at + 8)
        frame = raw[at + 16:at + 16 + length]
        at += 16 + length
        six = frame[12:14] == b"\x86\xdd"
        udp = frame[14 + (40 if six else 4 * (frame[14] & 15)):]
        if struct.unpack_from(">H", udp, 2)[0] == 4791:
            bth = udp[8:struct.unpack_from(">H", udp, 4)[0] - 4]
            yield bth[0], bth[12:len(bth) - (bth[1] >> 4 & 3)]


class Looker:
    """Checks the value of every byte; counts the kinds of messages."""

    def __init__(self, e):
        self._e, self.kinds = e, {}

    def zero(self, raw, what):
        self._e.check(not any(raw), f"{what} is not zero: {raw.hex()}")

    def letters(self, raw, what):
        self._e.check(raw.count(LETTER) == len(raw), f"{what} has what nobody sent: {raw.strip(LETTER)[:64].hex()}")

    def datagram(self, raw):
        mad = raw[8:]
        attribute, = struct.unpack_from(">H", mad, 16)
        if mad[1] != 7 or attribute not in PRIVATE:
            return
        private = mad[24 + PRIVATE[attribute]:256]
        if attribute == REQ:
            return self.hello(private)
        if attribute == REP:
            return self.hello_ack(private)
        self.kinds[attribute] = self.kinds.get(attribute, 0) + 1
        self.zero(private, f"the private data of CM message {attribute:#x}")

    def hello(self, raw):
        self.kinds["Hello"] = self.kinds.get("Hello", 0) + 1
        bufs, = struct.unpack_from(">H", raw, 2)
        version, ip, _, adverts, desired, size, port = struct.unpack_from(">BBBBIIH", raw, 16)
        source, target = raw[32:48], raw[48:64]
        self._e.check(ip >> 4 in (4, 6), f"a Hello of IP version {ip >> 4}")
        if ip >> 4 == 4:
            source, target = source[12:], target[12:]
        wanted = hello(source, target, port, bufs, 92, version, ip >> 4, ip & 15, adverts, desired, size)
        self._e.equal(raw.hex(), wanted.hex(), "a Hello, and what it is to be by its fields")

    def hello_ack(self, raw):
        self.kinds["HelloAck"] = self.kinds.get("HelloAck", 0) + 1
        bufs, = struct.unpack_from(">H", raw, 2)
        version, _, adverts, size = struct.unpack_from(">BBHI", raw, 16)
        self._e.equal(raw.hex(), hello_ack(bufs, 196, version, adverts, size).hex(), "a HelloAck, and what it is to be by its fields")

    def message(self, raw, whole):
        message = Message(raw)
        name = NAMES.get(message.mid)
        self._e.check(message.mid in MIDS and message.mid not in (HELLO, HELLOACK), f"message {message.mid:#x}")
        self.kinds[name] = self.kinds.get(name, 0) + 1
        self._e.check(message.flags < 8, f"flags {message.flags:#x} of {name}")
        self._e.check(not whole or message.length == len(raw), f"{name} says {message.length} bytes and has {len(raw)}")
        self._e.equal(len(message.extended), EXTENDED.get(message.mid, 0), f"header of {name}")
        if message.mid == MODECHANGE:
            self.zero(message.extended[1:], "what is reserved in ModeChange")
        if message.mid in (DATA, SRCAVAIL, SINKAVAIL):
            self.letters(message.payload, f"the payload of {name}")
        else:
            self._e.equal(message.payload, b"", f"what follows {name}")

    def look(self, path):
        for opcode, raw in frames(path):
            if opcode == DATAGRAM:
                self.datagram(raw)
            elif opcode in SEND_BEGINS:
                self.message(raw, opcode == 4)
            elif opcode in BEHIND:
                self.letters(raw[BEHIND[opcode]:], f"a packet of opcode {opcode}")
                self.kinds[opcode] = self.kinds.get(opcode, 0) + 1


def give(e, source, target, sizes):
    for size in sizes:
        task = e.task(source.sendall, LETTER * size)
        e.equal(target.recv_exactly(size), LETTER * size, "what was sent")
        task.result()


def talk(e, listener):
    """Sends messages of every kind."""
    near, far = e.pair(listener)
    for source, target in ((near, far), (far, near)):
        give(e, source, target, (1, 7, 100, 5000, 40001, 300000))
    near.send(LETTER, socket.MSG_OOB)
    e.wait_mask(far, "PRI")
    e.equal(far.recv(1, socket.MSG_OOB), LETTER, "the urgent byte")
    eager(near)
    eager(far)
    give(e, near, far, (MIB + 1, 70003))
    give(e, far, near, (MIB + 1, 70003))
    # Blocks that are advertised, refused, and cancelled.
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("=qq", 0, 100000))
    block = LETTER * (8 * MIB)
    e.equal(e.outcome(calls.send, near, block) == len(block), False, "a block that nobody takes")
    far.setblocking(False)
    while isinstance(got := e.outcome(far.recv, MIB), bytes):
        e.equal(got.strip(LETTER), b"", "what came of it")
    near.shutdown(socket.SHUT_WR)
    over(e, near, far)


def lend(e, listener):
    """Makes a reader advertise its memory. A reader does not always advertise, and not before the
    peer permits it."""
    for _ in range(20):
        near, far = e.pair(listener)
        eager(near)
        give(e, near, far, (MIB,))
        counters = Counters()
        task = e.task(far.recv, MIB, socket.MSG_WAITALL)
        until = time.monotonic() + e.patience / 20
        while not (lent := counters.gained("post_send SDP_MID_SINKAVAIL")) and time.monotonic() < until:
            time.sleep(0.001)
        near.sendall(LETTER * MIB)
        e.equal(task.result(), LETTER * MIB, "data")
        near.close()
        far.close()
        if lent:
            return


@case(reference=False, timeout=240)
def messages(e):
    """Messages of connections that reuse memory of earlier connections."""
    needs_poison(e)
    listener = e.listen()
    for _ in range(3):
        stale(e, listener)
    capture = Capture(e)
    looker = Looker(e)
    with capture:
        for _ in range(2):
            talk(e, listener)
        e.equal(e.error(e.socket().connect, e.address(e.there, e.refused_port())), "ECONNREFUSED", "connect")
        lend(e, listener)
    looker.look(capture.path)
    e.note("kinds", sorted(looker.kinds.items(), key=str))
    missing = {"Hello", "HelloAck", "Data", "DisConn", "SrcAvail", "RdmaRdCompl", "SinkAvail", 0x12, 0x14, 0x15, 0x16} - set(looker.kinds)
    e.check(not missing, f"never seen: {missing}")
