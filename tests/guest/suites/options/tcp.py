# SPDX-License-Identifier: GPL-2.0-only
"""SOL_TCP: TCP's options that have a meaning on SDP, and SDP's own options."""

import contextlib
import select
import socket
import struct
import time

from lib import calls, consts, netns, observe, pattern
from lib.env import SAME, OneOf
from lib.registry import case

TCP = socket.IPPROTO_TCP
INT = (1 << 31) - 1

# Options with a meaning on SDP. All other options may be refused as unknown.
MEANT = {socket.TCP_NODELAY, socket.TCP_CORK, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT,
         socket.TCP_USER_TIMEOUT, socket.TCP_QUICKACK, socket.TCP_INFO, socket.TCP_DEFER_ACCEPT, socket.TCP_SYNCNT,
         socket.TCP_LINGER2, consts.TCP_INQ}


def number(value):
    return struct.pack("=i", value)


def attempt(e, sock, option, value):
    return e.error(sock.set, TCP, option, value), e.outcome(sock.get, TCP, option)


@case
def every_number(e):
    """Sets options 1 to 79 to 1, and reads them."""
    for option in range(1, 80):
        expected = {} if option in MEANT else \
            {"sdp": OneOf(SAME, "ENOPROTOOPT", "EOPNOTSUPP"), "because": "it means nothing on SDP"}
        with e.socket() as sock:
            e.note(f"set {option}", e.error(calls.setsockopt, sock, TCP, option, number(1)), **expected)
        with e.socket() as sock:
            e.note(f"get {option}", e.error(calls.getsockopt, sock, TCP, option, 128), **expected)
    for option in (85, 100, 500, 4095, INT, -1):
        with e.socket() as sock:
            e.note(f"unknown {option}", (e.error(calls.setsockopt, sock, TCP, option, number(1)),
                                         e.error(calls.getsockopt, sock, TCP, option)))


@case
def values(e):
    """Values and bounds."""
    for name, tries in (("TCP_NODELAY", (1, 0, 5, -1)), ("TCP_CORK", (1, 0, 5)),
                        ("TCP_KEEPIDLE", (1, 60, 32767, 0, -1, 32768)),
                        ("TCP_KEEPINTVL", (1, 75, 32767, 0, -1, 32768)),
                        ("TCP_KEEPCNT", (1, 9, 127, 0, -1, 128)), ("TCP_SYNCNT", (1, 6, 127, 0, 128, -1)),
                        ("TCP_USER_TIMEOUT", (0, 1000, INT, -1)), ("TCP_LINGER2", (5, 0, -1, 60, 100000)),
                        ("TCP_QUICKACK", (1, 0)), ("TCP_WINDOW_CLAMP", (1, 1151, 5000, 0, -1))):
        option = getattr(socket, name)
        sock = e.socket()
        e.note(f"{name} at first", e.outcome(sock.get, TCP, option))
        for value in tries:
            e.note(f"{name} {value}", attempt(e, sock, option, value))


@case
def values_connected(e):
    """Like `values`, but on a connection; the connection transfers data afterwards."""
    near, far = e.pair()
    for name, tries in (("TCP_NODELAY", (1, 0)), ("TCP_CORK", (1, 0)), ("TCP_KEEPIDLE", (100,)),
                        ("TCP_KEEPINTVL", (10,)), ("TCP_KEEPCNT", (3,)), ("TCP_USER_TIMEOUT", (9000,)),
                        ("TCP_QUICKACK", (1, 0)), ("TCP_SYNCNT", (3,)), ("TCP_LINGER2", (9,)),
                        ("TCP_WINDOW_CLAMP", (5000, 0))):
        for value in tries:
            e.note(f"{name} {value}", e.error(near.set, TCP, getattr(socket, name), value))
    near.send(b"after all")
    e.note("data", far.recv(10))


@case
def defer_accept(e):
    sock = e.socket()
    e.note("at first", sock.get(TCP, socket.TCP_DEFER_ACCEPT))
    e.note("set", e.error(sock.set, TCP, socket.TCP_DEFER_ACCEPT, 5))
    e.note("some seconds", 5 <= sock.get(TCP, socket.TCP_DEFER_ACCEPT) <= 10)
    e.note("off", attempt(e, sock, socket.TCP_DEFER_ACCEPT, 0))
    e.note("negative", attempt(e, sock, socket.TCP_DEFER_ACCEPT, -1))


def deferring(seconds):
    return lambda sock: sock.set(TCP, socket.TCP_DEFER_ACCEPT, seconds)


@case
def defer_accept_until_data(e):
    """With TCP_DEFER_ACCEPT, accept() returns a connection only after its first bytes."""
    listener = e.listen(prepare=deferring(60))
    silent, talker = e.connect(listener), e.connect(listener)
    talker.send(b"first")
    far, address = listener.accept()
    e.note("who talks comes first", address == talker.getsockname())
    e.note("bytes", far.recv(10))
    e.note("nobody else", (listener.mask(), e.error(calls.accept4, listener, socket.SOCK_NONBLOCK)
                           if listener.setblocking(False) is None else None))
    listener.setblocking(True)
    silent.send(b"then")
    e.wait(listener)
    far, address = listener.accept()
    e.note("then the other", (address == silent.getsockname(), far.recv(10)))


@case
def defer_accept_until_end(e):
    """The end of the connection's stream counts as well."""
    listener = e.listen(prepare=deferring(60))
    near = e.connect(listener)
    near.shutdown(socket.SHUT_WR)
    far, address = listener.accept()
    e.note("accepted", (address == near.getsockname(), far.recv(10)))


@case(timeout=60)
def defer_accept_for_a_time(e):
    """After the time limit, accept() returns the connection without a byte."""
    listener = e.listen(prepare=deferring(1))
    near = e.connect(listener)
    far, address = listener.accept()
    far.setblocking(False)
    e.note("accepted", (address == near.getsockname(), e.error(far.recv, 10)))
    near.send(b"late")
    e.wait(far)
    e.note("bytes", far.recv(10))


@case
def defer_accept_of_nobody(e):
    """A client that disconnects before its first byte frees its place in the backlog."""
    listener = e.listen(backlog=1, prepare=deferring(60))
    for _ in range(4):
        near = e.connect(listener)
        near.set(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        near.close()
    near = e.connect(listener)
    near.send(b"the fifth")
    far, address = listener.accept()
    e.note("accepted", (address == near.getsockname(), far.recv(10)))


@case
def defer_accept_and_gone(e):
    """The listener closes while connections wait for their first byte: these connections are
    reset."""
    listener = e.listen(prepare=deferring(60))
    near = e.connect(listener)
    listener.close()
    said = e.error(near.send, b"word", socket.MSG_NOSIGNAL)
    if said == "ok":                    # the reset has not arrived yet
        e.wait_mask(near, "ERR|HUP")
        said = e.error(near.recv, 10)
    e.note("end", said)


@case(timeout=90, hosts=(1, 2))
def syn_count(e):
    """TCP_SYNCNT limits the duration of connect()."""
    listener = e.listen(backlog=0)
    first = e.connect(listener)
    if e.ipproto:       # an IPPROTO_SDP listener has a backlog for each protocol
        e.connect(listener)
    second = e.socket()
    second.set(TCP, socket.TCP_SYNCNT, 1)
    start = time.monotonic()
    e.note("connect", e.error(second.connect, e.address(e.there, listener.port)))
    # without the option it takes minutes
    e.check(time.monotonic() - start < 20, f"it took {time.monotonic() - start:.1f} s")
    e.note("the first", first.mask())


@case
def linger2_none(e):
    """Negative TCP_LINGER2: a closed socket does not wait for the peer's end of the stream."""
    near, far = e.pair(prepare=lambda sock: sock.set(TCP, socket.TCP_LINGER2, -1))
    near.close()
    e.note("mask", e.wait_mask(far, "RDHUP|HUP"))
    e.note("read", e.outcome(far.recv, 10))
    e.note("write", e.outcome(far.send, b"x", socket.MSG_NOSIGNAL))


@case(reference=False, timeout=100)
def linger2(e):
    """TCP_LINGER2: time that a closed socket waits for the peer's end of the stream; default one
    minute.
    """
    near, far = e.pair(prepare=lambda sock: sock.set(TCP, socket.TCP_LINGER2, 1))
    port = near.port
    near.close()
    e.equal(far.recv(10), b"", "the end")
    e.until(lambda: all(row.local[1] != port for row in observe.rows()), "the end of the closed socket")


@case
def lengths(e):
    sock = e.socket()
    for option in (socket.TCP_NODELAY, socket.TCP_KEEPIDLE):
        for length in (0, 1, 3, 4, 8):
            e.note(f"set {option} by {length}", e.error(calls.setsockopt, sock, TCP, option, b"\1" + bytes(7), length))
        e.note(f"set {option} by -1", e.error(calls.setsockopt, sock, TCP, option, bytes(8), -1))
        for room in (0, 1, 3, 4, 8):
            e.note(f"get {option} by {room}", e.outcome(calls.getsockopt, sock, TCP, option, room))
        e.note(f"get {option} by -1", e.error(calls.getsockopt, sock, TCP, option, -1))
    e.note("set from nowhere", e.error(calls.plain, "setsockopt", sock.fileno(), TCP, socket.TCP_NODELAY, 8, 4))


@case
def segment(e):
    """TCP_MAXSEG returns the size of one message."""
    near, _ = e.pair()
    e.check(near.get(TCP, socket.TCP_MAXSEG) > 500, f"TCP_MAXSEG is {near.get(TCP, socket.TCP_MAXSEG)}")
    e.note("too small", e.error(near.set, TCP, socket.TCP_MAXSEG, 1),
           sdp=OneOf("EINVAL", "ENOPROTOOPT", "EOPNOTSUPP"), because="ib_sdp has it read-only")


@case
def info(e):
    """TCP_INFO: the state, and plausible numbers."""
    def read(sock, room=256):
        return calls.getsockopt(sock, TCP, socket.TCP_INFO, room)

    sock = e.socket()
    e.note("new", read(sock)[0][0])
    listener = e.listen()
    e.note("listening", read(listener)[0][0])
    near, far = e.pair(listener)
    near.sendall(b"x" * 100000)
    far.recv_exactly(100000)
    raw, length = read(near)
    e.check(length >= 104, f"TCP_INFO has {length} bytes")      # size of the structure that old programs know
    e.note("state", raw[0])
    words = struct.unpack_from("=24I", raw, 8)
    e.check(words[2] > 500, f"snd_mss is {words[2]}")
    for room in (0, 1, 8, 104):
        raw, length = read(near, room)
        e.note(f"room {room}", (len(raw), length))
    e.note("set", e.error(calls.setsockopt, near, TCP, socket.TCP_INFO, bytes(104)))


@case
def zcopy_threshold(e):
    """SDP_ZCOPY_THRESH accepts 0 (off), and values from a page to 1 MiB."""
    sock = e.socket()
    option = consts.SDP_ZCOPY_THRESH
    for value, result in ((0, "ok"), (4096, "ok"), (65536, "ok"), (1 << 20, "ok"), (1, "EINVAL"), (4095, "EINVAL"),
                          ((1 << 20) + 1, "EINVAL"), (INT, "EINVAL"), (-2, "EINVAL")):
        e.note(f"set {value}", e.error(sock.set, TCP, option, value), sdp=result,
               because="ib_sdp's bounds are a page and 1 MiB")
        if e.sdp and result == "ok":
            e.equal(sock.get(TCP, option), value, "SDP_ZCOPY_THRESH")
    if not e.sdp:
        return
    e.equal(sock.get(TCP, option), 1 << 20, "SDP_ZCOPY_THRESH after refused values")
    e.equal(e.error(calls.setsockopt, sock, TCP, option, bytes(3)), "EINVAL", "a short value")
    try:
        with open("/sys/module/ib_sdp/parameters/sdp_zcopy_thresh") as file:
            default = int(file.read())
    except FileNotFoundError:
        default = -1
    # without a threshold the module measures whether zero copy is faster, from 64 KiB on
    e.equal(e.socket().get(TCP, option), 65536 if default < 0 else default, "SDP_ZCOPY_THRESH at first")


@case(timeout=60)
def zcopy_threshold_and_data(e):
    """Data passes with every threshold."""
    if not e.sdp:
        e.note("only SDP", True)
        return
    e.note("only SDP", True)
    for threshold in (0, 4096, 65536):
        def prepare(sock):
            sock.set(TCP, consts.SDP_ZCOPY_THRESH, threshold)
        near, far = e.pair(e.listen(prepare=prepare), prepare=prepare)
        task = e.task(pattern.send, near, 91, 3 << 20, [300000, 5000])
        e.equal(pattern.receive(far, 91, 3 << 20, [200000, 100]), 3 << 20, f"bytes with {threshold}")
        task.result()


@case
def last_bind_error(e):
    sock = e.socket()
    e.note("at first", e.outcome(sock.get, TCP, consts.SDP_LAST_BIND_ERR), sdp=0, because="nothing has failed")
    e.note("set", e.error(sock.set, TCP, consts.SDP_LAST_BIND_ERR, 1))


@case
def nodelay_is_prompt(e):
    """Small ping-pong messages are not held back, with or without TCP_NODELAY."""
    for value in (0, 1):
        near, far = e.pair(prepare=lambda sock: sock.set(TCP, socket.TCP_NODELAY, value))
        for turn in range(100):
            near.send(b"a")
            near.send(b"b")
            e.equal(far.recv_exactly(2), b"ab", "words")
            far.send(b"c")
            e.equal(near.recv(1), b"c", "answer")
    e.note("turns", turn)


@case
def no_ulp(e):
    """The socket has no ULP: the name is empty."""
    sock = e.socket()
    for room in (0, 4, 16):
        e.note(f"room for {room}", e.error(calls.getsockopt, sock, TCP, consts.TCP_ULP, room))


@case(timeout=60)
def not_sent_lowat(e):
    """The socket accepts little more than TCP_NOTSENT_LOWAT bytes before it can send bytes."""
    near, far = e.pair()
    near.set(TCP, consts.TCP_NOTSENT_LOWAT, 16384)
    near.setblocking(False)

    def full():
        with contextlib.suppress(BlockingIOError):
            while True:
                near.send(bytes(65536))
        # the module may have sent some bytes since the buffer was full
        waits = calls.ioctl_int(near, consts.SIOCOUTQNSD)
        e.check(waits <= 16384 + (1 << 18), f"{waits} bytes wait")
        return waits >= 16384

    e.until(full, "so much that waits")
    # the larger limit wakes a waiting task
    near.setblocking(True)
    sender = e.task(near.sendall, bytes(3000000))
    end = e.task(far.drain)
    sender.result()
    near.close()
    e.check(len(end.result()) > 3000000, "not all has come")


@case(hosts=(0, 1), timeout=60)
def not_sent_lowat_raised(e):
    """A larger TCP_NOTSENT_LOWAT wakes a blocked send() and a poller, although nobody reads."""
    near, far = e.pair()
    near.set(socket.SOL_SOCKET, consts.SO_SNDBUFFORCE, 4 << 20)
    near.set(TCP, consts.TCP_NOTSENT_LOWAT, 4096)
    sent = e.fill(near)
    task = e.task(calls.send, near, bytes(1000)).wait_asleep("sendto")
    near.set(TCP, consts.TCP_NOTSENT_LOWAT, 1 << 30)
    e.note("send", task.result())
    e.wait(near, select.POLLOUT)
    count = 0
    while count < sent + 1000:
        count += len(calls.recv(far, 1 << 20))


TIMES = {"ipv4/tcp_keepalive_time": 30, "ipv4/tcp_keepalive_intvl": 5, "ipv4/tcp_keepalive_probes": 3, "ipv4/tcp_syn_retries": 2,
         "ipv4/tcp_fin_timeout": 10}
OF_TIMES = "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_SYNCNT", "TCP_LINGER2"


@case
def of_the_namespace(e):
    """Time limits that no option sets come from the namespace's sysctls."""
    def told(sock):
        return [sock.get(TCP, getattr(socket, name)) for name in OF_TIMES]

    early, before = e.socket(), {}
    try:
        for path, value in TIMES.items():
            before[path] = netns.sysctl(path, value)
        listener = e.listen("self")
        late = e.socket()
        e.note("made before", told(early))
        e.note("new", told(late))
        e.note("listener", told(listener))
        far = e.connect(listener, "peer")
        near = e.keep(listener.accept()[0])
        e.note("accepted", told(near))
        other = e.listen()
        late.connect(e.address(e.there, other.port))
        e.note("connected", told(late))
        late.set(TCP, socket.TCP_KEEPIDLE, 44)
        e.note("set", told(late))
        e.note("of the other namespace", e.outcome(far.get, TCP, socket.TCP_KEEPIDLE) in (7200, 30))
    finally:
        for path, value in before.items():
            netns.sysctl(path, value)
    e.note("afterwards", told(early))
