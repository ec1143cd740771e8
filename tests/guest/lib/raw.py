# SPDX-License-Identifier: GPL-2.0-only
"""A peer that sends raw SDP messages: one end of a connection, detached from its socket by the
module's self-test build.

`Raw` sends the given messages, with correct sequence numbers or not, and may access the victim's
memory by RDMA; `hello` and `hello_ack` are the messages of connection setup. src/selftest/raw.rs is
the kernel's side."""

import ctypes
import errno
import os
import socket
import struct

from . import memory, observe

FILE = "/sys/kernel/debug/ib_sdp/selftest"
(DISCONN, ABORT, SENDSM, RDMAWRCOMPL, RDMARDCOMPL, MODECHANGE, SRCAVAILCANCEL, SINKAVAILCANCEL, SINKCANCELACK, CHRCVBUF, CHRCVBUFACK,
 SUSPCOMM, SUSPCOMMACK) = range(0x02, 0x0F)
HELLO, HELLOACK, SINKAVAIL, SRCAVAIL, DATA = 0x00, 0x01, 0xFD, 0xFE, 0xFF
MIDS = (*range(0x02, 0x0F), SINKAVAIL, SRCAVAIL, DATA)
# Size of the header after the first sixteen bytes.
EXTENDED = {RDMAWRCOMPL: 4, RDMARDCOMPL: 4, MODECHANGE: 4, CHRCVBUF: 4, CHRCVBUFACK: 4, SUSPCOMM: 8, SRCAVAIL: 16, SINKAVAIL: 20}
OOB_PRES, OOB_PEND, REQ_PIPE = 1, 2, 4
BUFFERED, COMBINED, PIPELINED = 0x00, 0x10, 0x20
FAILURES = ("", "flushed", "no answer", "no buffer", "refused", "protocol", "local")
ROOM = 1 << 20
SIW = os.path.exists("/sys/class/infiniband/siw0")
# Minimum number of posted receive buffers. On siw a message without a buffer ends the connection.
BUFS = 16


def tidy():
    """Frees raw peers whose sockets are closed. Without this function, connections of closed
    sockets stay until the next command, and hold the module."""
    if os.path.exists(FILE):
        with open(FILE, "w") as file:
            file.write("tidy")


def bsdh(mid, mseq, ack, bufs=64, flags=0, length=16):
    return struct.pack(">BBHIII", mid & 0xFF, flags & 0xFF, bufs & 0xFFFF, length & 0xFFFFFFFF, mseq & 0xFFFFFFFF, ack & 0xFFFFFFFF)


def avail(size, key, address, discards=None):
    """Returns the part of SrcAvail or, with `discards`, SinkAvail after the first sixteen bytes.
    """
    more = b"" if discards is None else struct.pack(">I", discards & 0xFFFFFFFF)
    return struct.pack(">IIQ", size & 0xFFFFFFFF, key & 0xFFFFFFFF, address & (1 << 64) - 1) + more


def word(number):
    return struct.pack(">I", number & 0xFFFFFFFF)


def change(mode, receiver=False):
    return bytes([mode | 0x80 * receiver, 0, 0, 0])


def hello(source, target, port, bufs=8, length=92, version=0x22, ipv=None, cap=0, adverts=16, desired=4096, size=4096, mid=0, more=0, message=0):
    """Returns the private data of a request, from binary addresses of 4 or 16 bytes."""
    six = len(source) == 16
    ipv = (6 if six else 4) if ipv is None else ipv
    first = bsdh(mid, 0, 0, bufs, 0, length)
    return first + struct.pack(">BBBBIIHH16s16sHHI20s", version, ipv << 4 | cap, 0, adverts, desired, size, port, 0,
                               source.rjust(16, b"\0"), target.rjust(16, b"\0"), 0, more, message, b"")


def hello_ack(bufs=8, length=196, version=0x22, adverts=16, size=4096, mid=1, message=0):
    return bsdh(mid, 0, 0, bufs, 0, length) + struct.pack(">BBHII168s", version, 0, adverts, size, message, b"")


class Message:
    def __init__(self, raw):
        self.raw = raw
        self.mid, self.flags, self.bufs, self.length, self.mseq, self.ack = struct.unpack(">BBHIII", raw[:16])
        at = 16 + EXTENDED.get(self.mid, 0)
        self.extended, self.payload = raw[16:at], raw[at:]

    @property
    def rest(self):
        """Number of advertised bytes that a SrcAvail did not contain itself."""
        return self.size - len(self.payload)

    @property
    def size(self):
        return struct.unpack(">I", self.extended[:4])[0]

    @property
    def key(self):
        return struct.unpack(">I", self.extended[4:8])[0]

    @property
    def address(self):
        return struct.unpack(">Q", self.extended[8:16])[0]

    def __repr__(self):
        return f"<{self.mid:#x} mseq {self.mseq} ack {self.ack} bufs {self.bufs} {self.extended.hex()} +{len(self.payload)}>"


class Command:
    """Debugfs file of the self-test."""

    def __init__(self, e):
        if not os.path.exists(FILE):
            e.skip("the module has no self-test (qemu/guest --selftest)")
        self._file = os.open(FILE, os.O_WRONLY)

    def __call__(self, *words):
        text = " ".join(map(str, words)).encode()
        try:
            os.write(self._file, text)
        except OSError as error:
            raise OSError(error.errno, f"{words}: {os.strerror(error.errno)}") from None

    def trial(self, *words):
        """Returns False if the attempt has to be repeated."""
        try:
            self(*words)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EBUSY):
                return False
            raise
        return True


class State:
    def __init__(self, numbers):
        self.failure = FAILURES[numbers[0]]
        self.posted, self.arrived, self.waiting, self.moved, self.ended, self.buffers = numbers[1:]


class Raw:
    """Raw end of a connection whose socket is `sock`. Omitted fields of a message get the values
    that the sequence requires."""

    def __init__(self, e, sock, command):
        self._e, self._sock, self._command = e, sock, command
        self._out = ctypes.create_string_buffer(ROOM + 8)
        self._at = ctypes.addressof(self._out)
        self._command("take", sock.fileno(), self._at)
        # Without its endpoint the socket cannot close normally, however its program ends.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.mseq, self.seen = self._numbers(2)
        self._heard = []
        # Number of messages with payload received: the number in a SinkAvail if none were received
        # before.
        self.payloads = 0
        # Buffers and messages that the other end has acknowledged; only polite attackers use them.
        self.polite, self._bufs, self._acked = False, 8, 0
        # Number of work requests of the last transfer.
        self.requests = 0
        self.patience = None
        e.keep(self)

    def _numbers(self, count):
        return struct.unpack(f"={count}Q", self._out.raw[:8 * count])

    def __call__(self, command, *words):
        self._command(command, self._sock.fileno(), *words)

    def trial(self, command, *words):
        return self._command.trial(command, self._sock.fileno(), *words)

    # Messages

    def bytes(self, raw):
        """Posts a message unchanged, once the send queue has space. Returns False if the connection
        has failed."""
        keep = ctypes.create_string_buffer(bytes(raw), max(1, len(raw)))
        try:
            self._e.until(lambda: self.trial("send", ctypes.addressof(keep), len(raw)), "room for a raw message", self.patience)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        return True

    def send(self, mid, extended=b"", payload=b"", flags=0, bufs=BUFS, mseq=None, ack=None, length=None):
        """Posts the next message, or the one described by the arguments."""
        self.poll()
        if self.polite:
            self._e.until(lambda: self.poll() is not None and self._bufs > self.mseq - self._acked, "a credit", self.patience)
        if mseq is None:
            self.mseq = mseq = self.mseq + 1 & 0xFFFFFFFF
        body = extended + payload
        length = 16 + len(body) if length is None else length
        return self.bytes(bsdh(mid, mseq, self.seen if ack is None else ack, bufs, flags, length) + body)

    def data(self, payload=b"", **more):
        return self.send(DATA, payload=payload, **more)

    def poll(self):
        """Returns the received messages."""
        new = []
        while True:
            try:
                if not self.trial("next", self._at, ROOM):
                    return new
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                return new
            length, = struct.unpack("=Q", self._out.raw[:8])
            message = Message(ctypes.string_at(self._at + 8, length))
            self.seen, self._bufs, self._acked = message.mseq, message.bufs, message.ack
            self.payloads += bool(message.payload)
            self._heard.append(message)
            new.append(message)

    def arrived(self):
        """Returns true if all sent messages have arrived: those in flight are lost with the queue
        pair."""
        state = self.state()
        return state.arrived == state.posted

    def acknowledged(self):
        """Returns true if the other end has acknowledged all messages."""
        self.poll()
        return self._acked == self.mseq

    def expect(self, *mids, payload=False, patience=None):
        """Returns the next message of one of these kinds, or of any kind, with payload if required.
        Skips earlier messages."""
        def look():
            self.poll()
            while self._heard:
                message = self._heard.pop(0)
                if (not mids or message.mid in mids) and (message.payload or not payload):
                    return message
            return None
        return self._e.until(look, lambda: f"no message {[hex(mid) for mid in mids]}: {self.state().__dict__}", patience)

    def heard(self):
        """Returns all received messages that `expect` has not returned."""
        self.poll()
        heard, self._heard = self._heard, []
        return heard

    def state(self):
        self("state", self._at)
        return State(self._numbers(7))

    # Memory

    def lend(self, memory, write=False, offset=0, size=None):
        """Advertises memory to the other end; returns a Lent."""
        self("advertise", memory.address + offset, memory.size - offset if size is None else size, "write" if write else "read", self._at)
        address, key, handle = self._numbers(3)
        return Lent(self, address, key, handle, memory.size - offset if size is None else size)

    def read(self, memory, size, address, key):
        """READs by RDMA into memory; returns true if the READ was executed."""
        return self._transfer("read", "into", memory, size, address, key)

    def write(self, memory, size, address, key):
        return self._transfer("write", "from", memory, size, address, key)

    def pin(self, memory, way):
        """Pins memory for transfers "from" or "into" it; returns the handle."""
        self("pin", memory.address, memory.size, way, self._at)
        return self._numbers(1)[0]

    def begin(self, what, *words):
        """Returns the number of queued bytes of a transfer; 0 while the queue has no space."""
        return self.trial(what, *words, self._at) and self._numbers(1)[0]

    def _transfer(self, what, way, memory, size, address, key):
        before, self.requests = self.state().moved, 0
        try:
            self("pin", memory.address, size, way, self._at)
            handle, = self._numbers(1)
            done = 0
            while done < size and not self.state().failure:
                done += self._e.until(lambda: self.begin(what, handle, done, size - done, address + done, key) or self.state().failure and size,
                                      "room for a transfer", self.patience)
                self.requests += 1
            state = self._e.until(lambda: (now := self.state()).moved == before + size and now or now.failure and now,
                                  lambda: f"never came: the transfer's end at {before + size}: {vars(self.state())}, {observe.lost_packets()}",
                                  self.patience)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        self._e.until(lambda: self.trial("back", handle), "the end of access by a transfer", self.patience)
        return state.moved == before + size

    # Ends

    def drop(self):
        """Destroys the queue pair without a message."""
        self("drop")

    def fail(self):
        self("fail")

    def close(self):
        if self._sock.fileno() < 0:
            return
        self._sock.close()
        self._command("tidy")


class Lent:
    """Memory that the other end may access."""

    def __init__(self, raw, address, key, handle, size):
        self._raw, self.address, self.key, self._handle, self.size = raw, address, key, handle, size

    def withdraw(self):
        self._raw("withdraw", self._handle)

    def back(self):
        return self._raw.trial("back", self._handle)

    def end(self):
        """Ends the access and releases the memory."""
        self.withdraw()
        self._raw._e.until(self.back, "the end of access")


class Bed:
    """A victim, which is an ordinary socket on the peer's side, and attackers on this side."""

    def __init__(self, e):
        self.e, self.command = e, Command(e)
        self.listener = e.listen("peer", 64)

    def connect(self, private=None, near=None):
        """Returns (raw, victim): the attacker has connected, with this Hello if given."""
        e = self.e
        near = near or e.socket()
        if private is not None:
            self.private(near, private)
        near.connect(e.address(e.there, self.listener.port))
        victim, _ = self.listener.accept()
        attacker = Raw(e, near, self.command)
        if SIW:
            # siw finds bytes late that arrive before accept(2) returns, so others have to follow
            attacker.data()
        return attacker, e.keep(victim)

    def accept(self, private=None, victim=None, listener=None):
        """Returns (raw, victim): the victim connects to the listener and gets the HelloAck
        `private`. Creates the omitted ends."""
        e, service = self.e, listener or self.e.listen("self", 16)
        if private is not None:
            self.private(service, private)
        if victim:
            victim.connect(e.address(e.here, service.port))
        else:
            victim = e.connect(service, "peer")
        near, _ = service.accept()
        if not listener:
            service.close()
        return Raw(e, e.keep(near), self.command), victim

    def memory(self, size):
        """Returns memory for calls of victims."""
        return memory.Held(self.listener, size)

    def private(self, sock, data):
        data = data.ljust(196, b"\0")
        keep = ctypes.create_string_buffer(data, len(data))
        self.command("private", sock.fileno(), ctypes.addressof(keep), len(data))

    def tidy(self):
        self.command("tidy")
