# SPDX-License-Identifier: GPL-2.0-only
"""MSG_ flags of send() and recv()."""

import os
import select
import signal
import socket
import struct
import tempfile

from lib import calls, consts, pattern
from lib.registry import case

BEDS = (1, 2)
PEEK, WAITALL, DONTWAIT = socket.MSG_PEEK, socket.MSG_WAITALL, socket.MSG_DONTWAIT
TRUNC, NOSIGNAL = socket.MSG_TRUNC, socket.MSG_NOSIGNAL
SOL = socket.SOL_SOCKET


@case(hosts=BEDS)
def dontwait(e):
    near, far = e.pair()
    e.note("recv", e.error(calls.recv, near, 10, DONTWAIT))
    e.note("peek", e.error(calls.recv, near, 10, DONTWAIT | PEEK))
    e.note("all", e.error(calls.recv, near, 10, DONTWAIT | WAITALL))
    e.note("send", e.outcome(calls.send, near, b"word", DONTWAIT))
    e.wait(far)
    e.note("data", calls.recv(far, 10, DONTWAIT))
    e.note("no more", e.error(calls.recv, far, 10, DONTWAIT))


@case(hosts=BEDS)
def peek(e):
    near, far = e.pair()
    near.send(b"abcdef")
    e.unread(far, 6)
    e.note("some", calls.recv(far, 3, PEEK))
    e.note("the same", calls.recv(far, 3, PEEK))
    e.note("all", calls.recv(far, 100, PEEK))
    e.note("nothing", calls.recv(far, 0, PEEK))
    e.note("inq", calls.ioctl_int(far, consts.SIOCINQ))
    e.note("read", calls.recv(far, 2))
    e.note("peek behind", calls.recv(far, 100, PEEK))
    near.send(b"ghi")
    e.unread(far, 7)
    e.note("peek over two", calls.recv(far, 100, PEEK))
    e.note("read all", calls.recv(far, 100))
    near.shutdown(socket.SHUT_WR)
    e.note("peek at the end", calls.recv(far, 100, PEEK))
    e.note("end", calls.recv(far, 100))


@case
def peek_blocks(e):
    near, far = e.pair()
    task = e.task(calls.recv, far, 10, PEEK).wait_asleep("recvfrom")
    near.send(b"here")
    e.note("peeked", task.result())
    e.note("read", far.recv(10))


@case(hosts=BEDS, timeout=60)
def peek_large(e):
    """Repeated MSG_PEEK calls at much data change nothing."""
    near, far = e.pair()
    total = 60000
    task = e.task(pattern.send, near, 21, total, [total])
    e.unread(far, total)
    task.result()
    data = pattern.Pattern(21).at(0, total)
    for size in (1, 4096, 30000, total, total * 2):
        e.equal(calls.recv(far, size, PEEK), data[:size], f"peek of {size}")
    e.equal(calls.recv(far, total, PEEK | WAITALL), data, "peek of all of it")
    e.equal(far.recv_exactly(total), data, "what was read")
    e.equal(e.error(calls.recv, far, 1, PEEK | DONTWAIT), "EAGAIN", "nothing left")


@case
def waitall(e):
    near, far = e.pair()
    near.send(b"abc")
    e.unread(far, 3)
    task = e.task(calls.recv, far, 8, WAITALL).wait_asleep("recvfrom")
    near.send(b"de")
    e.until(lambda: calls.ioctl_int(far, consts.SIOCINQ) in (0, 5) and task.wait_asleep("recvfrom"), "asleep again")
    near.send(b"fghij")
    e.note("eight", task.result())
    e.note("rest", far.recv(10))


@case
def waitall_cut_short(e):
    """MSG_WAITALL returns fewer bytes at the end, after an error, a signal or a time-out."""
    near, far = e.pair()
    near.send(b"abc")
    task = e.task(calls.recv, far, 8, WAITALL).wait_asleep("recvfrom")
    near.shutdown(socket.SHUT_WR)
    e.note("end", task.result())
    e.note("then", calls.recv(far, 8, WAITALL))

    near, far = e.pair()
    near.send(b"abc")
    e.unread(far, 3)
    e.note("signal", e.interrupt(lambda: calls.recv(far, 8, WAITALL), "recvfrom"))

    near, far = e.pair()
    near.send(b"abc")
    e.unread(far, 3)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("=qq", 0, 200000))
    e.note("time-out", e.outcome(calls.recv, far, 8, WAITALL))
    e.note("nonblocking", e.outcome(calls.recv, far, 8, WAITALL | DONTWAIT))


@case(hosts=BEDS, timeout=60)
def waitall_large(e):
    near, far = e.pair()
    total = 3000000
    task = e.task(pattern.send, near, 22, total, [10007])
    e.equal(calls.recv(far, total, WAITALL), pattern.Pattern(22).at(0, total), "data")
    task.result()


@case
def waitall_peek(e):
    """MSG_WAITALL with MSG_PEEK waits until all requested bytes have arrived."""
    near, far = e.pair()
    near.send(b"abc")
    e.unread(far, 3)
    task = e.task(calls.recv, far, 6, WAITALL | PEEK)
    near.send(b"defgh")
    e.note("peeked", task.result())
    e.note("read", far.recv_exactly(8))


@case(hosts=BEDS)
def trunc(e):
    """MSG_TRUNC discards data without copying it."""
    near, far = e.pair()
    near.send(b"0123456789")
    e.unread(far, 10)
    e.note("thrown away", calls.recv_count(far, 4, TRUNC))
    e.note("next", calls.recv(far, 2))
    e.note("peeked and not copied", calls.recv_count(far, 3, TRUNC | PEEK))
    e.note("more than there is", calls.recv_count(far, 100, TRUNC))
    e.note("none", e.error(calls.recv, far, 1, DONTWAIT))


@case(hosts=BEDS, timeout=60)
def trunc_large(e):
    near, far = e.pair()
    total = 1000000
    task = e.task(pattern.send, near, 23, total + 10, [total + 10])
    e.note("thrown away", calls.recv_count(far, total, TRUNC | WAITALL))
    e.note("tail", far.recv_exactly(10) == pattern.Pattern(23).at(total, 10))
    task.result()


@case(hosts=BEDS)
def more(e):
    """MSG_MORE may hold data back for a limited time, and never loses data."""
    near, far = e.pair()
    e.note("held", calls.send(near, b"first ", consts.MSG_MORE))
    e.note("released", calls.send(near, b"second"))
    e.note("data", far.recv_exactly(12))
    near.send(b"third", consts.MSG_MORE)
    near.shutdown(socket.SHUT_WR)
    e.note("by the end", far.drain())


@case(hosts=BEDS)
def more_then_nothing(e):
    """Held-back data is sent automatically."""
    near, far = e.pair()
    near.send(b"held", consts.MSG_MORE)
    e.note("arrives", far.recv(10))


@case(hosts=BEDS)
def cork(e):
    near, far = e.pair()
    near.set(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    for letter in b"abcdef":
        near.send(bytes([letter]))
    near.set(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    e.note("uncorked", far.recv_exactly(6))
    near.set(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    near.send(b"by itself")
    e.note("by itself", far.recv_exactly(9))
    near.send(b"by the end")
    near.close()
    e.note("by the end", far.drain())


@case(hosts=BEDS)
def peek_from_a_place(e):
    """SO_PEEK_OFF: each MSG_PEEK continues at the end of the previous peek, and reading lowers the
    offset."""
    near, far = e.pair()
    e.note("at first", far.get(SOL, consts.SO_PEEK_OFF))
    near.send(b"abcdefghij")
    e.until(lambda: calls.ioctl_int(far, consts.SIOCINQ) == 10, "arrival")
    steps = [("set", 0), ("peek", 3), ("peek", 3), ("read", 2), ("peek", 3), ("peek", 10), ("set", 1), ("peek", 2), ("read", 6), ("peek", 1),
             ("set", 5), ("peek", 1), ("read", 1), ("set", -1), ("peek", 10), ("read", 10), ("peek", 1)]
    for number, (what, value) in enumerate(steps):
        if what == "set":
            far.set(SOL, consts.SO_PEEK_OFF, value)
        else:
            e.note(f"{number}: {what} {value}", e.error(calls.recv, far, value, DONTWAIT | (PEEK if what == "peek" else 0)))
        e.note(f"{number}: place", far.get(SOL, consts.SO_PEEK_OFF))


@case(hosts=BEDS)
def peek_from_a_place_waits(e):
    """With SO_PEEK_OFF, MSG_PEEK waits for bytes at the offset, even if earlier bytes are
    unread."""
    near, far = e.pair()
    near.send(b"abc")
    e.until(lambda: calls.ioctl_int(far, consts.SIOCINQ) == 3, "arrival")
    far.set(SOL, consts.SO_PEEK_OFF, 3)
    e.note("nothing there", e.error(calls.recv, far, 10, PEEK | DONTWAIT))
    near.send(b"defg")
    e.note("there", calls.recv(far, 4, PEEK | WAITALL))
    e.note("all of it", calls.recv(far, 7, WAITALL))


@case(hosts=BEDS)
def inq(e):
    """TCP_INQ: each recvmsg(2) reports the number of unread bytes."""
    near, far = e.pair()
    for value in (2, -1, 1):
        e.note(f"set {value}", e.error(far.set, socket.IPPROTO_TCP, consts.TCP_INQ, value))
    e.note("get", far.get(socket.IPPROTO_TCP, consts.TCP_INQ))
    near.send(b"abcdefghij")
    e.until(lambda: calls.ioctl_int(far, consts.SIOCINQ) == 10, "arrival")
    for size, flags in ((3, 0), (3, PEEK), (0, 0), (7, 0)):
        e.note(f"of {size}, {flags}", far.recvmsg(size, 64, flags)[:2])
    e.note("nothing there", e.error(far.recvmsg, 1, 64, DONTWAIT))
    near.shutdown(socket.SHUT_WR)
    e.wait_mask(far, "IN|RDHUP")
    e.note("end", far.recvmsg(1, 64)[:2])
    far.set(socket.IPPROTO_TCP, consts.TCP_INQ, 0)
    e.note("without", far.recvmsg(1, 64)[:2])


def unsent(sock):
    return calls.ioctl_int(sock, consts.SIOCOUTQNSD)


@case
def released_by_options(e):
    """TCP_NODELAY, and clearing TCP_CORK, send bytes held back by MSG_MORE and TCP_CORK."""
    near, far = e.pair()
    near.send(b"held", consts.MSG_MORE)
    near.set(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    e.note("unsent by TCP_NODELAY", unsent(near))
    e.note("arrives", far.recv_exactly(4))
    near.send(b"held", consts.MSG_MORE)
    near.set(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    e.note("unsent by no cork", unsent(near))
    e.note("arrives again", far.recv_exactly(4))
    near.set(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    near.send(b"corked")
    near.set(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    e.note("unsent in spite of the cork", unsent(near))
    e.note("arrives in spite of it", far.recv_exactly(6))
    near.set(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    near.send(b"end")
    e.note("end", far.recv_exactly(3))


@case
def released_by_the_end_of_a_file(e):
    """sendfile(2) requests more bytes than the file has: the module sends the held-back bytes at
    the end of the file."""
    near, far = e.pair()
    with tempfile.TemporaryFile() as file:
        file.write(bytes(5000))
        file.flush()
        e.note("sent", os.sendfile(near.fileno(), file.fileno(), 0, 20000))
    e.note("unsent", unsent(near))
    e.note("arrives", len(far.recv_exactly(5000)))


@case
def broken_pipe(e):
    """A send after shutdown of the sending side raises SIGPIPE, unless MSG_NOSIGNAL is set."""
    got = []
    signal.signal(signal.SIGPIPE, lambda *_: got.append("SIGPIPE"))
    near, _ = e.pair()
    near.shutdown(socket.SHUT_WR)
    e.note("silent", e.error(calls.send, near, b"x", NOSIGNAL))
    e.note("no signal", list(got))
    e.note("loud", e.error(calls.send, near, b"x"))
    e.note("signal", list(got))
    e.note("write", e.error(calls.write, near, b"x"))
    e.note("signals", list(got))
    e.note("nothing at all", e.error(calls.send, near, b""))
    e.note("signals then", list(got))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    e.note("ignored", e.error(calls.send, near, b"x"))


@case(hosts=BEDS)
def unknown(e):
    """Flags without meaning for a stream, and undefined flags."""
    near, far = e.pair()
    for name, value in (("confirm", 0x800), ("eor", 0x80), ("dontroute", 4), ("probe", 0x10), ("fin", 0x200),
                        ("syn", 0x400), ("rst", 0x1000)):
        e.note(f"send {name}", e.outcome(calls.send, near, b"x", value | NOSIGNAL))
    e.note("recv errqueue", e.error(calls.recv, far, 10, consts.MSG_ERRQUEUE))
    e.note("recv errqueue without waiting", e.error(calls.recv, far, 10, consts.MSG_ERRQUEUE | DONTWAIT))
    e.note("send errqueue", e.outcome(calls.send, near, b"x", consts.MSG_ERRQUEUE | NOSIGNAL))
    near.shutdown(socket.SHUT_WR)
    e.note("all", far.drain())


@case(hosts=BEDS)
def cmsg_cloexec(e):
    near, far = e.pair()
    near.send(b"abc")
    e.wait(far)
    e.note("recvmsg", calls.recvmsg(far, [3], consts.MSG_CMSG_CLOEXEC)[:3])


@case(hosts=BEDS)
def zerocopy_flag(e):
    """MSG_ZEROCOPY without SO_ZEROCOPY is a plain send."""
    near, far = e.pair()
    e.note("send", e.outcome(calls.send, near, b"plain", consts.MSG_ZEROCOPY))
    e.note("data", far.recv(10))


@case(hosts=BEDS)
def lowat(e):
    """recv() and poll() wait for SO_RCVLOWAT bytes."""
    near, far = e.pair()
    far.set(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 5)
    e.note("option", far.get(socket.SOL_SOCKET, socket.SO_RCVLOWAT))
    near.send(b"abc")
    e.unread(far, 3)
    e.note("mask below", far.mask())
    e.note("taken all the same", calls.recv(far, 1, DONTWAIT))
    near.send(b"defg")
    e.unread(far, 6)
    e.note("mask above", far.mask())
    e.note("read", far.recv(100))
    near.send(b"x")
    near.shutdown(socket.SHUT_WR)
    e.note("the end counts", e.wait_mask(far, "RDHUP"))
    e.note("rest", far.recv(100))


@case(hosts=BEDS)
def lowat_of_a_full_buffer(e):
    """A full receive buffer with fewer bytes than SO_RCVLOWAT is readable, because no more bytes
    can arrive."""
    near, far = e.pair()
    far.set(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    far.set(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 8192)
    near.set(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # more than half of the 2048 bytes of the first receive buffers
    for _ in range(12):
        near.send(bytes(1100))
    e.note("poll", e.wait(far, select.POLLIN))
    far.set(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    left = 12 * 1100
    while left:
        left -= len(far.recv(left))
    e.note("left", left)


@case
def lowat_blocks(e):
    near, far = e.pair()
    far.set(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 5)
    task = e.task(calls.recv, far, 100).wait_asleep("recvfrom")
    near.send(b"abc")
    e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQ) == 0, "the first part's arrival")
    task.wait_asleep("recvfrom")
    near.send(b"de")
    e.note("together", task.result())
    poller = e.task(e.wait, far, select.POLLIN).wait_asleep("poll")
    near.send(b"fghi")
    e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQ) == 0, "the next part's arrival")
    poller.wait_asleep("poll")
    near.send(b"j")
    e.note("poll", poller.result())
    e.note("rest", far.recv(100))
