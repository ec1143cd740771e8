# SPDX-License-Identifier: GPL-2.0-only
"""Each call writes every byte that it returns, and changes no other byte of the program's
memory."""

import ctypes
import re
import select
import socket

from lib import calls, netns, observe
from lib.registry import case
from suites.infoleak.memory import POISON, STALE, needs_poison, poison_in, stale
from suites.zcopy.blocks import eager

FILLS = (0xE7, 0x18)
LEVELS = {socket.IPPROTO_IP: 60, socket.SOL_SOCKET: 90, socket.IPPROTO_TCP: 128, socket.IPPROTO_IPV6: 90}


def states(e, listener):
    """Sockets in all states."""
    yield "new", e.socket()
    yield "bound", e.bound("self")
    yield "listening", listener
    sock = e.socket()
    sock.setblocking(False)
    e.error(sock.connect, e.address(e.silent(), 1))
    yield "connecting", sock
    near, far = e.pair(listener)
    yield "connected", near
    near.sendall(b"A" * 1000)
    e.unread(far, 1000)
    yield "accepted", far
    far.shutdown(socket.SHUT_WR)
    e.wait(near)
    yield "half closed", near
    far.close()
    e.wait_mask(near, "ERR")
    yield "reset", near


def asked(sock, level, option, room, fill):
    buffer = (ctypes.c_ubyte * (room + 64))(*[fill] * (room + 64))
    length = ctypes.c_int(room)
    calls.plain("getsockopt", calls.fd_of(sock), level, option, buffer, ctypes.byref(length))
    return bytes(buffer), length.value


def written(e, results, room, what):
    """Returns the bytes written by a call, found by comparing results with differently filled
    buffers."""
    lengths = {length for _, length in results}
    e.equal(len(lengths), 1, f"{what}: lengths {lengths}")
    length = min(lengths.pop(), room)
    for (raw, _), fill in zip(results, FILLS):
        e.check(raw[length:].count(fill) == len(raw) - length, f"{what}: written beyond {length} bytes: {raw.hex()}")
        e.check(not poison_in(raw[:length]), f"{what}: {raw[:length].hex()}")
    left = [at for at in range(length) if all(raw[at] == fill for (raw, _), fill in zip(results, FILLS))]
    e.check(not left, f"{what}: bytes {left} of {length} are not written")
    return length


@case(reference=False, timeout=240)
def options(e):
    """getsockopt(2) of all options, in all states, in buffers of several lengths."""
    needs_poison(e)
    listener = e.listen()
    stale(e, listener)
    known = 0
    # Options of the other levels return the same values.
    levels = (socket.IPPROTO_TCP, socket.IPPROTO_IPV6) if e.six else (socket.IPPROTO_IP, socket.SOL_SOCKET, socket.IPPROTO_TCP)
    for name, sock in states(e, listener):
        for level in levels:
            for option in range(LEVELS[level]):
                for room in (256, 3) if name == "connected" else (256,):
                    # The state of a socket may change between the calls, but not often.
                    results = [e.outcome(asked, sock, level, option, room, fill) for fill in FILLS]
                    if any(isinstance(result, str) for result in results):
                        continue
                    known += bool(written(e, results, room, f"{name}, level {level}, option {option}, room {room}"))
    e.check(known > 200, f"{known} answers only")
    e.note("answers", known)


@case(reference=False, timeout=120)
def names(e):
    """getsockname(2), getpeername(2), accept(2): addresses, with zeros in fields without a meaning.
    """
    needs_poison(e)
    listener = e.listen()
    stale(e, listener)

    def named(call, sock, room):
        results = []
        for fill in FILLS:
            buffer, length = (ctypes.c_ubyte * 192)(*[fill] * 192), ctypes.c_uint(room)
            fd = calls.plain(call, calls.fd_of(sock), buffer, ctypes.byref(length))
            if call == "accept":
                calls.plain("close", fd)
            results.append((bytes(buffer), length.value))
        return results

    near, far = e.pair(listener)
    waiting = [e.connect(listener) for _ in range(2 * 3)]
    size = 28 if e.six else 16
    for call, sock, host in (("getsockname", near, e.here), ("getpeername", near, e.there), ("getsockname", far, e.there),
                             ("getpeername", far, e.here), ("accept", listener, e.here)):
        for room in (128, size, 5):
            results = named(call, sock, room)
            written(e, results, room, f"{call}, room {room}")
            for raw, length in results:
                e.equal(length, size, f"{call}: length")
                if room < size:
                    continue
                if e.six:
                    e.equal(raw[4:28], bytes(4) + socket.inet_pton(socket.AF_INET6, host) + bytes(4), call)
                else:
                    e.equal(raw[4:16], socket.inet_aton(host) + bytes(8), call)
    for sock in waiting:
        sock.close()


@case(reference=False, timeout=120)
def data(e):
    """recv(2) and recvmsg(2) return the bytes as sent. The buffer behind the received bytes does
    not change."""
    needs_poison(e)
    listener = e.listen()
    stale(e, listener)
    near, far = e.pair(listener)
    room = 1 << 20
    for lending in (False, True):
        if lending:
            eager(near)
            eager(far)
        for size in (1, 100, 4097, 70001, 300000):
            buffer = bytearray([FILLS[0]]) * room
            task = e.task(near.sendall, b"A" * size)
            view, got = memoryview(buffer), 0
            while got < size:
                got += far.recv_into(view[got:], room - got)
            task.result()
            e.equal((got, bytes(buffer[:size]).strip(b"A"), bytes(buffer[size:]).strip(bytes(FILLS[:1]))), (size, b"", b""), f"{size} bytes")
    near.sendall(b"A" * 10)
    e.wait(far, select.POLLIN)
    got, parts, flags, named, controlled = calls.recvmsg(far, [4, 100], 0, 256)
    e.equal((got, parts[0], parts[1][:6].strip(b"A"), flags, named, controlled), (10, b"AAAA", b"", 0, 0, 0), "recvmsg")


@case(reference=False, timeout=120)
def files(e):
    """/proc/net/sdp and /proc/net/sdpstats with sockets in all states: plain text, in which no
    number is made of poison bytes."""
    needs_poison(e)
    listener = e.listen()
    stale(e, listener)
    hexadecimal = re.compile("|".join(f"(?:{byte:02x}){{4}}" for byte in (*POISON, STALE)), re.IGNORECASE)
    numbers = {int.from_bytes(bytes([byte]) * size) for byte in (*POISON, STALE) for size in (4, 8)}
    for name, _ in states(e, listener):
        for path in (observe.ROWS, observe.STATS):
            for where in netns.hosts():
                text = observe.read(path, where)
                e.check(text.isascii() and all(letter.isprintable() or letter in "\n\t" for letter in text), f"{name}: {text!r}")
                e.check(not hexadecimal.search(text), f"{name}: {text}")
                found = numbers & {int(word) for word in re.findall(r"\d+", text)}
                e.check(not found, f"{name}: {found} in {text}")
