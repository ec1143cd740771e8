# SPDX-License-Identifier: GPL-2.0-only
"""socket(): the supported types and protocols, and the state of a new socket."""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import signal
import socket
import stat
import struct

from lib import calls, consts, netns
from lib.env import OneOf
from lib.registry import case

BEDS = (1, 2)
STREAM = socket.SOCK_STREAM
SOCKET_CALL = 41


@case
def types(e):
    # TCP's families also have other socket types.
    e.note("messages", e.error(socket.socket, e.domain, socket.SOCK_SEQPACKET, 0), sdp="ok", because="SDP has streams and messages")
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_RDM, 6, 0, 7):
        e.note(f"type {kind}", e.error(socket.socket, e.domain, kind, 0),
               sdp="ESOCKTNOSUPPORT", because="SDP is a byte stream, other types are refused as ib_sdp did")
    for kind in (10, 11, 15):
        e.note(f"type {kind}", e.error(socket.socket, e.domain, kind, 0),
               sdp=OneOf("ESOCKTNOSUPPORT", "EINVAL"), because="10 is for AF_PACKET, from 11 on the core refuses")
    e.note("unknown flag", e.error(socket.socket, e.domain, STREAM | 0x100, 0))
    e.note("stream", e.error(socket.socket, e.domain, STREAM, 0))


@case
def protocols(e):
    for protocol in (0, 6):
        e.note(f"protocol {protocol}", e.error(socket.socket, e.domain, STREAM, protocol))
    for protocol in (1, 2, 17, 27, 58, 132, 255, 262, 1000):
        e.note(f"protocol {protocol}", e.error(socket.socket, e.domain, STREAM, protocol),
               sdp="EPROTONOSUPPORT", because="a family of its own has no protocols but 0 and 6")
    e.note("protocol -2", e.error(socket.socket, e.domain, STREAM, -2),
           sdp=OneOf("EPROTONOSUPPORT", "EINVAL"), because="inet has a bound on protocol numbers")
    e.note("datagram with 6", e.error(socket.socket, e.domain, socket.SOCK_DGRAM, 6),
           sdp="ESOCKTNOSUPPORT", because="the type is looked at first")


@case
def flags(e):
    for name, extra in (("none", 0), ("cloexec", socket.SOCK_CLOEXEC), ("nonblock", socket.SOCK_NONBLOCK),
                        ("both", socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)):
        descriptor = calls.plain("socket", e.domain, STREAM | extra, 0)
        e.note(name, (bool(fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC),
                      bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_NONBLOCK),
                      fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE))


@case
def identity(e):
    for protocol in (0, 6):
        sock = e.socket(protocol=protocol)
        e.note(f"domain of {protocol}", sock.get(socket.SOL_SOCKET, consts.SO_DOMAIN),
               sdp=28 if e.six else 27, because="SO_DOMAIN names the family the socket was made with")
        e.note(f"protocol of {protocol}", sock.get(socket.SOL_SOCKET, consts.SO_PROTOCOL))
        e.note(f"type of {protocol}", sock.get(socket.SOL_SOCKET, socket.SO_TYPE))
        e.note(f"error of {protocol}", sock.get(socket.SOL_SOCKET, socket.SO_ERROR))


@case(hosts=BEDS)
def identity_of_accepted(e):
    near, far = e.pair()
    for name, sock in (("connector", near), ("accepted", far)):
        e.note(f"domain of {name}", sock.get(socket.SOL_SOCKET, consts.SO_DOMAIN),
               sdp=28 if e.six else 27, because="SO_DOMAIN names the family the socket was made with")
        e.note(f"protocol of {name}", sock.get(socket.SOL_SOCKET, consts.SO_PROTOCOL))
        e.note(f"type of {name}", sock.get(socket.SOL_SOCKET, socket.SO_TYPE))
        e.note(f"accepting {name}", sock.get(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


@case
def accepting(e):
    sock = e.socket()
    e.note("new", sock.get(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    sock.bind(e.address(e.here, 0))
    e.note("bound", sock.get(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    sock.listen(1)
    e.note("listening", sock.get(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    e.note("set", e.error(sock.set, socket.SOL_SOCKET, socket.SO_ACCEPTCONN, 0))
    sock.shutdown(socket.SHUT_RD)
    e.note("no longer", sock.get(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


@case
def unconnected(e):
    """Every call on a socket without a connection."""
    sock = e.socket()
    e.note("name", calls.sa_text(calls.getsockname(sock)[0]))
    e.note("peer", e.error(sock.getpeername))
    e.note("recv", e.error(calls.recv, sock, 1))
    e.note("recv without waiting", e.error(calls.recv, sock, 1, socket.MSG_DONTWAIT))
    e.note("peek", e.error(calls.recv, sock, 1, socket.MSG_PEEK))
    e.note("recv urgent", e.error(calls.recv, sock, 1, socket.MSG_OOB))
    e.note("recv nothing", e.error(calls.recv, sock, 0))
    e.note("read", e.error(calls.read, sock, 1))
    e.note("read nothing", e.error(calls.read, sock, 0))
    e.note("send", e.error(calls.send, sock, b"x", socket.MSG_NOSIGNAL))
    e.note("send urgent", e.error(calls.send, sock, b"x", socket.MSG_NOSIGNAL | socket.MSG_OOB))
    e.note("send nothing", e.error(calls.send, sock, b"", socket.MSG_NOSIGNAL))
    e.note("accept", e.error(sock.accept))
    e.note("mask", sock.mask())
    for how in (0, 1, 2):
        e.note(f"shutdown {how}", e.error(calls.shutdown, sock, how))
        e.note(f"mask after shutdown {how}", sock.mask())
    e.note("bad shutdown", e.error(calls.shutdown, sock, 3))
    e.note("negative shutdown", e.error(calls.shutdown, sock, -1))
    for name, request in (("inq", consts.SIOCINQ), ("outq", consts.SIOCOUTQ), ("mark", consts.SIOCATMARK)):
        e.note(name, e.outcome(calls.ioctl_int, sock, request))


@case
def unconnected_send_signals(e):
    """send(2) on an unconnected socket also raises SIGPIPE."""
    got = []
    signal.signal(signal.SIGPIPE, lambda *_: got.append("SIGPIPE"))
    e.note("send", e.error(calls.send, e.socket(), b"x"))
    e.note("signals", got)


@case
def no_socketpair(e):
    e.note("socketpair", e.error(socket.socketpair, e.domain, STREAM, 0))


@case
def as_a_file(e):
    sock = e.socket()
    number = sock.fileno()
    e.note("is a socket", stat.S_ISSOCK(os.fstat(number).st_mode))
    e.note("link", os.readlink(f"/proc/self/fd/{number}").split(":")[0])
    e.note("lseek", e.error(os.lseek, number, 0, os.SEEK_SET))
    e.note("pread", e.error(os.pread, number, 1, 0))
    e.note("ftruncate", e.error(os.ftruncate, number, 0))
    e.note("fsync", e.error(os.fsync, number))
    e.note("mmap", e.error(lambda: mmap.mmap(number, 4096)), sdp=OneOf("ENODEV", "EPERM"),
           because="TCP's mmap serves TCP_ZEROCOPY_RECEIVE only")
    e.note("mmap for reading", e.error(lambda: mmap.mmap(number, 4096, mmap.MAP_SHARED, mmap.PROT_READ)),
           sdp="ENODEV", because="TCP's mmap serves TCP_ZEROCOPY_RECEIVE only")
    e.note("unknown ioctl", e.error(calls.ioctl_int, sock, 0x5499))
    e.note("terminal ioctl", e.error(calls.ioctl_int, sock, 0x5401))
    e.note("isatty", os.isatty(number))
    e.note("nonblock", e.error(fcntl.fcntl, number, fcntl.F_SETFL, os.O_NONBLOCK))
    e.note("append", e.error(fcntl.fcntl, number, fcntl.F_SETFL, os.O_APPEND))
    e.note("direct", e.error(fcntl.fcntl, number, fcntl.F_SETFL, os.O_DIRECT))
    e.note("open by proc", e.error(os.open, f"/proc/self/fd/{number}", os.O_RDWR))


@case
def wrong_descriptor(e):
    """Socket calls on a closed descriptor, and on a file that is no socket."""
    sock = e.socket()
    number = sock.detach()
    os.close(number)
    e.note("closed", e.error(calls.listen, number, 1))
    reader, _ = os.pipe()
    e.note("pipe", e.error(calls.listen, reader, 1))


@case
def unprivileged(e):
    e.note("socket", e.as_user(lambda: e.socket().get(socket.SOL_SOCKET, socket.SO_TYPE)))


@case
def out_of_descriptors(e):
    first = e.socket().fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (first + 2, first + 2))
    made = []
    try:
        while len(made) < 100:
            made.append(e.socket())
    except OSError as error:
        e.note("error", calls.errname(error))
    made.clear()
    e.note("number", len(made))


@case
def many(e):
    """Makes and closes unused sockets."""
    for _ in range(20):
        batch = [calls.plain("socket", e.domain, STREAM, 0) for _ in range(100)]
        for descriptor in batch:
            os.close(descriptor)
    e.note("still", e.error(e.socket))


@case
def interface_ioctls(e):
    """Programs use any socket for ioctls about interfaces."""
    sock = e.socket()
    name = netns.device().encode()
    request = struct.pack("=16sI20x", name, 0)
    for label, number in (("index", consts.SIOCGIFINDEX), ("flags", 0x8913), ("mtu", 0x8921)):
        e.note(label, e.outcome(lambda: struct.unpack_from("=h", fcntl.ioctl(sock, number, request), 16)[0] & 0xFFF))
    if not e.six:
        e.note("address", e.outcome(
            lambda: socket.inet_ntoa(fcntl.ioctl(sock, consts.SIOCGIFADDR, request)[20:24])))


def without(*families):
    """Denies the given socket families to the process by seccomp(2), like systemd's
    RestrictAddressFamilies=."""
    def instruction(code, number, yes=0, no=0):
        return struct.pack("=HBBI", code, yes, no, number)

    load, equal, give = 0x20, 0x15, 0x06
    # The seccomp filter compares the system call and its first argument.
    code = instruction(load, 0) + instruction(equal, SOCKET_CALL, 0, len(families) + 1) + instruction(load, 16)
    code += b"".join(instruction(equal, family, len(families) - at) for at, family in enumerate(families))
    code += instruction(give, 0x7fff0000) + instruction(give, 0x50000 | errno.EAFNOSUPPORT)
    code = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(code))
    calls.plain("prctl", 38, 1, 0, 0, 0)        # PR_SET_NO_NEW_PRIVS
    calls.plain("prctl", 22, 2, program)        # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


@case(reference=False)
def kept_away(e):
    """seccomp(2) denies SDP's families to a process, and no other call."""
    def attempts():
        before = e.error(socket.socket, e.domain)
        without(consts.AF_INET_SDP, consts.AF_INET6_SDP)
        return before, e.error(socket.socket, e.domain), e.error(socket.socket, e.family), e.error(socket.socket, socket.AF_UNIX)

    e.equal(e.child(attempts).result(), ("ok", "EAFNOSUPPORT", "ok", "ok"), "sockets before and after, TCP's, and of AF_UNIX")
