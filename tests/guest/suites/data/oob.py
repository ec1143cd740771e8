# SPDX-License-Identifier: GPL-2.0-only
"""Urgent data: one byte outside the stream, and a mark at its position in the stream."""

import contextlib
import fcntl
import mmap
import os
import select
import signal
import socket
import struct

from lib import calls, consts, memory, netns, pattern
from lib.registry import case

BEDS = (1, 2)
OOB, PEEK, DONTWAIT = socket.MSG_OOB, socket.MSG_PEEK, socket.MSG_DONTWAIT
SOL = socket.SOL_SOCKET


def at_mark(sock):
    return calls.ioctl_int(sock, consts.SIOCATMARK)


def urgent(e, sock):
    """Waits for a readable urgent byte. Returns the mask of poll(2)."""
    return e.wait_mask(sock, "PRI")


@case(hosts=BEDS)
def one_byte(e):
    near, far = e.pair()
    e.note("none", e.error(calls.recv, far, 1, OOB))
    e.note("send", calls.send(near, b"abc", OOB))
    e.note("mask", urgent(e, far))
    e.note("inq", calls.ioctl_int(far, consts.SIOCINQ))
    e.note("urgent", calls.recv(far, 1, OOB))
    e.note("again", e.error(calls.recv, far, 1, OOB))
    e.note("mask then", far.mask())
    e.note("stream", calls.recv(far, 10))
    e.note("mark", at_mark(far))
    e.note("rest", e.error(calls.recv, far, 10, DONTWAIT))


@case(hosts=BEDS)
def alone(e):
    """An urgent byte alone: reading the stream skips the byte."""
    near, far = e.pair()
    near.send(b"!", OOB)
    e.note("mask", urgent(e, far))
    e.note("mark", at_mark(far))
    e.note("inq", calls.ioctl_int(far, consts.SIOCINQ))
    e.note("stream", e.error(calls.recv, far, 10, DONTWAIT))
    e.note("urgent", e.outcome(calls.recv, far, 10, OOB))
    e.note("mask then", far.mask())
    near.send(b"after")
    e.wait(far)
    e.note("stream then", calls.recv(far, 10))


@case(hosts=BEDS)
def stops_at_mark(e):
    """A read does not cross the mark."""
    near, far = e.pair()
    near.send(b"before")
    near.send(b"!", OOB)
    near.send(b"behind")
    urgent(e, far)
    e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQ) == 0, "arrival of all")
    e.note("mark", at_mark(far))
    e.note("inq", calls.ioctl_int(far, consts.SIOCINQ))
    e.note("first read", calls.recv(far, 100))
    e.note("mark then", at_mark(far))
    e.note("mask there", far.mask())
    e.note("second read", calls.recv(far, 100))
    e.note("mark last", at_mark(far))
    e.note("urgent too late", e.error(calls.recv, far, 1, OOB))


@case(hosts=BEDS)
def read_late(e):
    """The reader may read the urgent byte after the stream bytes before it, until the reader passes
    the mark."""
    near, far = e.pair()
    near.send(b"before!", OOB)
    near.send(b"behind")
    urgent(e, far)
    e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQ) == 0, "arrival of all")
    e.note("before", calls.recv(far, 100))
    e.note("urgent", calls.recv(far, 1, OOB))
    e.note("mark", at_mark(far))
    e.note("behind", calls.recv(far, 100))


@case(hosts=BEDS)
def peeked(e):
    near, far = e.pair()
    near.send(b"a!", OOB)
    urgent(e, far)
    e.note("peek", calls.recv(far, 1, OOB | PEEK))
    e.note("mask", far.mask())
    e.note("peek again", calls.recv(far, 5, OOB | PEEK))
    e.note("urgent", calls.recv(far, 1, OOB))
    e.note("peek last", e.error(calls.recv, far, 1, OOB | PEEK))
    e.note("stream by peek", calls.recv(far, 10, PEEK))
    e.note("stream", calls.recv(far, 10))


@case(hosts=BEDS)
def flags_of_recvmsg(e):
    near, far = e.pair()
    near.send(b"a!", OOB)
    urgent(e, far)
    e.note("no room", calls.recvmsg(far, [], OOB | PEEK)[:3])
    e.note("urgent", calls.recvmsg(far, [4], OOB)[:3])
    e.note("stream", calls.recvmsg(far, [4])[:3])


@case(hosts=BEDS)
def peek_crosses_no_mark(e):
    near, far = e.pair()
    near.send(b"ab!", OOB)
    near.send(b"cd")
    urgent(e, far)
    e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQ) == 0, "arrival of all")
    e.note("peek", calls.recv(far, 100, PEEK))
    e.note("read one", calls.recv(far, 1))
    e.note("peek the next", calls.recv(far, 100, PEEK))
    e.note("read it", calls.recv(far, 100))
    e.note("peek behind", calls.recv(far, 100, PEEK))
    e.note("read behind", calls.recv(far, 100))


@case(timeout=60)
def peek_while_another_comes(e):
    """Without earlier stream bytes, the urgent byte is sent when the next urgent byte is announced.
    While the urgent bytes are sent, a peek behind the first one waits for memory."""
    near, far = e.pair()
    data = pattern.Pattern(3).at(0, 3000)
    near.send(b"1", OOB)
    urgent(e, far)
    e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQ) == 0, "arrival of the byte")
    # each message has its own receive buffer
    for start in (0, 1000, 2000):
        near.send(data[start:start + 1000])
        e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQ) == 0, "arrival of all")
    absent = memory.Absent(memory.PAGE)
    peek = e.task(calls.recv_at, far, absent.address, 2500, PEEK)
    e.until(absent.touched, "the call to touch memory that is not there")
    near.send(b"2", OOB)
    if e.sdp:       # TCP processes no packet while a call holds the socket
        e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQ) == 0, "arrival of the next")
    absent.give(bytes(memory.PAGE))
    e.note("peeked", peek.result())
    e.check(absent.map[:2500] == data[:2500], "what was peeked at is something else")
    e.check(far.recv_exactly(3000) == data, "the stream is another one")
    e.note("urgent", calls.recv(far, 1, OOB))
    near.close()
    e.note("behind", calls.recv(far, 100))


@case(hosts=BEDS)
def inline(e):
    """SO_OOBINLINE leaves the byte in the stream."""
    near, far = e.pair()
    far.set(SOL, socket.SO_OOBINLINE, 1)
    near.send(b"ab!", OOB)
    near.send(b"cd")
    urgent(e, far)
    e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQ) == 0, "arrival of all")
    e.note("mask", far.mask())
    e.note("inq", calls.ioctl_int(far, consts.SIOCINQ))
    e.note("recv urgent", e.error(calls.recv, far, 1, OOB))
    e.note("before", calls.recv(far, 100))
    e.note("mark", at_mark(far))
    e.note("mask at the mark", far.mask())
    e.note("there", calls.recv(far, 100))
    e.note("mark behind", at_mark(far))
    e.note("mask behind", far.mask())


@case(hosts=BEDS)
def inline_switched(e):
    """The receiver sets SO_OOBINLINE after the urgent byte has arrived."""
    near, far = e.pair()
    near.send(b"ab!", OOB)
    near.send(b"cd")
    urgent(e, far)
    e.until(lambda: calls.ioctl_int(near, consts.SIOCOUTQ) == 0, "arrival of all")
    far.set(SOL, socket.SO_OOBINLINE, 1)
    e.note("recv urgent", e.error(calls.recv, far, 1, OOB))
    e.note("first", calls.recv(far, 100))
    e.note("second", calls.recv(far, 100))


@case(hosts=BEDS)
def two(e):
    """A second urgent byte replaces an unread urgent byte."""
    near, far = e.pair()
    near.send(b"a1", OOB)
    urgent(e, far)
    near.send(b"b2", OOB)
    e.until(lambda: e.outcome(calls.recv, far, 1, OOB | PEEK) == b"2", "the second urgent byte")
    e.note("urgent", calls.recv(far, 1, OOB))
    e.note("stream", calls.recv(far, 100))
    e.note("more", e.error(calls.recv, far, 100, DONTWAIT))


@case(hosts=BEDS)
def one_after_the_other(e):
    near, far = e.pair()
    for turn in range(10):
        near.send(b"s%d" % turn)
        near.send(b"%d" % turn, OOB)
        urgent(e, far)
        e.note(f"urgent {turn}", calls.recv(far, 1, OOB))
        e.note(f"stream {turn}", calls.recv(far, 100))


@case(hosts=BEDS, timeout=60)
def meets_reader(e):
    """Urgent bytes arrive while the receiver reads in a loop: the stream contains no urgent
    byte."""
    near, far = e.pair()
    read = mmap.mmap(-1, 8)
    rounds = 20000 if netns.is_one() else 2000

    def speak():
        for turn in range(rounds):
            while struct.unpack("Q", read[:8])[0] < turn:
                pass
            for _ in range(turn % 50):
                pass
            near.send(b"!", OOB)
            near.send(b".")
    speaker = e.child(speak)
    for turn in range(rounds):
        got = b""
        while not got.endswith(b"."):
            with contextlib.suppress(BlockingIOError):
                got += far.recv(10, DONTWAIT)
        e.equal(got, b".", f"stream of round {turn}")
        read[:8] = struct.pack("Q", turn + 1)
    speaker.result()


@case(hosts=BEDS)
def nothing(e):
    near, far = e.pair()
    e.note("send nothing", e.outcome(calls.send, near, b"", OOB))
    near.send(b"plain")
    e.wait(far)
    e.note("mask", far.mask())
    e.note("urgent", e.error(calls.recv, far, 1, OOB))


@case(hosts=BEDS, reference=False)
def far_ahead(e):
    """The receiver learns of the urgent byte even if the byte is far back in the queue (TCP
    announces through a full window only by chance)."""
    near, far = e.pair()
    far.set(SOL, socket.SO_RCVBUF, 20000)
    filled = e.fill(near)
    sent = e.outcome(calls.send, near, b"!", OOB | DONTWAIT)
    if sent == 1:
        e.wait(far, select.POLLPRI)
        early = e.outcome(calls.recv, far, 1, OOB | DONTWAIT)
        e.check(early in ("EAGAIN", b"!"), f"urgent byte in the distance: {early}")
    count = 0
    while count < filled:
        count += len(calls.recv(far, min(1 << 20, filled - count)))
    if sent == 1:
        e.note("mark", e.until(lambda: at_mark(far), "the mark"))
        e.note("urgent", e.outcome(calls.recv, far, 1, OOB) if early == "EAGAIN" else b"!")
    else:
        e.check(sent == "EAGAIN", f"urgent send into a full buffer: {sent}")
        e.note("mark", 1)
        e.note("urgent", b"!")


@case(hosts=BEDS, timeout=60)
def in_bulk(e):
    """Urgent bytes in a long stream: all other bytes of the stream arrive."""
    near, far = e.pair()
    total, step = 2000000, 50000
    stream = pattern.Pattern(41)

    def speak():
        for place in range(0, total, step):
            near.sendall(stream.at(place, step))
            near.sendall(b"!", OOB)
        near.shutdown(socket.SHUT_WR)

    task = e.task(speak)
    data = bytearray()
    # An urgent byte that was not read before the next one becomes part of the stream.
    far.set(SOL, socket.SO_OOBINLINE, 1)
    while part := far.recv(1 << 20):
        data += part
    task.result()
    whole = b"".join(stream.at(place, step) + b"!" for place in range(0, total, step))
    e.equal(len(data), len(whole), "length")
    e.check(bytes(data) == whole, "the stream differs")


@case(hosts=BEDS)
def last_of_a_large_send(e):
    near, far = e.pair()
    total = 100000
    data = pattern.Pattern(42).at(0, total) + b"!"
    task = e.task(near.sendall, data, OOB)
    got = b""
    while len(got) < total:
        got += calls.recv(far, total)
    task.result()
    urgent(e, far)
    e.check(got == data[:-1], "the stream differs")
    e.note("urgent", calls.recv(far, 1, OOB))


@case(hosts=BEDS)
def at_the_end(e):
    """An urgent byte is followed by the end of the stream."""
    near, far = e.pair()
    near.send(b"last!", OOB)
    near.shutdown(socket.SHUT_WR)
    e.note("mask", e.wait_mask(far, "PRI|RDHUP"))
    e.note("stream", calls.recv(far, 100))
    e.note("mark", at_mark(far))
    e.note("urgent", calls.recv(far, 1, OOB))
    e.note("urgent again", e.outcome(calls.recv, far, 1, OOB))
    e.note("end", calls.recv(far, 100))
    near, far = e.pair()
    near.shutdown(socket.SHUT_WR)
    e.wait_mask(far, "RDHUP")
    e.note("never sent", e.outcome(calls.recv, far, 1, OOB))


@case(hosts=BEDS)
def after_shutdown(e):
    near, far = e.pair()
    near.shutdown(socket.SHUT_WR)
    e.note("send", e.error(calls.send, near, b"!", OOB | socket.MSG_NOSIGNAL))
    far.send(b"a!", OOB)
    urgent(e, near)
    e.note("the other way", calls.recv(near, 1, OOB))
    e.note("its stream", calls.recv(near, 10))


@case
def sigurg(e):
    """SIGURG is sent to the owner of the socket."""
    near, far = e.pair()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})
    e.note("owner at first", fcntl.fcntl(far, 9))
    fcntl.fcntl(far, fcntl.F_SETOWN, os.getpid())
    e.note("owner", fcntl.fcntl(far, fcntl.F_GETOWN) == os.getpid())
    near.send(b"plain")
    e.wait(far)
    e.note("pending before", signal.SIGURG in signal.sigpending())
    near.send(b"!", OOB)
    caught = signal.sigtimedwait({signal.SIGURG}, e.patience)
    e.check(caught is not None, "SIGURG never came")
    e.note("signal", (caught.si_signo == signal.SIGURG, caught.si_code))
    urgent(e, far)
    e.note("urgent", calls.recv(far, 1, OOB))


@case
def sigurg_by_ioctl(e):
    near, far = e.pair()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})
    e.note("set", e.outcome(calls.ioctl_int, far, consts.SIOCSPGRP, os.getpid()) == os.getpid())
    e.note("get", calls.ioctl_int(far, consts.SIOCGPGRP) == os.getpid())
    near.send(b"!", OOB)
    e.check(signal.sigtimedwait({signal.SIGURG}, e.patience) is not None, "SIGURG never came")


@case
def sigurg_interrupts(e):
    """SIGURG with a handler during a blocked recv()."""
    near, far = e.pair()

    def run():
        caught = []
        signal.signal(signal.SIGURG, lambda *_: caught.append(1))
        signal.siginterrupt(signal.SIGURG, True)
        fcntl.fcntl(far, fcntl.F_SETOWN, os.getpid())
        return e.outcome(calls.recv, far, 10), len(caught)

    child = e.child(run).wait_asleep("recvfrom")
    near.send(b"!", OOB)
    e.note("recv", child.result())


@case
def wakes(e):
    """select() reports exceptional conditions, poll() and epoll POLLPRI."""
    near, far = e.pair()
    by_select = e.task(lambda: [len(ready) for ready in select.select([], [], [far], e.patience)])
    by_poll = e.task(e.wait, far, select.POLLPRI)
    poller = select.epoll()
    poller.register(far, select.EPOLLPRI)
    by_epoll = e.task(lambda: [mask for _, mask in poller.poll(e.patience)])
    for task in (by_select, by_poll, by_epoll):
        task.wait_asleep("select", "pselect6", "poll", "ppoll", "epoll_wait", "epoll_pwait")
    near.send(b"!", OOB)
    e.note("select", by_select.result())
    e.note("poll", by_poll.result())
    e.note("epoll", by_epoll.result())
