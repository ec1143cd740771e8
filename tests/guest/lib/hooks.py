# SPDX-License-Identifier: GPL-2.0-only
"""BPF programs of a cgroup that control socket(2), bind(2) and connect(2), as container managers
use them."""

import contextlib
import ctypes
import os
import socket
import struct

from . import consts
from .calls import libc

PROG_LOAD, LINK_CREATE = 5, 28
LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF, PR_SET_NO_NEW_PRIVS = 444, 446, 38
BIND_TCP, CONNECT_TCP = 1, 2
CGROUP = "/sys/fs/cgroup"
# For each hook: the program type, its attach types for IPv4 and IPv6, and the offset of the port in
# its context.
CREATE, BIND, POST_BIND, CONNECT = (9, (2, 2), 12), (18, (8, 9), 24), (9, (12, 13), 44), (18, (10, 11), 24)


def _bpf(command, attributes):
    attributes = attributes.ljust(128, b"\0")
    fd = libc.syscall(consts.system_calls()["bpf"], command, attributes, len(attributes))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def _instruction(code, to=0, source=0, offset=0, number=0):
    return struct.pack("=BBhi", code, source << 4 | to, offset, number)


def _load(kind, attach, code):
    code, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
    words = struct.pack("=IIQQ", kind, len(code) // 8, ctypes.addressof(code), ctypes.addressof(licence))
    return _bpf(PROG_LOAD, words.ljust(68, b"\0") + struct.pack("=I", attach))


@contextlib.contextmanager
def socket_filter():
    """Returns a program for SO_ATTACH_BPF that accepts everything."""
    fd = _load(1, 0, _instruction(0xb7, 0, number=-1) + _instruction(0x95))
    try:
        yield fd
    finally:
        os.close(fd)


def _runs(program):
    """Returns the number of runs of the program since the first call of this."""
    with open("/proc/sys/kernel/bpf_stats_enabled", "w") as file:
        file.write("1")
    with open(f"/proc/self/fdinfo/{program}") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("run_cnt:"))


@contextlib.contextmanager
def hook(e, where, value, becomes=None):
    """Refuses calls with this port (CREATE: this protocol) within the block, or changes the port.
    Yields a function that counts the program's runs."""
    kind, attach, at = where
    number = (lambda n: n) if where in (CREATE, POST_BIND) else socket.htons
    if becomes is None:
        does = _instruction(0xb7, 0, number=0) + _instruction(0x95)
    else:
        does = _instruction(0xb7, 3, number=number(becomes)) + _instruction(0x63, 1, 3, at)
    code = (_instruction(0x61, 2, 1, at) + _instruction(0x55, 2, offset=len(does) // 8, number=number(value)) + does
            + _instruction(0xb7, 0, number=1) + _instruction(0x95))
    with contextlib.ExitStack() as stack:
        def keep(fd):
            stack.callback(os.close, fd)
            return fd

        program = keep(_load(kind, attach[e.six], code))
        group = keep(os.open(CGROUP, os.O_RDONLY | os.O_DIRECTORY))
        keep(_bpf(LINK_CREATE, struct.pack("=IIII", program, group, attach[e.six], 0)))
        yield lambda: _runs(program)


def restrict_tcp():
    """Landlock forbids this thread to bind and connect TCP sockets from now on."""
    handled = struct.pack("=QQ", 0, BIND_TCP | CONNECT_TCP)
    rules = libc.syscall(LANDLOCK_CREATE_RULESET, handled, len(handled), 0)
    if rules < 0 or libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 or libc.syscall(LANDLOCK_RESTRICT_SELF, rules, 0) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(rules)
