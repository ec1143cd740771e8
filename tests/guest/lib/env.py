# SPDX-License-Identifier: GPL-2.0-only
"""Environment of a test case: sockets of the family under test on both hosts, and the notes to be
compared."""

import contextlib
import errno
import json
import os
import pickle
import select
import signal
import socket
import threading
import time
import traceback

from . import calls, consts, netns, remote
from .sock import EVERY, Sock, mask_text

NOTHING = object()


class CaseFailure(Exception):
    """Raised when a condition that must hold for every family does not hold."""


class Skip(Exception):
    """The case cannot run in this environment; contains the reason."""


class OneOf(tuple):
    """Several valid values."""

    def __new__(cls, *values):
        return super().__new__(cls, values)


class Same:
    """TCP's value, in a OneOf."""

    def __repr__(self):
        return "what TCP gives"


SAME = Same()


class Task(threading.Thread):
    """A call running in its own thread, in the namespace of its creator."""

    # Called with each error that ends a process of the case (see child.run).
    on_error = None
    # Errors that ended processes of the case, in order.
    errors = []

    def __init__(self, patience, function, *args):
        super().__init__(daemon=True)
        self._patience, self._function, self._args = patience, function, args
        self._value, self._error = None, None
        self.start()

    def run(self):
        try:
            self._value = self._function(*self._args)
        except BaseException as error:          # handed to result()
            self._error = error
            Task.errors.append(error)
            if Task.on_error:
                Task.on_error(error)

    def result(self):
        self.join(self._patience)
        if self.is_alive():
            raise CaseFailure(f"still running after {self._patience:g} s: {asleep_in(self.native_id)}")
        if self._error is not None:
            raise self._error
        return self._value

    def wait_asleep(self, *names):
        """Waits until the thread sleeps inside one of these system calls."""
        numbers = {consts.system_calls()[name] for name in names}
        deadline = time.monotonic() + self._patience
        while asleep_in(self.native_id) not in numbers:
            if not self.is_alive():
                raise CaseFailure(f"ended instead of sleeping in {'/'.join(names)}: {self._value!r} {self._error!r}")
            if time.monotonic() > deadline:
                raise CaseFailure(f"never slept in {'/'.join(names)}, but in {asleep_in(self.native_id)}")
            time.sleep(0.001)
        return self


def plain(value):
    """Formats a value identically on every Python: enumerations as their numbers."""
    if isinstance(value, bool) or value is SAME:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value) if type(value) in (list, tuple) else tuple(map(plain, value))
    return value


def asleep_in(thread, process="self"):
    """Returns the number of the system call in which a thread sleeps; None if it runs or has
    exited."""
    try:
        with open(f"/proc/{process}/task/{thread}/syscall") as file:
            word = file.read().split()[0]
    except (OSError, IndexError):
        return None
    return int(word) if word.lstrip("-").isdigit() else None


class Child:
    """A forked process that runs a function and returns its result or exception through a pipe."""

    def __init__(self, patience, function, *args):
        self._patience = patience
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(reader)
                try:
                    answer = (True, function(*args))
                except (OSError, CaseFailure, Skip) as error:
                    if Task.on_error:
                        Task.on_error(error)
                    answer = (False, error)
                with os.fdopen(writer, "wb") as pipe:
                    pickle.dump(answer, pipe)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writer)
        self._pipe = reader

    def done(self, seconds):
        """Returns true if the child's result arrives within that time."""
        poller = select.poll()
        poller.register(self._pipe, select.POLLIN)
        return bool(poller.poll(seconds * 1000))

    def result(self):
        if not self.done(self._patience):
            raise CaseFailure(f"child still running after {self._patience:g} s")
        with os.fdopen(self._pipe, "rb") as pipe:
            raw = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        if not raw:
            raise CaseFailure(f"child died without a result, status {os.waitstatus_to_exitcode(status)}")
        good, value = pickle.loads(raw)
        if not good:
            raise value
        return value

    def wait_asleep(self, *names):
        numbers = {consts.system_calls()[name] for name in names}
        deadline = time.monotonic() + self._patience
        while asleep_in(self.pid, self.pid) not in numbers:
            if time.monotonic() > deadline:
                raise CaseFailure(f"child never slept in {'/'.join(names)}")
            time.sleep(0.001)
        return self

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._pipe)


class Env:
    """One run of one case: `kind` is tcp, sdp or ipproto (AF_INET and AF_INET6 with IPPROTO_SDP),
    `six` selects the address family."""

    def __init__(self, kind, six, sink, patience=10.0):
        self.kind, self.six, self.patience = kind, six, patience
        self.sdp, self.ipproto = kind != "tcp", kind == "ipproto"
        self.only_sdp = kind == "sdp"          # without TCP
        self.family = socket.AF_INET6 if six else socket.AF_INET
        sdp_domain = consts.AF_INET6_SDP if six else consts.AF_INET_SDP
        self.domain = sdp_domain if kind == "sdp" else self.family
        self.protocol = consts.IPPROTO_SDP if self.ipproto else 0
        self.here, self.there = netns.ADDRESSES["self"][six], netns.ADDRESSES["peer"][six]
        self.any = "::" if six else "0.0.0.0"
        self.loopback = "::1" if six else "127.0.0.1"
        if not netns.local():
            remote.begin(netns.ADDRESSES["peer"][0])
        self._sink, self._noted, self._keep = sink, set(), []
        self.at_end = []        # functions to be called when the case is over
        self.checks = 0

    # The notebook

    def note(self, name, value, sdp=NOTHING, because=None):
        """Records an observation. `sdp` is SDP's expected value if it differs from TCP's, with the
        reason."""
        if name in self._noted:
            raise CaseFailure(f"the case notes {name!r} twice")
        self._noted.add(name)
        if sdp is not NOTHING and not because:
            raise CaseFailure(f"the case gives no reason for a different value of {name!r}")
        expected = None
        if sdp is not NOTHING:
            expected = [repr(plain(choice)) for choice in (sdp if isinstance(sdp, OneOf) else (sdp,))]
            if self.ipproto:        # TCP sockets may do what sockets of families 27 and 28 cannot
                expected.append(repr(SAME))
        self._sink(("note", name, repr(plain(value)), expected, because))
        return value

    def check(self, condition, message):
        """Checks a condition that must hold for every family."""
        self.checks += 1
        if not condition:
            raise CaseFailure(message)

    def equal(self, got, wanted, what):
        self.check(got == wanted, f"{what}: got {got!r}, wanted {wanted!r}")

    def rounds(self, many):
        """Returns the number of attempts for a random event: a quarter of `many` in a brief run."""
        return max(2, many // 4) if "BRIEF" in os.environ else many

    def waited(self, since, seconds, what):
        """Checks that about this time has passed. Where ticks are late, as on a busy host, a timer
        that is set before a late tick expires earlier by the delay of the tick."""
        self.check(time.monotonic() - since >= seconds / 2, f"{what} did not wait so long")

    def skip(self, reason):
        raise Skip(reason)

    def outcome(self, function, *args, **named):
        """Returns the result of a call, or the name of its error."""
        try:
            value = function(*args, **named)
        except OSError as error:
            return calls.errname(error)
        if isinstance(value, socket.socket):
            self._keep.append(value)
            return "a socket"
        return "ok" if value is None else value

    def error(self, function, *args, **named):
        """Returns `ok`, or the name of the error."""
        result = self.outcome(function, *args, **named)
        return result if isinstance(result, str) and result.startswith("E") else "ok"

    def error_or(self, function, *args):
        """Returns the error of a non-blocking call, None if it would block."""
        try:
            return function(*args)
        except BlockingIOError:
            return None

    # Sockets

    def address(self, host, port):
        return (host, port, 0, 0) if self.six else (host, port)

    def socket(self, where="self", kind=socket.SOCK_STREAM, protocol=None):
        protocol = self.protocol if protocol is None else protocol
        if where == "peer" and not netns.local():
            return self.keep(remote.RemoteSock.make(self.domain, kind, protocol))
        with netns.inside(where):
            return self.keep(Sock.make(self.domain, kind, protocol))

    def keep(self, thing):
        self._keep.append(thing)
        return thing

    def host(self, where):
        return self.here if where == "self" else self.there

    def bound(self, where="peer", port=0, host=None):
        sock = self.socket(where)
        sock.bind(self.address(self.host(where) if host is None else host, port))
        return sock

    def listen(self, where="peer", backlog=16, port=0, host=None, prepare=None):
        sock = self.socket(where)
        if prepare:
            prepare(sock)
        sock.bind(self.address(self.host(where) if host is None else host, port))
        sock.listen(backlog)
        return sock

    def connect(self, listener, where="self", prepare=None):
        """Returns a socket connected to a listener on the other host."""
        sock = self.socket(where)
        if prepare:
            prepare(sock)
        host = self.there if where == "self" else self.here
        sock.connect(self.address(host, listener.port))
        return sock

    def pair(self, listener=None, prepare=None):
        """Returns two connected sockets: the connecting one here, the accepted one on the peer."""
        listener = listener or self.listen()
        near = self.connect(listener, prepare=prepare)
        far, _ = listener.accept()
        return near, self.keep(far)

    def refused_port(self, where="peer"):
        """Returns a port without a listener."""
        with self.bound(where) as sock:
            return sock.port

    # Methods that wait: always for an event

    def wait(self, sock, events=select.POLLIN, patience=None):
        """Sleeps in poll() until one of the events; returns the mask as text."""
        mask = sock.mask_when(events, patience or self.patience)
        if not mask:
            raise CaseFailure(f"poll for {mask_text(events)} never returned")
        return mask

    def wait_mask(self, sock, wanted):
        """Returns the whole mask once it contains all the wanted bits (text, e.g. "IN|RDHUP"), and
        keeps them for a moment."""
        bits, last = set(wanted.split("|")), None

        def settled():
            nonlocal last
            before, last = last, sock.mask(EVERY)
            return before == last and bits <= set(last.split("|")) and last

        return self.until(settled, lambda: f"the mask stays {sock.mask(EVERY)}, never {wanted}")

    def until(self, condition, what, patience=None):
        """Polls until the condition returns a true value, and returns it."""
        self.checks += 1
        deadline = time.monotonic() + (patience or self.patience)
        pause = 0.0005
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise CaseFailure(what() if callable(what) else f"never came: {what}")
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
        return value

    def lucky(self, attempt, unlucky, least=10):
        """Repeats `attempt`, whose result depends on timing, until it returns a true value: at
        least this many times, and more if the attempts took no time."""
        deadline, count = time.monotonic() + 2 * self.patience, 0
        while not attempt():
            count += 1
            if count >= least and time.monotonic() > deadline:
                raise CaseFailure(f"in each of {count} attempts {unlucky}")

    def unread(self, sock, count):
        """Waits until `count` bytes are in the receive queue (SIOCINQ)."""
        self.until(lambda: calls.ioctl_int(sock, consts.SIOCINQ) >= count,
                   lambda: f"SIOCINQ stays {calls.ioctl_int(sock, consts.SIOCINQ)}, never {count}")

    def quiet(self, sock, events, seconds):
        """Checks that no such event happens for this long. A wait for no event proves little: use
        `quiet` only for events without another sign of their end."""
        return not sock.mask_when(events, seconds)

    def fill(self, sock, chunk=65536):
        """Sends without blocking until the socket is full and stays full. Returns the number of
        bytes sent."""
        total, piece, rested = 0, bytes(chunk), False
        while True:
            try:
                total += sock.send(piece, socket.MSG_DONTWAIT)
                rested = False
            except BlockingIOError:
                if rested:
                    return total
                # Queued bytes may still move to the peer, whose reply may free more space.
                self._settle(sock)
                self._look()
                self.quiet(sock, select.POLLOUT, self.patience / 50)
                rested = True

    def _settle(self, sock):
        """Waits until no byte is in flight to the peer; not for long, since bytes that the peer has
        no space for may be sent repeatedly."""
        deadline = time.monotonic() + self.patience / 10
        while calls.ioctl_int(sock, consts.SIOCOUTQ) != calls.ioctl_int(sock, consts.SIOCOUTQNSD) \
                and time.monotonic() < deadline:
            time.sleep(0.005)

    def _look(self):
        """Makes the kernel poll each socket for arrived bytes. On local connections bytes cause no
        event without a waiting call, and free no space before a poll.
        """
        for sock in self._keep:
            if isinstance(sock, Sock) and sock.fileno() >= 0:
                with contextlib.suppress(OSError):
                    calls.ioctl_int(sock, consts.SIOCINQ)

    # Methods for other threads and processes

    def task(self, function, *args):
        return self.keep(Task(self.patience, function, *args))

    def child(self, function, *args):
        return self.keep(Child(self.patience, function, *args))

    def as_user(self, function, *args):
        """Returns the result of a call made without privilege, as user nobody."""
        def run():
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            return self.outcome(function, *args)
        return Child(self.patience, run).result()

    def interrupt(self, function, *names, restart=False):
        """Returns the result of a call that a signal interrupts while it sleeps in one of these
        system calls."""
        def run():
            caught = []
            signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
            signal.siginterrupt(signal.SIGUSR1, not restart)
            return self.outcome(function), len(caught)
        child = Child(self.patience, run).wait_asleep(*names)
        os.kill(child.pid, signal.SIGUSR1)
        return child.result()

    def interrupt_self(self, function, *names, when=lambda: True):
        """Like `interrupt`, but in this process, as soon as `when` is true: for a call whose
        descriptor no other process may have."""
        caught = []
        signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
        signal.siginterrupt(signal.SIGUSR1, True)
        process, thread = os.getpid(), threading.get_native_id()

        def shoot():
            self.until(lambda: when() and asleep_in(thread) in {consts.system_calls()[name] for name in names}, "the call's sleep")
            calls.plain("tgkill", process, thread, int(signal.SIGUSR1))

        task = Task(self.patience, shoot)
        result = self.outcome(function)
        task.result()
        return result, len(caught)

    def needs_wire(self):
        """Skips the case if both hosts are the same."""
        if netns.is_one():
            self.skip("both hosts are the same: no link to test")

    @contextlib.contextmanager
    def netem(self, words):
        """Applies a tc-netem(8) rule to both hosts' devices during the block."""
        self.needs_wire()
        hosts = [(where, netns.device(where)) for where in netns.hosts()]
        try:
            for where, device in hosts:
                netns.run(where, f"tc qdisc replace dev {device} root netem {words}")
        except RuntimeError as error:
            self.skip(f"no netem: {error}")
        try:
            yield
        finally:
            # The netem queue stays, without effect. Deleting the queue drops the packet just being
            # sent. rxe reports this as the failure of a QP, even of QP 1, which all connection
            # setup uses (docs/debugging.md).
            for where, device in hosts:
                netns.run(where, f"tc qdisc replace dev {device} root netem limit 100000")

    def silent(self):
        """Adds an address on the link that does not reply: frames to it reach the peer, which does
        not have that address."""
        self.needs_wire()
        host = "fd77::98" if self.six else "10.77.0.98"
        links = json.loads(netns.run("peer", "ip -j link show dev " + netns.device("peer")))
        netns.run("self", f"ip neigh replace {host} lladdr {links[0]['address']} dev {netns.device()} nud permanent")
        return host

    def tcp(self, where="self"):
        """Returns a TCP socket in addition to the socket under test, for port spaces."""
        with netns.inside(where):
            return self.keep(Sock.make(self.family))


def timer(seconds, handler=None):
    """Sends SIGALRM once, after this time."""
    signal.signal(signal.SIGALRM, handler or (lambda *_: None))
    signal.setitimer(signal.ITIMER_REAL, seconds)


def errno_of(name):
    return getattr(errno, name)
