# SPDX-License-Identifier: GPL-2.0-only
"""Zero copy below the sockets: both ends of a connection are raw peers, and one end accesses memory
that the other end has registered."""

import collections
import ctypes
import itertools
import mmap
import os
import random
import resource

from lib import netns, observe, raw
from lib.either import parameters
from lib.memory import LIBC, MAP_HUGETLB, PAGE, Memory, Raw
from lib.registry import case

Part = collections.namedtuple("Part", "address size")


def nothing_pinned(e):
    e.until(lambda: all(observe.stats(where)[f"pinned pages {way}"] == 0 for where in ("self", "peer")
                        for way in ("send", "recv")), "no page is pinned")


class Ends:
    """Both ends of a connection: on one device (`own`), or on two devices."""

    def __init__(self, e, own=False):
        self._e = e
        if own:
            listener = e.listen("self")
            near = e.keep(e.socket())
            near.connect(e.address(e.here, listener.port))
            far = e.keep(listener.accept()[0])
        else:
            near, far = e.pair()
        command = raw.Command(e)
        self.a, self.b = raw.Raw(e, near, command), raw.Raw(e, far, command)

    def lend(self, end, other, memory, write):
        """Registers memory and gives its key and address to the peer, as an advert does."""
        lent = end.lend(memory, write)
        end.data()
        other.expect(raw.DATA)
        return lent

    def _ended(self, end, lent):
        ended = end.state().ended
        lent.withdraw()
        # EINVAL when the first cancellation is complete
        self._e.check(self._e.outcome(lent.withdraw) in ("EALREADY", "EINVAL"), "it is taken back once")
        self._e.until(lambda: end.state().ended == ended + 1, "the end of access")
        self._e.check(lent.back(), "it is let go of")

    def read(self, source, destination, change=lambda: None):
        """`b` READs the memory that `a` has advertised; the function returns the key. The function
        calls `change` between the advert and the READ."""
        lent = self.lend(self.a, self.b, source, False)
        self._e.equal((lent.size, lent.address % PAGE), (source.size, source.address % PAGE), "what is lent")
        self.value = change()
        self._e.check(self.b.read(destination, source.size, lent.address, lent.key), f"it was read: {vars(self.b.state())}")
        self._ended(self.a, lent)
        return lent.key

    def write(self, source, destination, change=lambda: None):
        """`a` WRITEs to the memory that `b` has advertised; the function returns the key."""
        lent = self.lend(self.b, self.a, destination, True)
        self.value = change()
        self._e.check(self.a.write(source, source.size, lent.address, lent.key), f"it was written: {vars(self.a.state())}")
        self.a.data()
        self.b.expect(raw.DATA)
        self._ended(self.b, lent)
        return lent.key

    def close(self):
        self.a.close()
        self.b.close()


def moves(e, writes, sizes=((0, 2 << 20), (100, 1), (4095, 2), (17, 100000), (1, (2 << 20) - PAGE), (4000, 4096)), times=1):
    source, destination = Memory(3 << 20), Memory(3 << 20)
    for own in (False, True):
        ends = Ends(e, own)
        for number, (offset, length) in enumerate(sizes):
            source.fill(number)
            destination.fill(number + 100)
            before = destination.map[:]
            parts = Part(source.address + offset, length), Part(destination.address + offset, length)
            keys = [move(*parts) for _ in range(times) for move in ([ends.read, ends.write] if writes is None else [ends.write if writes else ends.read])]
            e.check(all(one != other for one, other in itertools.pairwise(keys[::2])), "each time another key")
            e.check(destination.map[offset:offset + length] == source.map[offset:offset + length], f"{length} bytes at {offset}")
            e.check(destination.map[:offset] == before[:offset] and destination.map[offset + length:] == before[offset + length:], "what is around")
        ends.close()
        nothing_pinned(e)


@case(reference=False, timeout=90)
def read(e):
    """RDMA READ of an advert: all pages, unaligned offsets, and more segments than a work request
    has."""
    moves(e, False)


@case(reference=False, timeout=90)
def write(e):
    """RDMA WRITE to an advert; when the report that follows arrives, the bytes are in memory."""
    moves(e, True)


@case(reference=False, timeout=90)
def scattered(e):
    """Scattered pages: a transfer needs many work requests, and more READs than may be in
    flight."""
    source, destination = Memory(2 << 20).scatter().fill(3), Memory(2 << 20).scatter()
    for own in (False, True):
        ends = Ends(e, own)
        for end, move in ((ends.b, ends.read), (ends.a, ends.write)):
            destination.fill(4)
            move(source, destination)
            e.check(destination.map[:] == source.map[:], "the bytes")
            e.check(end.requests > 8, f"{end.requests} work requests")
        ends.close()
    nothing_pinned(e)


def in_one_request(e, source, destination):
    ends = Ends(e)
    for end, move in ((ends.b, ends.read), (ends.a, ends.write)):
        move(source, destination)
        e.equal(end.requests, 1, "work requests")


@case(reference=False, timeout=90)
def in_one_piece(e):
    """A huge page is one memory segment, which a single work request covers."""
    places = []
    for seed in (5, 6):
        memory = Memory(4 << 20)
        memory.map.madvise(mmap.MADV_HUGEPAGE)
        memory.fill(seed)
        places.append((memory, -memory.address % (2 << 20)))
    (source, first), (destination, second) = places
    in_one_request(e, *(Part(memory.address + offset, 2 << 20) for memory, offset in places))
    e.check(destination.map[second:second + (2 << 20)] == source.map[first:first + (2 << 20)], "the bytes")
    nothing_pinned(e)


@case(reference=False, timeout=60)
def in_flight(e):
    """Both ends are dropped with a READ in flight: the pages are unpinned, and no byte is written
    afterwards."""
    under_way = 0
    for number in range(e.rounds(20)):
        source, destination = Memory(2 << 20).fill(1), Memory(2 << 20).fill(2)
        ends = Ends(e, number % 2)
        lent, into = ends.lend(ends.a, ends.b, source, False), ends.b.pin(destination, "into")
        e.check(ends.b.begin("read", into, 0, destination.size, lent.address, lent.key), "it is under way")
        under_way += not ends.b.trial("back", into)
        ends.b.drop()
        ends.a.drop()
        nothing_pinned(e)
        now = destination.map[:]
        ends.close()
        e.check(destination.map[:] == now, "nothing is written any more")
    e.check(under_way > 0, "memory that is written to is not given back")


@case(reference=False, timeout=60)
def room(e):
    """Transfers leave space in the send queue for messages."""
    source, destination = Memory(1 << 20).scatter().fill(1), Memory(1 << 20).scatter().fill(2)
    for what, way in (("write", "from"), ("read", "into")):
        ends = Ends(e)
        lent, ours = ends.lend(ends.b, ends.a, destination, what == "write"), ends.a.pin(source, way)
        begun = 0
        while moved := ends.a.begin(what, ours, 0, source.size, lent.address, lent.key):
            begun += moved
            e.check(begun < 1 << 30, "there is an end to them")
        e.check(begun > 0, "transfers")
        message = ctypes.create_string_buffer(raw.bsdh(raw.DATA, 2, 1, length=20) + b"abcd", 20)
        e.check(ends.a.trial("send", ctypes.addressof(message), 20), "a message has room")
        e.equal(ends.b.expect(raw.DATA).payload, b"abcd", "and arrives")
        e.until(lambda: ends.a.state().moved == begun, "all are complete")
        e.until(ends.a.arrived, "and the message")
        e.check(ends.a.trial("back", ours), "the memory is given back")
        ends.close()
    nothing_pinned(e)


@case(reference=False, timeout=60)
def faults(e):
    """Memory that cannot be accessed."""
    readable, none = Memory(1 << 20).fill(1), Memory(1 << 20).fill(2)
    readable.protect(mmap.PROT_READ)
    none.protect(0)
    ends = Ends(e)
    for memory, write, error in ((readable, False, None), (readable, True, "EFAULT"), (none, False, "EFAULT"), (none, True, "EFAULT")):
        if error:
            e.equal(e.outcome(ends.a.lend, memory, write, 10, 100000), error, f"written to: {write}")
        else:
            ends.a.lend(memory, write, 10, 100000)
    ends.close()
    for memory in (readable, none):
        memory.protect(mmap.PROT_READ | mmap.PROT_WRITE)
    nothing_pinned(e)


@case(reference=False, timeout=60)
def misuse(e):
    """Invalid calls."""
    memory = Memory(1 << 20).fill(1)
    ends = Ends(e)
    out = memory.address
    handle = ends.a.pin(memory, "from")
    for what, offset, length, address in (("read", 0, 100, 4096), ("write", 0, 0, 4096), ("write", 1, memory.size, 4096),
                                          ("write", (1 << 32) - 1, 2, 4096), ("write", 0, 2, (1 << 64) - 1)):
        e.equal(e.outcome(ends.a, what, handle, offset, length, address, 1, out), "EINVAL", f"{what} of {length} at {offset} to {address:#x}")
    e.equal(e.outcome(ends.a, "withdraw", handle), "EINVAL", "the end of access that nobody has")
    ends.a("back", handle)
    e.equal(e.outcome(ends.a, "write", handle, 0, 2, 4096, 1, out), "ENOENT", "what is lent no more")
    piece = Part(memory.address, 1)
    e.check("ENOSPC" in [e.outcome(ends.a.pin, piece, "from") for _ in range(33)], "as many as can be lent, and one more")
    ends.close()
    nothing_pinned(e)


@case(reference=False, timeout=60)
def budget(e):
    """At the limit of pinned memory, one more block in each direction can be pinned; the module
    refuses and counts further blocks."""
    memory = Memory(100000).fill(1)
    for limits in ({"max_pinned_send": 0}, {"max_pinned_send_user": 0}):
        refused = observe.stats()["pin over budget"]
        ends = Ends(e)
        with parameters(**limits):
            first, other = ends.a.lend(memory), ends.a.lend(memory, write=True)
            e.equal(e.outcome(ends.a.lend, memory), "ENOBUFS", "a second one")
            other.end()
            e.equal(e.outcome(ends.a.lend, memory), "ENOBUFS", "that of the other direction makes no difference")
            first.end()
            ends.a.lend(memory)
        ends.close()
        e.equal(observe.stats()["pin over budget"], refused + 2, "the counter")
        nothing_pinned(e)       # otherwise the next block is not the only one


@case(reference=False, timeout=60)
def memlock(e):
    """A user without the right to lock memory cannot pin memory."""
    memory = Memory(1 << 20).fill(1)
    ends = Ends(e)
    before = observe.stats()["pin over memlock"]
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))

    def unprivileged():
        os.setresuid(12345, 12345, 12345)
        return e.outcome(ends.a.lend, memory)
    e.equal(e.child(unprivileged).result(), "EPERM", "as another user")
    e.equal(observe.stats()["pin over memlock"], before + 1, "the counter")
    ends.close()
    nothing_pinned(e)


@case(reference=False, timeout=60)
def removal(e):
    """`rdma link del` waits until the pages of advertised memory are released."""
    memory = Memory(500000).fill(1)
    device, listener = netns.device(), e.listen()
    ends = Ends(e)
    ends.a.lend(memory)
    e.check(observe.stats()["pinned pages send"] > 0, "pages are pinned")
    task = e.task(netns.run, "self", "rdma link del rxe0")
    try:
        e.until(lambda: e.outcome(e.connect, listener) == "ENETUNREACH", "the device goes")
        e.check(observe.stats()["pinned pages send"] > 0, "pages are pinned")
        ends.a.drop()
        task.result()
        nothing_pinned(e)
    finally:
        netns.run("self", f"rdma link add rxe0 type rxe netdev {device}")


def hits():
    return sum(observe.stats(where)["pin cache hits"] for where in ("self", "peer"))


@case(reference=False, timeout=90)
def cached(e):
    """Memory that stays pinned between transfers is reused, has another key each time, and is
    unpinned at the end."""
    with parameters(pin_cache=1):
        before = hits()
        moves(e, None, ((9, 300000),), times=20)
        # 20 times two transfers of two blocks, on one device and on two; only the first use of each
        # block pins it
        found = hits() - before
        e.check(100 < found <= 2 * (80 - 2), f"{found} pieces were found pinned")
        moves(e, False)
        moves(e, True)


def later(e, write, source, destination, change):
    """Runs a transfer, and calls `change` between the advert and the access."""
    ends = Ends(e)
    (ends.write if write else ends.read)(source, destination, change)
    ends.close()
    nothing_pinned(e)
    return ends.value


SIZE = 400000 // PAGE * PAGE


@case(reference=False, timeout=60)
def unmapped(e):
    """munmap(2) of advertised memory: the peer reads the bytes from before munmap(2). Bytes written
    after the change are not received.
    """
    source, destination = Raw(SIZE).fill(1), Raw(SIZE)
    before = source.bytes
    later(e, False, source, destination, source.unmap)
    e.check(destination.bytes == before, "the bytes that were there")
    source = Raw(SIZE).fill(1)

    def replace():
        destination.unmap()
        other = Raw(SIZE)
        other.fill(9)
        return other, other.bytes
    other, before = later(e, True, source, destination, replace)
    e.check(other.bytes == before, "what was mapped afterwards")


@case(reference=False, timeout=60)
def discarded(e):
    """madvise(MADV_DONTNEED) of advertised memory: the program has new pages, and keeps the new
    pages."""
    source, destination = Memory(SIZE).fill(1), Memory(SIZE)
    before = source.map[:]
    later(e, False, source, destination, lambda: source.map.madvise(mmap.MADV_DONTNEED))
    e.check(destination.map[:] == before, "the bytes that were there")
    e.check(not any(source.map[:]), "fresh pages")
    source.fill(2)
    later(e, True, source, destination, lambda: destination.map.madvise(mmap.MADV_DONTNEED))
    e.check(not any(destination.map[:]), "fresh pages")


@case(reference=False, timeout=60)
def forked(e):
    """fork(2) with memory advertised: the parent keeps the advertised pages, whichever process
    writes first."""
    for child_first in (False, True):
        source, destination = Memory(SIZE).fill(1), Memory(SIZE).fill(2)
        reader, writer = os.pipe()

        def fork(memory, seed):
            def wait():
                if child_first:
                    memory.fill(7)
                os.read(reader, 1)
                memory.fill(8)
                return memory.map[:] == random.Random(8).randbytes(memory.size)
            child = e.child(wait)
            if not child_first:
                memory.fill(seed)
            else:
                # the child has written before it sleeps in read()
                child.wait_asleep("read")
                memory.fill(seed)
            return child
        child = later(e, False, source, destination, lambda: fork(source, 3))
        e.check(destination.map[:] == random.Random(3).randbytes(SIZE), "what the parent wrote after the fork")
        os.write(writer, b"x")
        e.check(child.result(), "the child's own")
        child = later(e, True, source, destination, lambda: fork(destination, 4))
        e.check(destination.map[:] == source.map[:], "what was written is the parent's")
        os.write(writer, b"x")
        e.check(child.result(), "the child's own")
        e.check(destination.map[:] == source.map[:], "and stays so")


@case(reference=False, timeout=60)
def truncated(e):
    """ftruncate() of a file whose mapping is advertised."""
    fd = os.memfd_create("transfers")
    other = os.memfd_create("transfers")
    for each in (fd, other):
        os.ftruncate(each, SIZE)
    source, destination = Raw(SIZE, mmap.MAP_SHARED, fd).fill(1), Raw(SIZE, mmap.MAP_SHARED, other).fill(2)
    before = source.bytes
    later(e, False, source, destination, lambda: os.ftruncate(fd, 0))
    e.check(destination.bytes == before, "the bytes that were there")
    e.check(os.pread(other, SIZE, 0) == before, "and in the file")
    os.ftruncate(fd, SIZE)
    source.fill(3)
    later(e, True, source, destination, lambda: (os.ftruncate(other, 0), os.ftruncate(other, SIZE)))
    e.check(not any(os.pread(other, SIZE, 0)), "the file's new pages")
    os.close(fd)
    os.close(other)


@case(reference=False, timeout=60)
def huge_pages(e):
    """Transfers from and to pages of hugetlbfs."""
    path, size = "/proc/sys/vm/nr_hugepages", 2 << 20
    with open(path) as file:
        before = file.read()
    with open(path, "w") as file:
        file.write("2")
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB
        try:
            source, destination = Raw(size, flags), Raw(size, flags)
        except OSError as error:
            e.skip(f"no huge pages: {error}")
        source.fill(1)
        destination.fill(2)
        in_one_request(e, source, destination)
        e.check(destination.bytes == source.bytes, "the bytes")
        nothing_pinned(e)
    finally:
        with open(path, "w") as file:
            file.write(before)


@case(reference=False, timeout=90)
def cached_and_changed(e):
    """The mapping of memory that stays pinned changes between two transfers: the second transfer
    has the new contents."""
    LIBC.mremap.restype = ctypes.c_void_p
    LIBC.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]

    def nothing(memory):
        memory.fill(2)

    def unmap(memory):
        memory.replace()
        memory.fill(2)

    def discard(memory):
        memory.discard()
        memory.fill(2)

    def move(memory):
        other = Raw(SIZE).fill(2)
        e.equal(LIBC.mremap(other.address, SIZE, SIZE, 3, memory.address), memory.address, "the same place")

    def shrink(memory):
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("2")
        nothing_pinned(e)
        memory.fill(2)

    def fork(memory):
        child = e.child(lambda: Raw.fill(memory, 9) and True)
        child.result()
        memory.fill(2)

    with parameters(pin_cache=1):
        for change, most in ((nothing, 2), (unmap, 1), (discard, 1), (move, 1), (shrink, 0), (fork, 2)):
            source, destination = Raw(SIZE).fill(1), Raw(SIZE).fill(3)
            ends, before = Ends(e), hits()
            ends.read(source, destination)
            change(source)
            ends.read(source, destination)
            e.check(destination.bytes == random.Random(2).randbytes(SIZE), f"{change.__name__}: what is there now")
            # The kernel may have changed a mapping for its own reasons.
            e.check(hits() - before <= most, f"{change.__name__}: {hits() - before} pieces were found pinned")
            # Tests the opposite direction: received bytes are visible to the program.
            source, destination = Raw(SIZE).fill(2), Raw(SIZE).fill(1)
            ends.read(source, destination)
            change(destination)
            ends.read(source, destination)
            e.check(destination.bytes == source.bytes, f"{change.__name__}: where it is now")
            ends.close()
            nothing_pinned(e)


@case(reference=False, families=("v4",))
def roots_alone(e):
    """Only root can use raw peers."""
    raw.Command(e)
    e.equal(e.as_user(os.open, raw.FILE, os.O_WRONLY), "EACCES", "its file, for a user")
