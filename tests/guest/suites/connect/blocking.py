# SPDX-License-Identifier: GPL-2.0-only
"""Blocking connect(): success, each kind of failure, and each event that ends the wait."""

import socket
import struct
import time

from lib import calls, consts, netns
from lib.env import OneOf
from lib.registry import case
from lib.sock import Sock

SOL = socket.SOL_SOCKET


def route(e, kind, prefix):
    """Adds a route of a kind (blackhole, …) to an otherwise unused prefix."""
    netns.run("self", f"ip {'-6 ' if e.six else ''}route replace {kind} {prefix}")


@case
def names(e):
    """getsockname() and getpeername() of both ends, as AF_INET or AF_INET6 on a socket of any
    family."""
    listener = e.listen()
    near = e.connect(listener)
    far, address = listener.accept()
    e.note("near", calls.sa_text(calls.getsockname(near)[0])[:2])
    e.note("near's peer", calls.sa_text(calls.getpeername(near)[0])[:2])
    e.note("far", calls.sa_text(calls.getsockname(far)[0])[:2])
    e.note("far's peer", calls.sa_text(calls.getpeername(far)[0])[:2])
    e.note("lengths", [calls.getsockname(near)[1], calls.getpeername(near)[1], calls.getsockname(far)[1],
                       calls.getpeername(far)[1]])
    e.note("ports agree", (near.getpeername()[1] == listener.port, far.getsockname()[1] == listener.port,
                           far.getpeername()[1] == near.getsockname()[1]))
    e.note("accept's address", address == near.getsockname())
    e.note("tail of the name", calls.getpeername(near)[0][8:16] if not e.six else calls.getpeername(near)[0][24:])


@case
def bound_first(e):
    listener = e.listen()
    near = e.bound("self")
    port = near.port
    near.connect(e.address(e.there, listener.port))
    e.note("same port", near.port == port)
    far, address = listener.accept()
    e.note("seen", (address[0], address[1] == port))


@case
def bound_to_any(e):
    """A wildcard bind gets the source address of the route to the peer."""
    listener = e.listen()
    near = e.bound("self", host=e.any)
    before = near.port
    near.connect(e.address(e.there, listener.port))
    e.note("name", (near.getsockname()[0], near.port == before))


@case
def to_wildcard_listener(e):
    listener = e.listen(host=e.any)
    e.note("listener", listener.getsockname()[0])
    near, far = e.pair(listener)
    e.note("far", far.getsockname()[0])


@case(families=("v4",))
def forms(e):
    """Every address form seen in the field on a socket of family 27."""
    listener = e.listen()
    port = listener.port

    def attempt(raw, length=None):
        sock = e.socket()
        result = e.error(calls.connect, sock, raw, length)
        return result, calls.sa_text(calls.getpeername(sock)[0])[:2] if result == "ok" else None

    reached = ("ok", (socket.AF_INET, "10.77.0.2"))
    e.note("inet", attempt(calls.sa_in(e.there, port)))
    e.note("family 27", attempt(calls.sa_in(e.there, port, 27)), sdp=reached,
           because="nbd and BeeGFS put the socket's own family into the address")
    e.note("mapped", attempt(calls.sa_in6("::ffff:" + e.there, port)), sdp=reached,
           because="a v4-mapped address is the IPv4 address")
    for name, raw in (("inet6", calls.sa_in6("fd77::2", port)), ("family 28", calls.sa_in6("fd77::2", port, 28)),
                      ("unix", calls.sa_in(e.there, port, 1))):
        e.note(name, attempt(raw)[0], sdp=OneOf("EAFNOSUPPORT", "ENETUNREACH", "EINVAL"),
               because="there is no IPv4 address in it")
    raw = calls.sa_in(e.there, port) + bytes(240)
    for length in (0, 1, 2, 8, 15, 28, 128, 129):
        e.note(f"length {length}", attempt(raw, length))
    e.note("bad pointer", e.error(calls.plain, "connect", e.socket().fileno(), 8, 16))


@case(families=("v6",))
def forms6(e):
    listener = e.listen(host="::")
    port = listener.port

    def attempt(raw, length=None):
        sock = e.socket()
        result = e.error(calls.connect, sock, raw, length)
        return result, calls.sa_text(calls.getpeername(sock)[0])[:2] if result == "ok" else None

    e.note("inet6", attempt(calls.sa_in6(e.there, port)))
    e.note("family 28", attempt(calls.sa_in6(e.there, port, 28)), sdp=("ok", (socket.AF_INET6, "fd77::2")),
           because="the socket's own family is taken as AF_INET6")
    e.note("mapped", attempt(calls.sa_in6("::ffff:10.77.0.2", port)))
    e.note("inet", attempt(calls.sa_in("10.77.0.2", port) + bytes(12))[0])
    e.note("unix", attempt(calls.sa_in6(e.there, port, 1))[0])
    raw = calls.sa_in6(e.there, port) + bytes(240)
    for length in (0, 1, 2, 8, 16, 23, 24, 27, 28, 29, 128, 129):
        e.note(f"length {length}", attempt(raw, length))


@case(families=("v6",))
def mapped(e):
    """IPv4 through a socket of family 28, and across the two families."""
    def four(where):
        with netns.inside(where):
            return e.keep(Sock.make(consts.AF_INET_SDP if e.sdp else socket.AF_INET))

    dual = e.listen(host="::")
    client = four("self")
    client.connect(("10.77.0.2", dual.port))
    far, address = dual.accept()
    e.note("accepted from IPv4", (address[0], far.getsockname()[0], far.getpeername()[0]))
    client.send(b"four")
    e.note("data", far.recv(10))

    plain = four("peer")
    plain.bind(("10.77.0.2", 0))
    plain.listen(2)
    six = e.socket()
    six.connect(("::ffff:10.77.0.2", plain.port, 0, 0))
    e.note("names", (six.getsockname()[0], six.getpeername()[0]))
    far, address = plain.accept()
    e.note("seen from IPv4", address[0])
    six.send(b"six")
    e.note("data back", far.recv(10))

    only = e.socket()
    only.set(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    e.note("v6only to mapped", e.error(only.connect, ("::ffff:10.77.0.2", plain.port, 0, 0)))
    closed = e.socket("peer")
    closed.set(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    closed.bind(("::", 0, 0, 0))
    closed.listen(1)
    e.note("IPv4 to v6only", e.error(four("self").connect, ("10.77.0.2", closed.port)))
    bound = e.socket()
    bound.bind(("fd77::1", 0, 0, 0))
    e.note("IPv6 name to mapped", e.error(bound.connect, ("::ffff:10.77.0.2", plain.port, 0, 0)))


@case
def refused(e):
    port = e.refused_port()
    sock = e.socket()
    e.note("connect", e.error(sock.connect, e.address(e.there, port)))
    e.note("mask", sock.mask())
    e.note("error option", sock.get(SOL, socket.SO_ERROR))
    e.note("peer", e.error(sock.getpeername))
    e.note("recv", e.error(calls.recv, sock, 1))
    e.note("send", e.error(calls.send, sock, b"x", socket.MSG_NOSIGNAL))
    listener = e.listen()
    e.note("connect elsewhere", e.error(sock.connect, e.address(e.there, listener.port)))
    e.note("peer then", sock.getpeername()[0])


@case
def refused_again(e):
    port = e.refused_port()
    sock = e.bound("self")
    for turn in range(3):
        e.note(f"turn {turn}", e.error(sock.connect, e.address(e.there, port)))
    e.note("name", sock.getsockname()[0])


@case
def bound_but_not_listening(e):
    bound = e.bound("peer")
    e.note("connect", e.error(e.connect, bound))


@case
def port_zero(e):
    e.note("connect", e.error(e.socket().connect, e.address(e.there, 0)))


@case
def no_route(e):
    target = "2001:db8:1::1" if e.six else "192.0.2.1"
    sock = e.socket()
    e.note("connect", e.error(sock.connect, e.address(target, 9)))
    e.note("mask", sock.mask())
    e.note("connect elsewhere", e.error(sock.connect, e.address(e.there, e.listen().port)))


@case
def bad_routes(e):
    """Routes that forbid the destination, with their errors."""
    net = "2001:db8:{}::/64" if e.six else "198.51.10{}.0/24"
    host = "2001:db8:{}::1" if e.six else "198.51.10{}.1"
    for number, kind in enumerate(("blackhole", "prohibit", "unreachable"), 1):
        route(e, kind, net.format(number))
        e.note(kind, e.error(e.socket().connect, e.address(host.format(number), 9)))


@case(timeout=60)
def no_neighbour(e):
    """An unused address of the network."""
    e.needs_wire()
    host = "fd77::97" if e.six else "10.77.0.97"
    e.note("connect", e.error(e.socket().connect, e.address(host, 9)))


@case
def no_unicast(e):
    for host in ("ff02::1", "ff0e::1") if e.six else ("224.0.0.1", "255.255.255.255", "10.77.0.255"):
        e.note(host, e.error(e.socket().connect, e.address(host, 9)),
               sdp=OneOf("ENETUNREACH", "EACCES", "EINVAL", "EHOSTUNREACH"), because="no RDMA connection leads there")


@case
def own_address(e):
    """Both ends are on one host and are connected by its network address."""
    listener = e.listen("self")
    near = e.socket()
    near.connect(e.address(e.here, listener.port))
    far, address = listener.accept()
    e.note("names", (near.getsockname()[0], near.getpeername()[0], address[0]))
    near.send(b"to myself")
    e.note("data", far.recv(100))
    far.send(b"and back")
    e.note("answer", near.recv(100))


@case
def loopback(e):
    """127.0.0.1 and ::1 are on no RDMA device: connect(2) succeeds, or fails with ENETUNREACH."""
    with e.socket() as sock:
        result = e.error(lambda: (sock.bind(e.address(e.loopback, 0)), sock.listen(1)))
        if result == "ok":
            result = e.error(e.socket().connect, e.address(e.loopback, sock.port))
    e.note("loopback", result, sdp=OneOf("ok", "ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL"),
           because="a loopback device carries no RDMA")
    e.note("connect to it", e.error(e.socket().connect, e.address(e.loopback, 9)),
           sdp=OneOf("ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL"),
           because="a loopback device carries no RDMA")


@case
def again(e):
    """connect() in every state that does not allow connect()."""
    listener = e.listen()
    near, far = e.pair(listener)
    target = e.address(e.there, listener.port)
    e.note("connected", e.error(near.connect, target))
    e.note("accepted", e.error(far.connect, target))
    e.note("listening", e.error(listener.connect, target))
    near.shutdown(socket.SHUT_WR)
    e.note("after shutdown", e.error(near.connect, target))


@case(timeout=60)
def send_timeout(e):
    """SO_SNDTIMEO ends the call, not the connection attempt."""
    sock = e.socket()
    sock.setsockopt(SOL, socket.SO_SNDTIMEO, struct.pack("=qq", 0, 300000))
    target = e.address(e.silent(), 9)
    start = time.monotonic()
    e.note("connect", e.error(calls.connect, sock, calls.sa(*target[:2])))
    e.waited(start, 0.3, "connect")
    sock.setblocking(False)
    e.note("again", e.error(sock.connect, target))
    e.note("mask", sock.mask())


@case(timeout=60)
def interrupted(e):
    """A signal handler determines whether a signal ends connect() or restarts the call."""
    target = calls.sa(e.silent(), 9)

    def plain():
        return calls.connect(e.socket(), target)

    def limited():
        sock = e.socket()
        sock.setsockopt(SOL, socket.SO_SNDTIMEO, struct.pack("=qq", int(e.patience), 0))
        return calls.connect(sock, target)

    def again():
        sock = e.socket()
        first = e.error(calls.connect, sock, target)
        sock.setblocking(False)
        return first, e.error(calls.connect, sock, target), sock.mask(), e.error(sock.getpeername)

    e.note("signal", e.interrupt(plain, "connect"))
    e.note("afterwards", e.interrupt(again, "connect"))
    e.note("with a time limit", e.interrupt(limited, "connect"))
    e.note("with a time limit, restarting", e.interrupt(limited, "connect", restart=True))


@case(timeout=60)
def killed(e):
    """SIGKILL ends a process that waits in connect()."""
    target = calls.sa(e.silent(), 9)
    child = e.child(lambda: calls.connect(e.socket(), target)).wait_asleep("connect")
    child.kill()
    e.note("gone", True)


@case(timeout=120)
def timed_out(e):
    """Without a reply connect() fails with ETIMEDOUT."""
    sock = e.socket()
    sock.set(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 1)
    sock.set(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000)
    target = e.address(e.silent(), 9)
    e.note("connect", e.error(sock.connect, target))
    e.note("mask", sock.mask())
    e.note("error option", sock.get(SOL, socket.SO_ERROR))


@case
def disconnect(e):
    """connect() to AF_UNSPEC ends a connection; the socket may then connect again."""
    listener = e.listen()
    near, far = e.pair(listener)
    nowhere = struct.pack("=H14x", 0)
    e.note("disconnect", e.error(calls.connect, near, nowhere))
    e.note("peer's mask", e.wait_mask(far, "HUP"))
    e.note("peer reads", e.error(calls.recv, far, 1))
    e.note("peer name", e.error(near.getpeername))
    e.note("own name", near.getsockname()[0])
    e.note("recv", e.error(calls.recv, near, 1))
    e.note("send", e.error(calls.send, near, b"x", socket.MSG_NOSIGNAL))
    e.note("mask", near.mask())
    e.note("again", e.error(calls.connect, near, nowhere))
    e.note("reconnect", e.error(near.connect, e.address(e.there, listener.port)))
    far, _ = listener.accept()
    near.send(b"second life")
    e.note("data", far.recv(100))


@case
def disconnect_bound(e):
    """The socket keeps the address and port of bind(2)."""
    listener = e.listen()
    near = e.bound("self")
    port = near.port
    near.connect(e.address(e.there, listener.port))
    calls.connect(near, struct.pack("=H14x", 0))
    e.note("host", near.getsockname()[0])
    e.note("port", near.port in (port, 0))
    e.note("reconnect", e.error(near.connect, e.address(e.there, listener.port)))


@case
def disconnect_otherwise(e):
    """connect() to AF_UNSPEC in states without a connection, and with unusual address lengths."""
    nowhere = struct.pack("=H14x", 0)
    for length in (2, 16):
        e.note(f"new, length {length}", e.error(calls.connect, e.socket(), nowhere, length))
    bound = e.bound("self")
    e.note("bound", e.error(calls.connect, bound, nowhere))
    listener = e.listen()
    e.note("listening", e.error(calls.connect, listener, nowhere))
    e.note("accepting", listener.get(SOL, socket.SO_ACCEPTCONN))
    pending = e.socket()
    pending.setblocking(False)
    e.note("pending", e.error(pending.connect, e.address(e.silent(), 9)))
    e.note("disconnect of it", e.error(calls.connect, pending, nowhere))
    pending.setblocking(True)
    e.note("connect then", e.error(pending.connect, e.address(e.there, e.listen().port)))


@case
def with_unread_data(e):
    """Disconnecting discards unread bytes."""
    listener = e.listen()
    near, far = e.pair(listener)
    far.send(b"never read")
    e.unread(near, 10)
    calls.connect(near, struct.pack("=H14x", 0))
    near.connect(e.address(e.there, listener.port))
    other, _ = listener.accept()
    other.send(b"fresh")
    e.note("read", near.recv(100))


@case
def error_of_the_last_one(e):
    """Disconnecting leaves an error on the peer's socket; the next connection does not inherit the
    error."""
    listener = e.listen(backlog=4)
    for look in (True, False):
        near, far = e.pair(listener)
        calls.connect(near, struct.pack("=H14x", 0))
        if look:
            e.note("left", near.get(socket.SOL_SOCKET, socket.SO_ERROR))
        near.connect(e.address(e.there, listener.port))
        e.note(f"then {look}", near.get(socket.SOL_SOCKET, socket.SO_ERROR))
        e.note(f"mask {look}", near.mask())
        other, _ = listener.accept()
        e.note(f"sent {look}", near.send(b"word"))
        e.note(f"heard {look}", other.recv(10))


@case
def by_many_at_once(e):
    """Several threads connect to one listener, and each thread sends its own text."""
    listener = e.listen(backlog=64)

    def client(number):
        with e.connect(listener) as sock:
            sock.sendall(b"%d" % number)
            return sock.recv_exactly(4)

    tasks = [e.task(client, number) for number in range(16)]
    words = []
    for _ in tasks:
        far, _ = listener.accept()
        words.append(int(far.recv(10)))
        far.sendall(b"%04d" % words[-1])
    e.note("heard", sorted(words))
    e.note("answers", [task.result() for task in tasks])


@case
def one_after_the_other(e):
    """Many consecutive connections between the same two hosts."""
    listener = e.listen()
    for number in range(30):
        near, far = e.pair(listener)
        near.send(b"%d" % number)
        e.equal(far.recv(10), b"%d" % number, "word")
        near.close()
        far.close()
    e.note("done", number)
