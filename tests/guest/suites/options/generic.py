# SPDX-License-Identifier: GPL-2.0-only
"""SOL_SOCKET: sets and gets every option."""

import select
import socket
import struct

from lib import calls, consts
from lib.env import SAME, OneOf
from lib.registry import case

SOL = socket.SOL_SOCKET

# Options that the kernel's core reserves for TCP of AF_INET and AF_INET6; a module may support them
# or not.
FOR_TCP = {consts.SO_ATTACH_FILTER, consts.SO_ATTACH_BPF, consts.SO_ATTACH_REUSEPORT_CBPF, consts.SO_ATTACH_REUSEPORT_EBPF}
FOR_INET = {37, 65, 74, 61, 78, 79, 80, 82, 83, 84}


def number(value):
    return struct.pack("=i", value)


@case(timeout=60)
def every_number(e):
    """Options 1 to 90, set to 1 and read."""
    for option in range(1, 91):
        expected = {"sdp": OneOf(SAME, "EOPNOTSUPP", "ENOPROTOOPT", "EBADF"), "because": "the core reserves it to AF_INET"} \
            if option in FOR_INET else {}
        if option in FOR_TCP:
            expected = {"sdp": OneOf(SAME, "ENOPROTOOPT"), "because": "no filter sees what goes over RDMA"}
        with e.socket() as sock:
            e.note(f"set {option}", e.error(calls.setsockopt, sock, SOL, option, number(1)), **expected)
        with e.socket() as sock:
            e.note(f"get {option}", e.error(calls.getsockopt, sock, SOL, option, 128), **expected)


@case
def flags(e):
    """Boolean options, read after each setting."""
    for name in ("SO_DEBUG", "SO_REUSEADDR", "SO_DONTROUTE", "SO_BROADCAST", "SO_KEEPALIVE", "SO_OOBINLINE",
                 "SO_REUSEPORT"):
        sock, option = e.socket(), getattr(socket, name)
        e.note(f"{name} at first", sock.get(SOL, option))
        for value in (1, 0, 7, -1):
            e.note(f"{name} set {value}", (e.error(sock.set, SOL, option, value), sock.get(SOL, option)))


@case
def lengths(e):
    """Short and odd option lengths."""
    sock = e.socket()
    for length in (0, 1, 3, 4, 5, 8, 100):
        e.note(f"set {length}", e.error(calls.setsockopt, sock, SOL, socket.SO_KEEPALIVE, bytes(100), length))
    e.note("set negative", e.error(calls.setsockopt, sock, SOL, socket.SO_KEEPALIVE, bytes(4), -1))
    for room in (0, 1, 2, 3, 4, 5, 100):
        e.note(f"get {room}", calls.getsockopt(sock, SOL, socket.SO_TYPE, room))
    e.note("get negative", e.error(calls.getsockopt, sock, SOL, socket.SO_TYPE, -1))
    e.note("set from nowhere", e.error(calls.plain, "setsockopt", sock.fileno(), SOL, socket.SO_KEEPALIVE, 8, 4))
    e.note("get to nowhere", e.error(calls.plain, "getsockopt", sock.fileno(), SOL, socket.SO_TYPE, 8, 8))


@case
def buffers(e):
    """SO_SNDBUF and SO_RCVBUF are doubled and bounded; the FORCE variants are refused without
    privilege."""
    for name in ("SO_SNDBUF", "SO_RCVBUF"):
        option = getattr(socket, name)
        sock = e.socket()
        e.check(sock.get(SOL, option) >= 4096, f"{name} is {sock.get(SOL, option)} at first")
        for value in (10000, 100000, 1, 0, 1 << 28, -1):
            e.note(f"{name} {value}", (e.error(sock.set, SOL, option, value), sock.get(SOL, option)))
        forced = consts.SO_SNDBUFFORCE if name == "SO_SNDBUF" else consts.SO_RCVBUFFORCE
        e.note(f"{name} forced", (e.error(sock.set, SOL, forced, 5 << 20), sock.get(SOL, option)))
        e.note(f"{name} forced by nobody", e.as_user(lambda: e.socket().setsockopt(SOL, forced, 5 << 20)))
        e.note(f"{name} lock", sock.get(SOL, consts.SO_BUF_LOCK))


@case
def timeouts(e):
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock = e.socket()
        e.note(f"{option} at first", sock.getsockopt(SOL, option, 16))
        for seconds, micros in ((3, 500000), (0, 0), (0, 1000000), (-1, 0), (0, -1), (1 << 40, 0)):
            e.note(f"{option} {seconds}.{micros}", (e.error(calls.setsockopt, sock, SOL, option,
                                                            struct.pack("=qq", seconds, micros)),
                                                    sock.getsockopt(SOL, option, 16)))
        e.note(f"{option} short", e.error(calls.setsockopt, sock, SOL, option, bytes(8)))


@case
def low_water(e):
    sock = e.socket()
    e.note("at first", sock.get(SOL, socket.SO_RCVLOWAT))
    for value in (100, 0):
        e.note(f"set {value}", (e.error(sock.set, SOL, socket.SO_RCVLOWAT, value), sock.get(SOL, socket.SO_RCVLOWAT)))
    for value in (-5, 1 << 30):         # as many bytes as the receive buffer may hold
        e.note(f"set {value}", (e.error(sock.set, SOL, socket.SO_RCVLOWAT, value),
                                sock.get(SOL, socket.SO_RCVLOWAT) >= 4096))
    e.note("sending", (sock.get(SOL, socket.SO_SNDLOWAT), e.error(sock.set, SOL, socket.SO_SNDLOWAT, 5)))


@case
def priority(e):
    sock = e.socket()
    e.note("at first", sock.get(SOL, socket.SO_PRIORITY))
    for value in (0, 3, 6, 7, 1000, -1):
        e.note(f"set {value}", (e.error(sock.set, SOL, socket.SO_PRIORITY, value), sock.get(SOL, socket.SO_PRIORITY)))
    for value in (6, 7):
        e.note(f"nobody {value}", e.as_user(lambda: e.socket().setsockopt(SOL, socket.SO_PRIORITY, value)))


@case
def busy_poll(e):
    sock = e.socket()
    for value in (0, 50, -1):
        e.note(f"set {value}", (e.error(sock.set, SOL, consts.SO_BUSY_POLL, value),
                                e.outcome(sock.get, SOL, consts.SO_BUSY_POLL)))
    e.note("prefer", (e.error(sock.set, SOL, consts.SO_PREFER_BUSY_POLL, 1),
                      e.outcome(sock.get, SOL, consts.SO_PREFER_BUSY_POLL)))
    near, far = e.pair(prepare=lambda sock: sock.set(SOL, consts.SO_BUSY_POLL, 50))
    far.set(SOL, consts.SO_BUSY_POLL, 50)
    for turn in range(20):
        near.send(b"ping")
        e.equal(far.recv(10), b"ping", "word")
        far.send(b"pong")
        e.equal(near.recv(10), b"pong", "word back")


@case
def read_only(e):
    """Read-only options."""
    near, far = e.pair()
    for name, option in (("SO_TYPE", socket.SO_TYPE), ("SO_ERROR", socket.SO_ERROR), ("SO_PROTOCOL", consts.SO_PROTOCOL),
                         ("SO_DOMAIN", consts.SO_DOMAIN), ("SO_ACCEPTCONN", socket.SO_ACCEPTCONN)):
        e.note(name, e.error(near.set, SOL, option, 1))
    e.note("SO_PEERCRED", calls.getsockopt(near, SOL, consts.SO_PEERCRED, 12))
    raw, length = calls.getsockopt(near, SOL, consts.SO_PEERNAME, 28 if e.six else 16)
    e.note("SO_PEERNAME", (calls.sa_text(raw)[:2], length))
    e.note("SO_PEERNAME, long", e.error(calls.getsockopt, near, SOL, consts.SO_PEERNAME, 64))
    cookies = {calls.getsockopt(sock, SOL, consts.SO_COOKIE, 8)[0] for sock in (near, far)}
    e.note("SO_COOKIE", (len(cookies), bytes(8) in cookies))


@case
def memory(e):
    """SO_MEMINFO counts unread data."""
    near, far = e.pair()
    words = struct.unpack("=9I", calls.getsockopt(far, SOL, consts.SO_MEMINFO, 36)[0])
    e.check(words[1] == far.get(SOL, socket.SO_RCVBUF), f"receive buffer {words[1]}")
    e.check(words[3] == far.get(SOL, socket.SO_SNDBUF), f"send buffer {words[3]}")
    e.note("idle receive queue", words[0])
    near.sendall(b"x" * 20000)
    e.unread(far, 20000)
    words = struct.unpack("=9I", calls.getsockopt(far, SOL, consts.SO_MEMINFO, 36)[0])
    e.note("something is charged", words[0] > 0)
    e.note("drops", words[8])
    far.recv_exactly(20000)
    e.until(lambda: struct.unpack("=9I", calls.getsockopt(far, SOL, consts.SO_MEMINFO, 36)[0])[0] == 0,
            "an empty receive queue")


@case
def errors_are_told_once(e):
    near, far = e.pair()
    near.send(b"x")
    e.wait(far)
    far.close()
    e.wait(near, select.POLLIN)
    e.until(lambda: "ERR" in near.mask(), "ERR")
    e.note("errors", [near.get(SOL, socket.SO_ERROR) for _ in range(2)])


@case
def filters(e):
    """Programs that attach a socket filter to a stream."""
    sock = e.socket()
    e.note("none to remove", e.error(sock.set, SOL, consts.SO_DETACH_FILTER, 0))
    e.note("lock", e.error(sock.set, SOL, consts.SO_LOCK_FILTER, 1))
    e.note("attach", e.error(calls.setsockopt, sock, SOL, consts.SO_ATTACH_FILTER, bytes(16)), sdp="ENOPROTOOPT",
           because="no filter sees what goes over RDMA")


@case
def timestamps(e):
    """Enabling time stamps has no bad effect."""
    near, far = e.pair()
    e.note("set", e.error(far.set, SOL, consts.SO_TIMESTAMP, 1))
    near.send(b"word")
    e.wait(far)
    e.note("data", calls.recvmsg(far, [10], 0, 100)[:2])
    e.note("value", far.get(SOL, consts.SO_TIMESTAMP))


@case
def mark(e):
    sock = e.socket()
    e.note("SO_MARK", (e.error(sock.set, SOL, 36, 77), sock.get(SOL, 36)))
    e.note("by nobody", e.as_user(lambda: e.socket().setsockopt(SOL, 36, 77)))
    near, _ = e.pair(prepare=lambda sock: sock.set(SOL, 36, 77))
    e.note("connected", near.get(SOL, 36))


@case
def level_of_the_family(e):
    """libsdp sends SO_KEEPALIVE at level 27."""
    sock = e.socket()
    e.note("set", e.error(sock.set, consts.SOL_SDP, socket.SO_KEEPALIVE, 1), sdp="ok",
           because="level 27 is where libsdp sends it")
    e.note("seen", sock.get(SOL, socket.SO_KEEPALIVE), sdp=1, because="both levels mean the same")
    e.note("unset", e.error(sock.set, consts.SOL_SDP, socket.SO_KEEPALIVE, 0), sdp="ok",
           because="level 27 is where libsdp sends it")
    e.note("gone", sock.get(SOL, socket.SO_KEEPALIVE))
    e.note("short", e.error(calls.setsockopt, sock, consts.SOL_SDP, socket.SO_KEEPALIVE, b"\1"), sdp="EINVAL",
           because="an int is needed")
    for option in (1, 2, 13, 80, 999):
        e.note(f"other {option}", e.error(sock.set, consts.SOL_SDP, option, 1))


@case
def other_levels(e):
    sock = e.socket()
    for level in (2, 17, 132, 255, 263, 284, 999, -1):
        for option in (1, 2, 100):
            e.note(f"set {level} {option}", e.error(calls.setsockopt, sock, level, option, number(1)))
            e.note(f"get {level} {option}", e.error(calls.getsockopt, sock, level, option))
