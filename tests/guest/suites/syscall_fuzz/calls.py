# SPDX-License-Identifier: GPL-2.0-only
"""Random socket calls from many threads, with arguments of every kind (`env SEED=7 tests/guest/run
syscall_fuzz`).

The seed determines the random numbers of each thread. The amount of work is limited, and not the
time. The threads of a process share descriptors, and close descriptors during calls of other
threads. The threads also share the memory that they send from and receive into, and the mapping of
that memory changes all the time. A signal interrupts a call that sleeps for long. Every call has to
return, with any result. In the end all resources must be freed, and the module must work as
before."""

import contextlib
import ctypes
import fcntl
import mmap
import os
import random
import select
import signal
import socket
import struct
import threading
import time

from lib import calls, consts, netns, observe
from lib.registry import case

libc = calls.libc
PROCESSES, THREADS, STEPS = 3, 4, 1000
SLOTS = 24
AREA, GUARD = 1 << 20, 1 << 33
PORTS = range(7100, 7108)
NOWHERE = (0, 1, 4095, 0xFFFF888000000000, 0x8000000000000000, (1 << 64) - 1, (1 << 64) - 4096)
LENGTHS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 28, 64, 128, 129, 4095, 4096, 65536, AREA)
HUGE = (AREA + 1, 0x7FFFF000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
LEVELS = (socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.IPPROTO_IPV6, consts.SOL_SDP, 0, 255, 270, -1)
FLAGS = (0, 0, 0, 0, socket.MSG_DONTWAIT, socket.MSG_DONTWAIT, socket.MSG_PEEK, socket.MSG_WAITALL, socket.MSG_OOB, socket.MSG_TRUNC,
         socket.MSG_MORE, socket.MSG_NOSIGNAL, socket.MSG_ERRQUEUE, 0x4000000, 0x20000000)
IOCTLS = (consts.SIOCINQ, consts.SIOCOUTQ, consts.SIOCOUTQNSD, consts.SIOCATMARK, consts.SIOCSPGRP, consts.SIOCGPGRP, 0x5421, 0x8906, 0x8907, 0x890B,
          0x8912, 0x8915, 0x8927, 0x89E0, 0x894C, 0x5452)
# Options by which calls may wait for ever; the threads must end without a signal for each call.
TIMEOUTS = {20, 21, 66, 67}


class Area:
    """Memory shared by the threads of a process, followed by unmapped memory as far as any length
    reaches."""

    def __init__(self):
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        self.address = libc.mmap(None, AREA + GUARD, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
        self.map(0, AREA)

    def map(self, offset, size, protection=mmap.PROT_READ | mmap.PROT_WRITE):
        libc.mmap(self.address + offset, size, protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10, -1, 0)


class Caller:
    """Random numbers of one thread, which select the thread's calls."""

    lock = threading.Lock()         # protects the descriptors of all places

    def __init__(self, seed, slots, roles, area, patience):
        self.dice, self.slots, self.roles, self.area = random.Random(seed), slots, roles, area
        self.steps, self.thread = 0, None
        # Microseconds that a call may take before a signal interrupts it.
        self.patience = patience
        self._poller = select.epoll()
        self.moves = [(move, weight) for move, weight in (
            (self.make, 3), (self.serve, 3), (self.reach, 8), (self.close, 4), (self.bind, 3), (self.connect, 3), (self.listen, 2), (self.accept, 10),
            (self.send, 20), (self.receive, 20), (self.vectors, 8), (self.names, 2), (self.set_option, 8), (self.get_option, 6), (self.control, 4),
            (self.mode, 2), (self.wait, 4), (self.shutdown, 1), (self.copy, 1), (self.files, 4), (self.pages, 6), (self.fork, 0.3), (self.exchange, 1))]

    def step(self):
        move, = self.dice.choices([move for move, _ in self.moves], [weight for _, weight in self.moves])
        move()
        self.steps += 1

    # Arguments

    def any(self, *odd, right=None, chance=0.9):
        return right if right is not None and self.dice.random() < chance else self.dice.choice(odd)

    def descriptor(self, role=None):
        """Returns a random descriptor, preferably the last one with this role."""
        if role and self.dice.random() < 0.85:
            fit = [fd for fd in self.slots if self.roles.get(fd) == role]
            if fit:
                return self.dice.choice(fit)
        return self.slots[self.dice.randrange(SLOTS)]

    def where(self):
        return self.any(*NOWHERE, right=self.area.address + self.dice.choice((0, 1, 100, 4095, 4096, AREA // 2, AREA - 4096, AREA - 1)), chance=0.93)

    def length(self):
        return self.any(*HUGE, right=self.dice.choice(LENGTHS), chance=0.96)

    def flags(self):
        flags = self.dice.choice(FLAGS) | self.dice.choice(FLAGS)
        return flags if self.dice.random() < 0.97 else self.dice.getrandbits(32)

    def address(self):
        """A sockaddr, and its length."""
        dice = self.dice
        port = dice.choice((*PORTS, *PORTS, *PORTS, 0, 1, 65535))
        if dice.random() < 0.75:
            host = dice.choice((*netns.ADDRESSES["self"][:1], *netns.ADDRESSES["peer"][:1]) * 3 + ("0.0.0.0", "127.0.0.1", "255.255.255.255", "224.0.0.1", "10.77.0.250"))
            raw = struct.pack("=H", dice.choice((2, 2, 2, 27, 0, 10))) + struct.pack("!H4s8x", port, socket.inet_aton(host))
        else:
            host = dice.choice((netns.ADDRESSES["self"][1], netns.ADDRESSES["peer"][1], "::", "::1", "ff02::1", "fe80::1", "::ffff:10.77.0.2"))
            raw = struct.pack("=H", dice.choice((10, 10, 28, 2, 0))) + struct.pack("!HI16sI", port, dice.getrandbits(8), socket.inet_pton(10, host), dice.randrange(5))
        if dice.random() < 0.05:
            raw = dice.randbytes(dice.randrange(129))
        return raw, self.any(0, 1, 2, 8, 15, 16, 24, 27, 128, 129, 1 << 31, (1 << 32) - 1, right=len(raw))

    # Calls

    def call(self, name, *args):
        return getattr(libc, name)(*(ctypes.c_ulong(arg & (1 << 64) - 1) if isinstance(arg, int) else arg for arg in args))

    def keep(self, fd, role=None):
        if fd >= 0:
            self.roles[fd] = role
            self.drop(fd)

    def drop(self, instead=-1):
        """Closes a random descriptor, whose number may be reused from then on."""
        with self.lock:
            at = self.dice.randrange(SLOTS)
            self.slots[at], old = instead, self.slots[at]
        if old >= 0:
            libc.close(old)

    def make(self):
        self.keep(self.socket())

    def serve(self):
        """Creates a listener at one of the ports."""
        fd = self.socket()
        if fd < 0:
            return
        for port in self.dice.sample(PORTS, len(PORTS)):
            if libc.bind(fd, struct.pack("=H", 2) + struct.pack("!H12x", port), 16) == 0 and libc.listen(fd, 8) == 0:
                break
        self.keep(fd, "listener")

    def reach(self):
        """Connects to one of the listeners, if one exists."""
        fd = self.socket()
        if fd < 0:
            return
        libc.setsockopt(fd, 1, 21, struct.pack("=qq", 0, 500000), 16)
        for port in self.dice.sample(PORTS, len(PORTS)):
            host = netns.ADDRESSES[self.dice.choice(("self", "peer"))][0]
            if libc.connect(fd, struct.pack("=H", 2) + struct.pack("!H4s8x", port, socket.inet_aton(host)), 16) == 0:
                break
        self.keep(fd, "connected")

    def socket(self):
        kinds = ((27, 0), (27, 6), (27, 0), (27, 6), (28, 0), (28, 6), (2, consts.IPPROTO_SDP), (2, consts.IPPROTO_SDP), (10, consts.IPPROTO_SDP))
        domain, protocol = self.dice.choice(kinds)
        domain = self.any(27, 28, 2, right=domain, chance=0.98)
        kind = self.any(0, 2, 3, 5, 10, right=1, chance=0.97) | self.dice.choice((0, 0, 0o4000, 0o2000000))
        with netns.inside(self.dice.choice(("self", "peer"))):
            fd = libc.socket(domain, kind, self.any(1, 17, 255, 257, 262, -1, right=protocol, chance=0.97))
        if fd >= 0:
            for option in (20, 21):         # no call of the socket waits for longer
                libc.setsockopt(fd, 1, option, struct.pack("=qq", 0, self.dice.choice((1, 1000, 20000, 100000))), 16)
            libc.setsockopt(fd, 1, socket.SO_REUSEADDR, struct.pack("=i", self.dice.random() < 0.8), 4)
            if self.dice.random() < 0.5:
                libc.setsockopt(fd, 6, consts.SDP_ZCOPY_THRESH, struct.pack("=i", 4096), 4)
        return fd

    def close(self):
        self.drop()

    def bind(self):
        self.call("bind", self.descriptor(), *self.address())

    def connect(self):
        self.call("connect", self.descriptor(), *self.address())

    def listen(self):
        self.call("listen", self.descriptor(), self.dice.choice((0, 1, 5, 128, -1, 1 << 31)))

    def accept(self):
        fd = self.call("accept4", self.descriptor("listener"), self.any(*NOWHERE, right=0), self.any(*NOWHERE, right=0), self.any(1, -1, right=self.dice.choice((0, 0o4000))))
        self.keep(ctypes.c_int(fd).value, "connected")

    def send(self):
        raw, length = self.address()
        if self.dice.random() < 0.8:
            raw, length = None, 0
        self.call(self.dice.choice(("sendto", "sendto", "write")), self.descriptor("connected"), self.where(), self.length(), self.flags(), raw, length)

    def receive(self):
        self.call(self.dice.choice(("recvfrom", "recvfrom", "read")), self.descriptor("connected"), self.where(), self.length(), self.flags(), self.any(*NOWHERE, right=0),
                  self.any(*NOWHERE, right=0))

    def vectors(self):
        dice = self.dice
        count = self.any(1024, 1025, 1 << 31, right=dice.randrange(9), chance=0.98)
        vector = (calls.Iovec * 9)(*[calls.Iovec(self.where(), self.length()) for _ in range(9)])
        if count > 9:           # the kernel must not read the memory behind the array
            vector = (calls.Iovec * 1025)(*[calls.Iovec(self.where(), 8) for _ in range(1025)])
            count = min(count, 1025)
        control = dice.randbytes(64)
        room = ctypes.create_string_buffer(control, 64)
        header = calls.Msghdr(None, 0, vector, count, ctypes.addressof(room), self.any(1, 15, 16, 64, right=0), 0)
        name = dice.choice(("sendmsg", "recvmsg", "readv", "writev", "sendmmsg", "recvmmsg"))
        if name.endswith("mmsg"):
            headers = (calls.Mmsghdr * 3)(*[calls.Mmsghdr(header, 0) for _ in range(3)])
            self.call(name, self.descriptor("connected"), headers, dice.randrange(4), self.flags(), None)
        elif name.endswith("msg"):
            self.call(name, self.descriptor("connected"), ctypes.byref(header) if dice.random() < 0.97 else dice.choice(NOWHERE), self.flags())
        else:
            self.call(name, self.descriptor("connected"), vector, count)

    def names(self):
        length = ctypes.c_uint(self.dice.choice((0, 1, 16, 28, 128, (1 << 32) - 1)))
        self.call(self.dice.choice(("getsockname", "getpeername")), self.descriptor(), self.any(*NOWHERE, right=self.area.address), ctypes.byref(length))

    def set_option(self):
        level, name = self.dice.choice(LEVELS), self.dice.randrange(140)
        if level == socket.SOL_SOCKET and name in TIMEOUTS:
            return
        raw = self.dice.choice((struct.pack("=i", self.dice.choice((0, 1, 2, -1, 10, 4096, 65536, (1 << 31) - 1, -(1 << 31)))), self.dice.randbytes(64), b"veth0\0", bytes(64)))
        where = raw if self.dice.random() < 0.95 else self.dice.choice(NOWHERE)
        self.call("setsockopt", self.descriptor(), level, name, where, self.any(0, 1, 3, 1 << 31, right=len(raw)))

    def get_option(self):
        length = ctypes.c_int(self.dice.choice((0, 1, 3, 4, 8, 64, 4096, -1, -(1 << 31))))
        self.call("getsockopt", self.descriptor(), self.dice.choice(LEVELS), self.dice.randrange(140), self.where(),
                  ctypes.byref(length) if self.dice.random() < 0.97 else self.dice.choice(NOWHERE))

    def control(self):
        self.call("ioctl", self.descriptor(), self.any(self.dice.getrandbits(32), 0, right=self.dice.choice(IOCTLS), chance=0.95), self.where())

    def mode(self):
        self.call("fcntl", self.descriptor(), fcntl.F_SETFL, self.dice.choice((0, os.O_NONBLOCK, os.O_NONBLOCK, os.O_ASYNC)))

    def wait(self):
        fd = self.descriptor()
        way = self.dice.randrange(3)
        with contextlib.suppress(OSError, ValueError):
            if way == 0:
                poller = select.poll()
                poller.register(fd, self.dice.getrandbits(16))
                poller.poll(self.dice.choice((0, 1, 20)))
            elif way == 1:
                self._poller.register(fd, self.dice.getrandbits(32))
            else:
                self._poller.poll(self.dice.choice((0, 0.001, 0.02)), 10)

    def shutdown(self):
        self.call("shutdown", self.descriptor(), self.dice.choice((0, 1, 2, 3, -1)))

    def copy(self):
        fd = self.descriptor()
        if fd >= 0:
            self.keep(libc.dup(fd))

    def files(self):
        """splice() and sendfile(), with a pipe or a file that only this call uses."""
        fd, count = self.descriptor("connected"), self.dice.choice((0, 1, 4096, 65536, 1 << 31))
        way = self.dice.randrange(3)
        if way == 0:
            file = os.memfd_create("syscall_fuzz")
            os.ftruncate(file, 100000)
            self.call("sendfile", fd, file, None, count)
            os.close(file)
            return
        reader, writer = os.pipe2(os.O_NONBLOCK)
        if way == 1:
            os.write(writer, bytes(5000))
            self.call("splice", reader, None, fd, None, count, self.dice.randrange(16))
        else:
            self.call("splice", fd, None, writer, None, count, self.dice.randrange(16))
        os.close(reader)
        os.close(writer)

    def pages(self):
        """Unmaps the memory of calls in progress, makes it read-only, or discards it."""
        offset = self.dice.randrange(AREA // 4096) * 4096
        size = min(self.dice.choice((4096, 65536, AREA)), AREA - offset)
        way = self.dice.randrange(5)
        if way < 2:
            self.area.map(offset, size)
        elif way == 2:
            self.call("mprotect", self.area.address + offset, size, self.dice.choice((0, 1, 3)))
        elif way == 3:
            self.call("madvise", self.area.address + offset, size, self.dice.choice((4, 8, 9, 21)))
        else:
            self.area.map(offset, size, self.dice.choice((0, 1)))
            self.area.map(offset, size)

    def fork(self):
        """Forks a process that has all descriptors for a short time."""
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def exchange(self):
        """Transfers blocks from one end of a connection to a separate reading process, because the
        other processes hold both ends."""
        listener, near = self.socket(), self.socket()
        name, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
        far = -1
        if min(listener, near) >= 0 and libc.listen(listener, 1) == 0 and libc.getsockname(listener, name, ctypes.byref(length)) == 0:
            host = netns.ADDRESSES[self.dice.choice(("self", "peer"))][0]
            for fd in (listener, near):
                for option in (20, 21):
                    libc.setsockopt(fd, 1, option, struct.pack("=qq", *divmod(self.patience, 1000000)), 16)
            if libc.connect(near, struct.pack("=H", 2) + name.raw[2:4] + socket.inet_aton(host) + bytes(8), 16) == 0:
                far = libc.accept(listener, None, None)
        for fd in (listener, near, far):
            self.keep(fd, "connected")
        if far < 0:
            return
        pid = os.fork()
        if pid == 0:
            libc.recv(far, ctypes.c_void_p(self.area.address), ctypes.c_size_t(AREA), socket.MSG_WAITALL)
            os._exit(0)
        for _ in range(4):
            self.call("send", near, self.area.address + self.dice.choice((0, 1, 4095)), AREA // 4, 0)
        os.waitpid(pid, 0)


class Unguided:
    """No guide: each thread of a process uses its own random numbers."""

    def __init__(self, seed):
        pass

    def lead(self, caller, steps):
        while caller.steps < steps:
            caller.step()

    def found(self):
        return None


class Progress(ctypes.Structure):
    """Progress of the threads of one process, in memory shared with the process that waits for
    them."""

    _fields_ = [("steps", ctypes.c_ulong * THREADS), ("thread", ctypes.c_int * THREADS)]

    def still(self, steps, before):
        """Returns the numbers of unfinished threads without progress."""
        return [self.thread[at] for at in range(THREADS) if self.steps[at] == before[at] < steps]


def process(seed, number, steps, patience, guides, progress):
    """Runs one process: its threads, and the thread that wakes them."""
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.siginterrupt(signal.SIGUSR1, True)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    signal.signal(signal.SIGURG, signal.SIG_IGN)
    slots, roles, area = [-1] * SLOTS, {}, Area()
    callers = [Caller(seed * 1000 + number * 10 + thread, slots, roles, area, patience) for thread in range(THREADS)]
    faults, guide = [], guides(seed * 1000 + number)

    def run(caller):
        caller.thread = progress.thread[callers.index(caller)] = threading.get_native_id()
        try:
            guide.lead(caller, steps)
        except BaseException as error:
            faults.append(f"{error!r}")
    threads = [threading.Thread(target=run, args=(caller,)) for caller in callers]
    for thread in threads:
        thread.start()
    seen = [0] * THREADS
    while any(thread.is_alive() for thread in threads):
        for at, (caller, thread) in enumerate(zip(callers, threads)):
            if thread.is_alive() and caller.steps == seen[at] and caller.thread:
                calls.libc.tgkill(os.getpid(), caller.thread, int(signal.SIGUSR1))
            seen[at] = progress.steps[at] = caller.steps
        time.sleep(0.2)
    return faults, [caller.steps for caller in callers], guide.found()


def in_use():
    """Returns the number of sockets of the families, as the kernel counts them."""
    with open("/proc/net/protocols") as file:
        return sum(int(line.split()[2]) for line in file if line.split()[0].startswith("SDP"))


def attend(e, child, progress, steps):
    """Returns the result of one fuzzing process. The wait has no time limit as long as each thread
    makes progress."""
    while True:
        before = list(progress.steps)
        if child.done(e.patience):
            return child.result()
        for thread in progress.still(steps, before):
            with contextlib.suppress(OSError), open(f"/proc/{child.pid}/task/{thread}/stack") as file:
                stack = " < ".join(line.split()[-1].split("+")[0] for line in file.read().splitlines())
                e.check(False, f"no step of a thread in {e.patience:g} s; the kernel has it in {stack or 'nothing'}")


def rage(e, steps, guides):
    """Runs the given number of steps in each thread of each process. Afterwards no resource is
    left. Returns the guides' findings."""
    seed = int(os.environ.get("SEED", "1"))
    e.note("seed", seed)
    patience, found = int(e.patience * 10000), []
    shared = [Progress.from_buffer(mmap.mmap(-1, ctypes.sizeof(Progress))) for _ in range(PROCESSES)]
    children = [e.child(process, seed, number, steps, patience, guides, progress) for number, progress in enumerate(shared)]
    for number, (child, progress) in enumerate(zip(children, shared)):
        faults, done, findings = attend(e, child, progress, steps)
        e.equal(faults, [], f"seed {seed}, process {number}: what went wrong in the test")
        e.equal(done, [steps] * THREADS, "steps")
        found.append(findings)
    e.patience *= 6
    for where in ("self", "peer"):
        e.until(lambda where=where: not observe.rows(where), lambda where=where: f"seed {seed}: {[vars(row) for row in observe.rows(where)]} are left")
        e.until(lambda where=where: not any(observe.stats(where)[f"pinned pages {way}"] for way in ("send", "recv")), "no page is pinned")
    e.until(lambda: not in_use(), lambda: f"{in_use()} sockets are left")
    near, far = e.pair()
    near.send(b"as before")
    e.equal(far.recv(20), b"as before", "afterwards")
    return found


@case(reference=False, families=("v4",), timeout=900)
def threads(e):
    """Runs all kinds of calls at once; afterwards no resource is left."""
    before = {where: observe.stats(where) for where in ("self", "peer")}
    steps = e.rounds(STEPS)
    rage(e, steps, Unguided)

    def gained(name):
        return sum(observe.stats(where)[name] - before[where][name] for where in before)
    # Checks that not every call has failed at once.
    done = {name: gained(name) for name in ("rx_bytes", "received SDP_MID_DATA", "received SDP_MID_DISCONN", "received SDP_MID_SRCAVAIL", "zcopy rx_bytes")}
    e.check(done["rx_bytes"] > steps << 10 and done["received SDP_MID_DATA"] > steps // 2 and done["received SDP_MID_SRCAVAIL"] > steps // 100, f"{done}")
    e.note("done", done)
