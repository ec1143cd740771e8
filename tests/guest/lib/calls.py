# SPDX-License-Identifier: GPL-2.0-only
"""The socket calls as the kernel implements them: no retry after EINTR, any sockaddr, any length.

Python's own methods restart interrupted calls and decode addresses; tests of these details must
avoid them. Every function takes a descriptor or a socket, and raises OSError."""

import ctypes
import errno
import os
import socket
import struct

from .remote import anywhere

libc = ctypes.CDLL(None, use_errno=True)


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Msghdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.POINTER(Iovec)),
                ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p),
                ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int)]


class Mmsghdr(ctypes.Structure):
    _fields_ = [("hdr", Msghdr), ("len", ctypes.c_uint)]


class Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


def fd_of(sock):
    return sock if isinstance(sock, int) else sock.fileno()


def _call(kind, name, args):
    function = getattr(libc, name)
    function.restype = kind
    result = function(*args)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def plain(name, *args):
    """Declares a libc call that returns an int."""
    return _call(ctypes.c_int, name, args)


def sized(name, *args):
    """Declares a libc call that returns a length."""
    return _call(ctypes.c_ssize_t, name, args)


def errname(error):
    if error.errno == errno.EOPNOTSUPP:         # Python's name for it is ENOTSUP
        return "EOPNOTSUPP"
    return errno.errorcode.get(error.errno, str(error.errno))


def sa_in(address, port, family=socket.AF_INET):
    return struct.pack("=HH", family, socket.htons(port)) + socket.inet_aton(address) + bytes(8)


def sa_in6(address, port, family=socket.AF_INET6, flow=0, scope=0):
    return (struct.pack("=HHI", family, socket.htons(port), flow) + socket.inet_pton(socket.AF_INET6, address)
            + struct.pack("=I", scope))


def sa(address, port, family=None):
    """Returns the sockaddr of a textual address, with another family number if given."""
    if ":" in address:
        return sa_in6(address, port, socket.AF_INET6 if family is None else family)
    return sa_in(address, port, socket.AF_INET if family is None else family)


def sa_text(raw):
    """Returns (family, address, port) of a sockaddr."""
    family, port = struct.unpack_from("=H", raw)[0], struct.unpack_from(">H", raw, 2)[0] if len(raw) >= 4 else None
    if family == socket.AF_INET:
        return family, socket.inet_ntoa(raw[4:8]), port
    if family == socket.AF_INET6:
        return family, socket.inet_ntop(socket.AF_INET6, raw[8:24]), port
    return family, raw[4:].hex(), port


@anywhere
def bind(sock, raw, length=None):
    return plain("bind", fd_of(sock), raw, ctypes.c_uint(len(raw) if length is None else length))


@anywhere
def connect(sock, raw, length=None):
    return plain("connect", fd_of(sock), raw, ctypes.c_uint(len(raw) if length is None else length))


@anywhere
def listen(sock, backlog):
    return plain("listen", fd_of(sock), backlog)


def _named(call, sock, room, *more):
    buffer = ctypes.create_string_buffer(256)
    length = ctypes.c_uint(room)
    result = plain(call, fd_of(sock), buffer, ctypes.byref(length), *more)
    return result, buffer.raw[:min(length.value, room, 256)], length.value


@anywhere
def getsockname(sock, room=128):
    """Returns (bytes written, length reported by the kernel)."""
    return _named("getsockname", sock, room)[1:]


@anywhere
def getpeername(sock, room=128):
    return _named("getpeername", sock, room)[1:]


@anywhere
def accept4(sock, flags=0, room=128):
    """Returns (new descriptor, the peer's sockaddr, its length)."""
    return _named("accept4", sock, room, flags)


@anywhere
def accept_null(sock):
    return plain("accept", fd_of(sock), None, None)


@anywhere
def shutdown(sock, how):
    return plain("shutdown", fd_of(sock), how)


@anywhere
def send(sock, data, flags=0):
    return sized("send", fd_of(sock), data, ctypes.c_size_t(len(data)), flags)


@anywhere
def sendto(sock, data, flags, raw):
    return sized("sendto", fd_of(sock), data, ctypes.c_size_t(len(data)), flags, raw, len(raw))


@anywhere
def write(sock, data):
    return sized("write", fd_of(sock), data, ctypes.c_size_t(len(data)))


@anywhere
def recv(sock, count, flags=0):
    buffer = ctypes.create_string_buffer(max(count, 1))
    got = sized("recv", fd_of(sock), buffer, ctypes.c_size_t(count), flags)
    return buffer.raw[:got]


@anywhere
def read(sock, count):
    buffer = ctypes.create_string_buffer(max(count, 1))
    got = sized("read", fd_of(sock), buffer, ctypes.c_size_t(count))
    return buffer.raw[:got]


@anywhere
def recv_count(sock, count, flags=0):
    """Returns the result of recv(2), which under MSG_TRUNC exceeds the data: no buffer is
    passed."""
    return sized("recv", fd_of(sock), None, ctypes.c_size_t(count), flags)


@anywhere
def recv_at(sock, address, count, flags=0):
    return sized("recv", fd_of(sock), ctypes.c_void_p(address), ctypes.c_size_t(count), flags)


@anywhere
def send_at(sock, address, count, flags=0):
    return sized("send", fd_of(sock), ctypes.c_void_p(address), ctypes.c_size_t(count), flags)


def _iovecs(buffers):
    array = (Iovec * max(len(buffers), 1))()
    for slot, buffer in zip(array, buffers):
        slot.base, slot.len = ctypes.addressof(buffer), ctypes.sizeof(buffer)
    return array


def _bytes_buffer(data):
    return (ctypes.c_char * len(data)).from_buffer_copy(data)


@anywhere
def recvmsg(sock, sizes, flags=0, control=0):
    """Returns (return value, data of each iovec, msg_flags, namelen, controllen)."""
    buffers = [(ctypes.c_char * size)() for size in sizes]
    name = ctypes.create_string_buffer(128)
    room = ctypes.create_string_buffer(max(control, 1))
    header = Msghdr(ctypes.addressof(name), 128, _iovecs(buffers), len(buffers),
                    ctypes.addressof(room) if control else None, control, -1)
    got = sized("recvmsg", fd_of(sock), ctypes.byref(header), flags)
    return got, [buffer.raw for buffer in buffers], header.flags, header.namelen, header.controllen


@anywhere
def sendmmsg(sock, messages, flags=0):
    """messages: a list of lists of bytes. Returns (messages sent, the length of each)."""
    keep = [[_bytes_buffer(part) for part in message] for message in messages]
    vector = (Mmsghdr * len(messages))()
    for slot, parts in zip(vector, keep):
        slot.hdr.iov, slot.hdr.iovlen = _iovecs(parts), len(parts)
    count = plain("sendmmsg", fd_of(sock), vector, len(messages), flags)
    return count, [slot.len for slot in vector[:count]]


@anywhere
def recvmmsg(sock, sizes, flags=0, timeout=None):
    """Each message has one buffer. Returns the list of data received."""
    keep = [[(ctypes.c_char * size)()] for size in sizes]
    vector = (Mmsghdr * len(sizes))()
    for slot, parts in zip(vector, keep):
        slot.hdr.iov, slot.hdr.iovlen = _iovecs(parts), 1
    limit = ctypes.byref(Timespec(int(timeout), int(timeout % 1 * 1e9))) if timeout is not None else None
    count = plain("recvmmsg", fd_of(sock), vector, len(sizes), flags, limit)
    return [parts[0].raw[:slot.len] for slot, parts in zip(vector[:count], keep)]


@anywhere
def getsockopt(sock, level, option, room=4):
    """Returns (bytes, reported length), unpadded."""
    buffer = ctypes.create_string_buffer(max(room, 1))
    length = ctypes.c_int(room)
    plain("getsockopt", fd_of(sock), level, option, buffer, ctypes.byref(length))
    return buffer.raw[:max(0, min(length.value, room))], length.value


@anywhere
def setsockopt(sock, level, option, raw, length=None):
    return plain("setsockopt", fd_of(sock), level, option, raw, ctypes.c_int(len(raw or b"") if length is None else length))


@anywhere
def ioctl_int(sock, request, value=0):
    number = ctypes.c_int(value)
    plain("ioctl", fd_of(sock), ctypes.c_ulong(request), ctypes.byref(number))
    return number.value


def splice(source, target, count, flags=0):
    return sized("splice", fd_of(source), None, fd_of(target), None, ctypes.c_size_t(count), flags)


def tee(source, target, count, flags=0):
    return sized("tee", fd_of(source), fd_of(target), ctypes.c_size_t(count), flags)


def setns(space):
    """Moves the calling thread to another network namespace, permanently."""
    return plain("setns", space, 0x40000000)
