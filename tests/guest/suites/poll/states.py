# SPDX-License-Identifier: GPL-2.0-only
"""poll(), select() and epoll in every state of a socket."""

import select
import socket
import struct

from lib import calls, consts
from lib.registry import case

BEDS = (1, 2)
SOL = socket.SOL_SOCKET
NOSIGNAL, DONTWAIT = socket.MSG_NOSIGNAL, socket.MSG_DONTWAIT
EPOLL_ALL = select.EPOLLIN | select.EPOLLOUT | select.EPOLLPRI | consts.EPOLLRDHUP


def by_all(sock):
    """Returns the current results of poll(), select() and epoll_wait()."""
    poller = select.epoll()
    poller.register(sock.fileno(), EPOLL_ALL)
    ready = poller.poll(0)
    poller.close()
    chosen = [bool(found) for found in select.select([sock], [sock], [sock], 0)]
    return sock.mask(), ready[0][1] if ready else 0, chosen


@case
def before(e):
    e.note("new", by_all(e.socket()))
    e.note("bound", by_all(e.bound("self")))
    listener = e.listen("self")
    e.note("listening", by_all(listener))


@case
def listener(e):
    sock = e.listen()
    near = e.connect(sock)
    e.wait(sock)
    e.note("one waits", by_all(sock))
    near.close()
    e.note("and is gone", by_all(sock))
    far, _ = sock.accept()
    e.note("accepted", by_all(sock))


@case(hosts=BEDS, timeout=60)
def connecting(e):
    sock = e.socket()
    sock.setblocking(False)
    e.error(sock.connect, e.address(e.silent(), 9))
    e.note("pending", by_all(sock))
    sock = e.socket()
    sock.setblocking(False)
    e.error(sock.connect, e.address(e.there, e.refused_port()))
    e.wait(sock, select.POLLOUT)
    e.note("refused", by_all(sock))
    sock.get(SOL, socket.SO_ERROR)
    e.note("refused and asked", by_all(sock))


@case
def connected(e):
    near, far = e.pair()
    e.note("idle", by_all(near))
    e.note("idle, accepted", by_all(far))
    far.send(b"data")
    e.wait(near)
    e.note("data", by_all(near))
    near.recv(2)
    e.note("a part read", by_all(near))
    near.recv(2)
    e.note("all read", by_all(near))
    far.send(b"!", socket.MSG_OOB)
    e.wait_mask(near, "PRI")
    e.note("urgent", by_all(near))
    near.recv(1, socket.MSG_OOB)
    e.note("urgent read", by_all(near))
    e.fill(near)
    e.note("full", by_all(near))
    far.send(b"data")
    e.wait(near)
    # credits in the data message may have freed space, so the socket is filled again
    e.fill(near)
    e.note("full, with data", by_all(near))


@case
def ends(e):
    near, far = e.pair()
    far.shutdown(socket.SHUT_WR)
    e.wait_mask(near, "RDHUP")
    e.note("peer ended", by_all(near))
    e.note("ended", by_all(far))
    near.shutdown(socket.SHUT_WR)
    e.wait_mask(near, "HUP")
    e.wait_mask(far, "HUP")
    e.note("both ended", by_all(near))
    e.note("both ended, first", by_all(far))
    near, far = e.pair()
    near.shutdown(socket.SHUT_RD)
    e.note("not receiving", by_all(near))
    near.shutdown(socket.SHUT_WR)
    e.note("nor sending", by_all(near))
    near, far = e.pair()
    far.send(b"data")
    far.shutdown(socket.SHUT_WR)
    e.wait_mask(near, "RDHUP")
    e.note("data and end", by_all(near))
    near.recv(10)
    e.note("end reached", by_all(near))
    near, far = e.pair()
    far.close()
    e.wait_mask(near, "RDHUP")
    e.note("peer closed", by_all(near))


@case(hosts=BEDS)
def ended_and_full(e):
    near, far = e.pair()
    e.fill(near)
    far.shutdown(socket.SHUT_WR)
    e.wait_mask(near, "RDHUP")
    # credits in the last message may have freed space, so the socket is filled again
    e.fill(near)
    e.note("peer ended, full", by_all(near))
    near.shutdown(socket.SHUT_WR)
    e.note("ended too, full", near.mask() in ("IN|OUT|HUP|RDHUP", "IN|HUP|RDHUP"))


@case(hosts=BEDS)
def reset(e):
    near, far = e.pair()
    far.setsockopt(SOL, socket.SO_LINGER, struct.pack("=ii", 1, 0))
    far.close()
    e.wait_mask(near, "ERR")
    e.note("reset", by_all(near))
    near.get(SOL, socket.SO_ERROR)
    e.note("reset and asked", by_all(near))
    near, far = e.pair()
    near.send(b"unread")
    e.unread(far, 6)
    far.close()
    e.wait_mask(near, "ERR")
    e.note("unread", by_all(near))
    e.error(calls.recv, near, 1)
    e.note("unread and told", by_all(near))


@case(hosts=BEDS)
def asked_bits(e):
    """poll(2) reports only requested events, and ERR, HUP and NVAL."""
    near, far = e.pair()
    far.send(b"data")
    e.wait(near)
    for name, events in (("nothing", 0), ("in", select.POLLIN), ("out", select.POLLOUT), ("pri", select.POLLPRI),
                         ("rdnorm", 0x40), ("rdband", 0x80), ("wrnorm", 0x100), ("wrband", 0x200),
                         ("rdhup", consts.POLLRDHUP), ("everything", 0x3FFF)):
        poller = select.poll()
        poller.register(near.fileno(), events)
        e.note(name, poller.poll(0)[0][1] if poller.poll(0) else 0)


@case(hosts=BEDS)
def many_at_once(e):
    """One poll(2) of many sockets returns the correct events of each socket."""
    listener = e.listen(backlog=64)
    pairs = [e.pair(listener) for _ in range(24)]
    poller = select.poll()
    for near, _ in pairs:
        poller.register(near.fileno(), select.POLLIN)
    e.note("none", poller.poll(0))
    for index in (3, 11, 17):
        pairs[index][1].send(b"x")
        e.wait(pairs[index][0])
    numbers = [near.fileno() for near, _ in pairs]
    e.note("some", sorted(numbers.index(number) for number, _ in poller.poll(0)))


@case(hosts=BEDS)
def wakes(e):
    """Each event wakes a sleeper in poll()."""
    def case_of(name, events, trigger, prepare=None):
        near, far = e.pair()
        if prepare:
            prepare(near, far)
        task = e.task(near.mask_when, events, e.patience).wait_asleep("poll")
        trigger(near, far)
        mask = task.result()
        e.check(mask, f"{name}: nothing woke poll()")
        e.note(name, "ERR" in mask)

    case_of("data", select.POLLIN, lambda near, far: far.send(b"x"))
    case_of("urgent", select.POLLPRI, lambda near, far: far.send(b"x", socket.MSG_OOB))
    case_of("end", select.POLLIN, lambda near, far: far.shutdown(socket.SHUT_WR))
    case_of("end by RDHUP", consts.POLLRDHUP, lambda near, far: far.shutdown(socket.SHUT_WR))
    case_of("own end", 0, lambda near, far: near.shutdown(socket.SHUT_RDWR))
    case_of("own receiving end", consts.POLLRDHUP, lambda near, far: near.shutdown(socket.SHUT_RD))
    case_of("both ends", 0, lambda near, far: far.shutdown(socket.SHUT_WR),
            lambda near, far: near.shutdown(socket.SHUT_WR))
    case_of("reset", 0, lambda near, far: (far.setsockopt(SOL, socket.SO_LINGER, struct.pack("=ii", 1, 0)),
                                           far.close()))
    case_of("room", select.POLLOUT, lambda near, far: e.task(far.drain), lambda near, far: e.fill(near))


@case(hosts=BEDS)
def wakes_a_connector(e):
    sock = e.socket()
    sock.setblocking(False)
    target = e.address(e.there, e.refused_port())
    e.error(sock.connect, target)
    mask = sock.mask_when(select.POLLOUT, e.patience)
    e.note("refused", mask)
    pending = e.socket()
    pending.setblocking(False)
    e.error(pending.connect, e.address(e.silent(), 9))
    task = e.task(pending.mask_when, select.POLLIN, e.patience).wait_asleep("poll")
    pending.shutdown(socket.SHUT_RDWR)
    e.note("given up", task.result())


@case
def wakes_listener_sleepers(e):
    listener = e.listen()
    task = e.task(listener.mask_when, select.POLLIN, e.patience).wait_asleep("poll")
    e.connect(listener)
    e.note("connection", task.result())
    listener = e.listen()
    task = e.task(listener.mask_when, select.POLLIN, e.patience).wait_asleep("poll")
    listener.shutdown(socket.SHUT_RD)
    e.note("shutdown", task.result())


@case
def by_select(e):
    near, far = e.pair()
    task = e.task(lambda: [bool(found) for found in select.select([near], [], [near], e.patience)])
    task.wait_asleep("select", "pselect6")
    far.send(b"x")
    e.note("readable", task.result())
    e.note("writable", [bool(found) for found in select.select([], [near], [], e.patience)])
    e.note("time-out", [bool(found) for found in select.select([far], [], [], 0.01)])
