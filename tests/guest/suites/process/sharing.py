# SPDX-License-Identifier: GPL-2.0-only
"""One socket, several processes and threads: fork, exec, dup, SCM_RIGHTS."""

import array
import os
import select
import socket
import sys

from lib import calls, consts, pattern
from lib.registry import case

SOL = socket.SOL_SOCKET


@case
def fork(e):
    """A child uses the parent's connection, and close() in the child does not end the
    connection."""
    near, far = e.pair()

    def child():
        near.sendall(b"from the child")
        word = near.recv(100)
        near.close()
        far.close()
        return word

    other = e.child(child)
    e.note("child's words", far.recv_exactly(14))
    far.send(b"to the child")
    e.note("heard", other.result())
    near.send(b"from the parent")
    e.note("parent's words", far.recv(100))
    near.close()
    e.note("end", far.recv(100))


@case
def fork_of_a_server(e):
    """A listener, and a child for each connection."""
    listener = e.listen(backlog=32)

    def serve():
        for _ in range(8):
            far, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                while data := far.recv(65536):
                    far.sendall(data)
                os._exit(0)
            far.close()
        for _ in range(8):
            os.wait()
        return True

    server = e.child(serve)
    for number in range(8):
        near = e.connect(listener)
        data = pattern.Pattern(number).at(0, 30000)
        task = e.task(near.sendall, data)
        e.equal(near.recv_exactly(30000), data, f"echo {number}")
        task.result()
        near.close()
    e.note("served", server.result())


@case
def fork_of_a_listener(e):
    """Several processes accept from one listener."""
    listener = e.listen(backlog=32)
    children = [e.child(lambda: [calls.accept4(listener)[0] > 0 for _ in range(4)]) for _ in range(3)]
    for _ in range(12):
        e.connect(listener)
    e.note("accepted", [child.result() for child in children])


@case
def fork_while_connecting(e):
    listener = e.listen()
    sock = e.socket()
    sock.setblocking(False)
    e.error(sock.connect, e.address(e.there, listener.port))
    child = e.child(lambda: (sock.mask_when(select.POLLOUT, e.patience), sock.send(b"child")))
    far, _ = listener.accept()
    e.note("data", far.recv(10))
    e.note("child", child.result())
    e.note("parent", sock.send(b"parent"))


@case
def fork_with_memory(e):
    """A child changes memory that its parent has just sent: the peer gets the old bytes."""
    near, far = e.pair()
    data = bytearray(pattern.Pattern(7).at(0, 500000))
    before = bytes(data)
    task = e.task(far.recv_exactly, len(data))
    near.sendall(data)

    def scribble():
        data[:] = bytes(len(data))
        return True

    e.child(scribble).result()
    data[:] = b"\xff" * len(data)
    e.check(task.result() == before, "the stream shows later memory")


@case
def exec_keeps(e):
    """A program started with the socket as its standard input and output."""
    near, far = e.pair()

    def child():
        os.dup2(near.fileno(), 0)
        os.dup2(near.fileno(), 1)
        os.execvp("cat", ["cat"])

    pid = os.fork()
    if pid == 0:
        try:
            child()
        finally:
            os._exit(127)
    near.close()
    data = pattern.Pattern(3).at(0, 200000)
    task = e.task(far.sendall, data)
    e.check(far.recv_exactly(len(data)) == data, "cat gave something else")
    task.result()
    far.shutdown(socket.SHUT_WR)
    e.note("end", far.recv(10))
    e.note("status", os.waitpid(pid, 0)[1])


@case
def exec_closes(e):
    """exec closes a descriptor with FD_CLOEXEC."""
    near, far = e.pair()        # descriptors of Python have FD_CLOEXEC
    pid = os.fork()
    if pid == 0:
        try:
            far.close()
            os.execvp("sleep", ["sleep", "60"])
        finally:
            os._exit(127)
    near.close()
    e.note("end", far.recv(10))
    os.kill(pid, 9)
    os.waitpid(pid, 0)


@case
def dup(e):
    near, far = e.pair()
    twin = e.keep(near.dup())
    near.send(b"one ")
    twin.send(b"two")
    e.note("data", far.recv_exactly(7))
    twin.setblocking(False)
    e.note("flags are shared", e.error(calls.recv, near.fileno(), 10))
    near.close()
    far.send(b"back")
    e.wait(twin)
    e.note("the other still reads", twin.recv(10))
    twin.shutdown(socket.SHUT_WR)
    e.note("end", far.recv(10))


@case
def passed(e):
    """A connected socket and a listener are passed over a UNIX socket to another process."""
    listener = e.listen()
    near, far = e.pair(listener)
    ours, theirs = socket.socketpair(socket.AF_UNIX)

    def child():
        number = array.array("i")
        for sock in (listener, near, far):
            sock.close()
        _, control, _, _ = theirs.recvmsg(10, socket.CMSG_SPACE(8))
        number.frombytes(control[0][2][:8])
        os.write(number[0], b"from elsewhere")
        made, _, _ = calls.accept4(number[1])
        os.write(made, b"accepted elsewhere")
        return True

    other = e.child(child)
    ours.sendmsg([b"take"], [(SOL, socket.SCM_RIGHTS, array.array("i", [far.fileno(), listener.fileno()]))])
    far.close()
    e.note("data", near.recv(100))
    second = e.connect(listener)
    e.note("data of the accepted one", second.recv(100))
    e.note("done", other.result())
    e.note("end", near.recv(10))


@case
def in_flight_only(e):
    """A socket exists only in an SCM_RIGHTS message that is never read."""
    near, far = e.pair()
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    ours.sendmsg([b"x"], [(SOL, socket.SCM_RIGHTS, array.array("i", [far.fileno()]))])
    far.close()
    near.send(b"to nobody yet")
    e.note("still open", near.mask())
    e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQ) == 0, "the bytes at the other end")
    ours.close()
    theirs.close()
    e.note("end", e.wait_mask(near, "RDHUP"))


@case
def to_itself(e):
    """A socket is in flight over a UNIX socket that is itself in flight: the garbage collector
    frees both."""
    near, far = e.pair()
    one, two = socket.socketpair(socket.AF_UNIX)
    one.sendmsg([b"x"], [(SOL, socket.SCM_RIGHTS, array.array("i", [far.fileno(), two.fileno()]))])
    far.close()
    two.close()
    one.close()
    # Any UNIX socket created now makes the collector run.
    e.until(lambda: (socket.socketpair(socket.AF_UNIX), "RDHUP" in near.mask())[1], "the collector")
    e.note("ended", True)


@case
def threads(e):
    """Readers, writers and a poller use one socket at the same time."""
    near, far = e.pair()
    total = 600000

    def echo():
        while data := far.recv(50000):
            far.sendall(data)
        far.shutdown(socket.SHUT_WR)

    done = []

    def watch():
        while not done:
            near.mask_when(select.POLLIN | consts.POLLRDHUP, 0.05)
            near.get(SOL, socket.SO_ERROR)
            e.error(near.getpeername)
            calls.ioctl_int(near, consts.SIOCINQ)

    tasks = [e.task(echo), e.task(watch), e.task(watch)]
    reader = e.task(pattern.receive, near, 4, total, [7777])
    pattern.send(near, 4, total, [12345])
    e.equal(reader.result(), total, "bytes")
    done.append(True)
    near.shutdown(socket.SHUT_WR)
    for task in tasks:
        task.result()


@case
def under_python(e):
    """A separate program gets the number of a descriptor."""
    near, far = e.pair()
    os.set_inheritable(far.fileno(), True)
    pid = os.fork()
    if pid == 0:
        try:
            os.execv(sys.executable, [sys.executable, "-c", "import os,sys\n"
                                      "fd=int(sys.argv[1])\nos.write(fd, os.read(fd, 100).upper())",
                                      str(far.fileno())])
        finally:
            os._exit(127)
    far.close()
    near.send(b"louder")
    e.note("answer", near.recv(100))
    e.note("end", near.recv(100))
    e.note("status", os.waitpid(pid, 0)[1])
