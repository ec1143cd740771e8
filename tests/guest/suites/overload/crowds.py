# SPDX-License-Identifier: GPL-2.0-only
"""Overload by connects, by sockets and by memory."""

import errno
import os
import resource
import select
import signal
import socket
import time

from lib import calls, consts, observe
from lib.registry import case
from lib.sock import Sock
from suites.faults.nth import closing
from suites.lifecycle.states import THOROUGH, drain
from suites.process.memory import Group
from suites.syscall_fuzz.limits import parameter

SOL = socket.SOL_SOCKET
# Address families of long cases.
SLOW = ("v4", "v6") if THOROUGH else ("v4",)
# User ids without other sockets.
CROWD, SERVER = 65534, 1
# Kernel memory of one end of an idle connection, including its empty buffers.
PER_SOCKET = 200000


def settled(e):
    for where in ("self", "peer"):
        e.until(lambda where=where: not observe.rows(where), lambda where=where: f"{len(observe.rows(where))} sockets stay", e.patience * 9)


def kernel_memory():
    """Estimate of the bytes that the kernel uses itself."""
    words = dict(line.split()[:2] for line in open("/proc/meminfo"))
    names = ("Slab:", "Percpu:", "VmallocUsed:", "KernelStack:", "PageTables:")
    return sum(int(words[name]) for name in names) * 1024


def echo(e, near, far, word=b"there and back"):
    near.sendall(word)
    e.equal(far.recv_exactly(len(word)), word, "there")
    far.sendall(word)
    e.equal(near.recv_exactly(len(word)), word, "back")


@case(reference=False, families=SLOW, timeout=120)
def many_connects(e):
    """As many connects as two processors can start go to a backlog of 4, without accept(2). The
    listener's side holds no more connections than the backlog, other listeners are served
    meanwhile, and each connect that succeeds later is a usable connection."""
    listener, other = e.listen(backlog=4), e.listen()
    near, far = e.pair(other)
    crowd, before, rounds = [], kernel_memory(), 0
    start = time.monotonic()
    for number in range(400):
        sock = e.socket()
        sock.setblocking(False)
        e.error(sock.connect, e.address(e.there, listener.port))
        crowd.append(sock)
        if number % 40 == 0:
            echo(e, near, far)
            more, there = e.pair(other)
            echo(e, more, there)
            more.close()
            there.close()
            rounds += 1
    rate = 400 / (time.monotonic() - start)
    held = [row for row in observe.rows("peer") if row.local[1] == listener.port and row.state != "LISTEN"]
    e.check(len(held) <= 5, f"{len(held)} connections are held for a backlog of 4")
    grown = kernel_memory() - before
    e.check(grown < 400 * 100000, f"{grown} bytes for 400 connects that wait")
    e.until(lambda: observe.stats("peer")["- backlog full"] >= 100, "that requests were dropped")
    # Most connections close; the others are accepted at their next request once the backlog has
    # space. The last connections stay: a request is repeated for about 25 s, and a slow machine
    # needs most of that time for the other connections.
    for sock in crowd[:-20]:
        sock.close()
    listener.setblocking(False)
    waiting, words, spoken, late = dict((sock.fileno(), sock) for sock in crowd[-20:]), set(), [], 0
    accepted = []

    def let_in():
        nonlocal late
        while (made := e.error_or(listener.accept)) is not None:
            accepted.append(e.keep(made[0]))
            made[0].setblocking(False)
        poller = select.poll()
        for fd in waiting:
            poller.register(fd, select.POLLOUT)
        for fd, _ in poller.poll(20):
            sock = waiting.pop(fd)
            error = sock.get(SOL, socket.SO_ERROR)
            if error == errno.ETIMEDOUT:
                # On a slow machine the client may stop repeating its request earlier: the case
                # tries again.
                sock.close()
                sock, late = e.socket(), late + 1
                sock.setblocking(False)
                e.error(sock.connect, e.address(e.there, listener.port))
                waiting[sock.fileno()] = sock
                continue
            e.equal(error, 0, "a connect that waited")
            sock.send(b"%8d" % sock.port)
            spoken.append(sock)
        for sock in list(accepted):
            word = e.outcome(sock.recv, 8)
            if word != "EAGAIN":
                accepted.remove(sock)
                words.update({word} if isinstance(word, bytes) and word else ())
                sock.close()
        return not waiting and len(words) >= 20

    e.until(let_in, lambda: f"{len(waiting)} connects wait, {len(words)} of 20 have spoken", e.patience * 6)
    e.equal(words, {b"%8d" % sock.port for sock in spoken}, "who has spoken")
    e.note("connects begun per second, rounds of others, connects that came too late", (int(rate), rounds, late))
    e._keep.clear()
    for sock in (listener, other, near, far, *spoken, *accepted):
        sock.close()
    settled(e)


@case(reference=False, timeout=120)
def come_and_go(e):
    """Processes connect, transfer and close as fast as possible, and no memory leaks."""
    listener = e.listen(backlog=64)

    def serve():
        while True:
            far, _ = listener.accept()
            far.sendall(far.recv(20))
            far.close()

    def knock(count):
        for number in range(count):
            with e.socket() as near:
                near.connect(e.address(e.there, listener.port))
                near.sendall(b"%d" % number)
                e.equal(near.recv(20), b"%d" % number, "echo")
        return count

    servers = [e.child(serve) for _ in range(3)]
    levels = []
    start = time.monotonic()
    for _ in range(3):
        knockers = [e.child(knock, 40) for _ in range(4)]
        for child in knockers:
            e.equal(child.result(), 40, "connections")
        e.until(lambda: len(observe.rows("self")) == 0 and len(observe.rows("peer")) == 1, "the end of closed connections", e.patience * 9)
        levels.append(kernel_memory())
    e.note("connections per second", int(480 / (time.monotonic() - start)))
    # The bound is a quarter of one connection's memory, times 160 connections: less than a leak of
    # one connection in four.
    e.check(levels[2] - levels[1] < 160 * 20000, f"the kernel's memory after each round: {levels}")
    for server in servers:
        server.kill()
    listener.close()
    settled(e)


def clamour(e, port, count, told):
    """Makes a number of connections as an unprivileged user, and keeps as many as possible. Returns
    the number of refused sockets."""
    os.setgroups([])
    os.setresgid(CROWD, CROWD, CROWD)
    os.setresuid(CROWD, CROWD, CROWD)
    kept, refused, made = [], 0, 0
    while made < count:
        sock = e.outcome(calls.plain, "socket", e.domain, socket.SOCK_STREAM, 0)
        if sock == "ENOBUFS":
            refused += 1
            # Half of the connections close.
            for near in kept[::2]:
                near.close()
            kept = kept[1::2]
            continue
        near = Sock.wrap(sock, e.domain)
        near.connect(e.address(e.there, port))
        near.sendall(b"%d" % made)
        kept.append(near)
        made += 1
        if made % 20 == 0:
            os.write(told, b".")
    return refused


@case(reference=False, families=SLOW, timeout=240)
def crowd_of_thousands(e):
    """Two thousand connections by a user with a limit of 150, to a server with the same limit.
    Neither side ever has more connections than the limit, the excess is counted, and other users
    connect and transfer all the time."""
    most, each, processes = 150, 500, 4
    listener, other = e.listen(backlog=64), e.listen()
    # Accepted sockets get the owner of the listener.
    os.fchown(listener.fileno(), SERVER, SERVER)
    quiet = kernel_memory()

    def serve():
        kept = []
        poller = select.poll()
        poller.register(listener.fileno(), select.POLLIN)
        while True:
            for fd, mask in poller.poll():
                if fd == listener.fileno():
                    far, _ = listener.accept()
                    kept.append(far)
                    poller.register(far.fileno(), consts.POLLRDHUP)
                elif mask & (consts.POLLRDHUP | select.POLLERR | select.POLLHUP):
                    far = next(far for far in kept if far.fileno() == fd)
                    poller.unregister(fd)
                    kept.remove(far)
                    far.close()

    near, far = e.pair(other)
    server = e.child(serve)
    told, tell = os.pipe()
    with parameter("max_sockets_per_user", most):
        before = observe.stats()["- limit reached"]
        crowd = [e.child(clamour, e, listener.port, each, tell) for _ in range(processes)]
        os.close(tell)
        dots, rounds, peak, held = 0, 0, 0, {"crowd": 0, "server": 0}
        start = time.monotonic()
        while dots < each * processes // 20:
            part = os.read(told, 100)
            e.check(part, f"the crowd ended after {dots} of {each * processes // 20} steps")
            dots += len(part)
            echo(e, near, far)
            pair = e.pair(other)
            echo(e, *pair)
            closing(*pair)
            rounds += 1
            peak = max(peak, kernel_memory() - quiet)
            count = sum(row.uid == CROWD for row in observe.rows())
            held["crowd"] = max(held["crowd"], count)
            count = sum(row.local[1] == listener.port and row.state != "LISTEN" for row in observe.rows("peer"))
            held["server"] = max(held["server"], count)
        rate = each * processes / (time.monotonic() - start)
        refused = [child.result() for child in crowd]
    e.note("connections per second, others' rounds, sockets, refusals, bytes at most", (int(rate), rounds, held, refused, peak))
    # rows are read one after another: each process may have replaced a socket in the meantime
    seen = most + processes
    e.check(most // 2 < held["crowd"] <= seen and 0 < held["server"] <= seen, f"sockets by user at the most: {held}")
    e.check(all(refused), f"sockets refused to each: {refused}")
    gained = observe.stats()["- limit reached"] - before
    e.equal(gained, sum(refused), "refusals that are counted")
    e.check(rounds >= 20, f"others had {rounds} rounds")
    # Counts both ends of all connections, including connections that are being destroyed.
    e.check(peak < 3 * most * PER_SOCKET, f"{peak} bytes of the kernel's memory")
    server.kill()
    closing(listener, other, near, far)
    settled(e)
    # Less than the memory of one connection in twenty.
    e.until(lambda: kernel_memory() - quiet < 2 * each * processes // 20 * PER_SOCKET // 2, lambda: f"{kernel_memory() - quiet} bytes stay")


@case(reference=False, timeout=120)
def limit_of_a_server(e):
    """Connections beyond the limit of the server's namespace wait, disturb no other connections,
    and succeed when others close."""
    listener = e.listen()
    settled_pair = e.pair(listener)
    with parameter("max_sockets_per_net", 8):
        before = observe.stats("peer")["- limit reached"]
        pairs = [settled_pair]
        while len(pairs) < 7:
            pairs.append(e.pair(listener))
        late = e.socket()
        late.setblocking(False)
        e.equal(e.error(late.connect, e.address(e.there, listener.port)), "EINPROGRESS", "one too many")
        e.until(lambda: observe.stats("peer")["- limit reached"] > before, "that it was counted")
        for pair in pairs:
            echo(e, *pair)
        e.equal(late.mask(), "-", "the one too many waits")
        near, far = pairs.pop()
        near.close()
        far.close()
        e.wait(late, select.POLLOUT, e.patience * 3)
        late.setblocking(True)
        far, _ = listener.accept()
        echo(e, late, far)
        for pair in pairs:
            echo(e, *pair)


@case(reference=False, timeout=120)
def out_of_a_groups_memory(e):
    """A process makes connections until the memory of its cgroup is used up: its calls fail or the
    process is killed, its peers get the end of the stream, other processes continue, and all memory
    is freed."""
    listener = e.listen(backlog=64)
    other = e.pair(listener)
    with Group(e) as group:
        (group._path / "memory.max").write_text(str(24 << 20))
        told, tell = os.pipe()

        def hoard():
            os.close(told)
            group.join()
            socks = []
            while True:
                near = e.socket()
                error = e.error(near.connect, e.address(e.there, listener.port))
                if error == "ok":
                    error = e.outcome(calls.send, near, bytes(1 << 20), socket.MSG_DONTWAIT)
                socks.append(near)
                os.write(tell, b".")
                if isinstance(error, str) and error not in ("EAGAIN", "ok"):
                    os.write(tell, b"!" + error.encode())
                    signal.pause()

        child = e.child(hoard)
        os.close(tell)
        accepted, listening = [], [True]

        def accept():
            while listening:
                if listener.mask_when(select.POLLIN, 0.05):
                    accepted.append(listener.accept()[0])

        task = e.task(accept)
        text = b""
        poller = select.poll()
        poller.register(told, select.POLLIN)
        while poller.poll(e.patience * 3000):
            part = os.read(told, 4096)
            text += part
            if not part or b"!" in text:
                break
            echo(e, *other)
        count = text.count(b".")
        e.check(2 < count < 400, f"{count} connections in 24 MiB")
        e.check(not part or text.endswith(b"ENOMEM") or text.endswith(b"ENOBUFS"), f"the end: {text[-20:]}")
        os.close(told)
        if part:
            child.kill()
        else:
            e.equal(os.waitpid(child.pid, 0)[1], signal.SIGKILL, "how the process ended")
        listening.clear()
        task.result()
        for far in accepted:
            e.keep(far)
            drain(e, far, "the end at the peers")
            far.close()
        echo(e, *other)
        for sock in (listener, *other):
            sock.close()
        settled(e)
        e.note("connections, how it ended", (count, (text.split(b"!") + [b"killed"])[1]))


@case(reference=False, families=("v4",), timeout=400, brief=False)
def one_port(e):
    """33,000 sockets at one port: creating and closing the last socket takes no longer than the
    first."""
    most, part = 33000, 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (most + 200, most + 200))
    first = e.socket().set(SOL, socket.SO_REUSEPORT, 1)
    first.bind(e.address(e.here, 0))

    def bound():
        sock = socket.socket(first.family, socket.SOCK_STREAM, first.proto)
        sock.setsockopt(SOL, socket.SO_REUSEPORT, 1)
        sock.bind(first.getsockname())
        return sock

    crowd, times = [], []
    with parameter("max_sockets_per_user", 10 * most), parameter("max_sockets_per_net", 10 * most):
        while len(crowd) < most:
            start = time.monotonic()
            crowd += [bound() for _ in range(part)]
            times.append(time.monotonic() - start)
        start = time.monotonic()
        for sock in crowd:
            sock.close()
        first.close()
        times.append((time.monotonic() - start) * part / most)
        settled(e)
    e.note("seconds for a thousand: the first, the last, closing", tuple(round(times[n], 2) for n in (0, -2, -1)))
    e.check(max(times[-2:]) < 10 * times[0], f"the last thousand took longer: {times}")
