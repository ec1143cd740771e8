# SPDX-License-Identifier: GPL-2.0-only
"""Kernel users of sockets: a module (tests/guest/kernel) that makes the socket calls of sunrpc, DLM
or NVMe."""

import mmap
import os
import pathlib
import socket
import subprocess
import time

from lib import calls, netns, observe
from lib.registry import case
from suites.zcopy.blocks import Counters, unpinned
from suites.zcopy.figures import parameter

ORDERS = "/proc/sdp_kernel_user"
BUILT = pathlib.Path(__file__).resolve().parents[4] / "build" / "tests" / os.uname().release / "sdp_kernel_user.ko"


def order(e, command, address, port, count=0):
    """Sends a command to the module. Returns the module's output, line by line."""
    if not os.path.exists(ORDERS):
        if not BUILT.exists():
            e.skip("the module is not built (scripts/test-module)")
        subprocess.run(["insmod", BUILT], check=True)
    with open(ORDERS, "r+b", buffering=0) as file:
        file.write(f"{command} {int(e.domain)} {address} {port} {count}".encode())
        file.seek(0)
        return file.read(4096).decode().splitlines()


PERIOD = bytes((at * 7 + (at >> 8)) & 255 for at in range(1 << 16))


def pattern(start, count):
    at = start % len(PERIOD)
    return (PERIOD * ((at + count) // len(PERIOD) + 1))[at:at + count]


def echo(sock):
    """Echoes received bytes until the end of the stream; returns the number of bytes."""
    total = 0
    while data := sock.recv(30000):
        sock.sendall(data)
        total += len(data)
    sock.shutdown(socket.SHUT_WR)
    return total


def serving(e, listener):
    """A task that echoes on one connection."""
    def serve():
        far, _ = listener.accept()
        try:
            return echo(far)
        finally:
            far.close()
    return e.task(serve)


@case
def serves(e):
    """A kernel server of one connection that makes blocking calls, and a non-blocking kernel server
    without a client."""
    port = e.refused_port("self")
    e.note("told of nobody", order(e, "nobody", e.here, port))
    task = e.task(order, e, "serve", e.here, port)
    near = e.socket("peer")
    e.until(lambda: e.error(near.connect, e.address(e.here, port)) == "ok", "the kernel's listener")
    total = 200000
    sender = e.task(lambda: near.sendall(pattern(0, total)) or near.shutdown(socket.SHUT_WR))
    e.equal(near.drain(), pattern(0, total), "the echo")
    sender.result()
    e.note("told", task.result())


@case
def asks(e):
    """A kernel client, by blocking calls."""
    listener = e.listen()
    server = serving(e, listener)
    e.note("told", order(e, "ask", e.there, listener.port, 300000))
    e.note("echoed", server.result())


@case
def asks_without_io(e):
    """Like `asks`, but with GFP_NOIO allocations and the memory reserves, as for a kernel user that
    frees memory by sending (swap, a block device)."""
    for command in ("frugal", "reclaim"):
        listener = e.listen()
        server = serving(e, listener)
        told = order(e, command, e.there, listener.port, 100000)
        if told[-1].startswith("memory"):
            how = told.pop()
            e.check(how == "memory as allowed" or e.domain == e.family, f"{command}: {how}")      # TCP's allocation mode is not visible
        e.note(f"told, {command}", told)
        e.note(f"echoed, {command}", server.result())


@case
def by_callbacks(e):
    """A kernel client that never waits in a call: callbacks report each state."""
    listener = e.listen()
    server = serving(e, listener)
    e.note("told", order(e, "events", e.there, listener.port, 3000000))
    e.note("echoed", server.result())


@case
def by_callbacks_to_nobody(e):
    """Callbacks report that the connection is refused."""
    e.note("told", order(e, "events", e.there, e.refused_port(), 1000))


@case
def by_callbacks_reset(e):
    """Callbacks report that the peer has disconnected."""
    listener = e.listen()
    task = e.task(order, e, "events", e.there, listener.port, 50000000)
    far, _ = listener.accept()
    far.recv(10)
    far.close()                         # with unread bytes
    lines = task.result()
    e.note("connect", lines[0])
    e.check("end 0 problem -104" in lines[1] or "end 0 problem -32" in lines[1], lines)
    e.check("states 1 data 0 " in lines[2] and lines[2].endswith("errors 1"), lines)


@case
def attends(e):
    """A kernel server of many connections, by callbacks alone."""
    port = e.refused_port("self")
    count, size = 12, 50000
    task = e.task(order, e, "attend", e.here, port, count)

    def client(number):
        with e.socket("peer") as near:
            e.until(lambda: e.error(near.connect, e.address(e.here, port)) == "ok", "the kernel's listener")
            data = pattern(number, size)
            for start in range(0, size, 10000):
                near.sendall(data[start:start + 10000])
                e.equal(near.recv_exactly(10000), data[start:start + 10000], "the echo")
            near.shutdown(socket.SHUT_WR)
            return near.recv(1)

    tasks = [e.task(client, number) for number in range(count)]
    e.note("ends", [task.result() for task in tasks])
    e.note("told", task.result())


@case
def both_ends(e):
    """Kernel on both ends."""
    port = e.refused_port()

    def peer():
        with netns.inside("peer"):
            return order(e, "attend", e.there, port, 1)

    task = e.task(peer)
    with e.socket() as probe:           # the first of the server's two clients is not the kernel's
        e.until(lambda: e.error(probe.connect, e.address(e.there, port)) == "ok", "the kernel's listener")
        probe.send(b"here")
        e.equal(probe.recv_exactly(4), b"here", "the echo")
    e.note("server", task.result())
    task = e.task(peer)
    e.until(lambda: (lines := order(e, "events", e.there, port, 400000))[1].startswith("sent 400000")
            and e.note("client", lines), "the kernel's listener")
    e.note("server of the kernel", task.result())


@case
def refused(e):
    e.note("told", order(e, "refused", e.there, e.refused_port()))


def gives_pages(e, command, count):
    """Returns the output of a kernel user that sends the given number of pages by MSG_SPLICE_PAGES;
    all pages arrive."""
    listener = e.listen()

    def receive():
        far, _ = listener.accept()
        try:
            return far.drain()
        finally:
            far.close()

    task = e.task(receive)
    told = order(e, command, e.there, listener.port, count)
    got = task.result()
    e.equal(len(got), count * mmap.PAGESIZE, "bytes")
    e.check(got == pattern(0, count * mmap.PAGESIZE), "other bytes than were sent")
    return told


@case
def pages(e):
    """MSG_SPLICE_PAGES, the way in which kernel users send pages."""
    e.note("told", gives_pages(e, "pages", 40))


@case(reference=False, timeout=60)
def pages_without_a_copy(e):
    """No such page is copied, although the sender drops its references at once, and many pages form
    a block. Memory that cannot be shared, and that TCP refuses, is copied; the sender can reuse the
    memory at once."""
    count = 320
    for command, share in (("pages", 1), ("slab", 0)):
        def attempt():
            counters = Counters()
            e.equal(gives_pages(e, command, count)[-1], f"pages {count}, then 0", "told")
            adverts = counters.gained("post_send SDP_MID_SRCAVAIL")
            unpinned(e)
            if not share:
                e.equal((counters.gained("zcopy tx_bytes"), adverts), (0, 0), "bytes not copied, and adverts")
            return not share or counters.gained("zcopy tx_bytes") == count * mmap.PAGESIZE and adverts <= 3
        with parameter("sdp_zcopy_thresh", 65536):
            e.lucky(attempt, "something was copied, or blocks were small")


@case
def options(e):
    e.note("told", order(e, "options", e.there, 1))


@case(timeout=60)
def takes_it_for_tcp(e):
    """Every exported tcp_sock_set_*() casts the socket to a tcp_sock, between zero-copy sends."""
    count, back = 512, 1 << 20
    listener = e.listen()

    def exchange():
        far, _ = listener.accept()
        try:
            sender = e.task(lambda: far.sendall(pattern(0, back)) or far.shutdown(socket.SHUT_WR))
            got = far.drain()
            sender.result()
            return got
        finally:
            far.close()

    task = e.task(exchange)
    e.note("told", order(e, "casts", e.there, listener.port, count))
    e.check(task.result() == pattern(0, count * mmap.PAGESIZE), "other bytes than were sent")


@case
def nodelay_is_heeded(e):
    """After tcp_sock_set_nodelay(), no small send waits for the previous send."""
    listener = e.listen()
    task = e.task(lambda: listener.accept()[0].drain())
    counters = Counters()
    e.note("told", order(e, "nodelay", e.there, listener.port, 6))
    e.equal(len(task.result()), 6, "bytes")
    if e.sdp:
        messages = counters.gained("post_send SDP_MID_DATA")    # including messages that carry credits
        e.check(messages >= 6, f"{messages} messages")


@case
def doorbell(e):
    """A server accepts a connection only after the sk_state_change callback that the connection
    inherits from its listener."""
    port = e.refused_port("self")
    task = e.task(order, e, "doorbell", e.here, port, 1)
    near = e.socket("peer")
    e.until(lambda: e.error(near.connect, e.address(e.here, port)) == "ok", "the kernel's listener")
    near.send(b"ring")
    e.equal(near.recv_exactly(4), b"ring", "the echo")      # an ended connection would be in another state
    near.shutdown(socket.SHUT_WR)
    e.equal(near.drain(), b"", "the end")
    e.note("told", task.result())


@case(timeout=60)
def forsaken(e):
    """No callback runs after the release of a listener with busy connections in its queue."""
    port, count = e.refused_port("self"), 6
    task = e.task(order, e, "forsaken", e.here, port, count)
    released = []

    def client():
        near = e.socket("peer")
        # the last connection may be reset before the client's connect(2) returns
        e.until(lambda: released or e.error(near.connect, e.address(e.here, port)) == "ok", "the kernel's listener")
        while e.error(near.send, b"here") == "ok":
            time.sleep(0.003)
        near.close()

    clients = [e.task(client) for _ in range(count)]
    told = task.result()
    released.append(True)
    e.note("told", told)
    for each in clients:
        each.result()


def leave_some(e):
    """Kernel users have sockets in a namespace that ends: the users close their sockets, and no
    resource is left."""
    name = "left"
    own, other = ("fd78::1", "fd78::2") if e.six else ("10.78.0.1", "10.78.0.2")
    bits = 64 if e.six else 24
    inside = f"ip netns exec {name} "
    netns.run("self", f"ip netns add {name}")
    try:
        netns.run("self", f"ip link add left0 mtu 9000 type veth peer name left1 netns {name}")
        for prefix, link, address in (("", "left0", own), (inside, "left1", other)):
            netns.run("self", f"{prefix}ip addr add {address}/{bits} dev {link}" + (" nodad" if e.six else ""))
            netns.run("self", f"{prefix}ip link set {link} up")
        if e.sdp:
            netns.run("self", "rdma link add left0 type rxe netdev left0")
            netns.run("self", f"{inside}rdma link add left1 type rxe netdev left1")
        listener = e.listen("self", host=own)
        space = os.open(f"/run/netns/{name}", os.O_RDONLY)

        def leave():
            calls.setns(space)
            return [order(e, "leave", host, port, count) for host, port, count in
                    ((other, 4000, 0), (other, 4001, 0), (own, listener.port, 1))]

        e.note("left", e.task(leave).result())
        os.close(space)
        far, _ = listener.accept()
        e.note("word", far.recv_exactly(11))
    finally:
        netns.run("self", f"ip netns del {name}")
    # the namespace ends with its last holder, and the connection ends with the namespace
    e.wait(far)
    e.check(e.outcome(far.recv, 10) in (b"", "ECONNRESET"), "the end of the connection")
    far.close()
    e.until(lambda: not netns.has_link("self", "left0"), "the end of the namespace's devices")


@case(timeout=90)
def left_in_a_namespace(e):
    leave_some(e)


@case(timeout=120, reference=False)
def left_after_the_family(e):
    """Like `leave_some`, but the kernel loads the family after its user, so that the family's part
    of each namespace ends first."""
    order(e, "options", e.here, 1)
    for command in (["rmmod", "ib_sdp"], ["insmod", observe.MODULE]):
        def run():
            return subprocess.run(command, capture_output=True, text=True)
        e.until(lambda: run().returncode == 0, lambda: f"{command}: {run().stderr.strip()}")
    leave_some(e)
