# SPDX-License-Identifier: GPL-2.0-only
"""A connection uses SDP if the peer replies by SDP, otherwise TCP."""

import errno
import fcntl
import json
import os
import select
import signal
import socket
import time

from lib import calls, consts, either, netns, observe
from lib.either import SDP, TCP
from lib.registry import case
from lib.sock import Sock

PATIENT = {"ipproto_wait": 5000, "ipproto_memory": 0}


@case(reference=False)
def looks_like_tcp(e):
    """A socket of IPPROTO_SDP behaves like a TCP socket, except for its protocol."""
    sock = either.make(e)
    for option, wanted in ((consts.SO_DOMAIN, e.family), (consts.SO_PROTOCOL, SDP), (socket.SO_TYPE, socket.SOCK_STREAM)):
        e.equal(sock.get(socket.SOL_SOCKET, option), wanted, f"option {option}")
    e.equal(observe.info(sock)["ipproto"], 1, "what SDP_INFO tells of an open one")
    e.equal(e.error(socket.socket, e.family, socket.SOCK_DGRAM, SDP), "EPROTONOSUPPORT", "datagrams")
    e.equal(e.error(Sock.make, e.domain, socket.SOCK_STREAM, SDP), "EPROTONOSUPPORT", "the protocol in the families of SDP")


@case(reference=False, hosts=(1, 2))
def takes_all(e):
    """A listener accepts connections by SDP and by TCP, and each connection keeps its protocol."""
    with either.parameters(**PATIENT):
        listener = either.listen(e)
        for make, protocol, kept in ((lambda: either.make(e), SDP, SDP), (lambda: either.make(e, TCP), TCP, TCP),
                                     (lambda: e.socket(), None, SDP)):
            near = make()
            near.connect(e.address(e.there, listener.port))
            far = either.accept(e, listener)
            either.echo(e, near, far)
            if protocol:
                e.equal(either.protocol(near), protocol, "the connector's protocol")
            e.equal(either.protocol(far), kept, "the accepted socket's protocol")
            e.equal(far.get(socket.SOL_SOCKET, consts.SO_DOMAIN), e.family, "its family")
            e.equal(near.getsockname()[:2], far.getpeername()[:2], "one end by both")
            e.equal(near.getpeername()[:2], far.getsockname()[:2], "the other one")


@case(reference=False, hosts=(1, 2))
def counted(e):
    """Both ends count the choice."""
    with either.parameters(**PATIENT):
        listener = either.listen(e)
        with either.counts(e, connected_by_sdp=1), either.counts(e, "peer", accepted_by_sdp=1):
            near = either.connect(e, listener)
            either.accept(e, listener)
        e.equal(observe.info(near)["ipproto"], 2, "what SDP_INFO tells")
        with either.counts(e), either.counts(e, "peer", accepted_by_tcp=1):
            either.connect(e, listener, TCP)
            either.accept(e, listener)


@case(reference=False)
def told(e):
    """/proc/net/sdp_ipproto shows the protocol of each socket and the reason, until the socket is
    closed."""
    def choice(sock, where="self"):
        return observe.choices(where).get(os.fstat(sock.fileno()).st_ino)

    with either.parameters(ipproto_wait=5000, ipproto_memory=1000):
        near, listener = either.make(e), either.listen(e)
        e.equal((choice(near), choice(listener, "peer")), ("open", "open"), "what is told of open ones")
        near.connect(e.address(e.there, listener.port))
        far = either.accept(e, listener)
        e.equal((choice(near), choice(far, "peer")), ("SDP", "SDP"), "of a connection by SDP")
        plain = either.listen(e, TCP)
        refused, again = either.connect(e, plain), either.connect(e, plain)
        e.equal((choice(refused), choice(again)), ("TCP: refused", "TCP: remembered"), "of connections by TCP")
        option = either.make(e)
        option.set(socket.IPPROTO_IP, consts.IP_MINTTL, 255)
        e.equal(choice(option), "TCP: option", "of one with an option of TCP's")
        others = e.socket(), either.make(e, TCP), e.keep(plain.accept()[0])
        e.equal([choice(sock) for sock in others], [None] * 3, "of sockets that are none")
        inodes = {os.fstat(sock.fileno()).st_ino for sock in (near, refused, again, option)}
        for sock in (near, refused, again, option):
            sock.close()
        e.until(lambda: not inodes & set(observe.choices()), "no word of closed ones")


@case(reference=False)
def seen(e):
    """A listener of both protocols is listed among TCP's sockets, with the inode of the descriptor.
    An SDP connection of a listener for both protocols is not listed among TCP's sockets."""
    def tcp():
        text = observe.read("/proc/thread-self/net/" + ("tcp6" if e.six else "tcp"), "peer")
        return {int(row[9]): row[3] for row in map(str.split, text.splitlines()[1:])}

    with either.parameters(**PATIENT):
        listener = either.listen(e)
        near = either.connect(e, listener)
        far = either.accept(e, listener)
    inode = os.fstat(listener.fileno()).st_ino
    e.equal(tcp().get(inode), "0A", "the listener's state in TCP's table")
    e.equal(observe.row_of(listener, "peer").state, "LISTEN", "and in SDP's")
    e.equal((os.fstat(far.fileno()).st_ino in tcp(), observe.row_of(far, "peer").state), (False, "ESTABLISHED"), "the connection")
    e.equal(socket.socket(fileno=os.dup(near.fileno())).proto, SDP, "what Python finds of a descriptor that it has not made")


@case(reference=False, hosts=(1, 2))
def peer_with_tcp_only(e):
    """Without an SDP listener the connection uses TCP."""
    listener = either.listen(e, TCP)
    with either.parameters(**PATIENT):
        with either.counts(e, tcp_refused=1):
            near = either.connect(e, listener)
        either.echo(e, near, either.accept(e, listener))
        e.equal(either.protocol(near), TCP, "the protocol")
        e.check(not observe.row_of(near), "a socket of TCP has a row in /proc/net/sdp")
        info = e.error(observe.info, near)
        e.equal(info, "ENOPROTOOPT", "SDP_INFO")


@case(reference=False, hosts=(1, 2))
def peer_with_sdp_only(e):
    """A listener of families 27 and 28 accepts the connection by SDP."""
    listener = e.listen()
    with either.parameters(**PATIENT):
        near = either.connect(e, listener)
    far = either.accept(e, listener)
    either.echo(e, near, far)
    e.equal(either.protocol(near), SDP, "the protocol")


@case(reference=False, hosts=(1, 2))
def nobody(e):
    """Without any listener connect(2) returns TCP's errno."""
    with either.parameters(**PATIENT), either.counts(e, tcp_refused=1):
        near = either.make(e)
        e.equal(e.error(near.connect, e.address(e.there, e.refused_port())), "ECONNREFUSED", "connect()")


@case(reference=False)
def no_device(e):
    """Connections to addresses without a route by an RDMA device use TCP at once."""
    e.needs_wire()
    listener = either.listen(e, TCP, "self", host=e.loopback)
    with either.parameters(**PATIENT, local_transport=0), either.counts(e, tcp_unreachable=1):
        near = either.connect(e, listener, host=e.loopback)
        either.echo(e, near, either.accept(e, listener))


@case(reference=False)
def address_without_device(e):
    """A socket bound to an address without an RDMA device uses TCP."""
    e.needs_wire()
    with either.parameters(local_transport=0), either.counts(e, tcp_address=1):
        host, sock = netns.bare(e.six), either.make(e)
        sock.bind(e.address(host, 0))
        e.equal(either.protocol(sock), TCP, "the protocol")
        sock.listen(1)
        near = either.make(e, TCP)
        near.connect(e.address(host, sock.port))
        either.echo(e, near, either.accept(e, sock))


@case(reference=False)
def no_answer(e):
    """A peer whose full backlog prevents a reply by SDP in time gets a TCP request."""
    listener = either.listen(e, backlog=0)
    filling = e.socket()
    filling.connect(e.address(e.there, listener.port))
    with either.parameters(ipproto_wait=300, ipproto_memory=0), either.counts(e, tcp_no_answer=1):
        near = either.connect(e, listener)
    e.equal(either.protocol(near), TCP, "the protocol")
    accepted = [either.accept(e, listener) for _ in range(2)]
    e.equal(sorted(map(either.protocol, accepted)), [TCP, SDP], "what is accepted")
    either.echo(e, near, next(sock for sock in accepted if either.protocol(sock) == TCP))


@case(reference=False, families=("v4",), timeout=60)
def late_neighbour(e):
    """The time for the reply by SDP begins with the request. TCP also has to wait for the
    resolution of the neighbour."""
    e.needs_wire()
    device = netns.device()
    address = json.loads(netns.run("peer", "ip -j link show dev " + netns.device("peer")))[0]["address"]
    ignore, silent = f"ipv4/conf/{netns.device('peer')}/arp_ignore", 8
    with either.parameters(ipproto_wait=700, ipproto_memory=0):
        late = True
        while late:
            near, listener = either.make(e), either.listen(e)
            near.setblocking(False)
            with netns.inside("peer"):
                before = netns.sysctl(ignore, silent)
            try:
                netns.run("self", f"ip neigh flush to {e.there}")
                begun = time.monotonic()
                e.equal(near.connect_ex(e.address(e.there, listener.port)), errno.EINPROGRESS, "connect()")
                e.until(lambda: time.monotonic() > begun + 0.9, "more than ipproto_wait")
            finally:
                netns.run("self", f"ip neigh replace {e.there} lladdr {address} dev {device} nud reachable")
                with netns.inside("peer"):
                    netns.sysctl(ignore, before)
            # on a slow machine, where resolving the neighbour ends earlier, the check of the time
            # proves nothing
            late = time.monotonic() > begun + 2
    e.equal(e.wait(near, select.POLLOUT), "OUT", "what poll() says")
    e.equal(either.protocol(near), SDP, "the protocol")
    near.setblocking(True)
    either.echo(e, near, either.accept(e, listener))


@case(reference=False, families=("v4",))
def known_to_answer(e):
    """A host that has replied by SDP before gets enough time to reply to a repeated request."""
    e.needs_wire()
    with either.parameters(ipproto_wait=1400, ipproto_memory=1000):
        known = either.connect(e, either.listen(e))
        e.equal(either.protocol(known), SDP, "the protocol of the first one")
        listener = either.listen(e, backlog=0)
        filling = e.socket()
        filling.connect(e.address(e.there, listener.port))
        dropped = observe.stats("peer")["- backlog full"]
        with either.counts(e, connected_by_sdp=1):
            connecting = e.task(either.connect, e, listener)
            e.until(lambda: observe.stats("peer")["- backlog full"] > dropped, "a request that is dropped")
            either.accept(e, listener)
            near = connecting.result()
        e.equal(either.protocol(near), SDP, "the protocol")
        either.echo(e, near, either.accept(e, listener))


@case(reference=False, hosts=(1, 2))
def remembered(e):
    """A peer without SDP is cached by port, for the time of `ipproto_memory`."""
    listener, other = either.listen(e, TCP), either.listen(e)
    with either.parameters(ipproto_wait=5000, ipproto_memory=1000):
        with either.counts(e, tcp_refused=1, tcp_remembered=2):
            for _ in range(3):
                either.echo(e, either.connect(e, listener), either.accept(e, listener))
        with either.counts(e, connected_by_sdp=1):
            either.echo(e, either.connect(e, other), either.accept(e, other))


@case(reference=False, hosts=(1, 2))
def forgotten(e):
    """A host without a listener is not cached as a host without SDP."""
    with either.parameters(ipproto_wait=5000, ipproto_memory=1000):
        port = e.refused_port()
        for blocking in (True, False):
            early = either.make(e)
            early.setblocking(blocking)
            if blocking:
                e.equal(e.error(early.connect, e.address(e.there, port)), "ECONNREFUSED", "connect() too early")
            else:
                e.equal(early.connect_ex(e.address(e.there, port)), errno.EINPROGRESS, "connect() too early")
                e.wait(early, select.POLLOUT)
                e.equal(early.get(socket.SOL_SOCKET, socket.SO_ERROR), errno.ECONNREFUSED, "SO_ERROR")
            early.close()
        listener = either.make(e, where="peer")
        listener.bind(e.address(e.there, port))
        listener.listen(1)
        with either.counts(e, connected_by_sdp=1):
            either.echo(e, either.connect(e, listener), either.accept(e, listener))


@case(reference=False)
def own_condition(e):
    """Conditions of this socket alone that exclude SDP are not cached for the host."""
    e.needs_wire()
    with either.parameters(ipproto_wait=5000, ipproto_memory=1000):
        listener = either.listen(e)
        plain, bound = either.make(e, TCP), either.make(e)
        for sock in (plain, bound):
            sock.setsockopt(socket.SOL_SOCKET, consts.SO_BINDTODEVICE, b"lo")
            sock.setblocking(False)
        with either.counts(e, tcp_unreachable=1):
            # ENETUNREACH by IPv6
            wanted = plain.connect_ex(e.address(e.there, listener.port))
            e.equal(bound.connect_ex(e.address(e.there, listener.port)), wanted, "connect() by the loopback interface")
            e.until(lambda: either.protocol(bound) == TCP, "that it is TCP")
        with either.counts(e, connected_by_sdp=1):
            either.echo(e, either.connect(e, listener), either.accept(e, listener))
        if e.six:
            only = either.make(e)
            only.set(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            four = netns.ADDRESSES["peer"][0]
            e.equal(e.error(only.connect, ("::ffff:" + four, listener.port)), "ENETUNREACH", "connect() of IPV6_V6ONLY to IPv4")
            with netns.inside("peer"):
                other = e.keep(Sock.make(socket.AF_INET, protocol=SDP))
            other.bind((four, 0))
            other.listen(1)
            with netns.inside("self"):
                near = e.keep(Sock.make(socket.AF_INET, protocol=SDP))
            with either.counts(e, connected_by_sdp=1):
                near.connect((four, other.port))


def _non_blocking(e, listener, register=None):
    near = either.make(e)
    near.setblocking(False)
    if register:
        register(near)
    e.equal(near.connect_ex(e.address(e.there, listener.port)), errno.EINPROGRESS, "connect()")
    return near


@case(reference=False, hosts=(1, 2))
def non_blocking(e):
    """connect(2) does not wait. A connecting socket is writable once it is connected by either
    protocol."""
    with either.parameters(**PATIENT):
        for protocol in (SDP, TCP):
            listener = either.listen(e, protocol)
            near = _non_blocking(e, listener)
            e.equal(e.wait(near, select.POLLOUT), "OUT", "what poll() says")
            e.equal(near.get(socket.SOL_SOCKET, socket.SO_ERROR), 0, "SO_ERROR")
            e.equal(either.protocol(near), protocol, "the protocol")
            e.equal(near.connect_ex(e.address(e.there, listener.port)), 0, "connect() again")
            e.equal(near.connect_ex(e.address(e.there, listener.port)), errno.EISCONN, "and again")
            near.setblocking(True)
            either.echo(e, near, either.accept(e, listener))


@case(reference=False, hosts=(1, 2))
def epoll(e):
    """A poller registered before connect(2) gets one event for the connection, and then events for
    bytes.
    """
    with either.parameters(**PATIENT):
        for protocol in (SDP, TCP):
            for flags in (0, consts.EPOLLET):
                waiting = select.epoll()
                listener = either.listen(e, protocol)
                near = _non_blocking(e, listener, lambda s: waiting.register(s, select.EPOLLOUT | select.EPOLLIN | flags))
                events = waiting.poll(e.patience)
                if events == [(near.fileno(), select.EPOLLOUT | select.EPOLLHUP)]:
                    # the edge-triggered event that the socket got before it was connected
                    events = waiting.poll(e.patience)
                e.equal(events, [(near.fileno(), select.EPOLLOUT)], f"epoll, {protocol}, {flags:x}")
                far = either.accept(e, listener)
                far.sendall(b"x")
                e.until(lambda: any(mask & select.EPOLLIN for _, mask in waiting.poll(e.patience)), "bytes told by epoll")
                waiting.close()


@case(reference=False, hosts=(1, 2))
def waits_in_calls(e):
    """send() and recv() on a connecting socket wait for either protocol."""
    with either.parameters(**PATIENT):
        for protocol in (SDP, TCP):
            listener = either.listen(e, protocol)
            near = _non_blocking(e, listener)
            near.setblocking(True)
            reading = e.task(near.recv_exactly, 4)
            near.sendall(b"ping")
            far = either.accept(e, listener)
            e.equal(far.recv_exactly(4), b"ping", "what was sent")
            far.sendall(b"pong")
            e.equal(reading.result(), b"pong", "what was received")


@case(reference=False)
def accept_waits_for_both(e):
    """Connections of either kind wake accept() and poll()."""
    with either.parameters(**PATIENT):
        listener = either.listen(e)
        for protocol in (SDP, TCP, SDP, TCP):
            waiting = e.task(listener.accept).wait_asleep("accept4", "accept")
            near = either.connect(e, listener, protocol)
            far = e.keep(waiting.result()[0])
            e.equal(either.protocol(far), protocol, "what accept() gave")
            either.echo(e, near, far)
            polling = e.task(e.wait, listener).wait_asleep("poll")
            near = either.connect(e, listener, protocol)
            e.equal(polling.result(), "IN", "what poll() gave")
            either.echo(e, near, either.accept(e, listener))
        listener.setblocking(False)
        e.equal(e.error(listener.accept), "EAGAIN", "accept() of nothing")


@case(reference=False)
def signals_go_along(e):
    """O_ASYNC set before connect() stays in effect on TCP."""
    with either.parameters(**PATIENT):
        for protocol in (SDP, TCP):
            caught = []
            signal.signal(signal.SIGIO, lambda *_: caught.append(1))
            listener = either.listen(e, protocol)
            near = either.make(e)
            fcntl.fcntl(near, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(near, fcntl.F_SETFL, fcntl.fcntl(near, fcntl.F_GETFL) | os.O_ASYNC)
            near.connect(e.address(e.there, listener.port))
            far = either.accept(e, listener)
            caught.clear()
            far.sendall(b"x")
            e.until(lambda: caught, f"SIGIO of a byte, by protocol {protocol}")
            near.close()


@case(reference=False)
def connects_anew(e):
    """connect() to AF_UNSPEC dissolves an SDP connection; the next connect() chooses a protocol
    again."""
    nowhere = (0).to_bytes(2, "little") + bytes(26)
    with either.parameters(**PATIENT):
        near = either.make(e)
        for protocol in (SDP, SDP, TCP):
            listener = either.listen(e, protocol)
            near.connect(e.address(e.there, listener.port))
            e.equal(either.protocol(near), protocol, "the protocol")
            either.echo(e, near, either.accept(e, listener))
            calls.connect(near, nowhere)
            e.equal(e.error(near.getpeername), "ENOTCONN", "getpeername()")


@case(reference=False)
def epoll_anew(e):
    """A poller registered on an SDP connection gets TCP's events after a reconnect by TCP."""
    nowhere = (0).to_bytes(2, "little") + bytes(26)
    with either.parameters(**PATIENT):
        for protocol in (SDP, TCP):
            listener, near, waiting = either.listen(e), either.make(e), select.epoll()
            near.connect(e.address(e.there, listener.port))
            waiting.register(near, select.EPOLLIN)
            calls.connect(near, nowhere)
            other = either.listen(e, protocol)
            near.connect(e.address(e.there, other.port))
            e.equal(either.protocol(near), protocol, "the protocol")
            e.until(lambda: not waiting.poll(0), "no events of what was before")
            either.accept(e, other).sendall(b"x")
            e.equal(waiting.poll(e.patience), [(near.fileno(), select.EPOLLIN)], "what epoll says of a byte")
            waiting.close()


@case(reference=False)
def no_way_to_shut_down(e):
    """shutdown() with an invalid direction returns EINVAL, and a connect in progress continues."""
    with either.parameters(ipproto_wait=100000, ipproto_memory=0):
        near = either.make(e)
        near.setblocking(False)
        e.equal(near.connect_ex(e.address(e.silent(), 7)), errno.EINPROGRESS, "connect()")
        for how in (7, 3, -1, 0x7fffffff):
            e.equal(e.error(calls.shutdown, near, how), "EINVAL", f"shutdown({how})")
        e.equal(near.connect_ex(e.address(e.silent(), 7)), errno.EALREADY, "connect() after that")
        e.equal(observe.choices()[os.fstat(near.fileno()).st_ino], "connecting", "what is told of it")
        near.shutdown(socket.SHUT_RDWR)
        e.equal(observe.choices()[os.fstat(near.fileno()).st_ino], "open", "what is told after a good one")


@case(reference=False)
def binds_anew(e):
    """A port that the program did not choose is released with the connection or the attempt.
    bind(2) may follow, as on TCP."""
    nowhere = (0).to_bytes(2, "little") + bytes(26)
    with either.parameters(ipproto_wait=100000, ipproto_memory=0):
        for protocol in (TCP, SDP):
            listener = either.listen(e)
            near = either.make(e, protocol)
            near.connect(e.address(e.there, listener.port))
            calls.connect(near, nowhere)
            e.equal(e.error(near.bind, e.address(e.here, 0)), "ok", f"bind() after connect() to nowhere, by {protocol}")
            near.close()
            near, bound = either.make(e, protocol), e.refused_port("self")
            near.bind(e.address(e.here, bound))
            near.connect(e.address(e.there, listener.port))
            calls.connect(near, nowhere)
            e.equal((near.port, e.error(near.bind, e.address(e.here, 0))), (bound, "EINVAL"), f"bind() after one that was bound, by {protocol}")
            other = either.make(e, protocol)
            e.equal(e.error(other.bind, e.address(e.here, bound)), "EADDRINUSE", f"the port that {protocol} was bound to")
            trying = either.make(e, protocol)
            trying.setblocking(False)
            e.equal(trying.connect_ex(e.address(e.silent(), 7)), errno.EINPROGRESS, "connect()")
            trying.shutdown(socket.SHUT_RDWR)
            e.equal(e.error(trying.bind, e.address(e.here, 0)), "ok", f"bind() after shutdown(), by {protocol}")
            trying.setblocking(True)
            trying.connect(e.address(e.there, listener.port))
            e.equal(either.protocol(trying), protocol, "the protocol in the end")
