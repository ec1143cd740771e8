# SPDX-License-Identifier: GPL-2.0-only
"""/proc/net/sdp and /proc/net/sdpstats."""

import os
import re
import resource
import select
import socket
import time

from lib import calls, consts, either, netns, observe
from lib.registry import case
from lib.tracing import tracing

# Number of sockets at which printing a file takes long.
SOCKETS = 2000
ROWS = observe.ROWS, f"{observe.ROWS}_ipproto"
KERNEL_ADDRESS = re.compile(r"\bffff[0-9a-f]{12}\b", re.I)


def sdp_case(function):
    """A case about properties that only SDP has."""
    return case(function, reference=False)


@sdp_case
def format(e):
    """Every line is 149 columns wide and has the columns that sdpnetstat reads."""
    near, far = e.pair()
    lines = observe.read(observe.ROWS).splitlines()
    e.equal({len(line) for line in lines}, {149}, "widths")
    e.check(lines[0].split()[:5] == ["sl", "local_address", "rem_address", "uid", "inode"], f"heading {lines[0]!r}")
    digits = 32 if e.six else 8
    pattern = re.compile(r" *\d+: [0-9A-F]{%d}:[0-9A-F]{4} [0-9A-F]{%d}:[0-9A-F]{4} +\d+ \d+\t"
                         r"[0-9A-F]{8}:[0-9A-F]{8} [0-9A-F] *$" % (digits, digits))
    ours = [line for line in lines[1:] if observe.Row(line).inode == os.fstat(near.fileno()).st_ino]
    e.equal(len(ours), 1, "rows of the socket")
    e.check(pattern.match(ours[0]), f"row {ours[0]!r}")
    slots = [row.slot for row in observe.rows()]
    e.equal(slots, list(range(len(slots))), "slot numbers")


@sdp_case
def states(e):
    """Each socket with an address has a row that shows its state."""
    listener = e.listen()
    row = observe.row_of(listener, "peer")
    e.equal((row.local, row.remote[1], row.state), ((e.there, listener.port), 0, "LISTEN"), "the listener's row")
    near, far = e.pair(listener)
    mine, theirs = observe.row_of(near), observe.row_of(far, "peer")
    e.equal((mine.local, mine.remote, mine.state), ((e.here, near.port), (e.there, listener.port), "ESTABLISHED"),
            "the connector's row")
    e.equal((theirs.local, theirs.remote, theirs.state),
            ((e.there, listener.port), (e.here, near.port), "ESTABLISHED"), "the accepted socket's row")
    near.shutdown(socket.SHUT_WR)
    e.wait_mask(far, "RDHUP")
    e.until(lambda: observe.row_of(far, "peer").state == "CLOSE_WAIT", lambda: observe.row_of(far, "peer").state)
    e.until(lambda: observe.row_of(near).state in ("FIN_WAIT1", "FIN_WAIT2"), lambda: observe.row_of(near).state)


@sdp_case
def connecting(e):
    sock = e.socket()
    sock.setblocking(False)
    e.error(sock.connect, e.address(e.silent(), 99))
    row = observe.row_of(sock)
    e.check(row is not None, "no row")
    e.equal((row.remote[1], row.state), (99, "SYN_SENT"), "remote port and state")


@sdp_case
def queues(e):
    """The queue columns contain the values of SIOCINQ and SIOCOUTQ."""
    near, far = e.pair()
    near.send(b"x" * 1234)
    e.unread(far, 1234)
    e.equal(observe.row_of(far, "peer").receive, 1234, "receive queue")
    e.fill(near)
    e.equal(observe.row_of(near).send, calls.ioctl_int(near, consts.SIOCOUTQ), "send queue")
    e.check(observe.row_of(near).send > 0, "an empty send queue of a full socket")
    listener = e.listen()
    e.connect(listener)
    e.wait(listener)
    e.check(observe.row_of(listener, "peer").receive in (0, 1), "a listener's receive queue")


@sdp_case
def owner(e):
    """The uid in a row is the uid of the socket's creator."""
    def make():
        return observe.row_of(e.bound("self")).uid
    e.equal(e.as_user(make), 65534, "uid of nobody's socket")
    e.equal(observe.row_of(e.bound("self")).uid, 0, "uid of root's socket")


def count():
    return len(observe.rows("self")) + len(observe.rows("peer"))


def alone(e):
    """Waits until no sockets of earlier cases exist."""
    e.until(lambda: count() == 0, lambda: f"{count()} rows of earlier cases stay", patience=e.patience * 6)


@sdp_case
def gone(e):
    """A closed socket leaves no row, once both ends are closed."""
    alone(e)
    listener = e.listen()
    pairs = [e.pair(listener) for _ in range(10)]
    e.check(count() >= 21, f"only {count()} rows")
    for near, far in pairs[:5]:
        near.close()
        far.close()
    for near, far in pairs[5:]:
        near.send(b"unread")
        e.unread(far, 6)
        far.close()
        near.close()
    listener.close()
    e.until(lambda: count() == 0, lambda: f"{count()} rows stay", patience=e.patience * 6)


@sdp_case
def of_the_namespace(e):
    """Each namespace shows its own sockets and counts its own bytes."""
    near, far = e.pair()
    e.check(observe.row_of(near, "peer") is None, "the connector's row on the other host")
    e.check(observe.row_of(far, "self") is None, "the accepted socket's row on the other host")
    before = observe.stats("self"), observe.stats("peer")
    near.sendall(b"x" * 10000)
    far.recv_exactly(10000)
    after = observe.stats("self"), observe.stats("peer")

    def moved(side, name):
        return after[side].get(name, 0) - before[side].get(name, 0)

    e.equal((moved(0, "tx_bytes"), moved(1, "tx_bytes")), (10000, 0), "bytes sent here and there")
    e.equal((moved(0, "rx_bytes"), moved(1, "rx_bytes")), (0, 10000), "bytes received here and there")
    # the peer may have sent empty messages, for credits
    e.check(moved(0, "post_send SDP_MID_DATA") > 0, "Data messages")


@sdp_case
def counters(e):
    """Each event increments its counter."""
    alone(e)
    with open_for_writing() as file:
        file.write("0")
    cleared = observe.stats()
    near, far = e.pair()
    for _ in range(10):
        near.send(b"word")
        e.equal(len(far.recv_exactly(4)), 4, "bytes")
        far.send(b"answer")
        e.equal(len(near.recv_exactly(6)), 6, "bytes")
    near.close()
    far.close()

    def moved(name):
        return observe.stats().get(name, 0) - cleared.get(name, 0)

    e.equal(moved("tx_bytes"), 40, "bytes_sent")
    e.equal(moved("rx_bytes"), 60, "bytes_received")
    e.check(moved("sdp_sendmsg() calls") >= 10, f"sendmsg() calls: {moved('sdp_sendmsg() calls')}")
    e.check(moved("sdp_recvmsg() calls") >= 10, f"recvmsg() calls: {moved('sdp_recvmsg() calls')}")
    e.check(moved("post_send SDP_MID_DATA") >= 1, "posts of Data")
    e.until(lambda: moved("post_send SDP_MID_DISCONN") == 1, lambda: f"posts of DisConn: {moved('post_send SDP_MID_DISCONN')}")


def open_for_writing():
    return open(observe.STATS, "w")


@sdp_case
def cleared_by_writing(e):
    near, far = e.pair()
    near.sendall(b"x" * 5000)
    far.recv_exactly(5000)
    e.check(observe.stats()["tx_bytes"] >= 5000, "bytes_sent")
    there = observe.stats("peer")["rx_bytes"]
    with open_for_writing() as file:
        file.write("anything")
    e.equal(observe.stats()["tx_bytes"], 0, "bytes_sent after a write")
    e.equal(observe.stats("peer")["rx_bytes"], there, "the other host's counter")
    near.sendall(b"x" * 77)
    far.recv_exactly(77)
    e.equal(observe.stats()["tx_bytes"], 77, "bytes_sent since")


@sdp_case
def permissions(e):
    """Every user may read the files; only root may clear the counters."""
    def attempt():
        read = len(observe.read(observe.STATS)) > 0 and len(observe.read(observe.ROWS)) > 0
        return read, e.error(lambda: open_for_writing().close())
    e.equal(e.as_user(attempt), (True, "EACCES"), "as nobody")
    e.equal(e.error(lambda: open(observe.ROWS, "w").close()), "EACCES" if os.getuid() else e.error(
        lambda: open(observe.ROWS, "w").close()), "writing the rows")


@sdp_case
def no_kernel_addresses(e):
    """The files contain no kernel address. The trace identifies sockets by hashes."""
    near, far = e.pair()
    e.listen()
    with tracing(e, "sdp_send") as read:
        near.send(b"x")
        far.recv_exactly(1)
        shown = [fields["skaddr"] for _, fields in read()]
    e.check(shown, "no event")
    texts = [observe.read(path, where) for path in (observe.ROWS, observe.STATS) for where in netns.hosts()]
    found = KERNEL_ADDRESS.findall("\n".join(texts + shown))
    e.equal(found, [], "addresses of the kernel's")


@sdp_case
def backlog_drops(e):
    """A connection refused because of a full backlog is counted in the listener's namespace."""
    before = observe.stats("peer").get("- backlog full", 0)
    listener = e.listen(backlog=1)
    for _ in range(6):
        sock = e.socket()
        sock.setblocking(False)
        e.error(sock.connect, e.address(e.there, listener.port))
        sock.mask_when(select.POLLOUT, 0.2)
    e.until(lambda: observe.stats("peer").get("- backlog full", 0) > before, "a count of backlog drops")


@sdp_case
def reading_under_way(e):
    """A program may read the files while connections are created and closed."""
    listener = e.listen(backlog=32)
    stop = []

    def look():
        seen = 0
        while not stop:
            seen += len(observe.rows("self")) + len(observe.stats())
        return seen

    tasks = [e.task(look) for _ in range(2)]
    for _ in range(e.rounds(40)):
        near, far = e.pair(listener)
        near.send(b"x")
        far.recv(1)
        near.close()
        far.close()
    stop.append(True)
    e.check(all(task.result() > 0 for task in tasks), "nothing was seen")


@sdp_case
def readers_hold_nobody_up(e):
    """Readers without privilege do not delay socket(2) and close(2). Reading the first 100 bytes
    takes the same time with few sockets and with many."""
    if os.uname().release.endswith("-debug"):
        e.skip("times are only checked on the stock kernel")
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOCKETS + 200, SOCKETS + 200))

    def read(path, size):
        with open(path, "rb", buffering=0) as file:
            while file.read(size) and size > 100:
                pass

    def mean(function, *args, many=100):
        """Returns the seconds that a call takes; clocks of guests may be coarse."""
        start = time.monotonic()
        for _ in range(many):
            function(*args)
        return (time.monotonic() - start) / many

    def keep_reading(path):
        os.setresuid(65534, 65534, 65534)
        while True:
            read(path, 1 << 20)

    def spin(_):
        while True:
            pass

    def open_and_close():
        socket.socket(e.domain, socket.SOCK_STREAM, e.protocol).close()

    def beside(function, path):
        """Returns the mean time of socket(2) and close(2) while two children run `function`."""
        children = [e.child(function, path) for _ in range(2)]
        waits = mean(open_and_close)
        for child in children:
            child.kill()
        return waits

    few = {path: mean(read, path, 100) for path in ROWS}
    socks = [e.socket() if number % 2 else either.make(e) for number in range(SOCKETS)]
    shown = {row.inode for row in observe.rows()}
    e.check({os.fstat(sock.fileno()).st_ino for sock in socks} <= shown, f"{len(shown)} of {SOCKETS} sockets have a row")
    for path in (*ROWS, observe.STATS):
        if path in ROWS:
            many = mean(read, path, 100)
            e.check(many < 5 * few[path] + 0.001, f"100 bytes of {path} take {many * 1e3:.2f} ms, and {few[path] * 1e3:.2f} ms with few sockets")
        spinning, waits = beside(spin, path), beside(keep_reading, path)
        e.check(waits < 4 * spinning + 0.005, f"socket() and close() take {waits * 1e3:.2f} ms while others read {path}, and {spinning * 1e3:.2f} ms while they spin")


@sdp_case
def users_of_the_reader(e):
    """The files show users as numbers of the reader's user namespace, as in /proc/net/tcp."""
    def listed(path, user, inode, number):
        for line in observe.read(path).splitlines()[1:]:
            words = line.split()
            if words[inode].isdigit() and int(words[inode]) == number:
                return int(words[user])
        return None

    def seen(sock):
        number = os.fstat(sock.fileno()).st_ino
        six = "6" if e.six else ""
        rows = listed(observe.ROWS, 3, 4, number), listed(f"{observe.ROWS}_ipproto", 1, 0, number), listed(f"/proc/thread-self/net/tcp{six}", 7, 9, number)
        return [user for user in rows if user is not None]

    def make():
        socks = [e.socket(), either.make(e), either.make(e, either.TCP)]
        for sock in socks:
            sock.bind(e.address(e.any, 0))
            sock.listen(1)
        return socks

    roots = make()

    def elsewhere():
        return [seen(sock) for sock in roots], [seen(sock) for sock in make()]

    nobody = netns.NOBODY
    e.equal([seen(sock) for sock in roots], [[0], [0, 0, 0], [0]], "root's, to root")
    e.equal(e.child(netns.root_elsewhere, False, elsewhere).result(), ([[nobody], [nobody] * 3, [nobody]], [[0], [0, 0, 0], [0]]),
            "root's and its own, to nobody, who is root in a namespace")


@sdp_case
def new_namespace(e):
    """A later namespace has its own files, and its sockets are closed when the namespace ends."""
    def inside():
        netns._call("unshare", netns.CLONE_NEWNET)
        e.equal(observe.rows(), [], "rows")
        e.check(observe.stats().get("tx_bytes") == 0, "bytes_sent")
        sock = e.socket()
        e.equal(e.error(sock.bind, e.address(e.any, 4567)), "ok", "bind")
        e.equal(len(observe.rows()), 1, "rows then")
        return e.error(e.socket().connect, e.address(e.there, 9))

    e.equal(e.child(inside).result(), "ENETUNREACH", "connect() from a namespace without a route")
    here = e.child(lambda: len([row for row in observe.rows() if row.local[1] == 4567])).result()
    e.equal(here, 0, "rows of it here")
