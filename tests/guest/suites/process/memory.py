# SPDX-License-Identifier: GPL-2.0-only
"""Memory cgroups: the memory of a socket is charged to its group, and uncharged."""

import os
import pathlib
import socket

from lib import calls
from lib.registry import case

ROOT = pathlib.Path("/sys/fs/cgroup")
COUNT, SIZE = 8, 100000


class Group:
    """A memory cgroup for the time of a block."""

    def __init__(self, e):
        self._e = e
        if "memory" not in (ROOT / "cgroup.controllers").read_text().split():
            e.skip("no memory cgroups")
        (ROOT / "cgroup.subtree_control").write_text("+memory")
        self._path = ROOT / f"sdp-{os.getpid()}-{e.kind}"

    def __enter__(self):
        self._path.mkdir()
        return self

    def __exit__(self, kind, *_):
        if kind is None and not self._removed():
            # the group's last process is about to exit
            self._e.until(self._removed, "the end of the group")

    def _removed(self):
        try:
            self._path.rmdir()
        except OSError:
            return False
        return True

    def join(self):
        (self._path / "cgroup.procs").write_text("0")

    def limit(self, most):
        """Returns the group's limit in bytes, or "max"."""
        (self._path / "memory.max").write_text(str(most))

    def charged(self):
        """Returns the memory of sockets and the other kernel memory of the group, in bytes."""
        words = dict(line.split() for line in (self._path / "memory.stat").read_text().splitlines())
        return int(words["sock"]) + int(words["kernel"])


def in_group(e, group, function):
    """Runs a function in a process of the group. Returns a function that ends the process, and the
    child."""
    end, go = os.pipe()
    ready, done = os.pipe()

    def run():
        os.close(go)
        group.join()
        keep = function()
        # the process itself is charged as well: from this point charges belong to the sockets
        os.write(done, b"x")
        os.read(end, 1)
        return len(keep)

    child = e.child(run)
    for fd in (end, done):
        os.close(fd)
    e.equal(os.read(ready, 1), b"x", "the process of the group")
    os.close(ready)
    return go, child


def grows(e, group, before, least, what):
    e.until(lambda: group.charged() - before >= least,
            lambda: f"{what} of {least} charged to the group: {group.charged() - before}")


def falls(e, group, before, what):
    e.until(lambda: group.charged() - before < SIZE,
            lambda: f"the charge for {what} given back: {group.charged() - before} stay")


@case
def of_unread_bytes(e):
    """Unread bytes of sockets that a process of the group has accepted."""
    with Group(e) as group:
        port = e.refused_port("self")
        peers = []
        step, stepped = os.pipe()

        def work():
            listener = e.listen("self", port=port, backlog=COUNT)
            os.write(stepped, b"l")
            return [listener.accept()[0] for _ in range(COUNT)] + [listener]

        def meet():
            os.read(step, 1)
            for _ in range(COUNT):
                near = e.socket("peer")
                near.connect(e.address(e.here, port))
                peers.append(near)

        task = e.task(meet)
        go, child = in_group(e, group, work)
        task.result()
        before = group.charged()
        for near in peers:
            near.sendall(b"x" * SIZE)
        grows(e, group, before, COUNT * SIZE * 3 // 4, "unread bytes")
        os.close(go)
        child.result()
        falls(e, group, before, "unread bytes")
    e.note("charged", True)


@case
def of_unsent_bytes(e):
    """Bytes that the peer does not read."""
    with Group(e) as group:
        listener = e.listen(backlog=COUNT, prepare=lambda sock: sock.set(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096))
        accepted = []
        task = e.task(lambda: accepted.extend(listener.accept()[0] for _ in range(COUNT)))
        start, started = os.pipe()
        full, filled = os.pipe()

        def work():
            socks = [e.connect(listener, prepare=lambda sock: sock.set(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * SIZE))
                     for _ in range(COUNT)]
            e.task(fill, socks)
            return socks

        def fill(socks):
            os.read(start, 1)
            for sock in socks:
                sock.setblocking(False)
                while e.error(calls.send, sock, b"y" * 10000) == "ok":
                    pass
            os.write(filled, b"x")

        go, child = in_group(e, group, work)
        task.result()
        before = group.charged()
        os.write(started, b"x")
        os.read(full, 1)
        grows(e, group, before, COUNT * SIZE, "unsent bytes")
        os.close(go)
        child.result()
        for sock in accepted:
            sock.close()
        falls(e, group, before, "unsent bytes")
    e.note("charged", True)


@case
def of_who_accepts(e):
    """A listener from outside the group: a socket that is accepted in the group belongs to the
    group."""
    with Group(e) as group:
        listener = e.listen("self", backlog=COUNT)
        peers = [e.connect(listener, "peer") for _ in range(COUNT)]
        go, child = in_group(e, group, lambda: [listener.accept()[0] for _ in range(COUNT)])
        before = group.charged()
        for near in peers:
            near.sendall(b"x" * SIZE)
        grows(e, group, before, COUNT * SIZE // 2, "unread bytes")
        os.close(go)
        child.result()
        falls(e, group, before, "unread bytes")
    e.note("charged", True)


@case
def unread_before_accept(e):
    """Bytes that arrive before accept() are charged once, and uncharged."""
    with Group(e) as group:
        listener = e.listen("self", backlog=COUNT)
        peers = [e.connect(listener, "peer") for _ in range(COUNT)]
        for near in peers:
            near.sendall(b"x" * 20000)
        e.wait(listener)
        before = group.charged()
        go, child = in_group(e, group, lambda: [e.unread(listener.accept()[0], 20000) for _ in range(COUNT)])
        os.close(go)
        child.result()
        e.until(lambda: group.charged() - before < SIZE // 4,
                lambda: f"the charge given back: {group.charged() - before} stay")
    e.note("charged", True)
