# SPDX-License-Identifier: GPL-2.0-only
"""epoll: level- and edge-triggered, one-shot, exclusive, and the number of wakeups."""

import fcntl
import os
import select
import signal
import socket
import struct

from lib import calls, consts
from lib.registry import case

BEDS = (1, 2)
IN, OUT, ET = select.EPOLLIN, select.EPOLLOUT, select.EPOLLET
RDHUP, ONESHOT, EXCLUSIVE = consts.EPOLLRDHUP, select.EPOLLONESHOT, consts.EPOLLEXCLUSIVE
SOL = socket.SOL_SOCKET


def watch(sock, events):
    poller = select.epoll()
    poller.register(sock.fileno(), events)
    return poller


def now(poller):
    return [mask for _, mask in poller.poll(0)]


def soon(e, poller, bits=0):
    """Returns the next event mask that contains the requested bits. An edge-triggered event with
    fewer bits may come first."""
    while True:
        ready = poller.poll(e.patience)
        e.check(ready, "epoll was never answered")
        if all(mask & bits == bits for _, mask in ready):
            return [mask for _, mask in ready]


@case(hosts=BEDS)
def level(e):
    near, far = e.pair()
    poller = watch(near, IN)
    e.note("idle", now(poller))
    far.send(b"ab")
    e.note("data", soon(e, poller))
    e.note("still", now(poller))
    near.recv(1)
    e.note("a part read", now(poller))
    near.recv(1)
    e.note("all read", now(poller))
    far.shutdown(socket.SHUT_WR)
    e.note("end", soon(e, poller))
    e.note("end, still", now(poller))


@case(hosts=BEDS)
def edge(e):
    near, far = e.pair()
    poller = watch(near, IN | ET)
    e.note("idle", now(poller))
    far.send(b"ab")
    e.note("data", soon(e, poller))
    e.note("no second time", now(poller))
    near.recv(1)
    e.note("nor after a part was read", now(poller))
    far.send(b"cd")
    e.note("more data", soon(e, poller))
    e.note("not again", now(poller))
    near.recv(10)
    e.note("nor when all was read", now(poller))
    far.send(b"ef")
    e.note("fresh data", soon(e, poller))
    far.shutdown(socket.SHUT_WR)
    e.note("end", soon(e, poller))
    # the state change and the readable end of the stream may cause two wakeups, but not more
    e.note("end, not for ever", now(poller) and now(poller) and now(poller))


@case(hosts=BEDS, timeout=60)
def edge_beside_a_poller(e):
    """Each byte is an edge, even if another process polls the socket and the socket has an
    owner."""
    near, far = e.pair()
    fcntl.fcntl(near, fcntl.F_SETOWN, os.getpid())
    poller = watch(near, IN | ET)
    now(poller)
    other = os.fork()
    if not other:
        aside = select.poll()
        aside.register(near, select.POLLPRI)
        while os.getppid() != 1:
            aside.poll(0)
        os._exit(0)
    try:
        for turn in range(e.rounds(400)):
            far.send(b"x")
            e.check(poller.poll(e.patience), f"byte {turn} came without an edge")
            near.recv(1)
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)


@case(hosts=BEDS)
def edge_of_writing(e):
    near, far = e.pair()
    poller = watch(near, OUT | ET)
    e.note("at first", soon(e, poller))
    e.note("no second time", now(poller))
    near.send(b"small")
    e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQ) == 0, "arrival")
    e.note("after a small send", now(poller))
    total = e.fill(near)
    now(poller)
    count = 5
    task = e.task(lambda: e.wait(near, OUT))
    while count < total + 5:
        count += len(far.recv(1 << 20))
    task.result()
    e.note("room again", soon(e, poller))


@case(hosts=BEDS)
def edge_wakeups(e):
    """An epoll sleeper gets one wakeup for each awaited message, and no other wakeups."""
    near, far = e.pair()
    poller = watch(near, IN | ET)
    wakes = 0
    for turn in range(50):
        far.send(b"x")
        soon(e, poller)
        wakes += 1 + len(now(poller))
        near.recv(10)
    e.note("wake-ups", wakes)
    for turn in range(50):
        near.send(b"x")
        far.recv(10)
    e.note("by own sends", now(poller))


@case(hosts=BEDS)
def edge_in_out(e):
    """If IN and OUT are requested, an edge of either event reports both."""
    near, far = e.pair()
    poller = watch(near, IN | OUT | RDHUP | ET)
    e.note("at first", soon(e, poller))
    far.send(b"x")
    e.note("data", soon(e, poller, IN))
    far.shutdown(socket.SHUT_WR)
    e.note("end", soon(e, poller, RDHUP))
    near.shutdown(socket.SHUT_WR)
    e.until(lambda: "HUP" in near.mask().split("|"), "HUP")
    e.note("both ended", soon(e, poller, select.EPOLLHUP))


@case(hosts=BEDS)
def oneshot(e):
    near, far = e.pair()
    poller = watch(near, IN | ONESHOT)
    far.send(b"x")
    e.note("first", soon(e, poller))
    e.note("disarmed", now(poller))
    far.send(b"y")
    e.unread(near, 2)
    e.note("still disarmed", now(poller))
    poller.modify(near.fileno(), IN | ONESHOT)
    e.note("armed again", now(poller))
    poller.modify(near.fileno(), OUT | ONESHOT)
    e.note("for writing", now(poller))


@case
def exclusive(e):
    """EPOLLEXCLUSIVE on a listener: at least one of two sleepers wakes, and no connection is lost.
    """
    listener = e.listen()
    pollers = [watch(listener, IN | EXCLUSIVE) for _ in range(2)]
    tasks = [e.task(soon, e, poller) for poller in pollers]
    for task in tasks:
        task.wait_asleep("epoll_wait", "epoll_pwait")
    e.connect(listener)
    e.until(lambda: not all(task.is_alive() for task in tasks), "somebody awake")
    # the other thread may sleep until the next connection
    e.connect(listener)
    e.note("both woke", [task.result() for task in tasks])
    e.note("accept", e.error(listener.accept))


@case(hosts=BEDS)
def events_of_ends(e):
    """Events that an edge-triggered sleeper gets for each way in which a connection ends."""
    for name in ("end", "close", "reset", "own", "unread"):
        near, far = e.pair()
        if name == "unread":
            near.send(b"unread")
            e.unread(far, 6)
        poller = watch(near, IN | RDHUP | ET)
        now(poller)
        if name == "reset":
            far.setsockopt(SOL, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        if name == "end":
            far.shutdown(socket.SHUT_WR)
        elif name == "own":
            near.shutdown(socket.SHUT_RDWR)
        else:
            far.close()
        e.note(name, soon(e, poller))


@case
def listener_edges(e):
    listener = e.listen()
    poller = watch(listener, IN | ET)
    for turn in range(3):
        e.connect(listener)
        e.note(f"connection {turn}", soon(e, poller))
    for turn in range(3):
        e.keep(listener.accept()[0])
    e.note("after accepting", now(poller))


@case(hosts=BEDS)
def connect_edges(e):
    """The connect sequence of an outgoing connection, as an edge-triggered program sees it."""
    listener = e.listen()
    sock = e.socket()
    sock.setblocking(False)
    poller = watch(sock, IN | OUT | RDHUP | ET)
    e.note("new", now(poller))
    e.error(sock.connect, e.address(e.there, listener.port))
    e.note("connected", soon(e, poller))
    far, _ = listener.accept()
    far.send(b"x")
    e.note("data", soon(e, poller, IN))
    far.close()
    e.note("end", soon(e, poller, RDHUP))
    refused = e.socket()
    refused.setblocking(False)
    poller = watch(refused, OUT | ET)
    now(poller)
    e.error(refused.connect, e.address(e.there, e.refused_port()))
    e.note("refused", soon(e, poller))


@case(hosts=BEDS)
def closed_while_watched(e):
    """A socket leaves the epoll set when its last descriptor is closed."""
    near, far = e.pair()
    poller = watch(near, IN)
    far.send(b"x")
    soon(e, poller)
    near.close()
    e.note("after close", now(poller))


@case(hosts=BEDS)
def nested(e):
    """An epoll instance watches another epoll instance, which watches the socket."""
    near, far = e.pair()
    inner = watch(near, IN)
    outer = select.epoll()
    outer.register(inner.fileno(), IN)
    e.note("idle", now(outer))
    far.send(b"x")
    e.note("data", soon(e, outer))
    near.recv(1)
    e.note("read", now(outer))


@case(hosts=BEDS)
def in_two_sets(e):
    near, far = e.pair()
    pollers = [watch(near, IN), watch(near, IN | ET), watch(near, OUT)]
    far.send(b"x")
    e.note("told", [soon(e, poller) for poller in pollers])


@case(hosts=BEDS)
def end_alone(e):
    """A poller that requests only the end of the stream gets that event, also by poll(2)."""
    near, far = e.pair()
    watched = watch(near, RDHUP | ET)
    polled = select.poll()
    polled.register(near.fileno(), consts.POLLRDHUP)
    far.send(b"x")
    e.unread(near, 1)
    e.note("bytes", (now(watched), polled.poll(0)))
    far.shutdown(socket.SHUT_WR)
    e.note("end", soon(e, watched))
    e.note("end, by poll", [mask for _, mask in polled.poll(e.patience * 1000)])


@case(hosts=BEDS)
def about_nothing(e):
    """Control messages alone cause no events for the program."""
    near, far = e.pair()
    level, edges, both = watch(near, IN), watch(near, IN | ET), watch(near, IN | OUT | ET)
    e.note("room", soon(e, both, OUT))
    told, room = [], []
    for turn in range(300):
        near.sendall(b"to and fro")
        e.equal(len(far.recv_exactly(10)), 10, f"message {turn}")
        told += now(level) + now(edges)
        room += now(both)
    e.note("events of one that has nothing to read", told)
    # a writable socket may be reported again after control messages
    e.check(set(room) <= {OUT} and len(room) <= 300 // 4, f"edges of one that can write: {len(room)}, {set(room)}")


@case(hosts=BEDS)
def nobody_asks(e):
    """A program polls once and then does not call the socket: the kernel sends the program's bytes,
    receives bytes, and delivers signals.
    """
    near, far = e.pair()
    watched = watch(near, IN | OUT | ET)
    e.note("room", soon(e, watched, OUT))
    near.setblocking(False)
    sent = e.fill(near)
    e.equal(len(far.recv_exactly(sent)), sent, "bytes that came without another call")
    far.sendall(b"answer")
    e.equal(e.until(lambda: e.error_or(near.recv, 10), "the answer, without asking epoll"), b"answer", "answer")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})
    fcntl.fcntl(near, fcntl.F_SETOWN, os.getpid())
    far.send(b"!", socket.MSG_OOB)
    e.check(signal.sigtimedwait({signal.SIGURG}, e.patience) is not None, "SIGURG never came")


@case(hosts=BEDS)
def each_wakes_all(e):
    """Tasks that poll one socket by different calls all get an event for each message."""
    near, far = e.pair()
    for turn in range(50):
        pollers = [watch(near, IN | ET), watch(near, IN), watch(near, IN | RDHUP | ET)]
        e.equal([now(poller) for poller in pollers], [[], [], []], "before")
        tasks = [e.task(poller.poll, e.patience) for poller in pollers]
        far.send(b"x")
        e.equal([[mask for _, mask in task.result()] for task in tasks], [[IN]] * 3, f"message {turn}")
        near.recv_exactly(1)
        for poller in pollers:
            poller.close()


@case
def echo_server(e):
    """A small edge-triggered server has many connections, each of which gets its own text back."""
    listener = e.listen(backlog=64)
    listener.setblocking(False)
    poller = watch(listener, IN | ET)
    conns, finished = {}, []

    def serve():
        while len(finished) < 20:
            for number, mask in poller.poll(e.patience):
                if number == listener.fileno():
                    while (made := e.error_or(listener.accept)) is not None:
                        made[0].setblocking(False)
                        conns[made[0].fileno()] = made[0]
                        poller.register(made[0].fileno(), IN | RDHUP | ET)
                    continue
                sock = conns[number]
                while (data := e.error_or(sock.recv, 4096)):
                    sock.sendall(data)
                if data == b"":
                    finished.append(number)
                    poller.unregister(number)
                    sock.close()

    def client(number):
        with e.connect(listener) as sock:
            for turn in range(10):
                word = b"%d-%d;" % (number, turn) * 30
                sock.sendall(word)
                e.equal(sock.recv_exactly(len(word)), word, f"echo {turn} of client {number}")

    server = e.task(serve)
    for task in [e.task(client, number) for number in range(20)]:
        task.result()
    server.result()
    e.note("served", len(finished))
