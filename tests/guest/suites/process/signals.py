# SPDX-License-Identifier: GPL-2.0-only
"""Signals: O_ASYNC's SIGIO, and death by SIGKILL."""

import fcntl
import os
import select
import signal
import socket
import time

from lib import calls, consts, pattern
from lib.registry import case

POLL_HUP = 6


def asynchronous(sock, number=0):
    fcntl.fcntl(sock, fcntl.F_SETOWN, os.getpid())
    if number:
        fcntl.fcntl(sock, 10, number)           # F_SETSIG
    fcntl.fcntl(sock, fcntl.F_SETFL, fcntl.fcntl(sock, fcntl.F_GETFL) | os.O_ASYNC)


def caught(e, number):
    """Returns code and band of the next signal with the given number."""
    info = signal.sigtimedwait({number}, e.patience)
    e.check(info is not None, "the signal never came")
    return info.si_code, info.si_band


@case
def sigio(e):
    """O_ASYNC: SIGIO for data, and for the end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    near, far = e.pair()
    asynchronous(near)
    while signal.sigtimedwait({signal.SIGIO}, 0):
        pass
    far.send(b"x")
    caught(e, signal.SIGIO)
    e.wait(near)
    e.note("data", near.recv(10))
    far.shutdown(socket.SHUT_WR)
    caught(e, signal.SIGIO)
    e.note("end", e.wait_mask(near, "RDHUP"))


@case
def sigio_of_one_who_polls(e):
    """SIGIO arrives for each byte, although the program also polls the socket."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    near, far = e.pair()
    asynchronous(near)
    aside = select.poll()
    aside.register(near, select.POLLPRI)
    for _ in range(e.rounds(200)):
        while signal.sigtimedwait({signal.SIGIO}, 0):
            pass
        far.send(b"x")
        end = time.monotonic() + 0.01
        while time.monotonic() < end:
            aside.poll(0)
        caught(e, signal.SIGIO)
        near.recv(1)


@case
def with_a_number(e):
    """F_SETSIG selects a queued signal that contains the descriptor and the event."""
    chosen = signal.SIGRTMIN + 3
    signal.pthread_sigmask(signal.SIG_BLOCK, {chosen})
    near, far = e.pair()
    asynchronous(near, chosen)
    while signal.sigtimedwait({chosen}, 0):
        pass
    far.send(b"x")
    e.note("data", caught(e, chosen))
    near.recv(1)
    while signal.sigtimedwait({chosen}, 0):
        pass
    far.shutdown(socket.SHUT_WR)
    e.note("the peer's end", caught(e, chosen))
    e.wait_mask(near, "RDHUP")
    rest = set()
    while info := signal.sigtimedwait({chosen}, 0):
        rest.add(info.si_code)
    e.check(POLL_HUP not in rest, f"POLL_HUP of a socket that may send: {rest}")


@case
def hung_up(e):
    """F_SETSIG: The signal reports POLL_HUP when neither end can send any more."""
    chosen = signal.SIGRTMIN + 3
    signal.pthread_sigmask(signal.SIG_BLOCK, {chosen})
    near, far = e.pair()
    asynchronous(near, chosen)
    near.shutdown(socket.SHUT_WR)
    e.wait_mask(far, "RDHUP")
    far.shutdown(socket.SHUT_WR)
    while (told := caught(e, chosen))[0] != POLL_HUP:
        pass
    e.note("told", told)


@case
def of_a_listener(e):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    listener = e.listen()
    asynchronous(listener)
    e.connect(listener)
    caught(e, signal.SIGIO)
    e.note("mask", e.wait(listener))


@case
def of_a_connector(e):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    listener = e.listen()
    sock = e.socket()
    sock.setblocking(False)
    asynchronous(sock)
    e.error(sock.connect, e.address(e.there, listener.port))
    caught(e, signal.SIGIO)
    e.note("mask", e.wait(sock, select.POLLOUT))


@case
def killed_idle(e):
    """SIGKILL of a process with a connection: the peer sees the end of the stream."""
    listener = e.listen()

    def live():
        near = e.connect(listener)
        near.send(b"alive")
        near.recv(10)

    child = e.child(live)
    far, _ = listener.accept()
    e.note("alive", far.recv(10))
    child.wait_asleep("recvfrom")
    child.kill()
    e.note("mask", e.wait_mask(far, "RDHUP"))
    e.note("end", e.outcome(calls.recv, far, 10))


@case
def killed_with_unread(e):
    """A process is killed with unread data: the peer sees a reset."""
    listener = e.listen()

    def live():
        near = e.connect(listener)
        near.send(b"alive")
        near.mask_when(select.POLLPRI, e.patience)

    child = e.child(live)
    far, _ = listener.accept()
    e.note("alive", far.recv(10))
    child.wait_asleep("poll")
    far.send(b"unread")
    e.until(lambda: calls.ioctl_int(far, consts.SIOCOUTQ) == 0, "arrival")
    child.kill()
    e.note("mask", e.wait_mask(far, "ERR"))
    e.note("recv", e.outcome(calls.recv, far, 10))


@case(timeout=60)
def killed_in_send(e):
    """A process is killed during a blocked send(2): the peer gets the first part of its bytes."""
    listener = e.listen()

    def live():
        near = e.connect(listener)
        near.sendall(pattern.Pattern(5).at(0, 1 << 20) * 64)

    child = e.child(live)
    far, _ = listener.accept()
    child.wait_asleep("sendto")
    child.kill()
    data = b""
    try:
        while part := far.recv(1 << 20):
            data += part
    except ConnectionResetError:
        pass
    wanted = pattern.Pattern(5).at(0, 1 << 20) * (len(data) // (1 << 20) + 1)
    e.check(data == wanted[:len(data)], "what arrived is not what was sent")
    e.check(len(data) > 10000, f"only {len(data)} bytes arrived")


@case
def killed_in_every_call(e):
    """SIGKILL ends a process in any call."""
    listener = e.listen("self")
    near, far = e.pair()
    full, _ = e.pair()
    e.fill(full)
    for name, function in (("accept4", lambda: calls.accept4(listener)),
                           ("recvfrom", lambda: calls.recv(near, 10)),
                           ("sendto", lambda: calls.send(full, b"x" * 4000000)),
                           ("poll", lambda: near.mask_when(select.POLLIN, 60)),
                           ("splice", lambda: calls.splice(near, os.pipe()[1], 10))):
        e.child(function).wait_asleep(name).kill()
        e.note(name, "dead")
    far.send(b"and nothing is lost")
    e.note("data", near.recv(100))


@case
def killed_listener(e):
    """A server dies with connections waiting for accept(2)."""
    port = e.refused_port()

    def live():
        listener = e.listen(port=port)
        listener.mask_when(select.POLLPRI, e.patience)

    child = e.child(live).wait_asleep("poll")
    near = e.socket()
    near.connect(e.address(e.there, port))
    child.kill()
    e.note("mask", e.wait_mask(near, "ERR"))
    e.note("recv", e.error(calls.recv, near, 1))
    e.note("again", e.error(e.socket().connect, e.address(e.there, port)))
    e.note("port is free", e.error(e.listen, "peer", 1, port))


@case
def killed_group(e):
    """A socket shared by processes lives until the last of these processes dies."""
    near, far = e.pair()
    children = [e.child(lambda: calls.recv(near, 10)).wait_asleep("recvfrom") for _ in range(3)]
    near.close()
    for child in children:
        e.note(f"before {children.index(child)}", far.mask())
        child.kill()
    e.note("after", e.wait_mask(far, "RDHUP"))


@case
def stopped(e):
    """A stopped process keeps its connection, and data for the process waits."""
    near, far = e.pair()
    child = e.child(lambda: pattern.receive(near, 9, 100000, [5000])).wait_asleep("recvfrom")
    os.kill(child.pid, signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    task = e.task(pattern.send, far, 9, 100000, [20000])
    e.until(lambda: calls.ioctl_int(near, consts.SIOCINQ) > 0, "data")
    os.kill(child.pid, signal.SIGCONT)
    e.note("received", child.result())
    task.result()
