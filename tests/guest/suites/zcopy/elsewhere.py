# SPDX-License-Identifier: GPL-2.0-only
"""Memory of sends that have returned, accessed by the kernel and other processes: swap, compaction,
cgroups, core dumps, direct I/O, debuggers, vfork."""

import ctypes
import errno
import mmap
import os
import pathlib
import resource
import signal
import socket
import subprocess

from lib import calls, memory
from lib.registry import case
from suites.process.memory import Group
from suites.zcopy.blocks import MIB, unpinned
from suites.zcopy.protected import Counters, in_flight, pair, receive, unprotected, view, write

PAGE = mmap.PAGESIZE
LIBC = memory.LIBC
PAGEOUT, GROWSDOWN, HUGETLB = 21, 0x100, 0x40000
SYSTEM = pathlib.Path("/proc/sys")


def ended(e, *socks):
    for sock in socks:
        sock.close()
    unpinned(e)


@case(reference=False, families=("v4",), timeout=60)
def vfork(e):
    """A child that shares the memory until exec(2) does not end its protection."""
    near, far, m, want = in_flight(e)
    e.equal(subprocess.run(["/bin/true"]).returncode, 0, "the child")
    e.task(write, m, 0, 9, m.size).result()
    receive(e, far, want)
    ended(e, near, far)


class Block:
    """A block device of `size` bytes: a file in memory by the loop driver."""

    def __init__(self, e, size):
        subprocess.run(["modprobe", "loop"], capture_output=True)
        self._path = pathlib.Path("/tmp/block")
        with open(self._path, "wb") as file:
            file.truncate(size)
        done = subprocess.run(["losetup", "-f", "--show", str(self._path)], capture_output=True, text=True)
        if done.returncode:
            self._path.unlink()
            e.skip("no block device")
        self.name = done.stdout.strip()

    def close(self):
        subprocess.run(["losetup", "-d", self.name], check=True)
        self._path.unlink()


@case(reference=False, families=("v4",), timeout=90)
def swapped(e):
    """With swap: memory in flight is not swapped out; swapped-out memory is swapped in and
    protected when sent. The kernel then compacts memory."""
    device = e.keep(Block(e, 64 * MIB))
    subprocess.run(["mkswap", device.name], check=True, capture_output=True)
    done = subprocess.run(["swapon", device.name], capture_output=True, text=True)
    if done.returncode:
        e.skip(f"no swap: {done.stderr.strip()}")
    try:
        near, far = pair(e)
        m = memory.Raw(2 * MIB).fill(3)
        want = m.bytes
        e.equal(LIBC.madvise(m.address, m.size, PAGEOUT), 0, "madvise")
        counters = Counters()
        near.send(view(m))
        e.check(counters.gained("async blocks") > 0, "the call has not returned at once")
        LIBC.madvise(m.address, m.size, PAGEOUT)
        if (SYSTEM / "vm/compact_memory").exists():
            (SYSTEM / "vm/compact_memory").write_text("1")
        task = e.task(write, m, 0, 7, m.size)
        receive(e, far, want)
        task.result()
        e.check(m.bytes == b"\7" * m.size, "written")
        ended(e, near, far)
        # reclaims the memory once more, when it may be swapped
        LIBC.madvise(m.address, m.size, PAGEOUT)
        e.check(m.bytes == b"\7" * m.size, "swapped out and in")
    finally:
        subprocess.run(["swapoff", device.name], check=True)


@case(reference=False, families=("v4",), timeout=90)
def direct_input(e):
    """read(2) with O_DIRECT into a block: the device writes to the block only after the peer has
    read it."""
    device = e.keep(Block(e, 4 * MIB))
    with open(device.name, "r+b") as file:
        file.write(b"d" * MIB)
    raw = os.open(device.name, os.O_RDONLY | os.O_DIRECT)
    try:
        near, far, m, want = in_flight(e)
        task = e.task(os.readv, raw, [view(m)])
        receive(e, far, want)
        e.equal(task.result(), m.size, "read(2)")
        e.check(m.bytes == b"d" * m.size, "what was read")
        ended(e, near, far)
    finally:
        os.close(raw)


@case(reference=False, families=("v4",), timeout=60)
def debugged(e):
    """PTRACE_POKEDATA to a block is refused, because the debugger cannot wait; PTRACE_POKEDATA
    succeeds without a block in flight."""
    near, far = pair(e)
    m = memory.Raw(MIB).fill(5)
    want = m.bytes
    counters = Counters()
    child = e.child(lambda: (near.send(view(m)), signal.pause()))
    e.until(lambda: counters.gained("async blocks"), "the block of the child")
    LIBC.ptrace.restype = ctypes.c_long
    LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    attach, poke, detach = 16, 5, 17
    e.equal(LIBC.ptrace(attach, child.pid, None, None), 0, "PTRACE_ATTACH")
    os.waitpid(child.pid, 0)
    told = LIBC.ptrace(poke, child.pid, m.address, 0x55)
    e.check(told == 0 or ctypes.get_errno() == errno.EIO, f"PTRACE_POKEDATA: {ctypes.get_errno()}")
    receive(e, far, want)
    e.until(lambda: LIBC.ptrace(poke, child.pid, m.address, 0x55) == 0, "a write to memory that is the program's again")
    LIBC.ptrace(detach, child.pid, None, None)
    child.kill()
    ended(e, near, far)


@case(reference=False, families=("v4",), timeout=90)
def core_dumped(e):
    """A program dumps core with a block in flight: both the core file and the peer get the
    memory."""
    pattern = SYSTEM / "kernel/core_pattern"
    if not pattern.exists():
        e.skip("no core dumps")
    before, core = pattern.read_text(), pathlib.Path("/tmp/core")
    pattern.write_text(str(core))
    try:
        near, far = pair(e)
        m = memory.Raw(MIB).fill(6)
        want = m.bytes

        def dies():
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            near.send(view(m))
            os.abort()

        child = e.child(dies)
        near.close()
        e.equal(os.waitpid(child.pid, 0)[1] & 0x7F, signal.SIGABRT, "how it ended")
        e.check(want[:PAGE] in core.read_bytes(), "the block is not in the file")
        receive(e, far, want)
        e.equal(far.recv(1), b"", "the end")
        ended(e, far)
    finally:
        pattern.write_text(before)
        core.unlink(missing_ok=True)


@case(reference=False, families=("v4",), timeout=90)
def out_of_memory(e):
    """The OOM killer of a cgroup kills a program with a block in flight, and the block arrives.
    The program may get no more memory before it is killed."""
    with Group(e) as group:
        near, far = pair(e)
        m = memory.Raw(MIB).fill(8)
        want = m.bytes
        counters = Counters()

        def eats():
            group.join()
            # memory that a child writes to is charged to the child
            write(m, 0, 0x38, m.size)
            near.send(view(m))
            kept = []
            while True:
                kept.append(b"x" * MIB)

        group.limit(48 * MIB)
        child = e.child(eats)
        near.close()
        e.equal(os.waitpid(child.pid, 0)[1], signal.SIGKILL, "how it ended")
        e.check(counters.gained("async blocks") > 0, "the call has not returned at once")
        receive(e, far, b"8" * len(want))
        e.equal(far.recv(1), b"", "the end")
        ended(e, far)


@case(reference=False, families=("v4",), timeout=60)
def two_in_a_page(e):
    """Two sends meet in one page: both arrive as sent, whatever the program writes to the page
    meanwhile."""
    near, far = pair(e)
    m = memory.Raw(MIB).fill(9)
    want = m.bytes
    middle = 100 * PAGE + 1234
    counters = Counters()
    for start, end in ((0, middle), (middle, m.size)):
        piece = memory.Raw.at(m.address + start, end - start)
        e.equal(near.send(view(piece)), end - start, "sent")
        # the kernel copied the page that both blocks share
        if end == middle:
            write(m, middle - 10, 1, 5)
    e.check(counters.gained("async blocks") >= 2, "the calls have not returned at once")
    task = e.task(write, m, 0, 1, m.size)
    got = far.recv_exactly(len(want))
    e.check(got == want, "the bytes")
    task.result()
    ended(e, near, far)


@case(reference=False, families=("v4",), timeout=60)
def of_other_kinds(e):
    """Pages of hugetlbfs and stacks are not protected, and each such send is counted."""
    ended(e, *unprotected(e, "stack", memory.Raw(MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | GROWSDOWN).fill(1)))
    pages = SYSTEM / "vm/nr_hugepages"
    if not pages.exists():
        return
    pages.write_text("2")
    try:
        try:
            m = memory.Raw(2 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | HUGETLB)
        except OSError:
            return
        ended(e, *unprotected(e, "hugetlb", m.fill(1)))
        m.unmap()
    finally:
        pages.write_text("0")


@case(reference=False, families=("v4",), timeout=60)
def received_elsewhere(e):
    """Another socket receives bytes into a block in flight."""
    near, far, m, want = in_flight(e)
    other, end = e.pair()
    data = bytes(range(256)) * (MIB // 256)
    task = e.task(end.sendall, data)
    got = 0
    while got < m.size:
        got += other.recv_into(memoryview(view(m)).cast("B")[got:], m.size - got, socket.MSG_WAITALL)
    task.result()
    e.check(m.bytes == data, "received")
    receive(e, far, want)
    ended(e, near, far, other, end)


@case(reference=False, families=("v4",), timeout=60)
def unlocked(e):
    """munlock(2) and the limit of locked memory: memory that cannot be charged is sent by another
    method."""
    near, far, m, want = in_flight(e)
    calls.plain("mlock", ctypes.c_void_p(m.address), ctypes.c_size_t(m.size))
    calls.plain("munlock", ctypes.c_void_p(m.address), ctypes.c_size_t(m.size))
    task = e.task(write, m, 0, 1, m.size)
    receive(e, far, want)
    task.result()

    def poor():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        near.sendall(view(m))
        return True

    child = e.child(poor)
    receive(e, far, b"\1" * m.size)
    e.check(child.result(), "the sender without a right to lock memory")
    ended(e, near, far)
