# SPDX-License-Identifier: GPL-2.0-only
"""Detached blocks, of MSG_ZEROCOPY and of asynchronous sends, when the device, the namespace, the
module, the process or the reading peer ends. No page stays pinned or protected."""

import os
import socket
import subprocess
import time

from lib import calls, consts, memory, netns, observe, pattern
from lib.registry import case
from suites.lifecycle.states import sleeps, without
from suites.zcopy import protected
from suites.zcopy.blocks import MIB, unpinned
from suites.zcopy.notified import Told, asking, give

TCP = socket.IPPROTO_TCP
BLOCKS = 3
PATIENCE = 2000     # milliseconds, of TCP_USER_TIMEOUT
LIMIT = 50          # seconds, less than a closed socket has without TCP_USER_TIMEOUT


def asked(e, sock):
    """Blocks of MSG_ZEROCOPY in flight."""
    sock.set(socket.SOL_SOCKET, consts.SO_ZEROCOPY, 1)
    return give(e, sock, 1, BLOCKS)


def at_once(e, sock):
    """Blocks of protected memory, sent by calls that have returned."""
    sock.set(TCP, consts.SDP_ZCOPY_THRESH, 65536)
    sock.set(TCP, consts.SDP_ASYNC_SEND, 1)
    m = memory.Raw(BLOCKS * MIB)
    m.bytes = pattern.Pattern(1).at(0, m.size)
    counters = protected.Counters()
    for n in range(BLOCKS):
        e.equal(sock.send(protected.view(memory.Raw.at(m.address + n * MIB, MIB))), MIB, "sent")
    e.equal(counters.gained("async blocks"), BLOCKS, "blocks of sends that returned at once")
    return m


def writable(e, m):
    """Checks that a write does not wait."""
    e.task(protected.write, m, 0, 0x33, m.size).result()


def pinned(e):
    e.check(observe.stats("self")["pinned pages send"] > 0, "nothing is pinned, so that this shows nothing")


@case(reference=False, families=("v4",), timeout=120)
def device_removed(e):
    """`rdma link del` of either end's device with blocks in flight: programs get an error, and can
    write to their memory again."""
    e.needs_wire()
    for where, name in (("self", "rxe0"), ("peer", "rxe1")):
        near, _ = asking(e)
        told, _ = Told(e, near), asked(e, near)
        other, _ = e.pair()
        m = at_once(e, other)
        pinned(e)
        with without(where, name):
            e.until(lambda t=told: t.look() == BLOCKS, f"{where}: the notifications", 4 * e.patience)
            writable(e, m)
            unpinned(e)
        for sock in (near, other):
            e.check(e.error(sock.send, b"x") in ("ECONNRESET", "EPIPE", "ETIMEDOUT", "ENODEV"), f"{where}: the connection goes on")
            sock.close()


class Sender:
    """A process with blocks in flight and the only descriptor of their socket. `far` is the peer of
    the process.
    """

    def __init__(self, e, give_them):
        near, self.far = e.pair()
        near.set(TCP, socket.TCP_USER_TIMEOUT, PATIENCE)
        ready, tell = os.pipe()
        stop, self._stop = os.pipe()

        def live():
            kept = give_them(e, near)
            os.write(tell, b"r")
            os.close(self._stop)
            os.read(stop, 1)
            return len(kept) if isinstance(kept, list) else kept.size

        self.child = e.child(live)
        near.close()
        os.close(tell)
        e.equal(os.read(ready, 1), b"r", "the sender")
        os.close(ready)
        os.close(stop)

    def exit(self):
        os.close(self._stop)
        self.child.result()

    def kill(self):
        self.child.kill()
        os.close(self._stop)


@case(reference=False, families=("v4",), timeout=120)
def nobody_takes_them(e):
    """The sender closes, exits or is killed, and the peer reads nothing: the connection ends after
    TCP_USER_TIMEOUT."""
    for give_them in (asked, at_once):
        for end in ("close", "exit", "kill"):
            kept = None
            if end == "close":
                near, far = e.pair()
                near.set(TCP, socket.TCP_USER_TIMEOUT, PATIENCE)
                kept = give_them(e, near)
                pinned(e)
                name = far.getpeername()[:2]
                near.close()
            else:
                process = Sender(e, give_them)
                far = process.far
                name = far.getpeername()[:2]
                pinned(e)
                process.exit() if end == "exit" else process.kill()
            if isinstance(kept, memory.Raw):
                # the program may write, whether or not the peer reads the bytes
                writable(e, kept)
            # on a local connection the rows include the peer
            e.until(lambda: all(row.local != name for row in observe.rows("self")), f"{give_them.__name__}, {end}: the end of the socket", LIMIT)
            unpinned(e)
            far.close()


def rmmod():
    done = subprocess.run(["rmmod", "ib_sdp"], capture_output=True, text=True)
    return done.returncode, done.stderr.strip()


@case(reference=False, families=("v4",), timeout=120)
def module_unloaded(e):
    """rmmod is refused while blocks exist, even of a closed socket. After the blocks have ended,
    rmmod does not wait for a program whose memory was protected. The program may then write to the
    memory."""
    kept, listener = [], e.listen()
    for give_them in (asked, at_once):
        near, far = e.pair(listener)
        kept.append(give_them(e, near))
        for closed in (False, True):
            if closed:
                near.close()
            status, said = rmmod()
            e.check(status != 0 and "in use" in said, f"rmmod: {status} {said}")
        # closes with unread bytes
        far.close()
    listener.close()
    e.until(lambda: not any(observe.rows(where) for where in netns.hosts()), "the end of the sockets")
    unpinned(e)
    e.until(lambda: rmmod()[0] == 0, lambda: f"rmmod: {rmmod()}", 6 * e.patience)
    try:
        writable(e, kept[1])
    finally:
        done = subprocess.run(["insmod", observe.MODULE], capture_output=True, text=True)
        e.equal((done.returncode, done.stderr), (0, ""), "insmod")
    near, far = e.pair()
    near.send(b"again")
    e.equal(far.recv(9), b"again", "after that")


@case(reference=False, families=("v4",), timeout=120)
def namespace_goes(e):
    """The last process of a network namespace dies with blocks in flight: blocks with a reader
    arrive, other blocks end, and the namespace ends."""
    own, other, name = "10.79.0.1", "10.79.0.2", "flight"
    netns.run("self", f"ip netns add {name}")
    try:
        netns.run("self", f"ip link add flight0 mtu 9000 type veth peer name flight1 netns {name}")
        for prefix, link, address in (("", "flight0", own), (f"ip netns exec {name} ", "flight1", other)):
            netns.run("self", f"{prefix}ip addr add {address}/24 dev {link}")
            netns.run("self", f"{prefix}ip link set {link} up")
            netns.run("self", f"{prefix}rdma link add {link} type rxe netdev {link}")
        listener = e.listen("self", host=own, backlog=16)
        space = os.open(f"/run/netns/{name}", os.O_RDONLY)
        ready, tell = os.pipe()

        def live():
            calls.setns(space)
            os.close(space)
            kept = []
            for give_them in (asked, at_once):
                for is_read in (True, False):
                    sock = e.socket()
                    sock.connect(e.address(own, listener.port))
                    if not is_read:
                        sock.set(TCP, socket.TCP_USER_TIMEOUT, 3000)
                    kept.append((sock, give_them(e, sock)))
            os.write(tell, b"r")
            kept[0][0].recv(1)

        child = e.child(live)
        os.close(space)
        fars = [e.keep(listener.accept()[0]) for _ in range(4)]
        e.equal(os.read(ready, 1), b"r", "the process in the namespace")
        e.until(lambda: sleeps(child.pid, "recvfrom"), "its sleep")
    finally:
        netns.run("self", f"ip netns del {name}")
    child.kill()
    for far in fars[::2]:
        e.equal(pattern.receive(far, 1, BLOCKS * MIB + 1, [MIB]), BLOCKS * MIB, "bytes, and then the end")
    e.until(lambda: not netns.has_link("self", "flight0"), "the end of the namespace's devices", 9 * e.patience)
    unpinned(e)
    for descriptor in (ready, tell):
        os.close(descriptor)


@case(reference=False, families=("v4",), timeout=120)
def touched_once(e):
    """A write to a block in flight does not affect later blocks, which are not copied. A peer that
    holds the blocks for long has ten seconds to reply to a cancel."""
    near, far = e.pair()
    near.set(TCP, consts.SDP_ZCOPY_THRESH, 65536)
    near.set(TCP, consts.SDP_ASYNC_SEND, 1)
    m = memory.Raw(16 * MIB).fill(1)
    counters = protected.Counters()

    def sends():
        near.send(protected.view(memory.Raw.at(m.address, MIB)))
        protected.write(m, 0, 0x22, 100)
        end, n = time.monotonic() + 12, 0
        while time.monotonic() < end:
            # some sends of the loop never complete
            n += 1
            near.sendall(protected.view(memory.Raw.at(m.address + n % 16 * MIB, MIB)))
        near.shutdown(socket.SHUT_WR)
        return n + 1

    task = e.task(sends)
    e.until(lambda: counters.gained("async touched"), "the touch")
    got, buffer = 0, bytearray(MIB)
    while n := far.recv_into(buffer, MIB, socket.MSG_WAITALL):
        got += n
        time.sleep(0.05)    # a slow reader: the time matters, not the amount
    e.equal(got, task.result() * MIB, "bytes")
    e.equal(counters.gained("async touched"), 1, "touches")
    e.check(counters.gained("async copied") <= 8, f"blocks that were copied: {counters.gained('async copied')}")
    near.close()
    far.close()
    unpinned(e)
