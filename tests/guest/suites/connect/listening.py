# SPDX-License-Identifier: GPL-2.0-only
"""listen() and accept()."""

import fcntl
import os
import select
import socket
import struct
import time

from lib import calls, consts, netns, observe
from lib.registry import case
from lib.sock import Sock

BEDS = (1, 2)
SOL = socket.SOL_SOCKET


@case
def states(e):
    """listen() in every state."""
    bound = e.bound("self")
    e.note("bound", e.error(bound.listen, 3))
    e.note("again", e.error(bound.listen, 5))
    e.note("negative backlog", e.error(calls.listen, bound, -1))
    e.note("huge backlog", e.error(calls.listen, bound, 1 << 30))
    near, far = e.pair()
    e.note("connected", e.error(near.listen, 1))
    e.note("accepted", e.error(far.listen, 1))


@case
def calls_on_a_listener(e):
    """Calls that a listener does not support."""
    sock = e.listen()
    e.note("recv", e.error(calls.recv, sock, 1))
    e.note("recv without waiting", e.error(calls.recv, sock, 1, socket.MSG_DONTWAIT))
    e.note("recv urgent", e.error(calls.recv, sock, 1, socket.MSG_OOB))
    e.note("send", e.error(calls.send, sock, b"x", socket.MSG_NOSIGNAL))
    e.note("peer", e.error(sock.getpeername))
    e.note("inq", e.outcome(calls.ioctl_int, sock, consts.SIOCINQ))
    e.note("outq", e.outcome(calls.ioctl_int, sock, consts.SIOCOUTQ))
    e.note("at mark", e.outcome(calls.ioctl_int, sock, consts.SIOCATMARK))
    e.note("mask", sock.mask())
    e.note("shutdown for writing", e.error(sock.shutdown, socket.SHUT_WR))
    e.note("still listening", sock.get(SOL, socket.SO_ACCEPTCONN))


@case(reference=False, timeout=60)
def anew(e):
    """A listener closes while a connection to it is in progress: the connection does not go to the
    next listener of the port, and takes no place in the backlog of that listener."""
    with e.netem("delay 200ms"):
        listener = e.listen(backlog=0)
        old = e.socket()
        task = e.task(old.connect, e.address(e.there, listener.port))
        e.until(lambda: any(row.state == "SYN_RECV" for row in observe.rows("peer")), "the request")
        listener.shutdown(socket.SHUT_RD)
        calls.listen(listener, 0)
        task.result()
        e.equal(e.outcome(calls.recv, old, 1), "ECONNRESET", "what the old one receives")
        new = e.connect(listener)
        far, _ = listener.accept()
        new.send(b"new")
        e.equal(far.recv(9), b"new", "data")


@case(families=("v4",), reference=False, timeout=300)
def never_ready(e):
    """A client that never confirms the reply holds a place in the backlog for a minute. After a
    minute, that place in the backlog is free for other clients."""
    listener = e.listen(backlog=0)

    def here():
        return any(row.state == "SYN_RECV" for row in observe.rows("peer"))

    def wire(where, words):
        netns.run(where, f"tc qdisc replace dev {netns.device(where)} root netem {words}")

    def attempt():
        near = e.socket()
        task = e.task(near.connect, e.address(e.there, listener.port))
        e.until(here, "the request")
        wire("self", "loss 100%")
        in_time = task.is_alive()
        task.result()
        near.close()
        if in_time:
            return True
        # the client's last message may still be in flight; this allows more time for the next
        # connection
        wire("self", "delay 100ms")
        wire("peer", "delay 3s")
        listener.accept()[0].close()
        e.until(lambda: len(observe.rows("peer")) == 1, "the end of the connection")
        return False

    with e.netem("delay 500ms"):
        e.lucky(attempt, "the answer was heard of")
        e.until(lambda: not here(), "the end of the wait", 150)
    e.equal([row.state for row in observe.rows("peer")], ["LISTEN"], "sockets")
    new = e.connect(listener)
    far, _ = listener.accept()
    new.send(b"new")
    e.equal(far.recv(9), b"new", "data")


@case
def accept_nothing(e):
    sock = e.listen()
    sock.setblocking(False)
    e.note("nonblocking", e.error(sock.accept))
    sock.setblocking(True)
    sock.setsockopt(SOL, socket.SO_RCVTIMEO, struct.pack("=qq", 0, 200000))
    start = time.monotonic()
    e.note("with a time limit", e.error(calls.accept4, sock))
    e.waited(start, 0.2, "accept")
    e.note("bound only", e.error(calls.accept4, e.bound("self")))
    near, far = e.pair()
    e.note("connected", e.error(calls.accept4, near))
    e.note("bad flags", e.error(calls.accept4, sock, 1))


@case
def flags(e):
    """Flags of accept4(); the accepted socket does not inherit O_NONBLOCK."""
    listener = e.listen()
    for name, value in (("none", 0), ("cloexec", socket.SOCK_CLOEXEC), ("nonblock", socket.SOCK_NONBLOCK),
                        ("both", socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)):
        for waiting in (True, False):
            listener.setblocking(True)
            e.connect(listener)
            e.wait(listener)
            listener.setblocking(waiting)
            descriptor, _, _ = calls.accept4(listener, value)
            e.note(f"{name}, listener waits {waiting}",
                   (bool(fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC),
                    bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_NONBLOCK)))


@case
def addresses(e):
    """accept() without an address, and with a buffer too short for the address."""
    listener = e.listen()
    e.connect(listener)
    e.note("without", calls.accept_null(listener) > 0)
    for room in (0, 2, 8, 16, 28, 64):
        e.connect(listener)
        _, raw, length = calls.accept4(listener, 0, room)
        e.note(f"room {room}", (length, raw[:2], raw[4:8]))
    e.connect(listener)
    e.wait(listener)
    e.note("bad address", e.error(calls.plain, "accept4", listener.fileno(), 8, 8, 0))
    e.connect(listener)
    e.note("negative room", e.error(calls.accept4, listener, 0, -1))


@case
def wakes(e):
    """A connection wakes a blocked accept()."""
    listener = e.listen()
    task = e.task(listener.accept).wait_asleep("accept", "accept4")
    near = e.connect(listener)
    far, address = task.result()
    e.note("address", address == near.getsockname())
    poller = e.task(e.wait, listener).wait_asleep("poll")
    e.connect(listener)
    e.note("poll", poller.result())


@case
def wakes_one_of_many(e):
    """Several threads call accept(): each connection goes to one thread."""
    listener = e.listen()
    tasks = [e.task(listener.accept).wait_asleep("accept", "accept4") for _ in range(4)]
    ports = {e.connect(listener).port for _ in range(4)}
    e.note("each once", {task.result()[1][1] for task in tasks} == ports)


def times_slept(task):
    """Returns the number of voluntary context switches of the thread."""
    with open(f"/proc/self/task/{task.native_id}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))


@case
def wakes_no_others(e):
    """A new connection wakes only one thread."""
    listener = e.listen()
    tasks = [e.task(listener.accept).wait_asleep("accept", "accept4") for _ in range(6)]
    left = tasks
    woken = 0
    for _ in range(3):
        before = {task: times_slept(task) for task in left}
        e.connect(listener)
        e.until(lambda: not all(task.is_alive() for task in left), "a connection")
        left = [task for task in left if task.is_alive()]
        for task in left:
            task.wait_asleep("accept", "accept4")
        woken += sum(times_slept(task) > before[task] for task in left)
    e.note("woken for nothing", woken)
    e.note("left", len(left))
    listener.shutdown(socket.SHUT_RDWR)
    e.note("ends", [e.error(task.result) for task in left])


@case
def interrupted(e):
    listener = e.listen("self")
    e.note("signal", e.interrupt(lambda: calls.accept4(listener), "accept4"))
    listener.setsockopt(SOL, socket.SO_RCVTIMEO, struct.pack("=qq", int(e.patience), 0))
    e.note("with a time limit", e.interrupt(lambda: calls.accept4(listener), "accept4"))


@case
def shutdown_wakes(e):
    """shutdown() of a listener ends a blocked accept()."""
    for how in (socket.SHUT_RD, socket.SHUT_RDWR):
        listener = e.listen()
        task = e.task(calls.accept4, listener).wait_asleep("accept4")
        listener.shutdown(how)
        e.note(f"accept {how}", e.error(task.result))
        e.note(f"accept again {how}", e.error(calls.accept4, listener))
        e.note(f"mask {how}", listener.mask())
        e.note(f"connect {how}", e.error(e.socket().connect, e.address(e.there, listener.port or 9)))


@case
def queue(e):
    """Connections wait in order, with their data, until they are accepted."""
    listener = e.listen(backlog=8)
    clients = []
    for number in range(5):
        clients.append(e.connect(listener))
        clients[-1].send(b"word %d" % number)
        if e.sdp:
            # if two requests arrive together, the peer's two processors may handle them in either
            # order
            e.until(lambda: observe.row_of(listener, "peer").receive > number, "a connection that waits")
    e.note("mask", e.wait_mask(listener, "IN"))
    order = []
    for number in range(5):
        far, address = listener.accept()
        order.append((address[1] == clients[number].port, far.recv(20)))
    e.note("order", order)
    e.note("mask then", listener.mask())


def turned_away(e):
    """Returns the number of requests that the peer has dropped because of a full backlog."""
    if e.sdp:
        return observe.stats("peer")["- backlog full"]
    names, values = (line.split() for line in observe.read("/proc/thread-self/net/netstat", "peer").splitlines()[:2])
    return int(values[names.index("ListenOverflows")])


def crowd(e, listener, number):
    """Starts non-blocking connects one after another. Returns the number of connects that succeeded
    at once, and all sockets."""
    e.connect(listener).close()         # resolves the neighbour, so that no burst of requests has to wait
    listener.accept()[0].close()
    socks, through = [], 0
    for _ in range(number):
        sock, before = e.socket(), turned_away(e)
        sock.setblocking(False)
        e.error(sock.connect, e.address(e.there, listener.port))
        socks.append(sock)
        e.until(lambda: sock.mask(select.POLLOUT) != "-" or turned_away(e) > before, "an answer, or none")
        through += sock.mask(select.POLLOUT) != "-"
    return through, socks


def admit(e, listener, socks):
    """Accepts all connections of `socks`; each client sends its port once connected, and gets a
    reply."""
    poller, silent = select.poll(), {sock.fileno(): sock for sock in socks}
    for sock in socks:
        poller.register(sock.fileno(), select.POLLOUT)
    accepting = e.task(lambda: [listener.accept()[0] for _ in socks])
    while silent:
        ready = poller.poll(e.patience * 4000)
        e.check(ready, f"{len(silent)} of {len(socks)} are not connected")
        for number, _ in ready:
            sock = silent.pop(number)
            poller.unregister(number)
            e.equal(sock.get(SOL, socket.SO_ERROR), 0, "SO_ERROR of a connector")
            sock.send(b"%d" % sock.port)
    return sorted(int(far.recv(10)) for far in accepting.result()) == sorted(sock.port for sock in socks)


@case(hosts=BEDS, timeout=120)
def backlog(e):
    """A full accept queue makes clients wait; each accept() admits one client."""
    listener = e.listen(backlog=1)
    through, socks = crowd(e, listener, 6)
    e.note("through at once", through)
    e.note("none failed", [sock.get(SOL, socket.SO_ERROR) for sock in socks])
    e.note("masks", [sock.mask() for sock in socks])
    e.note("all in", admit(e, listener, socks))


@case(hosts=BEDS, timeout=90)
def backlog_zero(e):
    """A backlog of 0 still admits one connection at a time."""
    listener = e.listen(backlog=0)
    for turn in range(3):
        near = e.connect(listener)
        far, address = listener.accept()
        e.note(f"turn {turn}", address == near.getsockname())


@case(hosts=BEDS, timeout=120)
def backlog_raised(e):
    """A second listen() with a larger backlog accepts the waiting requests."""
    listener = e.listen(backlog=1)
    _, socks = crowd(e, listener, 6)
    listener.listen(16)
    for sock in socks:
        e.wait(sock, select.POLLOUT, patience=e.patience * 4)
    e.note("all in", admit(e, listener, socks))


@case
def gone_before_accept(e):
    """A client closes or resets its connection before the listener accepts the connection."""
    listener = e.listen()
    near = e.connect(listener)
    near.send(b"last words")
    near.close()
    far, _ = listener.accept()
    e.note("data", far.recv(100))
    e.note("end", far.recv(100))

    near = e.connect(listener)
    near.setsockopt(SOL, socket.SO_LINGER, struct.pack("=ii", 1, 0))
    e.wait(listener)
    near.close()
    far, address = listener.accept()
    e.note("reset", e.wait_mask(far, "HUP|ERR"))
    e.note("recv", e.error(calls.recv, far, 1))


@case
def close_with_pending(e):
    """Closing a listener resets its unaccepted connections."""
    listener = e.listen()
    socks = [e.connect(listener) for _ in range(3)]
    socks[1].send(b"unheard")
    e.wait(listener)
    listener.close()
    for number, sock in enumerate(socks):
        e.note(f"mask {number}", e.wait_mask(sock, "HUP"))
        e.note(f"recv {number}", e.error(calls.recv, sock, 1))
        e.note(f"end {number}", e.outcome(calls.recv, sock, 1))
    e.note("connect", e.error(e.socket().connect, e.address(e.there, socks[0].getsockname()[1])))


@case
def accepted_outlives(e):
    """An accepted socket outlives its listener."""
    listener = e.listen()
    near, far = e.pair(listener)
    port = listener.port
    listener.close()
    e.note("refused", e.error(e.socket().connect, e.address(e.there, port)))
    near.send(b"still here")
    e.note("data", far.recv(100))
    e.note("name", far.getsockname()[1] == port)


@case
def specific_before_wildcard(e):
    """The listener with the most specific address gets the connection."""
    exact = e.listen()
    wide = e.socket("peer")
    wide.set(SOL, socket.SO_REUSEADDR, 1)
    e.note("sharing", e.error(wide.bind, e.address(e.any, exact.port)))
    wide.close()
    both = []
    for host in (e.any, e.there):
        sock = e.socket("peer")
        sock.set(SOL, consts.SO_REUSEPORT, 1)
        sock.bind(e.address(host, both[0].port if both else 0))
        sock.listen(4)
        both.append(sock)
    e.connect(both[0])
    e.note("exact", e.wait(both[1]))
    e.note("wildcard", both[0].mask())


@case
def in_its_namespace(e):
    """A connection reaches the listener in the namespace that has the address, although listeners
    in other namespaces have the same port."""
    if netns.is_one():
        e.skip("both hosts are the same namespace")
    there = e.listen("peer", host=e.any)
    here = e.listen("self", port=there.port, host=e.any)
    near = e.connect(there)
    far, _ = there.accept()
    near.send(b"there")
    e.note("data", far.recv(10))
    here.setblocking(False)
    e.note("accept here", e.error(here.accept))


@case
def defer_accept(e):
    """TCP_DEFER_ACCEPT: accept(2) returns a connection only once its data has arrived."""
    listener = e.listen(prepare=lambda sock: sock.set(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5))
    near = e.connect(listener)
    near.send(b"request")
    e.wait(listener)
    far, _ = listener.accept()
    e.note("data at once", calls.recv(far, 100, socket.MSG_DONTWAIT))


# Bit positions relative to the start of the UDP header: QP 1 (the connection manager), and the
# attribute ID of an RTU.
RTU = "@th,104,24 1 @th,352,16 0x14"


@case(reference=False)
def ready_message_lost(e):
    """All RTU messages are lost: the first bytes show that the peer is connected, because rxe does
    not report IB_EVENT_COMM_EST."""
    if netns.is_one():
        e.skip("both hosts are the same namespace")
    listener = e.listen()
    netns.run("peer", "nft add table inet sdp_rtu")
    try:
        netns.run("peer", "nft add chain inet sdp_rtu in { type filter hook input priority 0 ; }")
        netns.run("peer", f"nft add rule inet sdp_rtu in udp dport {netns.ROCE} {RTU} counter drop")
        near = e.connect(listener)
        near.send(b"first")
        e.wait(listener)
        far, _ = listener.accept()
        e.equal(e.keep(far).recv_exactly(5), b"first", "data")
        far.sendall(b"answer")
        e.equal(near.recv_exactly(6), b"answer", "reply")
        counted = netns.run("peer", "nft list chain inet sdp_rtu in")
        e.check("packets 0 " not in counted, f"no RTU was dropped: {counted}")
    finally:
        netns.run("peer", "nft delete table inet sdp_rtu")


@case(reference=False)
def past_a_firewall(e):
    """A netfilter rule that closes a port to TCP does not close the port to SDP: netfilter does not
    process SDP connections."""
    if e.ipproto:
        e.skip("the port is TCP's as well")
    listener = e.listen()
    netns.run("peer", "nft add table inet sdp_port")
    try:
        netns.run("peer", "nft add chain inet sdp_port in { type filter hook input priority 0 ; }")
        netns.run("peer", f"nft add rule inet sdp_port in tcp dport {listener.port} counter reject with tcp reset")
        with netns.inside("peer"), Sock.make(e.family) as other:
            other.bind(e.address(e.any, listener.port))
            other.listen(1)
            e.equal(e.error(e.tcp().connect, e.address(e.there, listener.port)), "ECONNREFUSED", "connect() by TCP")
        near, far = e.pair(listener)
        near.sendall(b"past it")
        e.equal(far.recv_exactly(7), b"past it", "data")
    finally:
        netns.run("peer", "nft delete table inet sdp_port")
