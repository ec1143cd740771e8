# SPDX-License-Identifier: GPL-2.0-only
"""Zero copy below the sockets: what src/selftest.rs does between two connected sockets, on this module's self-test build."""

import contextlib
import ctypes
import mmap
import os
import random
import resource

from lib import netns, observe
from lib.memory import LIBC, MAP_HUGETLB, PAGE, Memory, Raw
from lib.registry import case

FILE = "/sys/kernel/debug/ib_sdp/selftest"
PARAMETERS = "/sys/module/ib_sdp/parameters"
CAP_IPC_LOCK = 14


def start(e):
    """The open file of the self-test."""
    if not os.path.exists(FILE):
        e.skip("the module has no self-test (qemu/guest --selftest)")
    return e.keep(open(FILE, "wb", buffering=0))


def log():
    """The lines of the kernel's log that the self-test wrote."""
    with open("/dev/kmsg", "rb", buffering=0) as file:
        os.set_blocking(file.fileno(), False)
        lines = []
        with contextlib.suppress(BlockingIOError):
            while line := file.read(8192):
                if b"selftest:" in line:
                    lines.append(line.decode(errors="replace").split(";", 1)[-1].strip())
        return lines


def run(e, file, test, pairs, source, destination, length):
    words = [test, *(sock.fileno() for sock in pairs[0]), source, destination, length]
    words += [sock.fileno() for pair in pairs[1:] for sock in pair]
    try:
        file.write(" ".join(map(str, words)).encode())
    except OSError as error:
        e.check(False, f"{test}: {error.strerror}; {log()[-3:]}")


def nothing_pinned(e):
    e.until(lambda: all(observe.stats(where)[f"pinned pages {way}"] == 0 for where in ("self", "peer")
                        for way in ("send", "recv")), "no page is pinned")


def on_device(e, own):
    """Two connected sockets: on one device that talks to itself, or on two."""
    if not own:
        return e.pair()
    listener = e.listen("self")
    near = e.keep(e.socket())
    near.connect(e.address(e.here, listener.port))
    return near, e.keep(listener.accept()[0])


def moves(e, test, sizes=((0, 2 << 20), (100, 1), (4095, 2), (17, 100000), (1, (2 << 20) - PAGE), (4000, 4096))):
    file = start(e)
    source, destination = Memory(3 << 20), Memory(3 << 20)
    for number, (offset, length) in enumerate(sizes):
        for own in (False, True):
            source.fill(number)
            destination.map[:] = bytes(destination.size)
            skew = (offset * 7) % PAGE if length < 2 << 20 and length + PAGE < 2 << 20 else offset
            run(e, file, test, [on_device(e, own)], source.address + offset, destination.address + skew, length)
            e.check(destination.map[skew:skew + length] == source.map[offset:offset + length],
                    f"{test} of {length} bytes from {offset} to {skew}, own {own}: the bytes")
            e.check(not any(destination.map[:skew]) and not any(destination.map[skew + length:]), "nothing else is written")
    nothing_pinned(e)


@case(reference=False, timeout=90)
def read(e):
    """RDMA READ of an advert: all pages, odd offsets, more pieces than a work request has."""
    moves(e, "read")


@case(reference=False, timeout=90)
def write(e):
    """RDMA WRITE to an advert; the report behind it arrives when the bytes are there."""
    moves(e, "write")


@case(reference=False, timeout=90)
def scattered(e):
    """Each page is somewhere else: many work requests for one transfer, more READs than can be under way."""
    file = start(e)
    source, destination = Memory(2 << 20).scatter().fill(3), Memory(2 << 20).scatter()
    for own in (False, True):
        destination.fill(4)
        run(e, file, "scattered", [on_device(e, own)], source.address, destination.address, 2 << 20)
        e.check(destination.map[:] == source.map[:], "the bytes")
    nothing_pinned(e)


@case(reference=False, timeout=90)
def in_one_piece(e):
    """A huge page is one piece of memory: one work request for all of it."""
    file = start(e)
    places = []
    for seed in (5, 6):
        memory = Memory(4 << 20)
        memory.map.madvise(mmap.MADV_HUGEPAGE)
        memory.fill(seed)
        places.append((memory, -memory.address % (2 << 20)))
    (source, first), (destination, second) = places
    run(e, file, "in_one_piece", [on_device(e, False)], source.address + first, destination.address + second, 2 << 20)
    e.check(destination.map[second:second + (2 << 20)] == source.map[first:first + (2 << 20)], "the bytes")
    nothing_pinned(e)


@case(reference=False, timeout=90)
def again(e):
    """The same memory again and again: other keys, nothing new is allocated for it."""
    moves(e, "again", ((9, 300000),))


def fails(e, test, unchanged=True):
    file = start(e)
    source, destination = Memory(1 << 20).fill(1), Memory(1 << 20).fill(2)
    before = source.map[:], destination.map[:]
    for own in (False, True):
        run(e, file, test, [on_device(e, own)], source.address + 5000, destination.address + 5000, 200000)
        if unchanged:
            e.check(source.map[:] == before[0] and destination.map[:] == before[1], f"{test}: the memory is as it was")
    nothing_pinned(e)


@case(reference=False, timeout=60)
def wrong_key(e):
    fails(e, "wrong_key")


@case(reference=False, timeout=60)
def beyond(e):
    """READ or WRITE by one byte beyond the advert, or before it."""
    for test in ("beyond", "before", "beyond_write"):
        fails(e, test, unchanged=test != "beyond_write")


@case(reference=False, timeout=60)
def beyond_stays_inside(e):
    """A WRITE that goes beyond the advert writes nothing there."""
    file = start(e)
    source, destination = Memory(1 << 20).fill(1), Memory(1 << 20).fill(2)
    before = source.map[:]
    run(e, file, "beyond_write", [on_device(e, False)], source.address + 5000, destination.address + 5000, 200000)
    e.check(source.map[:5000] == before[:5000] and source.map[205000:] == before[205000:], "what is around the advert")


@case(reference=False, timeout=60)
def other_access(e):
    """What may be read is not written, and what may be written is not read."""
    fails(e, "not_for_writing")
    fails(e, "not_for_reading")


@case(reference=False, timeout=60)
def stale(e):
    """A key after its access has ended."""
    fails(e, "stale", unchanged=False)


@case(reference=False, timeout=60)
def other_connection(e):
    """A key on another connection of the same device: refused there, and good where it belongs."""
    file = start(e)
    source, destination = Memory(1 << 20).fill(1), Memory(1 << 20)
    for own in (False, True):
        destination.fill(2)
        run(e, file, "other", [on_device(e, own), on_device(e, own)], source.address + 1, destination.address + 1, 300000)
        e.check(destination.map[1:300001] == source.map[1:300001], "the bytes")
    nothing_pinned(e)


@case(reference=False, timeout=60)
def in_flight(e):
    """Both ends drop everything with a READ under way: the pages are let go of, and no byte goes astray afterwards."""
    file = start(e)
    for number in range(20):
        source, destination = Memory(2 << 20).fill(1), Memory(2 << 20).fill(2)
        run(e, file, "in_flight", [on_device(e, number % 2)], source.address, destination.address, 2 << 20)
        now = destination.map[:]
        nothing_pinned(e)
        e.check(destination.map[:] == now, "nothing is written any more")


@case(reference=False, timeout=60)
def room(e):
    """Transfers leave room for messages."""
    file = start(e)
    source, destination = Memory(1 << 20).fill(1), Memory(1 << 20).fill(2)
    run(e, file, "room", [on_device(e, False)], source.address, destination.address, 1000)
    nothing_pinned(e)


@case(reference=False, timeout=60)
def faults(e):
    """Memory that cannot be accessed."""
    file = start(e)
    source, destination = Memory(1 << 20).fill(1), Memory(1 << 20).fill(2)
    source.protect(mmap.PROT_READ)
    destination.protect(0)
    run(e, file, "faults", [on_device(e, False)], source.address + 10, destination.address + 10, 100000)
    source.protect(mmap.PROT_READ | mmap.PROT_WRITE)
    destination.protect(mmap.PROT_READ | mmap.PROT_WRITE)
    nothing_pinned(e)


@case(reference=False, timeout=60)
def misuse(e):
    file = start(e)
    source, destination = Memory(1 << 20).fill(1), Memory(1 << 20).fill(2)
    run(e, file, "misuse", [on_device(e, False)], source.address, destination.address, 100000)
    nothing_pinned(e)


@contextlib.contextmanager
def parameters(**values):
    before = {}
    for name, value in values.items():
        with open(f"{PARAMETERS}/{name}", "r+") as file:
            before[name] = file.read()
            file.seek(0)
            file.write(str(value))
    try:
        yield
    finally:
        for name, value in before.items():
            with open(f"{PARAMETERS}/{name}", "w") as file:
                file.write(value)


@case(reference=False, timeout=60)
def budget(e):
    """A budget that is used up: one piece each way goes on, more are refused and counted."""
    file = start(e)
    source, destination = Memory(1 << 20).fill(1), Memory(1 << 20).fill(2)
    for limits in ({"max_pinned_send": 0}, {"max_pinned_send_user": 0}):
        refused = observe.stats()["pin over budget"]
        with parameters(**limits):
            run(e, file, "budget", [on_device(e, False)], source.address, destination.address, 100000)
        e.equal(observe.stats()["pin over budget"], refused + 2, "the counter")
    nothing_pinned(e)


@case(reference=False, timeout=60)
def memlock(e):
    """A user without the right to lock memory."""
    file = start(e)
    source, destination = Memory(1 << 20).fill(1), Memory(1 << 20).fill(2)
    pair = on_device(e, False)
    before = observe.stats()["pin over memlock"]
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))

    def unprivileged():
        os.setresuid(12345, 12345, 12345)
        run(e, file, "memlock", [pair], source.address, destination.address, 100000)
        return True
    e.equal(e.child(unprivileged).result(), True, "as another user")
    e.equal(observe.stats()["pin over memlock"], before + 1, "the counter")
    nothing_pinned(e)


@case(reference=False, timeout=60)
def removal(e):
    """`rdma link del` with memory advertised: it waits until the pages are let go of."""
    file = start(e)
    source, destination = Memory(1 << 20).fill(1), Memory(1 << 20).fill(2)
    device, seen = netns.device(), len(log())
    pair = on_device(e, False)
    task = e.task(run, e, file, "removal", [pair], source.address, destination.address, 500000)
    e.until(lambda: any("ready" in line for line in log()[seen:]), "the self-test is ready")
    e.check(observe.stats()["pinned pages send"] > 0, "pages are pinned")
    netns.run("self", "rdma link del rxe0")
    try:
        task.result()
        nothing_pinned(e)
    finally:
        netns.run("self", f"rdma link add rxe0 type rxe netdev {device}")


@case(reference=False, timeout=90)
def cached(e):
    """Memory that stays pinned between transfers is found so, and let go of at the end."""
    with parameters(pin_cache=1):
        hits = observe.stats()["pin cache hits"] + observe.stats("peer")["pin cache hits"]
        moves(e, "again", ((9, 300000),))
        # 20 times two transfers with two pieces, on one device and on two; only the first of each piece is pinned
        hits = observe.stats()["pin cache hits"] + observe.stats("peer")["pin cache hits"] - hits
        e.check(100 < hits <= 2 * (80 - 2), f"{hits} pieces were found pinned")
        moves(e, "read")
        moves(e, "write")


def later(e, test, source, destination, change):
    """Runs a test; `change` is called between the advert and what is done with it."""
    file, seen = start(e), len(log())
    task = e.task(run, e, file, test, [on_device(e, False)], source.address, destination.address, source.size)
    e.until(lambda: any("ready" in line for line in log()[seen:]), "the self-test is ready")
    value = change()
    with open(FILE, "wb", buffering=0) as other:
        other.write(b"go")
    task.result()
    nothing_pinned(e)
    return value


SIZE = 400000 // PAGE * PAGE


@case(reference=False, timeout=60)
def unmapped(e):
    """munmap() of memory that is advertised: its last bytes are read; what is written goes nowhere."""
    source, destination = Raw(SIZE).fill(1), Raw(SIZE)
    before = source.bytes
    later(e, "read_later", source, destination, source.unmap)
    e.check(destination.bytes == before, "the bytes that were there")
    source = Raw(SIZE).fill(1)

    def replace():
        destination.unmap()
        other = Raw(SIZE)
        other.fill(9)
        return other, other.bytes
    other, before = later(e, "write_later", source, destination, replace)
    e.check(other.bytes == before, "what was mapped afterwards")


@case(reference=False, timeout=60)
def discarded(e):
    """madvise(MADV_DONTNEED) of memory that is advertised: the program has fresh pages, and keeps them."""
    source, destination = Memory(SIZE).fill(1), Memory(SIZE)
    before = source.map[:]
    later(e, "read_later", source, destination, lambda: source.map.madvise(mmap.MADV_DONTNEED))
    e.check(destination.map[:] == before, "the bytes that were there")
    e.check(not any(source.map[:]), "fresh pages")
    source.fill(2)
    later(e, "write_later", source, destination, lambda: destination.map.madvise(mmap.MADV_DONTNEED))
    e.check(not any(destination.map[:]), "fresh pages")


@case(reference=False, timeout=60)
def forked(e):
    """fork() with memory advertised: it stays the parent's, whoever writes first."""
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
                # the child has written when it sleeps in read()
                child.wait_asleep("read")
                memory.fill(seed)
            return child
        child = later(e, "read_later", source, destination, lambda: fork(source, 3))
        e.check(destination.map[:] == random.Random(3).randbytes(SIZE), "what the parent wrote after the fork")
        os.write(writer, b"x")
        e.check(child.result(), "the child's own")
        child = later(e, "write_later", source, destination, lambda: fork(destination, 4))
        e.check(destination.map[:] == source.map[:], "what was written is the parent's")
        os.write(writer, b"x")
        e.check(child.result(), "the child's own")
        e.check(destination.map[:] == source.map[:], "and stays so")


@case(reference=False, timeout=60)
def truncated(e):
    """ftruncate() of a file whose mapping is advertised."""
    fd = os.memfd_create("selftest")
    other = os.memfd_create("selftest")
    for each in (fd, other):
        os.ftruncate(each, SIZE)
    source, destination = Raw(SIZE, mmap.MAP_SHARED, fd).fill(1), Raw(SIZE, mmap.MAP_SHARED, other).fill(2)
    before = source.bytes
    later(e, "read_later", source, destination, lambda: os.ftruncate(fd, 0))
    e.check(destination.bytes == before, "the bytes that were there")
    e.check(os.pread(other, SIZE, 0) == before, "and in the file")
    os.ftruncate(fd, SIZE)
    source.fill(3)
    later(e, "write_later", source, destination, lambda: (os.ftruncate(other, 0), os.ftruncate(other, SIZE)))
    e.check(not any(os.pread(other, SIZE, 0)), "the file's new pages")
    os.close(fd)
    os.close(other)


@case(reference=False, timeout=60)
def huge_pages(e):
    """Pages of hugetlbfs."""
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
        run(e, start(e), "in_one_piece", [on_device(e, False)], source.address, destination.address, size)
        e.check(destination.bytes == source.bytes, "the bytes")
        nothing_pinned(e)
    finally:
        with open(path, "w") as file:
            file.write(before)


@case(reference=False, timeout=90)
def cached_and_changed(e):
    """Memory that stays pinned, and whose mapping changes between two transfers: the second one moves what is there now."""
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
        for change, hits in ((nothing, 2), (unmap, 1), (discard, 1), (move, 1), (shrink, 0), (fork, 2)):
            source, destination = Raw(SIZE).fill(1), Raw(SIZE).fill(3)
            before = observe.stats()["pin cache hits"] + observe.stats("peer")["pin cache hits"]
            later(e, "twice", source, destination, lambda: change(source))
            e.check(destination.bytes == random.Random(2).randbytes(SIZE), f"{change.__name__}: what is there now")
            after = observe.stats()["pin cache hits"] + observe.stats("peer")["pin cache hits"]
            # The kernel may have had reasons of its own to change a mapping.
            e.check(after - before <= hits, f"{change.__name__}: {after - before} pieces were found pinned")
            # And the other way round: what is received is where the program sees it.
            source, destination = Raw(SIZE).fill(2), Raw(SIZE).fill(1)
            later(e, "twice", source, destination, lambda: change(destination))
            e.check(destination.bytes == source.bytes, f"{change.__name__}: where it is now")


@case(reference=False, families=("v4",))
def roots_alone(e):
    """Nobody else gets at it."""
    start(e).close()
    e.equal(e.as_user(os.open, FILE, os.O_WRONLY), "EACCES", "its file, for a user")
