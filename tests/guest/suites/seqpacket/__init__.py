# SPDX-License-Identifier: GPL-2.0-only
"""SOCK_SEQPACKET. The reference family is AF_UNIX, which has SOCK_SEQPACKET, unlike TCP."""

import select
import socket

from lib.sock import Sock

SEQPACKET = socket.SOCK_SEQPACKET


def listen(e, where="peer", prepare=None):
    sock = e.socket(where, SEQPACKET)
    if prepare:
        prepare(sock)
    sock.bind(e.address(e.host(where), 0))
    sock.listen(16)
    return sock


def connect(e, listener, where="self", prepare=None):
    sock = e.socket(where, SEQPACKET)
    if prepare:
        prepare(sock)
    sock.connect(e.address(e.there if where == "self" else e.here, listener.port))
    return sock


def fill(e, sock, size=50000):
    """Sends messages, each with its number, until no more fit. Returns how many."""
    sent, rested = 0, False
    while True:
        before = sent
        while e.error(sock.send, b"%08d" % sent + bytes(size - 8), socket.MSG_DONTWAIT) == "ok":
            sent += 1
        if sent == before and rested:
            return sent
        # queued messages may still move to the peer
        rested = e.quiet(sock, select.POLLOUT, e.patience / 20) and sent == before


def drain(e, sock, count):
    """Receives the messages of `fill`."""
    for number in range(count):
        e.equal(int(sock.recv(1 << 20)[:8]), number, "the next message")


def pair(e, prepare=None):
    """Returns two connected sockets, of AF_UNIX for the reference."""
    if e.ipproto:
        e.skip("TCP has no messages to fall back to")
    if e.kind == "tcp":
        pipe = socket.socketpair(socket.AF_UNIX, SEQPACKET)
        near, far = (e.keep(Sock.wrap(sock.detach(), socket.AF_INET)) for sock in pipe)
        for sock in (near, far):
            if prepare:
                prepare(sock)
        return near, far
    listener = listen(e, prepare=prepare)
    near = connect(e, listener, prepare=prepare)
    far, _ = listener.accept()
    listener.close()
    return near, e.keep(far)
