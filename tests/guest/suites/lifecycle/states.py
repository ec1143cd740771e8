# SPDX-License-Identifier: GPL-2.0-only
"""Events of a process and of its device, in each state of the process's socket. No event leaks a
socket, a pinned page, a module reference, or a PD, CQ, QP or MR of a device."""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import threading
import time

from lib import calls, consts, netns, observe
from lib.memory import Memory
from lib.registry import case
from lib.resources import Nothing
from suites import seqpacket
from suites.process.memory import Group
from suites.zcopy.blocks import MIB, eager

SOL = socket.SOL_SOCKET


def connected(e, port):
    near = e.socket()
    near.connect(e.address(e.there, port))
    return near


# Each function takes a process to a state, reports the state, and stays, usually in the call of
# that name. `port` is a listener at the other host; the peer first sends 1,000 bytes.

def bound(e, port, ready):
    e.bound("self")
    ready()
    signal.pause()


def listening(e, port, ready):
    e.listen("self")
    ready()
    signal.pause()


def accepting(e, port, ready):
    listener = e.listen("self")
    ready()
    listener.accept()


def not_accepted(e, port, ready):
    listener = e.listen("self")
    socks = [e.socket("peer") for _ in range(3)]
    for sock in socks:
        sock.connect(e.address(e.here, listener.port))
    ready()
    signal.pause()


def connecting(e, port, ready):
    sock = e.socket()
    ready()
    e.error(sock.connect, e.address(e.silent(), port))


def connecting_to_full(e, port, ready):
    """Connects to a listener whose backlog is full."""
    listener = e.listen("peer", backlog=0)
    e.connect(listener)
    sock = e.socket()
    ready()
    e.error(sock.connect, e.address(e.there, listener.port))


def reading(e, port, ready):
    near = connected(e, port)
    near.recv_exactly(1000)
    ready()
    e.error(near.recv, 1)


def unread(e, port, ready):
    near = connected(e, port)
    e.unread(near, 1000)
    ready()
    signal.pause()


def writing(e, port, ready):
    near = connected(e, port)
    e.fill(near)
    ready()
    e.error(near.sendall, bytes(MIB))


def lending(e, port, ready):
    """Sends a block that the peer does not read."""
    near = connected(e, port)
    eager(near)
    ready()
    e.error(near.sendall, bytes(4 * MIB))


def offering(e, port, ready):
    """Has sent a message from its memory (MSG_ZEROCOPY) that the peer does not read."""
    near, _ = seqpacket.pair(e, eager)
    near.set(SOL, consts.SO_ZEROCOPY, 1)
    memory = Memory(MIB // 5)
    calls.send_at(near, memory.address, memory.size, consts.MSG_ZEROCOPY)
    ready()
    signal.pause()


def borrowing(e, port, ready):
    near = connected(e, port)
    eager(near)
    near.recv_exactly(1000)
    ready()
    e.error(near.recv, MIB, socket.MSG_WAITALL)


def half_closed(e, port, ready):
    near = connected(e, port)
    near.recv_exactly(1000)
    near.shutdown(socket.SHUT_WR)
    ready()
    e.error(near.recv, 1)


def closing(e, port, ready):
    """Waits in close() for its bytes to be sent."""
    near = connected(e, port)
    near.recv_exactly(1000)
    near.setsockopt(SOL, socket.SO_LINGER, struct.pack("=ii", 1, 100))
    e.fill(near)
    ready()
    near.close()
    signal.pause()


def closed(e, port, ready):
    """Closed with bytes that cannot be sent."""
    near = connected(e, port)
    near.recv_exactly(1000)
    e.fill(near)
    near.close()
    ready()
    signal.pause()


def polling(e, port, ready):
    near = connected(e, port)
    near.recv_exactly(1000)
    poller = select.epoll()
    poller.register(near.fileno(), select.EPOLLIN | select.EPOLLET)
    ready()
    poller.poll(e.patience * 9)


STATES = {bound: "pause", listening: "pause", accepting: "accept4", not_accepted: "pause", connecting: "connect", connecting_to_full: "connect",
          reading: "recvfrom", unread: "pause", writing: "sendto", lending: "sendto", offering: "pause", borrowing: "recvfrom",
          half_closed: "recvfrom", closing: "close", closed: "pause", polling: "epoll_wait"}
# States without a peer, or whose peer is in the same process.
ALONE = (bound, listening, accepting, not_accepted, connecting, connecting_to_full, offering)
# States in which the peer receives the bytes before the end of the stream.
CLOSED = (closing, closed)
NUMBERS = {"pause": (34,), "accept4": (43, 288), "connect": (42,), "recvfrom": (45,), "sendto": (44,), "close": (3,), "epoll_wait": (232, 281)}


def sleeps(pid, name):
    try:
        with open(f"/proc/{pid}/syscall") as file:
            word = file.read().split()[0]
    except (OSError, IndexError):
        return False
    return word.lstrip("-").isdigit() and int(word) in NUMBERS[name]


def sent():
    """Returns the number of packets that the RDMA device of this host has sent."""
    return int(pathlib.Path("/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts").read_text())


def dropped():
    """Connect requests without a reply, because the backlog of the other host is full."""
    return observe.stats("peer")["- backlog full"]


class Subject:
    """A process in a state, and the peer of its connection, if the state has one."""

    def __init__(self, e, state, before=lambda: None):
        self.e, self.state, self.far = e, state, None
        self._sent, self._dropped = sent(), dropped()
        listener = e.listen(backlog=4)
        told, tell = os.pipe()

        def live():
            before()
            state(e, listener.port, lambda: os.write(tell, b"r"))

        self.child = e.child(live)
        os.close(tell)
        if state not in ALONE:
            e.wait(listener)
            self.far, _ = listener.accept()
            e.keep(self.far)
            self.far.sendall(bytes(1000))
        e.equal(os.read(told, 1), b"r", f"{state.__name__}")
        os.close(told)
        e.until(lambda: sleeps(self.child.pid, STATES[state]), lambda: f"{state.__name__} never slept in {STATES[state]}")
        listener.close()

    def kill(self):
        # The process may have exited by itself, and have been reaped.
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            self.child.kill()

    def quiet(self):
        """Waits until no packets are sent for a while. A request without a reply is repeated after
        1.5 s.
        """
        if self.state is connecting:
            self.e.until(lambda: sent() > self._sent, "the request")
        if self.state is connecting_to_full:
            self.e.until(lambda: dropped() > self._dropped, "the request's arrival")

    def other_end(self):
        """Checks that the peer gets the end of the stream."""
        if self.far:
            name = self.state.__name__
            if self.state in CLOSED:
                drain(self.e, self.far, f"the end of {name} at the other end")
            else:
                self.e.until(lambda: set(self.far.mask().split("|")) & {"RDHUP", "HUP", "ERR"}, f"the end of {name} at the other end")
            self.far.close()


def drain(e, far, what):
    """Reads the bytes sent before the end, then the end of the stream or an error."""
    far.setblocking(False)

    def drained():
        while isinstance(data := e.outcome(far.recv, MIB), bytes) and data:
            pass
        return data != "EAGAIN"

    e.until(drained, what)


def works(e):
    near, far = e.pair()
    near.sendall(b"as before")
    e.equal(far.recv_exactly(9), b"as before", "a new connection")
    near.close()
    far.close()


# With THOROUGH in the environment, the suite tests the removal of a device with each state alone,
# suspends processes for minutes, and repeats all cases with IPv6.
THOROUGH = "THOROUGH" in os.environ
# Address families of cases whose behaviour does not depend on the family.
SOME = ("v4", "v6") if THOROUGH else ("v4",)


def through_all(e, event, before=lambda: None):
    """Runs the event for each state; the process does `before` first."""
    nothing = Nothing(e)
    for state in STATES:
        event(Subject(e, state, before))
        nothing.left(state.__name__)
    works(e)
    nothing.left("in the end")


def together(e, event):
    """Runs the event for all states together."""
    nothing = Nothing(e)
    for states in [[state] for state in STATES] if THOROUGH else [STATES]:
        event([Subject(e, state) for state in states])
        nothing.left("afterwards")
        works(e)
    nothing.left("in the end")


@case(reference=False, timeout=240)
def killed(e):
    """SIGKILL."""
    def event(subject):
        subject.kill()
        subject.other_end()

    through_all(e, event)


def fill(e, far):
    """The peer of the process writes until its buffers are full."""
    if far:
        far.setblocking(False)
        while isinstance(e.outcome(calls.send, far, bytes(65536), socket.MSG_NOSIGNAL), int):
            pass


@case(reference=False, families=SOME, timeout=240)
def stopped(e):
    """SIGSTOP, while the peer fills its buffers; then SIGCONT, SIGSTOP again, and SIGKILL."""
    def stop(pid):
        os.kill(pid, signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WUNTRACED)

    def event(subject):
        stop(subject.child.pid)
        fill(e, subject.far)
        os.kill(subject.child.pid, signal.SIGCONT)
        with contextlib.suppress(ProcessLookupError):
            stop(subject.child.pid)
        subject.kill()
        subject.other_end()

    through_all(e, event)


@case(reference=False, timeout=400)
def stopped_for_minutes(e):
    """Processes in all connected states are stopped for two minutes; their peers fill the buffers.
    The stopped processes keep their connections, other connections continue, and each waiting call
    completes after SIGCONT."""
    if not THOROUGH:
        e.skip("takes minutes (env THOROUGH=1)")
    nothing = Nothing(e)
    subjects = [Subject(e, state) for state in (reading, unread, borrowing, polling, writing, lending)]
    for subject in subjects:
        os.kill(subject.child.pid, signal.SIGSTOP)
        fill(e, subject.far)
    until = time.monotonic() + 120
    others = e.pair()
    while time.monotonic() < until:
        others[0].sendall(b"on")
        e.equal(others[1].recv_exactly(2), b"on", "others")
        for subject in subjects:
            e.check(not set(subject.far.mask().split("|")) & {"RDHUP", "HUP", "ERR"}, f"the connection of {subject.state.__name__}")
        time.sleep(1)
    for subject in subjects:
        os.kill(subject.child.pid, signal.SIGCONT)
        if subject.state in (reading, polling):
            e.equal(subject.child.result(), None, f"{subject.state.__name__} after all")
        else:
            subject.kill()
        subject.other_end()
    nothing.left("in the end")


@case(reference=False, families=SOME, timeout=240)
def traced(e):
    """A debugger stops a process in a call and the peer fills its buffers; then the process
    continues, and is killed."""
    seize, interrupt, detach = 0x4206, 0x4207, 17

    def ptrace(request, pid):
        calls.libc.ptrace.restype = ctypes.c_long
        if calls.libc.ptrace(request, pid, None, None) < 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")

    def event(subject):
        pid = subject.child.pid
        ptrace(seize, pid)
        ptrace(interrupt, pid)
        e.check(os.WIFSTOPPED(os.waitpid(pid, 0)[1]), "the debugger's stop")
        fill(e, subject.far)
        ptrace(detach, pid)
        if not subject.far:
            e.until(lambda: sleeps(pid, STATES[subject.state]), "its sleep afterwards")
        subject.kill()
        subject.other_end()

    through_all(e, event)


@case(reference=False, families=SOME, timeout=240)
def executes(e):
    """Another thread calls exec(2): the blocked call ends with its thread, and the socket with its
    descriptor."""
    told, tell = os.pipe()

    def before():
        def run():
            os.read(told, 1)
            os.execv("/bin/sleep", ["sleep", "1000"])

        threading.Thread(target=run, daemon=True).start()

    def event(subject):
        os.write(tell, b"x")
        comm = pathlib.Path(f"/proc/{subject.child.pid}/comm")
        e.until(lambda: comm.read_text() == "sleep\n", f"exec in {subject.state.__name__}")
        subject.other_end()
        subject.kill()

    through_all(e, event, before)


@case(reference=False, families=SOME, timeout=240)
def out_of_memory(e):
    """The OOM killer kills a process because another process has used up the memory of the cgroup.
    The kernel unmaps all memory of the killed process at once, including blocks in flight."""
    with Group(e) as group:
        files = group._path
        (files / "memory.oom.group").write_text("1")

        def eat():
            group.join()
            eaten = []
            while True:
                eaten.append(b"x" * (1 << 20))

        def event(subject):
            (files / "memory.max").write_text(str(int((files / "memory.current").read_text()) + (16 << 20)))
            eater = e.child(eat)
            for child in (subject.child, eater):
                e.equal(os.waitpid(child.pid, 0)[1], signal.SIGKILL, f"how a process ended, in {subject.state.__name__}")
            (files / "memory.max").write_text("max")
            subject.other_end()

        through_all(e, event, group.join)
        killed = dict(line.split() for line in (files / "memory.events").read_text().splitlines())["oom_group_kill"]
        e.equal(int(killed), len(STATES), "kills of the group")


@case(reference=False, families=SOME, timeout=240)
def module_in_use(e):
    """rmmod is refused in every state, and has no effect."""
    def event(subject):
        done = subprocess.run(["rmmod", "ib_sdp"], capture_output=True, text=True)
        e.check(done.returncode != 0 and "in use" in done.stderr, f"rmmod: {done.returncode} {done.stderr.strip()}")
        subject.kill()
        subject.other_end()

    through_all(e, event)


@contextlib.contextmanager
def without(where, name):
    device = netns.device(where)
    netns.run(where, f"rdma link del {name}")
    try:
        yield
    finally:
        netns.run(where, f"rdma link add {name} type rxe netdev {device}")


@case(reference=False, timeout=300)
def device_removed(e):
    """`rdma link del` of the process's device: calls of the process end, and the peer gets an error
    or the end of the stream."""
    def event(subjects):
        with without("self", "rxe0"):
            for subject in subjects:
                if subject.far:
                    subject.other_end()
                    if STATES[subject.state] not in ("pause", "close"):
                        e.until(lambda: not sleeps(subject.child.pid, STATES[subject.state]), f"the end of {STATES[subject.state]}")
        for subject in subjects:
            subject.kill()

    together(e, event)


@case(reference=False, timeout=300)
def other_device_removed(e):
    """Like `device_removed`, but for the peer's device."""
    def event(subjects):
        with without("peer", "rxe1"):
            for subject in subjects:
                if subject.far:
                    subject.other_end()
        for subject in subjects:
            subject.kill()

    together(e, event)


class Wire:
    """The network links of both hosts, which a case can take down for a moment. A packet that rxe
    sends while the link is down, without a route, puts the queue pair into the error state. If the
    connection manager's QP enters the error state, no more connections can be made."""

    PORT = "/sys/class/infiniband/{}/ports/1/{}"
    RDMA = {"self": "rxe0", "peer": "rxe1"}

    def __init__(self, e):
        self._e, self._device = e, netns.device()
        # Keeps IPv6 addresses when the link goes down. IPv4 addresses stay anyway.
        netns.sysctl(f"ipv6/conf/{self._device}/keep_addr_on_down", 1)

    def _read(self, name):
        return [pathlib.Path(self.PORT.format(device, name)).read_text() for device in self.RDMA.values()]

    def silent(self):
        """Waits until the acknowledgements and credits of earlier bytes are sent."""
        last, since = None, 0

        def still():
            nonlocal last, since
            now = self._read("hw_counters/sent_pkts")
            if now != last:
                last, since = now, time.monotonic()
            return time.monotonic() - since > 0.2

        self._e.until(still, "a moment in which nothing is sent", self._e.patience * 3)

    def flap(self):
        """Takes the link down, and up at once. Running commands would take too long on a busy
        machine."""
        get, put, up = 0x8913, 0x8914, 1
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            name, flags = struct.unpack("=16sh14x", fcntl.ioctl(sock, get, struct.pack("=16sh14x", self._device.encode(), 0)))
            for value in (flags & ~up, flags | up):
                fcntl.ioctl(sock, put, struct.pack("=16sh14x", name, value))

    def _routed(self):
        ways = (("self", self._e.there), ("peer", self._e.here))
        try:
            return all(f"dev {netns.device(where)}" in netns.run(where, f"ip route get {to}") for where, to in ways)
        except RuntimeError:        # no route exists
            return False

    def back(self):
        """Waits until ports and routes are back, which happens some time after the link is up."""
        self._e.until(lambda: all("ACTIVE" in state for state in self._read("state")) and self._routed(), "the link", self._e.patience * 3)


@case(reference=False, timeout=300)
def link_flap(e):
    """The link is down for a moment: connections survive."""
    wire = Wire(e)

    def event(subject):
        subject.quiet()
        wire.silent()
        wire.flap()
        wire.back()
        if subject.state is reading:
            subject.far.sendall(b"x")
            subject.child.result()
        else:
            subject.kill()
        subject.other_end()
        works(e)

    through_all(e, event)


@case(reference=False, timeout=120)
def namespace_goes(e):
    """The last process of a network namespace dies, with sockets in all states that need no other
    process. The end of the process ends the namespace."""
    nothing = Nothing(e)
    own, other, name = *(("fd7a::1", "fd7a::2") if e.six else ("10.79.0.1", "10.79.0.2")), "life"
    netns.run("self", f"ip netns add {name}")
    try:
        netns.run("self", f"ip link add life0 mtu 9000 type veth peer name life1 netns {name}")
        for prefix, link, address in (("", "life0", own), (f"ip netns exec {name} ", "life1", other)):
            netns.run("self", f"{prefix}ip addr add {address}/" + (f"64 dev {link} nodad" if e.six else f"24 dev {link}"))
            netns.run("self", f"{prefix}ip link set {link} up")
            netns.run("self", f"{prefix}rdma link add {link} type rxe netdev {link}")
        listener = e.listen("self", host=own, backlog=16)
        space = os.open(f"/run/netns/{name}", os.O_RDONLY)
        told, tell = os.pipe()

        def live():
            calls.setns(space)
            os.close(space)
            socks = [e.socket() for _ in range(5)]
            for sock in socks[:2]:
                sock.bind(e.address(other, 0))
            socks[1].listen(4)
            for sock in socks[2:]:
                sock.connect(e.address(own, listener.port))
            e.fill(socks[3])
            eager(socks[4])
            os.write(tell, b"r")
            e.error(socks[4].sendall, bytes(4 * MIB))

        child = e.child(live)
        os.close(space)
        os.close(tell)
        fars = [e.keep(listener.accept()[0]) for _ in range(3)]
        e.equal(os.read(told, 1), b"r", "the process in the namespace")
        e.until(lambda: sleeps(child.pid, "sendto"), "its sleep")
    finally:
        netns.run("self", f"ip netns del {name}")
    child.kill()
    for number, far in enumerate(fars):
        drain(e, far, f"the end of connection {number}")
        far.close()
    e.until(lambda: not netns.has_link("self", "life0"), "the end of the namespace's devices", e.patience * 9)
    os.close(told)
    works(e)
    nothing.left("in the end")
