# SPDX-License-Identifier: GPL-2.0-only
"""SDP_ROUTE: the program chooses the protocol of a socket."""

import errno
import select
import socket

from lib import calls, consts, either, netns, observe
from lib.either import SDP, TCP
from lib.registry import case
from lib.sock import Sock

PATIENT = {"ipproto_wait": 5000, "ipproto_memory": 0}
S, T, ROUTE = socket.SOL_SOCKET, socket.IPPROTO_TCP, consts.SDP_ROUTE
BOTH, ONLY_SDP, ONLY_TCP = consts.SDP_ROUTE_BOTH, consts.SDP_ROUTE_SDP, consts.SDP_ROUTE_TCP


def make(e, route, where="self"):
    sock = either.make(e, where=where)
    sock.set(T, ROUTE, route)
    return sock


def listen(e, route, where="peer"):
    sock = make(e, route, where)
    sock.bind(e.address(e.host(where), 0))
    sock.listen(8)
    return sock


def is_free(e, protocol, port, where="peer"):
    """Returns true if another socket can bind the given port of the host."""
    with netns.inside(where):
        with (Sock.make(e.family, protocol=TCP) if protocol == TCP else Sock.make(e.domain)) as other:
            return e.error(other.bind, e.address(e.host(where), port)) == "ok"


@case(reference=False)
def values(e):
    """getsockopt(2) and SDP_INFO return the value that was set. setsockopt(2) refuses invalid
    values and late changes."""
    with either.parameters(**PATIENT):
        sock = either.make(e)
        e.equal(sock.get(T, ROUTE), BOTH, "the default")
        for route in (ONLY_TCP, ONLY_SDP, BOTH, ONLY_SDP):
            sock.set(T, ROUTE, route)
            e.equal((sock.get(T, ROUTE), observe.info(sock)["route"]), (route, route), "what is told")
        for wrong in (-1, 3, 1 << 30):
            e.equal(e.error(sock.set, T, ROUTE, wrong), "EINVAL", f"{wrong}")
        e.equal(e.error(calls.setsockopt, sock, T, ROUTE, b"\0\0"), "EINVAL", "two bytes")
        e.equal(sock.get(T, ROUTE), ONLY_SDP, "after that")
        for other in (e.socket(), either.make(e, TCP)):
            e.equal((e.error(other.set, T, ROUTE, BOTH), e.error(other.get, T, ROUTE)), ("ENOPROTOOPT",) * 2, "on another socket")
        listener = either.listen(e)
        near = either.connect(e, listener)
        far = either.accept(e, listener)
        e.equal(e.error(near.set, T, ROUTE, ONLY_TCP), "EISCONN", "once it is connected")
        e.equal(e.error(listener.set, T, ROUTE, ONLY_TCP), "EINVAL", "once it listens")
        e.equal(e.error(far.set, T, ROUTE, ONLY_TCP), "ENOPROTOOPT", "on what accept() has given")
        alone = make(e, ONLY_SDP)
        alone.connect(e.address(e.there, listener.port))
        e.equal(e.error(alone.set, T, ROUTE, BOTH), "EISCONN", "once it is connected by SDP alone")
        either.accept(e, listener)


@case(reference=False, hosts=(1, 2))
def clients(e):
    """A client uses the protocol of its route, with listeners of each kind, and tries no other
    protocol."""
    with either.parameters(**PATIENT):
        both, tcp, sdp = either.listen(e), either.listen(e, TCP), e.listen()
        for route, listener, protocol, counted in (
                (BOTH, both, SDP, "connected_by_sdp"), (BOTH, tcp, TCP, "tcp_refused"), (BOTH, sdp, SDP, "connected_by_sdp"),
                (ONLY_SDP, both, SDP, "connected_by_sdp"), (ONLY_SDP, sdp, SDP, "connected_by_sdp"),
                (ONLY_TCP, both, TCP, "tcp_chosen"), (ONLY_TCP, tcp, TCP, "tcp_chosen")):
            near = make(e, route)
            with either.counts(e, **{counted: 1}):
                near.connect(e.address(e.there, listener.port))
            far = either.accept(e, listener)
            e.equal(either.protocol(near), protocol, f"route {route}: the protocol")
            e.equal(near.getsockname()[:2], far.getpeername()[:2], "its name")
            either.echo(e, near, far)
            if protocol == SDP:
                e.equal(observe.info(near)["ipproto"], 2, "what SDP_INFO tells")
        with either.counts(e):
            refused = make(e, ONLY_SDP)
            e.equal(e.error(refused.connect, e.address(e.there, tcp.port)), "ECONNREFUSED", "SDP alone, to a listener of TCP")
        with either.counts(e, tcp_chosen=1):
            refused = make(e, ONLY_TCP)
            e.equal(e.error(refused.connect, e.address(e.there, sdp.port)), "ECONNREFUSED", "TCP alone, to a listener of SDP")


@case(reference=False)
def not_blocking(e):
    """Like `clients`, but for non-blocking clients."""
    with either.parameters(**PATIENT):
        both, tcp = either.listen(e), either.listen(e, TCP)
        for route, protocol in ((ONLY_SDP, SDP), (ONLY_TCP, TCP)):
            near = make(e, route)
            near.setblocking(False)
            e.equal(near.connect_ex(e.address(e.there, both.port)), errno.EINPROGRESS, "connect()")
            e.equal(e.wait(near, select.POLLOUT), "OUT", "poll()")
            e.equal((near.get(S, socket.SO_ERROR), either.protocol(near)), (0, protocol), "SO_ERROR and the protocol")
            near.setblocking(True)
            either.echo(e, near, either.accept(e, both))
        near = make(e, ONLY_SDP)
        near.setblocking(False)
        e.equal(near.connect_ex(e.address(e.there, tcp.port)), errno.EINPROGRESS, "connect() by SDP alone")
        e.wait(near, select.POLLOUT)
        e.equal((near.get(S, socket.SO_ERROR), either.protocol(near)), (errno.ECONNREFUSED, SDP), "SO_ERROR and the protocol")


@case(reference=False)
def another_route(e):
    """After a failed connect(2) the program can change the route, and keeps the port that it has
    bound."""
    with either.parameters(**PATIENT):
        tcp, sdp = either.listen(e, TCP), e.listen()
        for bound in (False, True):
            for first, then, wrong, right, protocol in ((ONLY_SDP, ONLY_TCP, tcp, tcp, TCP), (ONLY_SDP, BOTH, tcp, tcp, TCP),
                                                        (ONLY_SDP, BOTH, tcp, sdp, SDP), (BOTH, ONLY_SDP, None, sdp, SDP)):
                near = make(e, first)
                if bound:
                    with make(e, BOTH) as trying:
                        trying.bind(e.address(e.here, 0))
                        port = trying.port
                    near.bind(e.address(e.here, port))
                if wrong:
                    e.equal(e.error(near.connect, e.address(e.there, wrong.port)), "ECONNREFUSED", "the first connect()")
                near.set(T, ROUTE, then)
                near.connect(e.address(e.there, right.port))
                far = either.accept(e, right)
                e.equal(either.protocol(near), protocol, f"{first}, then {then}: the protocol")
                if bound:
                    e.equal((near.port, far.getpeername()[1]), (port, port), "the port")
                either.echo(e, near, far)
                near.close()


@case(reference=False)
def rebound(e):
    """If the route changes after bind(2), the port that the socket holds changes its protocol."""
    for first in (BOTH, ONLY_SDP, ONLY_TCP):
        for then in (BOTH, ONLY_SDP, ONLY_TCP):
            sock = make(e, first, "peer")
            sock.bind(e.address(e.there, 0))
            while first == ONLY_SDP and not is_free(e, TCP, sock.port):
                # SDP ignores a socket or a TIME_WAIT that TCP has at the port
                sock.close()
                sock = make(e, first, "peer")
                sock.bind(e.address(e.there, 0))
            name = sock.getsockname()
            e.check(name[1] != 0, f"{first}: getsockname() says {name}")
            e.equal(e.error(sock.bind, e.address(e.there, 0)), "EINVAL", f"{first}: bind() again")
            sock.set(T, ROUTE, then)
            sock.listen(2)
            e.equal(sock.getsockname(), name, f"{first}, then {then}: the name")
            free = is_free(e, TCP, name[1]), is_free(e, SDP, name[1])
            e.equal(free, (then == ONLY_SDP, then == ONLY_TCP), f"{first}, then {then}: whether TCP's port, and SDP's, is free")
            sock.close()


@case(reference=False)
def taken_ports(e):
    """A port number that another socket uses in one protocol is free in the other protocol.
    """
    with netns.inside("peer"):
        tcp, sdp = e.keep(Sock.make(e.family, protocol=TCP)), e.keep(Sock.make(e.domain))
    tcp.bind(e.address(e.there, 0))
    sdp.bind(e.address(e.there, 0))
    for route, of_tcp, of_sdp in ((BOTH, "EADDRINUSE", "EADDRINUSE"), (ONLY_SDP, "ok", "EADDRINUSE"), (ONLY_TCP, "EADDRINUSE", "ok")):
        for port, wanted in ((tcp.port, of_tcp), (sdp.port, of_sdp)):
            if tcp.port == sdp.port:
                e.skip("both sockets have the same port")
            with make(e, route, "peer") as sock:
                e.equal(e.error(sock.bind, e.address(e.there, port)), wanted, f"bind() with route {route}")
    # a socket with an SDP-only route keeps a port whose number another TCP socket uses
    alone = make(e, ONLY_SDP, "peer")
    alone.bind(e.address(e.there, tcp.port))
    e.equal(e.error(alone.set, T, ROUTE, BOTH), "EADDRINUSE", "the route of both")
    e.equal(alone.get(T, ROUTE), ONLY_SDP, "after that")


@case(reference=False, hosts=(1, 2))
def listeners(e):
    """A listener accepts only the protocols of its route."""
    with either.parameters(**PATIENT):
        for route, by_sdp, by_tcp in ((BOTH, "ok", "ok"), (ONLY_SDP, "ok", "ECONNREFUSED"), (ONLY_TCP, "ECONNREFUSED", "ok")):
            listener = listen(e, route)
            for make_near, wanted in ((lambda: e.socket(), by_sdp), (lambda: either.make(e, TCP), by_tcp)):
                near = make_near()
                e.equal(e.error(near.connect, e.address(e.there, listener.port)), wanted, f"a connection to a listener with route {route}")
                if wanted == "ok":
                    either.echo(e, near, either.accept(e, listener))
            listener.close()


@case(reference=False)
def waiting_listeners(e):
    """accept() and poll() wait on an SDP-only listener, and a connection wakes both."""
    with either.parameters(**PATIENT):
        listener = listen(e, ONLY_SDP)
        e.equal(listener.mask(select.POLLIN | select.POLLOUT), "-", "poll() of a quiet one")
        listener.setblocking(False)
        e.equal(e.error(listener.accept), "EAGAIN", "accept() that does not wait")
        listener.setblocking(True)
        accepting = e.task(listener.accept)
        accepting.wait_asleep("accept4")
        with either.counts(e, "peer", accepted_by_sdp=1):
            near = make(e, ONLY_SDP)
            near.connect(e.address(e.there, listener.port))
            either.echo(e, near, e.keep(accepting.result()[0]))
        either.connect(e, listener)
        e.equal(e.wait(listener, select.POLLIN), "IN", "poll()")
        listener.shutdown(socket.SHUT_RDWR)
        e.equal(e.error(listener.accept), "EINVAL", "accept() after shutdown()")
        listener.listen(3)
        near = either.connect(e, listener)
        either.echo(e, near, either.accept(e, listener))


@case(reference=False)
def options(e):
    """With an SDP-only route no option switches a socket to TCP: setsockopt(2) refuses options that
    SDP lacks."""
    with either.parameters(**PATIENT), either.counts(e, connected_by_sdp=1):
        sock = make(e, ONLY_SDP)
        e.equal(e.error(sock.set, socket.IPPROTO_IP, consts.IP_MINTTL, 255), "EOPNOTSUPP", "IP_MINTTL")
        sock.setsockopt(T, socket.TCP_CONGESTION, b"reno")
        listener = either.listen(e)
        to = e.address(e.there, listener.port)
        e.equal(e.error(sock.sendto, b"fast", consts.MSG_FASTOPEN, to), "EOPNOTSUPP", "MSG_FASTOPEN")
        sock.connect(to)
        either.echo(e, sock, either.accept(e, listener))
    chosen = either.make(e)
    chosen.set(socket.IPPROTO_IP, consts.IP_MINTTL, 255)
    e.equal(e.error(chosen.set, T, ROUTE, ONLY_SDP), "ENOPROTOOPT", "SDP alone, of what is TCP's already")


@case(reference=False)
def limit(e):
    """At the limit of sockets, a connect with an SDP-only route fails, and does not use TCP."""
    listener = either.listen(e)
    with either.parameters(max_sockets_per_user=1):
        either.make(e)
        sock = make(e, ONLY_SDP)
        e.equal(e.error(sock.connect, e.address(e.there, listener.port)), "ENOBUFS", "connect()")
