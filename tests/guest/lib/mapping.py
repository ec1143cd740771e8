# SPDX-License-Identifier: GPL-2.0-only
"""Mappings by `sdpctl map`, which turns new TCP sockets into IPPROTO_SDP sockets.
"""

import ctypes
import os
import pathlib
import signal
import socket
import subprocess

from . import consts, netns
from .calls import libc

SDPCTL = pathlib.Path(__file__).resolve().parents[3] / "build" / "cargo" / "release" / "sdpctl"
BPF = pathlib.Path("/sys/fs/bpf")
NUMBER = pathlib.Path("/sys/module/ib_sdp/parameters/ipproto")
PR_SET_NAME = 15
GROUPS = pathlib.Path("/sys/fs/cgroup")


def needs(e):
    """Checks the requirements of every case about mappings. Returns the number of IPPROTO_SDP."""
    if not SDPCTL.exists():
        e.skip("sdpctl is not built (scripts/cargo build --release -p sdpctl)")
    if not pathlib.Path("/sys/kernel/btf/vmlinux").exists():
        e.skip("this kernel has no BTF (CONFIG_DEBUG_INFO_BTF), nor has the debug kernel")
    if not NUMBER.exists():
        e.skip("the module has no IPPROTO_SDP")
    return int(NUMBER.read_text())


def control(*words, user=None):
    """Runs `sdpctl map` to its end; returns (status, output, errors)."""
    done = subprocess.run([SDPCTL, "map", *map(str, words)], capture_output=True, text=True, user=user)
    return done.returncode, done.stdout, done.stderr


def mount(e):
    """Mounts a BPF file system for pins, for at least the lifetime of the case's process."""
    if not os.path.ismount(BPF):
        e.equal(subprocess.run(["mount", "-t", "bpf", "bpf", BPF]).returncode, 0, "mount of bpf")


def rows():
    """Returns the rows of `sdpctl map list`: (number, kept by, sockets, whose)."""
    status, out, err = control("list")
    if status or err:
        raise OSError(status, err)
    heading, *lines = out.splitlines()
    ends = [heading.index(name) for name in ("Kept by", "Sockets", "Whose")]
    # numbers are right-aligned with their headings, words left-aligned
    return [(int(line[:ends[0]]), line[ends[0]:ends[1]].strip(), int(line[ends[1]:ends[2]]), line[ends[2]:]) for line in lines]


class Mapping:
    """A mapping that `sdpctl map add`, started by the command `by`, holds for the time of a
    block."""

    def __init__(self, e, *words, by=()):
        self.protocol = needs(e)
        self._e, self._command = e, [*by, SDPCTL, "map", "add", *map(str, words)]

    def __enter__(self):
        # allows SDP the time that a slow machine needs, and does not cache failures
        self._before = {name: netns.parameter(name, value) for name, value in (("ipproto_wait", 5000), ("ipproto_memory", 0))}
        self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        if not said.endswith("TCP sockets become SDP's until this ends\n"):
            self._e.check(False, f"sdpctl map add said {said!r} and {self.process.communicate()[1]!r}")
        return self

    def end(self, by=signal.SIGTERM):
        """Its status."""
        self.process.send_signal(by)
        self.process.communicate()
        return self.process.returncode

    def __exit__(self, kind, *_):
        status = self.end() if self.process.poll() is None else 0
        for name, value in self._before.items():
            if NUMBER.exists():
                netns.parameter(name, value)
        if kind is None:
            self._e.equal(status, 0, "status of sdpctl map add")


class Group:
    """A cgroup with a child, for the time of a block."""

    def __init__(self, e):
        self.path = GROUPS / f"map-{os.getpid()}"
        self.below, self._e = self.path / "below", e

    def __enter__(self):
        self.below.mkdir(parents=True)
        return self

    def __exit__(self, *_):
        for path in (self.below, self.path):
            self._e.until(lambda: self._removed(path), f"the end of {path}")

    def _removed(self, path):
        try:
            path.rmdir()
        except OSError:
            return False
        return True


def become(name=None, user=None, group=None):
    """Changes the identity of the calling process: its program name, its user, its cgroup.
    """
    if name is not None and libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    if group is not None:
        (group / "cgroup.procs").write_text("0")
    if user is not None:
        os.setresuid(user, user, user)


def protocol_of(family, kind=socket.SOCK_STREAM, protocol=0):
    """Returns SO_PROTOCOL of a new socket, made by the system call itself."""
    fd = libc.socket(family, kind, protocol)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    with socket.socket(fileno=fd) as sock:
        return sock.getsockopt(socket.SOL_SOCKET, consts.SO_PROTOCOL)


def asks(e, name=None, user=None, group=None):
    """Returns SO_PROTOCOL of a TCP socket made by a process with that identity."""
    family = socket.AF_INET6 if e.six else socket.AF_INET

    def run():
        become(name, user, group)
        return protocol_of(family)

    return e.child(run).result()
