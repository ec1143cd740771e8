# SPDX-License-Identifier: GPL-2.0-only
"""Connections with both ends in one network namespace, without an RDMA device."""

import fcntl
import glob
import os
import select
import signal
import socket
import subprocess

from lib import calls, consts, netns, observe, pattern
from lib.registry import case

HERE = (0,)
MIB = 1 << 20


def rdma_packets():
    """Returns the packets sent by all RDMA devices."""
    total = 0
    for path in glob.glob("/sys/class/infiniband/*/ports/1/hw_counters/sent_pkts"):
        with open(path) as file:
            total += int(file.read())
    return total


def settled(e):
    """Waits until the module has no sockets."""
    e.until(lambda: not observe.rows(), lambda: f"{len(observe.rows())} sockets stay", patience=e.patience * 6)


@case(hosts=HERE)
def loopback(e):
    """127.0.0.1 and ::1: addresses, data in both directions, the end of the stream."""
    listener = e.listen(host=e.loopback)
    near = e.socket()
    near.connect(e.address(e.loopback, listener.port))
    far, peer = listener.accept()
    e.note("listener", listener.getsockname()[0])
    e.note("near", (near.getsockname()[0], near.getpeername()[0], near.getpeername()[1] == listener.port))
    e.note("far", (far.getsockname()[0], far.getpeername()[0], far.getpeername()[1] == near.port, peer[1] == near.port))
    near.send(b"to and")
    e.note("there", far.recv(10))
    far.send(b"fro")
    e.note("back", near.recv(10))
    near.close()
    e.note("end", far.recv(10))


@case(hosts=HERE)
def every_own_address(e):
    """Connections between any addresses of 127.0.0.0/8 and of the namespace."""
    hosts = ["fd77::1", "fd77::2", "::1"] if e.six else ["10.77.0.1", "10.77.0.2", "127.0.0.1", "127.9.8.7"]
    for to in hosts:
        listener = e.listen(host=to)
        for bound in [None, *hosts]:
            near = e.socket()
            if bound:
                near.bind(e.address(bound, 0))
            near.connect(e.address(to, listener.port))
            far, _ = listener.accept()
            e.note(f"{bound} to {to}", (near.getsockname()[0], far.getpeername()[0], far.getsockname()[0]))
            near.send(b"x")
            e.equal(far.recv(10), b"x", "data")
            near.close()
            far.close()


@case(hosts=HERE)
def wildcards(e):
    """A connection to the wildcard address reaches this host; a listener on the wildcard address is
    reached by every address."""
    listener = e.listen(host=e.any)
    for host in (e.loopback, e.here, e.there, e.any):
        near = e.socket()
        near.connect(e.address(host, listener.port))
        far, _ = listener.accept()
        e.note(host, (near.getsockname()[0], near.getpeername()[0], far.getsockname()[0], far.getpeername()[0]))
        near.close()
        far.close()


@case(hosts=HERE, families=("v6",))
def mapped(e):
    """An IPv6 socket that uses IPv4 addresses connects to an IPv4 socket, and the other way
    round."""
    listener = e.listen(host="::")
    near = e.socket()
    near.connect(("::ffff:127.0.0.1", listener.port, 0, 0))
    far, _ = listener.accept()
    e.note("names", (near.getsockname()[0], near.getpeername()[0], far.getsockname()[0], far.getpeername()[0]))
    near.send(b"x")
    e.note("data", far.recv(10))


@case(hosts=HERE)
def refused(e):
    """Connects to a port without a listener, and to a port whose listener has closed."""
    e.note("nobody", e.error(e.socket().connect, e.address(e.loopback, e.refused_port())))
    listener = e.listen(host=e.loopback)
    port = listener.port
    e.equal(e.error(e.socket().connect, e.address(e.loopback, port)), "ok", "connect")
    listener.close()
    e.note("no longer", e.error(e.socket().connect, e.address(e.loopback, port)))


@case(hosts=HERE, reference=False)
def without_rdma(e):
    """No byte of a local connection passes an RDMA device, and a local connection needs no
    device."""
    before = rdma_packets()
    near, far = e.pair()
    task = e.task(pattern.send, near, 5, 2 * MIB, [100000])
    e.equal(pattern.receive(far, 5, 2 * MIB, [70000]), 2 * MIB, "bytes")
    task.result()
    e.equal(rdma_packets(), before, "packets of RDMA devices")


@case(hosts=HERE, reference=False)
def counted(e):
    """The counters keep the bytes of closed connections."""
    near, far = e.pair()
    port, before = near.port, observe.stats()
    near.send(b"to and")
    e.equal(len(far.recv_exactly(6)), 6, "bytes")
    near.close()
    far.close()
    e.until(lambda: all(port not in (row.local[1], row.remote[1]) for row in observe.rows()), "the end of both sockets")
    after = observe.stats()
    e.equal([after[name] - before[name] for name in ("tx_bytes", "rx_bytes")], [6, 6], "bytes sent and received")


@case(hosts=HERE, reference=False)
def switched_off(e):
    """With local_transport=0 a connection needs an RDMA device, but no device exists."""
    near, far = e.pair()
    listener = e.listen()
    netns.local_transport(False)
    try:
        e.equal(e.error(e.socket().connect, e.address(e.there, listener.port)), "ENETUNREACH", "connect")
    finally:
        netns.local_transport(True)
    near.send(b"still there")
    e.equal(far.recv(20), b"still there", "data")
    e.equal(e.error(e.socket().connect, e.address(e.there, listener.port)), "ok", "connect")


@case(hosts=HERE)
def other_namespace(e):
    """127.0.0.1 of another namespace is another host."""
    listener = e.listen(host=e.loopback)

    def elsewhere():
        netns.unshare()
        netns.run("self", "ip link set lo up")
        sock = e.socket()
        refused = e.error(sock.connect, e.address(e.loopback, listener.port))
        own = e.listen(host=e.loopback, port=listener.port)
        near = e.socket()
        near.connect(e.address(e.loopback, own.port))
        far, _ = own.accept()
        near.send(b"here")
        return refused, far.recv(10)

    e.note("elsewhere", e.child(elsewhere).result())
    listener.setblocking(False)
    e.note("accept", e.error(listener.accept))


@case(hosts=HERE, reference=False, timeout=60)
def nothing_is_left(e):
    """A namespace ends with connections in every state. Counters, sockets and module references of
    the namespace end with it."""
    before = references()

    def lives_and_dies():
        netns.unshare()
        netns.run("self", "ip link set lo up")
        kept = []
        listener = e.listen(host=e.loopback)
        for _ in range(5):
            near = e.socket()
            near.connect(e.address(e.loopback, listener.port))
            far, _ = listener.accept()
            kept.append((near, far))
        kept[0][0].send(bytes(100000))
        kept[1][0].close()
        kept[2][1].shutdown(socket.SHUT_WR)
        waits = e.socket()
        waits.connect(e.address(e.loopback, listener.port))
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        lives_and_dies()
        os._exit(1)
    e.equal(os.waitpid(child, 0)[1], signal.SIGKILL, "end of the child")
    e.until(lambda: references() <= before, lambda: f"{references()} references, {before} before", patience=e.patience * 6)


def references():
    with open("/sys/module/ib_sdp/refcnt") as file:
        return int(file.read())


@case(hosts=HERE, timeout=60)
def killed(e):
    """A process dies while it sends: the peer reads the sent bytes, then the end of the stream."""
    listener = e.listen(host=e.loopback)

    def send_on():
        near = e.socket()
        near.connect(e.address(e.loopback, listener.port))
        while True:
            near.sendall(bytes(50000))

    child = e.child(send_on)
    far, _ = listener.accept()
    got = far.recv_exactly(500000)
    e.equal(got, bytes(500000), "bytes")
    child.kill()
    end = None
    while end is None:
        data = e.outcome(far.recv, 100000)
        end = data if not data or isinstance(data, str) else None
    e.note("end", end)
    far.close()
    listener.close()
    if e.sdp:
        settled(e)


@case(hosts=HERE, timeout=60)
def killed_reader(e):
    """A sender gets an error when the peer dies with bytes unread."""
    listener = e.listen(host=e.loopback)

    def read_a_little():
        near = e.socket()
        near.connect(e.address(e.loopback, listener.port))
        near.recv_exactly(1000)
        select.poll().poll()

    child = e.child(read_a_little)
    far, _ = listener.accept()
    far.send(bytes(100000))
    child.wait_asleep("poll")
    child.kill()
    e.note("mask", "ERR" in e.wait_mask(far, "HUP"))
    e.note("send", e.error(far.send, b"x"))


@case(hosts=HERE)
def nobody_looks(e):
    """Bytes arrive at a socket without a call, poller or worker. The socket's next call finds bytes
    that arrived without an event."""
    near, far = e.pair()
    e.wait_mask(near, "OUT")
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(3):
        far.send(bytes(100))
    if e.sdp:
        e.equal(observe.row_of(near).receive, 300, "bytes in the row of /proc/net/sdp")
    e.unread(near, 300)
    e.note("a part", len(near.recv(50)))
    far.send(bytes(100))
    e.note("the rest, of two times", len(near.recv(1000)))
    far.send(b"x")
    e.wait_mask(near, "IN|OUT")
    e.note("not waited for", near.recv(10, socket.MSG_DONTWAIT))
    far.send(b"y")
    e.note("looked at", near.recv(10, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    far.shutdown(socket.SHUT_WR)
    if e.sdp:
        # without a call on the socket
        e.until(lambda: observe.row_of(near).state == "CLOSE_WAIT", lambda: f"the state stays {observe.row_of(near).state}")
    e.note("all of it", near.recv(10))
    e.note("and the end", near.recv(10))


@case(hosts=HERE)
def watched_later(e):
    """SIGIO reports bytes that arrive at a socket that had no poller at its last call."""
    near, far = e.pair()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    for _ in range(5):
        far.send(b"before")
        e.unread(near, 6)
        e.equal(near.recv(10), b"before", "data")
    fcntl.fcntl(near, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(near, fcntl.F_SETFL, fcntl.fcntl(near, fcntl.F_GETFL) | os.O_ASYNC)
    far.send(b"after")
    e.note("signal", signal.sigtimedwait({signal.SIGIO}, e.patience) is not None)
    e.note("what it is for", near.recv(10))


@case(hosts=HERE)
def nobody_looked(e):
    """Bytes that arrived without an event count as unread: close(2) resets the connection."""
    near, far = e.pair()
    near.send(b"y")
    e.note("the other way", far.recv(10))
    far.send(b"x")
    near.close()
    e.wait(far, select.POLLHUP)
    e.note("the sender", e.error(far.recv, 10))


@case(hosts=HERE, reference=False, timeout=120)
def full_backlog(e):
    """Connections beyond the backlog are established when the backlog has space. (With SYN cookies
    TCP drops some connections beyond the backlog.)"""
    listener = e.listen(host=e.loopback, backlog=1)
    waiting = []
    for _ in range(5):
        sock = e.socket()
        sock.setblocking(False)
        e.error(sock.connect, e.address(e.loopback, listener.port))
        waiting.append(sock)
    for _ in range(5):
        listener.accept()[0].send(b"x")
    for sock in waiting:
        e.wait(sock, patience=e.patience * 3)
        e.equal(sock.recv(10), b"x", "data")


@case(hosts=HERE, reference=False, timeout=180)
def many(e):
    """500 connections at once, each with data in both directions."""
    listener = e.listen(backlog=1024)
    pairs = [e.pair(listener) for _ in range(500)]
    for number, (near, far) in enumerate(pairs):
        near.send(b"%d" % number)
        far.send(b"-%d" % number)
    for number, (near, far) in enumerate(pairs):
        e.equal((far.recv(10), near.recv(10)), (b"%d" % number, b"-%d" % number), "data")
    for near, far in pairs:
        near.close()
        far.close()
    listener.close()
    settled(e)


@case(hosts=HERE, timeout=120)
def large(e):
    """16 MiB in each direction at once, in sends of many sizes."""
    near, far = e.pair()
    total = 16 * MIB
    tasks = [e.task(pattern.send, near, 1, total, [1, 100, 4096, 65536, 300001]),
             e.task(pattern.send, far, 2, total, [32768, 70000, 7]),
             e.task(pattern.receive, near, 2, total, [MIB, 100, 33000]),
             e.task(pattern.receive, far, 1, total, [65536, 5])]
    e.note("bytes", [task.result() for task in tasks])


@case(hosts=HERE, reference=False, families=("v4",), timeout=60)
def few_sends_a_connection(e):
    """Large sends of a connection copy once instead of twice from 1 MiB on, without earlier
    measurements."""
    for size, direct in ((MIB - 1, False), (MIB, True), (4 * MIB, True)):
        near, far = e.pair()
        task = e.task(far.recv_exactly, 2 * size)
        near.sendall(bytes(size))
        near.sendall(bytes(size))
        task.result()
        told = observe.info(near)
        e.equal(told["tx_read"] + told["tx_written"] > 0, direct, f"{size} bytes: whether any were not copied")
        near.close()
        far.close()


@case(hosts=HERE, reference=False, timeout=60)
def to_itself(e):
    """Each end receives bytes into the buffer from which it sends."""
    near, far = e.pair()
    near.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, 4096)
    shared = bytearray(pattern.Pattern(3).at(0, MIB))
    want = bytes(shared)
    task = e.task(near.sendall, shared)
    got = 0
    while got < MIB:
        got += far.recv_into(memoryview(shared)[got:], MIB - got)
    task.result()
    e.equal(bytes(shared), want, "the buffer")


@case(hosts=HERE, reference=False, families=("v4",), timeout=120)
def without_any_device(e):
    """No RDMA device in the whole machine."""
    names = [line.split()[1].split("/")[0] for line in subprocess.run(["rdma", "link"], capture_output=True, text=True).stdout.splitlines()]
    e.check(names, "there are no devices to begin with")
    for name in names:
        subprocess.run(["rdma", "link", "del", name], check=True)
    e.check(not glob.glob("/sys/class/infiniband/*"), "devices are left")
    near, far = e.pair()
    task = e.task(pattern.send, near, 5, MIB, [100000])
    e.equal(pattern.receive(far, 5, MIB, [70000]), MIB, "bytes")
    task.result()


@case(hosts=HERE, reference=False, families=("v4",), timeout=120)
def unload(e):
    """The module can be unloaded once its local connections are closed."""
    settled(e)
    near, far = e.pair()
    near.send(bytes(100000))
    done = subprocess.run(["rmmod", "ib_sdp"], capture_output=True, text=True)
    e.check(done.returncode != 0, "rmmod with a connection")
    near.close()
    far.close()
    e._keep.clear()
    e.until(lambda: references() == 0, lambda: f"{references()} references stay", patience=e.patience * 6)
    done = subprocess.run(["rmmod", "ib_sdp"], capture_output=True, text=True)
    e.equal((done.returncode, done.stderr), (0, ""), "rmmod")
    done = subprocess.run(["insmod", observe.MODULE], capture_output=True, text=True)
    e.equal((done.returncode, done.stderr), (0, ""), "insmod")
    near, far = e.pair()
    near.send(b"again")
    e.equal(far.recv(10), b"again", "data")


@case(hosts=HERE, reference=False, families=("v4",))
def small_ones(e):
    """Small messages wait until earlier messages are drained: each call sends all waiting messages;
    without a call, a timer sends them."""
    near, far = e.pair()
    for byte in (b"a", b"b", b"c"):
        near.send(byte)
    e.equal(calls.ioctl_int(far, consts.SIOCINQ), 3, "SIOCINQ")
    e.equal(far.recv(10), b"abc", "after SIOCINQ")
    for byte in (b"d", b"e", b"f"):
        near.send(byte)
    e.equal(far.recv(10, socket.MSG_DONTWAIT), b"def", "recv at once")
    with select.epoll() as watch:
        watch.register(far.fileno(), select.EPOLLIN | select.EPOLLET)
        for byte in (b"g", b"h", b"i"):
            near.send(byte)
        got = b""
        while len(got) < 3:     # the pipe got less than requested: more bytes arrive only with the next edge
            e.check(watch.poll(10), f"no edge after {got}")
            got += far.recv(10)
        e.equal(got, b"ghi", "at edges")
    for byte in (b"j", b"k", b"l"):
        near.send(byte)
    e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQNSD) == 0, lambda: "they wait for whoever does not look")
    e.equal(far.recv(10), b"jkl", "in time")
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in (b"m", b"n", b"o"):
        near.send(byte)
        e.equal(calls.ioctl_int(near, consts.SIOCOUTQNSD), 0, "not sent with TCP_NODELAY")
