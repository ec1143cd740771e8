# SPDX-License-Identifier: GPL-2.0-only
"""State shared until the protocol is decided: options and ports."""

import contextlib
import ctypes
import errno
import os
import socket
import struct

from lib import calls, consts, either, netns, observe
from lib.either import SDP, TCP
from lib.hooks import socket_filter
from lib.registry import case
from lib.sock import Sock

PATIENT = {"ipproto_wait": 5000, "ipproto_memory": 0}
S, T = socket.SOL_SOCKET, socket.IPPROTO_TCP
OPTIONS = ((S, socket.SO_RCVBUF, 77000), (S, socket.SO_SNDBUF, 55000), (S, socket.SO_KEEPALIVE, 1), (S, consts.SO_RCVLOWAT, 3),
           (S, socket.SO_REUSEADDR, 1), (S, socket.SO_PRIORITY, 5), (T, socket.TCP_NODELAY, 1), (T, socket.TCP_KEEPIDLE, 77),
           (T, socket.TCP_KEEPCNT, 7), (T, socket.TCP_USER_TIMEOUT, 7777), (socket.IPPROTO_IP, consts.IP_TOS, 0x10))

# A classic BPF program that accepts everything.
PASS = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0xffffffff), 8)
FILTER = struct.pack("=H6xQ", 1, ctypes.addressof(PASS))


def _values(sock):
    linger = sock.getsockopt(S, socket.SO_LINGER, 8)
    timeout = sock.getsockopt(S, socket.SO_RCVTIMEO, 16)
    return [sock.get(level, name) for level, name, _ in OPTIONS] + [linger, timeout]


def _set(sock):
    for level, name, value in OPTIONS:
        sock.set(level, name, value)
    sock.setsockopt(S, socket.SO_LINGER, struct.pack("ii", 1, 3))
    sock.setsockopt(S, socket.SO_RCVTIMEO, struct.pack("qq", 7, 0))


@case(reference=False)
def options_before(e):
    """Options set before the decision apply to either protocol, and to accepted sockets."""
    plain = either.make(e, TCP)
    _set(plain)
    wanted = _values(plain)
    with either.parameters(**PATIENT):
        for protocol in (SDP, TCP):
            listener = either.listen(e, protocol)
            near = either.make(e)
            _set(near)
            e.equal(_values(near), wanted, "options of an open socket")
            near.connect(e.address(e.there, listener.port))
            e.equal(either.protocol(near), protocol, "the protocol")
            e.equal(_values(near), wanted, f"options by protocol {protocol}")
        wanted = None
        for kind, protocol in ((TCP, TCP), (SDP, SDP), (SDP, TCP)):
            listener = either.make(e, kind, "peer")
            _set(listener)
            listener.bind(e.address(e.there, 0))
            listener.listen(5)
            either.connect(e, listener, protocol)
            got = _values(either.accept(e, listener))
            e.equal(got, wanted or got, f"options of a socket accepted by protocol {protocol}")
            wanted = got


@case(reference=False)
def option_of_tcp_alone(e):
    """An option that SDP lacks switches the socket to TCP before any byte; an option without effect
    on SDP does not."""
    with either.parameters(**PATIENT):
        listener = either.listen(e)
        advised = either.make(e)
        advised.setsockopt(T, socket.TCP_CONGESTION, b"reno")
        advised.set(S, consts.SO_TXREHASH, 0)
        e.equal(advised.getsockopt(T, socket.TCP_CONGESTION, 16).rstrip(b"\0"), b"reno", "TCP_CONGESTION")
        advised.connect(e.address(e.there, listener.port))
        e.equal(either.protocol(advised), SDP, "with TCP_CONGESTION")
        with either.counts(e):
            zerocopy = either.make(e)
            zerocopy.set(S, consts.SO_ZEROCOPY, 1)
        e.equal(either.protocol(zerocopy), SDP, "with SO_ZEROCOPY")
        with either.counts(e, tcp_option=1):
            near = either.make(e)
            near.set(socket.IPPROTO_IP, consts.IP_MINTTL, 1)
        e.equal(either.protocol(near), TCP, "with IP_MINTTL")
        near.connect(e.address(e.there, listener.port))
        with either.counts(e, tcp_option=1):
            fast = either.make(e)
            fast.sendto(b"fast", consts.MSG_FASTOPEN, e.address(e.there, listener.port))
        accepted = [either.accept(e, listener) for _ in range(3)]
        e.equal(sorted(map(either.protocol, accepted)), [TCP, TCP, SDP], "what is accepted")
        with either.counts(e):
            wrong = either.make(e)
            e.equal(e.error(wrong.set, T, 9999, 1), "ENOPROTOOPT", "an option that nobody has")
            e.equal(e.error(wrong.set, T, socket.TCP_KEEPCNT, 1000), "EINVAL", "a value that nobody takes")
            e.equal(either.protocol(wrong), SDP, "after that")
            wrong.set(T, consts.SDP_ZCOPY_THRESH, 65536)
            e.equal(wrong.get(T, consts.SDP_ZCOPY_THRESH), 65536, "SDP_ZCOPY_THRESH")


@case(reference=False)
def identity(e):
    """The cookie and the owner stay the same when the socket switches to TCP."""
    listener = either.listen(e, TCP)
    near = either.make(e)
    cookie = near.getsockopt(S, consts.SO_COOKIE, 8)
    os.fchown(near.fileno(), 1234, -1)
    with either.parameters(**PATIENT):
        near.connect(e.address(e.there, listener.port))
    e.equal(either.protocol(near), TCP, "the protocol")
    e.equal(near.getsockopt(S, consts.SO_COOKIE, 8), cookie, "SO_COOKIE")
    with open("/proc/net/tcp6" if e.six else "/proc/net/tcp") as file:
        fields = [line.split() for line in file]
    owners = [line[7] for line in fields if line[1].endswith(f":{near.port:04X}") and line[2].endswith(f":{listener.port:04X}")]
    e.equal(owners, ["1234"], "the owner of the connection")


@case(reference=False)
def zero_copy_of_either(e):
    """SO_ZEROCOPY of an undecided socket applies to either protocol; both protocols report each
    send in the same way."""
    told = []
    with either.parameters(**PATIENT):
        for protocol in (SDP, TCP):
            listener = either.listen(e, protocol)
            near = either.make(e)
            near.set(S, consts.SO_ZEROCOPY, 1)
            e.equal(e.error(near.recvmsg, 1, 100, socket.MSG_ERRQUEUE), "EAGAIN", "the error queue of an open one")
            near.connect(e.address(e.there, listener.port))
            far = either.accept(e, listener)
            e.equal(near.send(b"abc", consts.MSG_ZEROCOPY), 3, "send()")
            e.equal(far.recv_exactly(3), b"abc", "the bytes")
            e.equal(near.mask_when(0, e.patience), "ERR", "poll()")
            told.append(near.recvmsg(1, 100, socket.MSG_ERRQUEUE))
            e.equal(either.protocol(near), protocol, "the protocol")
    e.equal(told[0], told[1], "what is told by SDP, and by TCP")


def _number(value):
    return struct.pack("=i", value)


@case(reference=False)
def option_that_only_tcp_heeds(e):
    """SDP refuses options that the kernel's shared code accepts for any socket but only TCP
    implements."""
    def reused(sock):
        sock.set(S, consts.SO_REUSEPORT, 1)
        return sock

    with either.parameters(**PATIENT), socket_filter() as program:
        options = [("SO_ATTACH_FILTER", S, consts.SO_ATTACH_FILTER, FILTER), ("SO_ATTACH_BPF", S, consts.SO_ATTACH_BPF, _number(program)),
                   ("SO_ATTACH_REUSEPORT_CBPF", S, consts.SO_ATTACH_REUSEPORT_CBPF, FILTER),
                   ("SO_ATTACH_REUSEPORT_EBPF", S, consts.SO_ATTACH_REUSEPORT_EBPF, _number(program)),
                   ("SO_TIMESTAMPING", S, consts.SO_TIMESTAMPING, _number(1 << 3)),
                   ("SO_TIMESTAMPING_NEW", S, consts.SO_TIMESTAMPING_NEW, struct.pack("=ii", 1 << 3, 0)),
                   ("IP_MINTTL", socket.IPPROTO_IP, consts.IP_MINTTL, _number(255)),
                   ("IP_OPTIONS", socket.IPPROTO_IP, consts.IP_OPTIONS, b"\1\1\1\0")]
        if e.six:
            options[-1:] = [("IPV6_MINHOPCOUNT", socket.IPPROTO_IPV6, consts.IPV6_MINHOPCOUNT, _number(255))]
        refused = {level: "ENOPROTOOPT" if level == S else "EOPNOTSUPP" for _, level, _, _ in options}
        listener = either.listen(e)
        for name, level, option, value in options:
            plain, near = reused(e.socket()), either.connect(e, listener)
            for sock in (plain, near):
                e.equal(e.error(calls.setsockopt, sock, level, option, value), refused[level], f"{name} of a socket of SDP")
            either.echo(e, near, either.accept(e, listener))
            with either.counts(e, tcp_option=1):
                undecided = reused(either.make(e))
                e.equal(e.error(calls.setsockopt, undecided, level, option, value), "ok", name)
            e.equal(either.protocol(undecided), TCP, f"with {name}")
        turned_off = [(S, consts.SO_TIMESTAMPING, 0, "ok"), (socket.IPPROTO_IP, consts.IP_MINTTL, 0, "ok"),
                      (S, consts.SO_DETACH_FILTER, 0, "ENOENT")]
        with either.counts(e):
            undecided = either.make(e)
            for sock in (e.socket(), undecided):
                for level, option, value, outcome in turned_off:
                    e.equal(e.error(sock.set, level, option, value), outcome, f"option {option} turned off")
            e.equal(e.error(undecided.set, socket.IPPROTO_IP, consts.IP_MINTTL, 256), "EINVAL", "a value that nobody takes")
        e.equal(either.protocol(undecided), SDP, "after that")


@case(reference=False)
def option_of_a_listener(e):
    """An option that SDP lacks also switches a listener to TCP. A task in accept(2) continues with
    TCP.
    """
    with either.parameters(**PATIENT):
        for waits in (False, True):
            listener, waiting = either.listen(e, where="self"), None
            if waits:
                waiting = e.task(listener.accept).wait_asleep("accept4", "accept")
            with either.counts(e, tcp_option=1):
                e.equal(e.error(calls.setsockopt, listener, S, consts.SO_ATTACH_FILTER, FILTER), "ok", "SO_ATTACH_FILTER")
            e.equal(either.protocol(listener), TCP, "the protocol")
            if not waits:
                with e.socket() as sock:
                    e.equal(e.error(sock.connect, e.address(e.here, listener.port)), "ECONNREFUSED", "connect() by SDP alone")
            near = either.connect(e, listener, TCP, e.here)
            far = e.keep(waiting.result()[0]) if waiting else either.accept(e, listener)
            either.echo(e, near, far)
            e.equal(either.protocol(far), TCP, "the protocol of what was accepted")


@case(reference=False)
def ports(e):
    """A port of an IPPROTO_SDP socket is reserved both in TCP and in SDP."""
    def kinds():
        yield "IPPROTO_SDP", either.make(e)
        yield "TCP", either.make(e, TCP)
        yield "SDP", e.socket()

    for port in (0, None):
        sock = either.make(e)
        if port is None:
            sock.listen(1)      # the kernel selects a port by itself
        else:
            sock.bind(e.address(e.here, 0))
        taken = sock.port
        e.check(taken, "no port")
        for name, other in kinds():
            e.equal(e.error(other.bind, e.address(e.here, taken)), "EADDRINUSE", f"bind() by {name}")
            other.close()
        sock.close()
        for name, other in kinds():
            e.equal(e.error(other.bind, e.address(e.here, taken)), "ok", f"bind() by {name} afterwards")
            either_too = either.make(e)
            e.equal(e.error(either_too.bind, e.address(e.here, taken)), "EADDRINUSE", f"bind() after {name}")
            # the failed call must leave no state: the program can bind the socket to another
            # address
            either_too.bind(e.address(e.here, 0))
            e.check(either_too.port not in (0, taken), "the other port")
            either_too.close()
            other.close()


# Ports outside the ephemeral range, which may contain a TIME_WAIT of another case.
PORTS = 26000


@contextlib.contextmanager
def sysctl(name, value):
    before = netns.sysctl(f"ipv4/{name}", value)
    try:
        yield
    finally:
        netns.sysctl(f"ipv4/{name}", before)


def end(e, first, last):
    """The end that closes first has the TIME_WAIT."""
    first.close()
    e.equal(last.recv(1), b"", "the end")
    last.close()


@case(reference=False)
def port_of_several(e):
    """connections to different destinations share the port chosen by connect(2), whatever their
    protocols. TCP and SDP hold the shared port until the last connection that uses the port is
    closed."""
    with either.parameters(**PATIENT):
        listeners = [either.listen(e, protocol) for protocol in (SDP, SDP, TCP)]
        with sysctl("ip_local_port_range", f"{PORTS} {PORTS}"):
            near = [either.connect(e, listener) for listener in listeners]
            e.equal([either.protocol(sock) for sock in near], [SDP, SDP, TCP], "the protocols")
            e.equal([sock.port for sock in near], [PORTS] * 3, "the ports")
            far = [either.accept(e, listener) for listener in listeners]
            for pair in zip(near, far):
                either.echo(e, *pair)
            e.equal(e.error(either.connect, e, listeners[1]), "EADDRNOTAVAIL", "connect() to the same destination")
            e.equal(e.error(either.connect, e, listeners[2]), "EADDRNOTAVAIL", "connect() to the same destination by TCP")
            for there, here in zip(far[1:], near[1:]):
                end(e, there, here)
            for name, other in (("IPPROTO_SDP", either.make(e)), ("TCP", either.make(e, TCP)), ("SDP", e.socket())):
                e.equal(e.error(other.bind, e.address(e.here, PORTS)), "EADDRINUSE", f"bind() by {name}")
                other.close()

            def another():
                try:
                    return either.connect(e, listeners[1])
                except OSError as error:
                    e.equal(error.errno, errno.EADDRNOTAVAIL, "what keeps another one from the port")

            # on SDP a connection holds its port until the peer has replied to the end of the stream
            e.equal(e.until(another, "another connection").port, PORTS, "its port")


@case(reference=False)
def port_of_several_after_tcp(e):
    """TCP uses another port if the shared port is in TIME_WAIT."""
    # each family has its own port, because the previous family leaves a TIME_WAIT
    low = PORTS + (12 if e.six else 10)
    with either.parameters(**PATIENT):
        listener, by_tcp = either.listen(e), either.listen(e, TCP)
        # without time stamps no connection can replace a TIME_WAIT
        with sysctl("ip_local_port_range", f"{low} {low + 1}"), sysctl("tcp_timestamps", "0"):
            holds = either.connect(e, listener)
            e.equal(holds.port, low, "the port")
            near = either.connect(e, by_tcp)
            e.equal((near.port, either.protocol(near)), (low, TCP), "port and protocol of the first")
            end(e, near, either.accept(e, by_tcp))
            path = f"/proc/thread-self/net/tcp{'6' if e.six else ''}"

            def waits():
                rows = (line.split() for line in observe.read(path).splitlines()[1:])
                return any(row[3] == "06" and row[1].endswith(f":{low:04X}") for row in rows)

            e.until(waits, "no TIME_WAIT")
            again = either.connect(e, by_tcp)
            e.equal((again.port, either.protocol(again)), (low + 1, TCP), "port and protocol of the second")
            end(e, either.accept(e, by_tcp), again)


@case(reference=False)
def privileged_port(e):
    """TCP's rules decide on privileged ports."""
    sock = either.make(e)
    e.equal(e.as_user(sock.bind, e.address(e.here, 99)), "EACCES", "bind() by nobody")
    sock.bind(e.address(e.here, 99))
    e.equal(sock.port, 99, "the port")


@case(reference=False)
def names(e):
    """getsockname(2) returns the same as on TCP for an undecided socket, and stays correct after
    the decision."""
    plain, sock = either.make(e, TCP), either.make(e)
    e.equal(sock.getsockname(), plain.getsockname(), "of a new one")
    sock.bind(e.address(e.here, 0))
    name = sock.getsockname()
    e.equal(name[0], e.here, "the address")
    with either.parameters(**PATIENT):
        listener = either.listen(e, TCP)
        sock.connect(e.address(e.there, listener.port))
        e.equal(either.protocol(sock), TCP, "the protocol")
        e.equal(sock.getsockname(), name, "after TCP has won")
        e.equal(either.accept(e, listener).getpeername()[:2], name[:2], "and what the peer sees")


@case(reference=False, families=("v6",))
def both_versions(e):
    """A listener on :: also accepts IPv4, by either protocol."""
    with either.parameters(**PATIENT):
        listener = either.listen(e, host="::")
        for protocol in (SDP, TCP):
            with netns.inside("self"):
                near = e.keep(Sock.make(socket.AF_INET, protocol=protocol))
            near.connect((netns.ADDRESSES["peer"][0], listener.port))
            e.equal(either.protocol(near), protocol, "the protocol")
            far = either.accept(e, listener)
            e.equal(far.getpeername()[0], "::ffff:" + netns.ADDRESSES["self"][0], "the peer's name")
            either.echo(e, near, far)
        only = either.make(e, where="peer")
        only.set(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        only.bind(("::", 0))
        only.listen(1)
        four = e.keep(Sock.make(socket.AF_INET, protocol=SDP))
        e.equal(e.error(four.connect, (netns.ADDRESSES["peer"][0], only.port)), "ECONNREFUSED", "IPV6_V6ONLY")


@case(reference=False)
def inode(e):
    """Diagnostic tools show one inode for a socket, whichever protocol is used."""
    with either.parameters(**PATIENT):
        near = either.connect(e, either.listen(e))
        e.check(observe.row_of(near), "no row in /proc/net/sdp")
        near = either.connect(e, either.listen(e, TCP))
        number = os.fstat(near.fileno()).st_ino
        path = f"/proc/thread-self/net/tcp{'6' if e.six else ''}"
        with open(path) as file:
            inodes = {int(line.split()[9]) for line in file.read().splitlines()[1:]}
        e.check(number in inodes, f"{path} does not know inode {number}")
