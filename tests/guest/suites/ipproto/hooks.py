# SPDX-License-Identifier: GPL-2.0-only
"""The cgroup's BPF programs apply as on TCP: BPF programs confine containers."""

import errno
import socket

from lib import either
from lib.either import SDP, TCP
from lib.hooks import BIND, CONNECT, CREATE, hook, restrict_tcp
from lib.registry import case

PATIENT = {"ipproto_wait": 5000, "ipproto_memory": 0}
BOTH = (TCP, SDP)


@case(reference=False)
def connects_refused(e):
    """connect(2) to a forbidden port with a listener: the module sends no request."""
    with either.parameters(**PATIENT):
        listener = either.listen(e)
        for protocol in BOTH:
            with either.counts(e), either.counts(e, "peer"), hook(e, CONNECT, listener.port):
                near = either.make(e, protocol)
                for blocking in (True, False):
                    near.setblocking(blocking)
                    e.equal(e.error(near.connect, e.address(e.there, listener.port)), "EPERM", f"connect() by {protocol}, {blocking}")
            # the socket is unchanged
            near.setblocking(True)
            near.connect(e.address(e.there, listener.port))
            e.equal(either.protocol(near), protocol, "the protocol afterwards")
            either.echo(e, near, either.accept(e, listener))


@case(reference=False)
def connects_redirected(e):
    """A BPF program redirects connect() to another port: the connection uses a protocol that the
    new port accepts."""
    with either.parameters(**PATIENT):
        for there in BOTH:
            listener, port = either.listen(e, there), e.refused_port()
            for protocol in BOTH:
                with hook(e, CONNECT, port, listener.port):
                    near = either.make(e, protocol)
                    near.connect(e.address(e.there, port))
                e.equal(either.protocol(near), min(protocol, there), f"{protocol} to {there}")
                e.equal(near.getpeername()[1], listener.port, "the peer's port")
                either.echo(e, near, either.accept(e, listener))


@case(reference=False)
def connects_counted(e):
    """A connect() that uses TCP because SDP is at its limit runs the BPF programs once."""
    listener = either.listen(e)
    with either.parameters(max_buffer_memory=0), hook(e, CONNECT, e.refused_port()) as runs:
        near = either.make(e)
        before = runs()
        near.connect(e.address(e.there, listener.port))
        e.equal(runs() - before, 1, "runs")
        e.equal(either.protocol(near), TCP, "the protocol")


@case(reference=False)
def binds(e):
    """bind(2) to a forbidden port, or to a port that a BPF program replaces."""
    for protocol in BOTH:
        first, second = either.make(e, protocol), either.make(e, protocol)
        for sock in (first, second):
            sock.bind(e.address(e.here, 0))
        ports = first.port, second.port
        for sock in (first, second):
            sock.close()
        sock = either.make(e, protocol)
        with hook(e, BIND, ports[0]):
            e.equal(e.error(sock.bind, e.address(e.here, ports[0])), "EPERM", f"bind() by {protocol}")
        e.equal(sock.port, 0, "the port after that")
        with hook(e, BIND, *ports):
            sock.bind(e.address(e.here, ports[0]))
        e.equal(sock.port, ports[1], f"the port of {protocol}")
        # the socket holds that port in both protocols
        for other in BOTH:
            e.equal(e.error(either.make(e, other).bind, e.address(e.here, ports[1])), "EADDRINUSE", f"bind() of {other} beside {protocol}")
        sock.listen(1)
        with either.parameters(**PATIENT):
            near = either.make(e, protocol)
            near.connect(e.address(e.here, ports[1]))
            e.equal(either.protocol(near), protocol, "the protocol")
            either.echo(e, near, either.accept(e, sock))


@case(reference=False)
def sockets(e):
    """A process that may not create TCP sockets may not create IPPROTO_SDP sockets either."""
    for forbidden, outcomes in ((TCP, ("EPERM", "EPERM")), (SDP, ("ok", "EPERM"))):
        with hook(e, CREATE, forbidden):
            e.equal(tuple(e.error(socket.socket, e.family, socket.SOCK_STREAM, protocol) for protocol in BOTH), outcomes, f"without {forbidden}")
    e.equal(e.error(either.make, e), "ok", "afterwards")


@case(reference=False)
def families_of_sdp(e):
    """The cgroup's BPF programs do not apply to families 27 and 28: their hooks are for IPv4 and
    IPv6 by name. (SECURITY.md describes the way to keep a container from SDP's families.)"""
    if e.ipproto:
        e.skip("neither family 27 nor 28")
    listener = e.listen()
    with hook(e, CONNECT, listener.port), hook(e, CREATE, TCP), hook(e, CREATE, SDP):
        either.echo(e, *e.pair(listener))


@case(reference=False)
def landlock(e):
    """Landlock's rules for TCP ports do not apply to sockets of IPPROTO_SDP, since Landlock checks
    for TCP's number. (SECURITY.md describes the way to keep a program from IPPROTO_SDP sockets.)"""
    with either.parameters(**PATIENT):
        listeners = [either.listen(e, protocol) for protocol in BOTH]
        port = e.refused_port("self")

        def confined():
            try:
                restrict_tcp()
            except OSError as error:
                return error.errno
            return [(e.error(either.make(e, protocol).bind, e.address(e.here, port)),
                     *(e.error(either.make(e, protocol).connect, e.address(e.there, listener.port)) for listener in listeners))
                    for protocol in BOTH]

        outcome = e.child(confined).result()
    if outcome in (errno.ENOSYS, errno.EOPNOTSUPP):
        e.skip("this kernel has no Landlock")
    e.equal(outcome, [("EACCES",) * 3, ("ok",) * 3], "by TCP and by IPPROTO_SDP")
