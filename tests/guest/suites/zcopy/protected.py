# SPDX-License-Identifier: GPL-2.0-only
"""Asynchronous blocking sends (SDP_ASYNC_SEND). The peer never receives what the program writes to
its memory afterwards."""

import contextlib
import ctypes
import errno
import mmap
import os
import random
import signal
import socket
import tempfile
import threading
import time

from lib import consts, memory, netns, observe, pattern
from lib.registry import case

MIB = 1 << 20
PAGE = mmap.PAGESIZE
TCP = socket.IPPROTO_TCP
LIBC = memory.LIBC
LIBC.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
LIBC.mremap.restype = ctypes.c_void_p
LIBC.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
LIBC.process_vm_writev.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
MREMAP_MAYMOVE, MREMAP_FIXED, MREMAP_DONTUNMAP = 1, 2, 4


class Counters:
    """Growth of the counters of the sender's host."""

    def __init__(self):
        self._before = observe.stats("self")

    def gained(self, name):
        return observe.stats("self").get(name, 0) - self._before.get(name, 0)


def pair(e):
    """A pair whose near end sends asynchronously."""
    near, far = e.pair()
    near.set(TCP, consts.SDP_ZCOPY_THRESH, 65536)
    near.set(TCP, consts.SDP_ASYNC_SEND, 1)
    return near, far


def write(m, offset, value, length):
    """Writes to memory while other threads run."""
    LIBC.memset(m.address + offset, value, length)


def receive(e, far, want, what="bytes"):
    got = far.recv_exactly(len(want))
    if got != want:
        at = next(n for n, (a, b) in enumerate(zip(got, want)) if a != b)
        e.fail(f"{what} differ from {at} on: {got[at:at + 8].hex()} for {want[at:at + 8].hex()}")


@case(reference=False, families=("v4",), timeout=60)
def returns_at_once(e):
    """send(2) returns before the peer reads. The pages are writable again when the peer has the
    bytes."""
    near, far = pair(e)
    m = memory.Memory(MIB).fill(1)
    want = bytes(m.map)
    counters = Counters()
    e.equal(near.send(m.map), MIB, "sent")
    e.equal(counters.gained("async blocks"), 1, "blocks")
    receive(e, far, want)
    e.until(lambda: not observe.pinned("self"), "the end of the pinning")
    write(m, 0, 0x55, MIB)
    e.equal(counters.gained("async touched"), 0, "touches")


def written_before_it_is_read(e, near, far, m):
    want = bytes(m.map)
    near.send(m.map)
    # the write also ends without a reader: the module takes the block back, and copies its unread
    # rest
    e.task(write, m, 8 * PAGE + 5, 0x55, PAGE).result()
    e.equal(m.map[8 * PAGE + 5:9 * PAGE + 5], b"U" * PAGE, "written")
    receive(e, far, want)


@case(reference=False, families=("v4",), timeout=60)
def written_at_once(e):
    """A write to the block before the peer reads it waits, but not for a reader. The peer receives
    the bytes as they were sent."""
    every = Counters()
    for size in (256 << 10, MIB, 2 * MIB):
        near, far = pair(e)
        counters = Counters()
        written_before_it_is_read(e, near, far, memory.Memory(size).fill(size))
        for name in ("blocks", "touched"):
            e.check(counters.gained(f"async {name}") > 0, f"{size}: async {name} is 0")
        near.close()
        far.close()
    # the peer may have space for a part of the block before the write
    e.check(every.gained("async copied") > 0, "nothing was copied")
    e.until(lambda: not observe.pinned("self"), "the end of the pinning")


def in_flight(e, size=MIB):
    """Returns a pair of sockets, memory, and the bytes of the memory, which are in flight to a peer
    that does not read."""
    near, far = pair(e)
    m = memory.Raw(size).fill(size)
    want = m.bytes
    counters = Counters()
    near.send(view(m))
    e.check(counters.gained("async blocks") > 0, "the call has not returned at once")
    return near, far, m, want


def view(m):
    return (ctypes.c_char * m.size).from_address(m.address)


@case(reference=False, families=("v4",), timeout=60)
def parent_and_child_write(e):
    """After fork(2) both processes write to the block, the child without waiting."""
    near, far, m, want = in_flight(e)

    def child():
        write(m, 0, 1, m.size)
        return m.bytes == b"\1" * m.size

    other = e.child(child)
    e.check(other.result(), "what the child wrote")
    e.check(m.bytes == want, "the child's writes are the parent's")
    task = e.task(write, m, 0, 2, m.size)
    receive(e, far, want)
    task.result()
    e.check(m.bytes == b"\2" * m.size, "what the parent wrote")


@case(reference=False, families=("v4",), timeout=90)
def ends_of_a_process(e):
    """exec(2), exit and SIGKILL: the bytes arrive as sent, then the end of the stream."""
    def execs():
        os.execv("/bin/true", ["true"])

    def exits():
        os._exit(0)

    def dies():
        os.kill(os.getpid(), signal.SIGKILL)

    for end in (execs, exits, dies):
        near, far = pair(e)
        m = memory.Raw(MIB).fill(7)
        want = m.bytes
        child = os.fork()
        if not child:
            far.close()
            near.send(view(m))
            end()
            os._exit(1)
        near.close()
        os.waitpid(child, 0)
        receive(e, far, want, end.__name__)
        e.equal(far.recv(1), b"", "the end")
        far.close()
    e.until(lambda: not observe.pinned("self"), "the end of the pinning")


def unmaps(m):
    m.unmap()
    other = memory.Raw(m.size)
    write(other, 0, 3, other.size)


def replaces(m):
    m.replace()
    write(m, 0, 3, m.size)


def discards(m):
    m.discard()
    write(m, 0, 3, m.size)


def moves(m):
    to = memory.Raw(m.size)
    m.address = LIBC.mremap(m.address, m.size, m.size, MREMAP_MAYMOVE | MREMAP_FIXED, to.address)
    write(m, 0, 3, m.size)


def moves_a_part(m):
    to = memory.Raw(m.size)
    part = memory.Raw.at(LIBC.mremap(m.address + m.size // 4, m.size // 2, m.size // 2, MREMAP_MAYMOVE | MREMAP_FIXED, to.address), m.size // 2)
    write(part, 0, 3, part.size)
    write(m, 0, 3, m.size // 4)


def moves_and_leaves_it_mapped(m):
    to = memory.Raw(m.size)
    LIBC.mremap(m.address, m.size, m.size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to.address)
    write(to, 0, 3, m.size)
    write(m, 0, 4, m.size)


def grows(m):
    m.address = LIBC.mremap(m.address, m.size, 4 * m.size, MREMAP_MAYMOVE, None)
    write(m, 0, 3, 4 * m.size)


def protects(m):
    m.protect(mmap.PROT_READ)
    m.protect(mmap.PROT_READ | mmap.PROT_WRITE)
    write(m, 0, 3, m.size)


def writes_by_many(m):
    threads = [threading.Thread(target=write, args=(m, n * m.size // 8, n, m.size // 8)) for n in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]


def locks(m):
    LIBC.mlock(ctypes.c_void_p(m.address), ctypes.c_size_t(m.size))
    write(m, 0, 3, m.size)


def advises(*advice):
    def change(m):
        for number in advice:
            LIBC.madvise(m.address, m.size, number)
        write(m, 0, 3, m.size)
    change.__name__ = f"advises {advice}"
    return change


FREE, POPULATE_WRITE, COLLAPSE, PAGEOUT = 8, 23, 25, 21
CHANGES = (unmaps, replaces, discards, moves, moves_a_part, moves_and_leaves_it_mapped, grows, protects, writes_by_many, locks,
           advises(COLLAPSE, PAGEOUT), advises(FREE), advises(POPULATE_WRITE))


@case(reference=False, families=("v4",), timeout=120)
def changed_mappings(e):
    """Changes of the mapping, and later writes to the mapping, do not change the sent bytes.
    """
    for change in CHANGES:
        near, far, m, want = in_flight(e)
        task = e.task(change, m)
        task.result()
        receive(e, far, want, change.__name__)
        near.close()
        far.close()
    e.until(lambda: not observe.pinned("self"), "the end of the pinning")


@case(reference=False, families=("v4",), timeout=60)
def sent_after_a_move(e):
    """Memory that was moved in flight can be sent asynchronously again, once its blocks have
    ended."""
    near, far, m, want = in_flight(e)
    moves(m)
    receive(e, far, want)
    e.until(lambda: not observe.pinned("self"), "the end of the pinning")
    near, far = pair(e)
    counters = Counters()
    task = e.task(near.sendall, view(m))
    receive(e, far, m.bytes)
    task.result()
    e.equal(counters.gained("async blocks"), 1, "blocks")


@case(reference=False, families=("v4",), timeout=90)
def written_from_elsewhere(e):
    """Writes to the block by another process, the kernel or a device wait, like writes of the
    program."""
    near, far, m, want = in_flight(e)
    parent = os.getpid()

    def child():
        source = memory.Raw(m.size)
        write(source, 0, 5, m.size)
        local = (ctypes.c_size_t * 2)(source.address, m.size)
        remote = (ctypes.c_size_t * 2)(m.address, m.size)
        written = LIBC.process_vm_writev(parent, local, 1, remote, 1, 0)
        return written if written >= 0 else -ctypes.get_errno()

    LIBC.prctl(0x59616d61, -1, 0, 0, 0)     # PR_SET_PTRACER: any
    written = e.child(child).result()
    if written != -errno.ENOSYS:            # the debug kernel lacks process_vm_writev(2)
        e.equal(written, m.size, "process_vm_writev")
        e.check(m.bytes == b"\5" * m.size, "written")
    receive(e, far, want, "process_vm_writev")

    # read(2) from a pipe
    near, far, m, want = in_flight(e)
    readable, writable = os.pipe()
    os.write(writable, b"x" * 1000)
    e.equal(os.readv(readable, [view(m)]), 1000, "read(2)")
    receive(e, far, want, "read(2)")

    # bytes of the peer are received into the block, on the same socket
    near, far, m, want = in_flight(e)
    data = pattern.Pattern(3).at(0, m.size)
    task = e.task(far.sendall, data)
    e.equal(calls_recv(near, m), m.size, "recv(2)")
    task.result()
    e.check(m.bytes == data, "received")
    receive(e, far, want, "recv(2)")

    # a debugger does not wait: its write is refused, or happens after the wait
    near, far, m, want = in_flight(e)
    try:
        with open("/proc/self/mem", "r+b", buffering=0) as file:
            file.seek(m.address)
            file.write(b"y" * PAGE)
    except OSError as error:
        e.equal(error.errno, errno.EIO, "/proc/self/mem")
    receive(e, far, want, "/proc/self/mem")


def calls_recv(sock, m):
    whole, got = view(m), 0
    while got < m.size:
        got += sock.recv_into(memoryview(whole).cast("B")[got:], m.size - got, socket.MSG_WAITALL)
    return got


@case(reference=False, families=("v4",), timeout=90)
def sent_twice(e):
    """The same memory, and overlapping blocks, are sent by one socket and by another."""
    near, far, m, want = in_flight(e)
    other, end = pair(e)
    near.send(view(m))
    other.send(view(m))
    half = memory.Raw.at(m.address + m.size // 2, m.size // 2)
    other.send(view(half))
    task = e.task(write, m, 0, 9, m.size)
    receive(e, end, want, "the other socket's")
    receive(e, far, want)
    receive(e, end, want[m.size // 2:], "the half")
    receive(e, far, want, "the second")
    task.result()
    e.check(m.bytes == b"\t" * m.size, "written")


@case(reference=False, families=("v4",), timeout=60)
def unaligned(e):
    """Bytes before and after whole pages are copied."""
    near, far = pair(e)
    m = memory.Raw(MIB).fill(4)
    counters = Counters()
    for start, length in ((1, 300_000), (PAGE - 1, 300_001), (100, 200_000), (PAGE, 70_000)):
        piece = memory.Raw.at(m.address + start, length)
        want = piece.bytes
        e.equal(near.send(view(piece)), length, "sent")
        task = e.task(write, piece, 0, 1, length)
        receive(e, far, want, f"{start}+{length}")
        task.result()
    e.check(counters.gained("async blocks") > 0, "no block")


@case(reference=False, families=("v4",), timeout=60)
def larger_than_a_block(e):
    """A call larger than a block is split into several blocks, and all bytes arrive."""
    near, far = pair(e)
    m = memory.Raw(9 * MIB).fill(8)
    want = m.bytes
    counters = Counters()
    task = e.task(near.sendall, view(m))
    receive(e, far, want)
    task.result()
    e.check(counters.gained("async blocks") > 1, "one block")
    near.close()
    e.equal(far.recv(1), b"", "the end")


@case(reference=False, families=("v4",), timeout=60)
def ends_in_a_gap(e):
    """A call returns the number of bytes before unmapped memory, and exactly these bytes arrive."""
    for size in (MIB, 3 * MIB):
        near, far = pair(e)
        m = memory.Raw(size + MIB).fill(9)
        want = m.bytes[:size]
        LIBC.munmap(ctypes.c_void_p(m.address + size), ctypes.c_size_t(MIB))
        sent = e.task(near.send, view(m))
        got = far.recv_exactly(size)
        e.check(got == want, f"{size}: bytes")
        e.equal(sent.result(), size, "sent")
        near.close()
        e.equal(far.recv(1), b"", "the end")


@case(reference=False, families=("v4",), timeout=60)
def large_pages(e):
    """Several blocks within one large page, which is pinned as a whole."""
    near, far = pair(e)
    m = memory.Raw(8 * MIB)
    LIBC.madvise(m.address, m.size, mmap.MADV_HUGEPAGE)
    m.fill(5)
    want = m.bytes
    counters = Counters()
    for n in range(6):
        near.send(view(memory.Raw.at(m.address + n * MIB, MIB)))
    e.equal(counters.gained("async blocks"), 6, "blocks")
    task = e.task(write, m, MIB // 2, 1, 5 * MIB)
    receive(e, far, want[:6 * MIB])
    task.result()


def unprotected(e, name, m):
    """Sends memory that cannot be protected, and checks the counter of the given name; returns the
    pair."""
    want = m.bytes
    near, far = pair(e)
    counters = Counters()
    task = e.task(near.sendall, view(m))
    receive(e, far, want, name)
    task.result()
    e.equal((counters.gained("async blocks"), counters.gained(f"async unprotected {name}")), (0, 1), name)
    return near, far


@case(reference=False, families=("v4",), timeout=60)
def reasons(e):
    """Memory that cannot be protected is sent as without the option, and counted."""
    with tempfile.TemporaryFile() as file:
        file.truncate(MIB)
        unprotected(e, "shared", memory.Raw(MIB, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS).fill(3))
        unprotected(e, "file", memory.Raw(MIB, mmap.MAP_PRIVATE, file.fileno()).fill(3))
    own = memory.Absent(MIB)
    own.give(random.Random(1).randbytes(MIB))
    unprotected(e, "userfaultfd", memory.Raw.at(own.address, MIB))
    own.close()


def maps():
    with open("/proc/self/maps") as file:
        return {tuple(int(word, 16) for word in line.split()[0].split("-")) for line in file}


@case(reference=False, families=("v4",), timeout=60)
def page_taken_away(e):
    """The page of userfaultfd's ioctl arguments is unmapped, or replaced by one whose faults are
    never resolved. The program loses the protection of its blocks, and no call hangs. Another page
    that the program has mapped at the address of the module's page stays mapped."""
    def tries(absent):
        near, far = pair(e)
        m = memory.Raw(MIB).fill(1)
        own = memory.Absent(PAGE) if absent else None
        before = maps()
        near.send(view(m))
        pages = [start for start, end in maps() - before if end - start == PAGE]
        e.check(pages, "there is no such page")
        for start in pages:
            LIBC.munmap(start, PAGE)
            if own:
                own.at(start)
        e.task(write, m, 0, 2, m.size).result()
        e.equal(len(far.recv_exactly(MIB)), MIB, "bytes")
        near.close()
        far.close()
        e.until(lambda: not observe.pinned("self"), "the end of the pinning")
        if own:
            e.check(not own.touched(), "the kernel has waited for it")
            own.close()
        return True

    for absent in (False, True):
        # uses a separate process, since it has no protection for a while afterwards
        e.check(e.child(tries, absent).result(), "the child")


@case(reference=False, families=("v4",), timeout=60)
def without_privilege(e):
    """Blocks are protected even if the process is not privileged for userfaultfd(2) of kernel
    faults. The process gets no descriptor of the userfaultfd."""
    near, far = pair(e)

    def sender():
        refused = LIBC.syscall(consts.system_calls()["userfaultfd"], os.O_CLOEXEC) < 0 and ctypes.get_errno()
        e.equal(refused, errno.EPERM, "userfaultfd(2)")
        m = memory.Raw(MIB).fill(3)
        counters, links = Counters(), set()
        stop = threading.Event()

        def look():
            while not stop.is_set():
                for name in os.listdir("/proc/self/fd"):
                    with contextlib.suppress(OSError):
                        links.add(os.readlink(f"/proc/self/fd/{name}"))

        watcher = threading.Thread(target=look)
        watcher.start()
        near.send(view(m))
        stop.set()
        watcher.join()
        e.equal(counters.gained("async blocks"), 1, "blocks")
        e.check(not any("userfaultfd" in link for link in links), f"its descriptors were {links}")
        return bytes(m.bytes)

    with open("/proc/sys/vm/unprivileged_userfaultfd") as file:
        e.equal(file.read(), "0\n", "the kernel's default")
    e.check(e.as_user(sender) == far.recv_exactly(MIB), "bytes")


@case(reference=False, families=("v4",), timeout=60)
def forbidden(e):
    """With the parameter async_send at -1, the option has no effect. The kernel's own writes to a
    program's memory never wait for a peer."""
    near, far = pair(e)
    before = netns.parameter("async_send", -1)
    try:
        e.equal(near.get(TCP, consts.SDP_ASYNC_SEND), 0, "the option")
        m = memory.Raw(MIB).fill(1)
        counters = Counters()
        task = e.task(near.sendall, view(m))
        receive(e, far, m.bytes)
        task.result()
        e.equal(counters.gained("async blocks"), 0, "blocks")
    finally:
        netns.parameter("async_send", before)
    e.equal(near.get(TCP, consts.SDP_ASYNC_SEND), 1, "the option after that")


def reused(e, seed):
    """The program overwrites memory as soon as send(2) has returned. The peer reads at any time,
    and gets the bytes as they were sent."""
    rng = random.Random(seed)
    near, far = pair(e)
    turn = [memory.Raw(MIB) for _ in range(rng.choice((1, 2, 4)))]
    sizes = [rng.choice((65536, 131072, 200_000, MIB // 2, MIB)) for _ in range(8)]
    starts = [rng.choice((0, 0, 0, 1, 3000, PAGE)) for _ in sizes]
    contents = [rng.randbytes(min(size, MIB - start)) for size, start in zip(sizes, starts)]

    def send():
        for n, content in enumerate(contents):
            m = turn[n % len(turn)]
            ctypes.memmove(m.address + starts[n], content, len(content))
            near.sendall(view(memory.Raw.at(m.address + starts[n], len(content))))
            if n % 3 == 0:
                write(m, starts[n] + len(content) // 2, 0xAA, len(content) // 3)

    task = e.task(send)
    for n, content in enumerate(contents):
        receive(e, far, content, f"seed {seed}: bytes of {n}")
        if rng.random() < 0.3:
            time.sleep(rng.random() / 50)
    task.result()
    near.close()
    far.close()


@case(reference=False, families=("v4",), timeout=60)
def pinned_by_others(e):
    """A buffer registered with io_uring is not sent asynchronously, since io_uring writes to it
    without page tables."""
    near, far = pair(e)
    m = memory.Raw(MIB).fill(6)
    parameters = ctypes.create_string_buffer(120)
    ring = LIBC.syscall(425, 4, parameters)                     # io_uring_setup
    if ring < 0:
        e.skip("no io_uring")
    vector = (ctypes.c_size_t * 2)(m.address, m.size)
    e.equal(LIBC.syscall(427, ring, 0, vector, 1), 0, "io_uring_register")
    want = m.bytes
    counters = Counters()
    task = e.task(near.send, view(m))
    receive(e, far, want)
    task.result()
    e.equal(counters.gained("async unprotected pinned"), 1, "refused")
    e.equal(counters.gained("async blocks"), 0, "blocks")
    os.close(ring)


@case(reference=False, families=("v4",), timeout=240)
def stress(e):
    """No byte written after send(2) has returned ever arrives. Each connection is new and has no
    record of write faults."""
    counters = Counters()
    rounds = e.rounds(24)
    for seed in range(rounds):
        reused(e, seed)
    for name, least in (("blocks", 60), ("touched", 20)):
        gained = counters.gained(f"async {name}")
        e.check(gained >= least * rounds // 24, f"async {name}: {gained}")
    e.until(lambda: not observe.pinned("self"), "the end of the pinning")


@case(reference=False, families=("v4",), timeout=120)
def gives_up(e):
    """A connection whose blocks are written to before the peer has them becomes synchronous, and
    tries again later."""
    near, far = pair(e)
    m = memory.Raw(65536)
    counters = Counters()

    def send_and_touch(n):
        write(m, 0, n, m.size)
        near.sendall(view(m))
        write(m, 0, 0xEE, m.size)

    for n in range(40):
        # the write may or may not wait for a reader: the peer reads only after the write
        e.task(send_and_touch, n).result()
        receive(e, far, bytes([n]) * m.size)
    # after a block was taken back, the next block may be sent in messages before the write
    blocks, touched = (counters.gained(f"async {name}") for name in ("blocks", "touched"))
    e.check(3 <= touched <= blocks <= 10, f"{blocks} blocks of 40 sends, {touched} of them touched")


@case(reference=False, families=("v4",), timeout=240)
def takes_heart(e):
    """A connection that became synchronous is asynchronous again once its blocks are not written
    to, after the longest pause at most."""
    near, far = pair(e)
    m = memory.Raw(65536)
    write(m, 0, 1, m.size)

    def send(touched):
        near.sendall(view(m))
        if touched:
            write(m, 0, 1, m.size)

    def sends(count, touched):
        counters = Counters()
        for n in range(count):
            e.task(send, touched).result()
            receive(e, far, m.bytes)
            if not touched and counters.gained("async blocks"):
                return n + 1
        return count

    while True:
        counters = Counters()
        sends(1, True)
        if not counters.gained("async blocks"):
            break
    e.check(sends(4096, False) < 4096, "it has not tried again")
    # a write to a block still in flight would be another write fault
    e.until(lambda: not observe.pinned("self"), "the end of the pinning")
    write(m, 0, 1, m.size)
    counters, count = Counters(), 200
    for _ in range(count):
        sends(1, False)
    gained = {name: counters.gained(f"async {name}") for name in ("blocks", "touched", "unprotected busy", "unprotected pinned", "unprotected userfaultfd")}
    # while the kernel changes the page tables of the last block, a further block is refused
    e.equal(gained["blocks"] + gained["unprotected busy"], count, f"blocks, of {gained}")
    e.check(gained["blocks"], "no blocks")


@case(reference=False, families=("v4",), timeout=60)
def off_by_default(e):
    """Sends are asynchronous only if the parameter (all sockets) or the option (one socket) is set.
    """
    near, far = e.pair()
    e.equal(near.get(TCP, consts.SDP_ASYNC_SEND), 0, "the option")
    m = memory.Raw(MIB).fill(1)
    counters = Counters()
    task = e.task(near.sendall, view(m))
    receive(e, far, m.bytes)
    task.result()
    e.equal(counters.gained("async blocks"), 0, "blocks")
    for value in (2, -1):
        e.equal(e.error(near.set, TCP, consts.SDP_ASYNC_SEND, value), "EINVAL", "a bad value")
    before = netns.parameter("async_send", 1)
    try:
        e.equal(near.get(TCP, consts.SDP_ASYNC_SEND), 1, "the option, by the parameter")
        near.set(TCP, consts.SDP_ASYNC_SEND, 0)
        e.equal(near.get(TCP, consts.SDP_ASYNC_SEND), 0, "the option, set")
    finally:
        netns.parameter("async_send", before)
