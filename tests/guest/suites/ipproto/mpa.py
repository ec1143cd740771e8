# SPDX-License-Identifier: GPL-2.0-only
"""A plain TCP socket connects to the TCP port of a listener on siw, and sends MPA requests (RFC
5044). The listener stays usable after invalid MPA requests."""

import os
import socket
import struct
import subprocess

from lib import either, netns, raw
from lib.either import SDP
from lib.registry import case

REJECT = 0x2000
NO_SERVICE, CONSUMER = struct.pack(">I", 8), struct.pack(">I", 28)


def needs_siw(e):
    if not os.path.exists("/sys/class/infiniband/siw0"):
        e.skip("the device is not siw")


def dial(e, listener, xor=0x8000):
    """Returns a TCP connection to the listener's port of iWARP."""
    sock = socket.socket(e.family, socket.SOCK_STREAM)
    sock.settimeout(10)
    sock.connect((e.there, listener.port ^ xor))
    return sock


def request(data):
    return b"MPA ID Req Frame" + struct.pack(">HH", 1, len(data)) + data


def reply(e, sock):
    """Receives an MPA reply. Returns the reply's flags and its private data."""
    with sock, sock.makefile("rb") as file:
        key, flags, length = struct.unpack(">16sHH", file.read(20))
        e.equal(key, b"MPA ID Rep Frame", "the key")
        return flags, file.read(length)


def works(e, listener):
    with either.parameters(ipproto_wait=10000, ipproto_memory=0):
        near = either.connect(e, listener)
    e.equal(either.protocol(near), SDP, "the protocol")
    either.echo(e, near, either.accept(e, listener))
    near.close()


@case(reference=False, hosts=(2,), timeout=60)
def no_hello(e):
    """Private data that is no Hello is rejected. Bytes that are not MPA are left out: siw handles
    such bytes by itself, and wrongly (docs/kernel-notes.md)."""
    needs_siw(e)
    listener = either.listen(e)
    own, there = (socket.inet_pton(e.family, host) for host in (e.here, e.there))
    hello = raw.hello(own, there, 5000)
    for data in (b"", b"x", hello[:60], bytes(92), bytes(251)):
        sock = dial(e, listener)
        sock.sendall(request(data))
        flags, why = reply(e, sock)
        e.equal(flags & REJECT, REJECT, f"the reply to {len(data)} bytes")
        # either of two reasons: a short Hello lacks the destination
        e.check(why in (NO_SERVICE, CONSUMER), f"reason {why.hex()} for {len(data)} bytes")
    works(e, listener)


@case(reference=False, hosts=(2,), timeout=60)
def another_name(e):
    """The source address in Hello has to be the address of the TCP connection."""
    needs_siw(e)
    listener = either.listen(e)
    own, there = (socket.inet_pton(e.family, host) for host in (e.here, e.there))
    neighbour = socket.inet_pton(e.family, "fd77::250" if e.six else "10.77.0.250")
    sock = dial(e, listener)
    sock.sendall(request(raw.hello(neighbour, there, 5000)))
    flags, why = reply(e, sock)
    e.equal((flags & REJECT, why), (REJECT, CONSUMER), "the reply to another one's address")
    works(e, listener)
    sock = dial(e, listener)
    sock.sendall(request(raw.hello(own, there, 5000)))
    flags, data = reply(e, sock)
    e.equal((flags & REJECT, len(data)), (0, 196), "the reply to its own address")


@case(reference=False, hosts=(2,), timeout=60)
def port_is_taken(e):
    """Another program has the TCP port of a listener: TCP clients reach that program, and SDP
    clients the listener."""
    needs_siw(e)
    holder = either.listen(e, either.TCP)
    listener = either.make(e, where="peer")
    listener.bind(e.address(e.there, holder.port ^ 0x8000))
    listener.listen(4)
    with either.parameters(ipproto_wait=1000, ipproto_memory=0):
        near = either.connect(e, listener)
    e.equal(either.protocol(near), either.TCP, "the protocol")
    either.echo(e, near, either.accept(e, listener))
    e.check("another program may have that TCP port" in netns.run("peer", "dmesg"), "the kernel names the port")
    works(e, either.listen(e))


@case(reference=False, hosts=(2,), timeout=60)
def port_parameter(e):
    """The parameter iwarp_port_xor has the TCP ports of new listeners and new requests. Hosts with
    different numbers do not connect by SDP."""
    needs_siw(e)
    parameter = "/sys/module/ib_sdp/parameters/iwarp_port_xor"

    def on_peer(number):
        subprocess.run(["peer", "sh", "-c", f"echo {number} > {parameter}"], check=True)

    earlier = e.listen()
    for bad in (0, -1, 65536):
        e.equal(e.error(netns.parameter, "iwarp_port_xor", bad), "EINVAL", f"{bad} as the number")
    on_peer(4097)
    try:
        listener = e.listen()
        e.equal(e.error(e.connect, listener), "ECONNREFUSED", "between different numbers")
        near, far = e.pair(earlier)
        near.close()
        with either.parameters(iwarp_port_xor=4097):
            either.echo(e, *e.pair(listener))
            with dial(e, listener, 4097) as sock:
                sock.sendall(request(b""))
                e.equal(reply(e, sock)[0] & REJECT, REJECT, "the reply to a request without Hello")
    finally:
        on_peer(0x8000)


@case(reference=False, hosts=(2,), timeout=120)
def acceptor_sends_first(e):
    """The connector's first message always arrives, so that the accepting program can send. siw may
    miss that message until other bytes follow (docs/kernel-notes.md)."""
    needs_siw(e)
    listener = e.listen()
    for _ in range(60):
        near, far = e.pair(listener)
        far.send(b"first")
        e.unread(near, 5)
        near.close()
        far.close()


def frame(bits, data):
    return b"MPA ID Rep Frame" + struct.pack(">HH", bits, len(data)) + data


@case(reference=False, hosts=(2,), timeout=120)
def not_sdp(e):
    """The acceptor is not an SDP peer, or sends too early: connect(2) fails, and later connects
    work. Private data of more than 512 bytes is left out: siw panics (docs/kernel-notes.md)."""
    needs_siw(e)
    replies = {
        "bytes behind the reply": lambda bits, v2: frame(bits, v2 + raw.hello_ack()) + bytes(64),
        "no HelloAck": lambda bits, v2: frame(bits, v2 + bytes(196)),
        "no private data": frame,
        "no MPA": lambda *_: b"HTTP/1.1 400 Bad" + bytes(4),
        "nothing": lambda *_: b"",
    }
    for name, reply_of in replies.items():
        server = either.listen(e, either.TCP)
        near = e.socket()
        task = e.task(e.error, near.connect, e.address(e.there, server.port ^ 0x8000))
        far = either.accept(e, server)
        server.close()      # so that another request finds no listener
        bits, length = struct.unpack(">16xHH", far.recv(20, socket.MSG_WAITALL))
        data = far.recv(length, socket.MSG_WAITALL)
        far.sendall(reply_of(bits, data[:length - 92]))
        far.close()
        result = task.result()
        e.check(result in ("ECONNREFUSED", "ECONNRESET", "EPROTO"), f"{name}: {result}")
    works(e, either.listen(e))
