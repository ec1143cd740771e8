# SPDX-License-Identifier: GPL-2.0-only
"""A lossy link, a removed device, and processes that die."""

import contextlib
import ctypes
import os
import pathlib
import random
import shutil
import socket
import struct
import subprocess
import time

from lib import calls, consts, either, faults, memory, netns, observe, pattern, tracing
from lib.registry import case
from suites.lifecycle.states import without
from suites.stress.connections import settled
from suites.zcopy import blocks

# Number of connections of a device that is removed.
MANY = 30


def reusable(sock):
    sock.set(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


@case(reference=False, timeout=120)
def loss(e):
    """The link loses packets: all bytes arrive."""
    with e.netem("loss 1%"):
        near, far = e.pair()
        total = 600000
        tasks = [e.task(pattern.send, near, 1, total, [30000]), e.task(pattern.send, far, 2, total, [1000])]
        for target, seed in ((far, 1), (near, 2)):
            e.equal(pattern.receive(target, seed, total, [20000]), total, "bytes")
        for task in tasks:
            task.result()
        near.close()
        e.equal(far.recv(1), b"", "end")


@case(reference=False, families=("v4",), timeout=240)
def loss_without_copies(e):
    """Like `loss`, but for blocks in both directions, whose memory registrations a software device
    may repeat."""
    with e.netem("loss 1%"):
        near, far = blocks.pair(e)
        total = 3 * blocks.MIB
        counters = blocks.Counters()
        tasks = [e.task(pattern.send, near, 1, total, [200000]), e.task(pattern.send, far, 2, total, [70000]),
                 e.task(pattern.receive, near, 2, total, [90000]), e.task(pattern.receive, far, 1, total, [300000])]
        for task in tasks:
            e.equal(task.result(), total, "bytes")
        e.check(counters.gained("zcopy rx_bytes") > 0, "all was copied")
    blocks.unpinned(e)


@case(reference=False, timeout=120)
def reordering(e):
    with e.netem("delay 1ms reorder 5% 50% duplicate 1%"):
        near, far = e.pair()
        total = 400000
        tasks = [e.task(pattern.send, near, 3, total, [50000]), e.task(pattern.send, far, 4, total, [3000])]
        for target, seed in ((far, 3), (near, 4)):
            e.equal(pattern.receive(target, seed, total, [20000]), total, "bytes")
        for task in tasks:
            task.result()


@case(reference=False, families=("v4",), timeout=240)
def reordering_without_copies(e):
    """Like `reordering`, but for blocks in both directions, which the peer reads and writes."""
    with e.netem("delay 1ms reorder 5% 50% duplicate 1%"):
        near, far = blocks.pair(e)
        total = 3 * blocks.MIB
        counters = blocks.Counters()
        tasks = [e.task(pattern.send, near, 3, total, [300000]), e.task(pattern.send, far, 4, total, [100000]),
                 e.task(pattern.receive, near, 4, total, [200000]), e.task(pattern.receive, far, 3, total, [400000])]
        for task in tasks:
            e.equal(task.result(), total, "bytes")
        e.check(counters.gained("zcopy rx_bytes") > 0, "all was copied")
    blocks.unpinned(e)


@case(reference=False, timeout=120)
def connects_under_loss(e):
    """Connections are opened and closed over a lossy link."""
    with e.netem("loss 3%"):
        listener = e.listen(backlog=32)
        for number in range(10):
            near = e.socket()
            near.connect(e.address(e.there, listener.port))
            far, _ = listener.accept()
            near.sendall(b"%d" % number)
            e.equal(far.recv(10), b"%d" % number, "word")
            (near if number % 2 else far).close()
            e.equal((far if number % 2 else near).recv(10), b"", "end")


@case(reference=False, timeout=120)
def unreachable_for_a_while(e):
    """rxe retries for `ack_time`: bytes arrive late, and a missing peer is detected."""
    if netns.is_one():
        e.skip("both hosts are the same namespace")
    near, far = e.pair()
    with netns.firewall():
        near.sendall(b"x" * 1000)
        time.sleep(7)
    e.equal(far.recv_exactly(1000), b"x" * 1000, "bytes")
    far.sendall(b"y")
    e.equal(near.recv(1), b"y", "the other way")
    with either.parameters(ack_time=3), netns.firewall():
        near.sendall(b"x")
        e.equal(e.outcome(near.recv, 1), "ETIMEDOUT", "a peer that is gone")


@case(reference=False, timeout=120)
def unreachable_while_stalled(e):
    """A sender that waits for credits, with no request in flight, notices that the peer is gone."""
    if netns.is_one():
        e.skip("both hosts are the same namespace")
    near, _ = e.pair()
    with either.parameters(ack_time=3):
        e.fill(near, 1000)
        task = e.task(e.outcome, near.send, b"x" * 1000).wait_asleep("sendto")
        with netns.firewall():
            e.equal(task.result(), "ETIMEDOUT", "the blocked send()")


@case(reference=False, timeout=120)
def device_goes(e):
    """`rdma link del` under load: the connections end with an error. When the device is available
    again, new connections work."""
    if not shutil.which("rdma"):
        e.skip("no rdma tool")
    device = netns.device()
    listener = e.listen()
    pairs = [e.pair(listener) for _ in range(4)]
    tasks = []
    for number, (near, far) in enumerate(pairs):
        tasks.append(e.task(lambda near=near, number=number: e.error(
            pattern.send, near, number, 1 << 30, [60000], socket.MSG_NOSIGNAL)))
        tasks.append(e.task(lambda far=far, number=number: e.error(pattern.receive, far, number, 1 << 30, [50000])))
    own = e.listen("self")
    e.until(lambda: observe.stats()["tx_bytes"] > 100000, "a load")
    netns.run("self", "rdma link del rxe0")
    try:
        results = [task.result() for task in tasks]
        e.check(all(result in ("ECONNRESET", "EPIPE", "ETIMEDOUT", "ENODEV", "ECONNABORTED", "ok") for result in results)
                and all(result != "ok" for result in results[::2]), f"ended with {results}")
        e.check(e.error(e.socket().connect, e.address(e.there, listener.port)) in
                ("ENETUNREACH", "EHOSTUNREACH", "ENODEV", "EADDRNOTAVAIL"), "connect() without a device")
    finally:
        netns.run("self", f"rdma link add rxe0 type rxe netdev {device}")
    near = e.socket()
    e.until(lambda: e.error(near.connect, e.address(e.there, listener.port)) in ("ok", "EISCONN"),
            "a connection by the new device", patience=e.patience * 3)
    near.send(b"by the new device")
    far, address = listener.accept()
    while address != near.getsockname():        # an attempt that has failed at this end only
        far, address = listener.accept()
    e.equal(far.recv(100), b"by the new device", "data")
    # An existing listener also gets connections by the new device.
    back = e.socket("peer")
    e.until(lambda: e.error(back.connect, e.address(e.here, own.port)) in ("ok", "EISCONN"),
            "a connection to the listener of before", patience=e.patience * 3)


@case(reference=False, families=("v4",), timeout=180)
def device_goes_with_many(e):
    """Removing a device takes little time, however many loaded connections it has: the module
    resets and destroys their queue pairs together. Four connections have bytes in flight in both
    directions, the other connections have blocks that no call reads. The case measures only the
    time of the kernel's call."""
    if not shutil.which("rdma") or os.uname().release.endswith("-debug"):
        e.skip("needs the rdma tool and a kernel with ftrace (without it a kprobe takes minutes)")
    listener, block = e.listen(backlog=MANY), bytes(65536)
    pairs = [e.pair(listener) for _ in range(MANY)]
    tasks = [e.task(e.error, function, sock, number, 1 << 30, [60000], *flags) for number, pair in enumerate(pairs[:4])
             for function, sock, *flags in ((pattern.send, pair[0], socket.MSG_NOSIGNAL), (pattern.receive, pair[1]))]
    counters = blocks.Counters()
    for near, _ in pairs[4:]:
        blocks.eager(near)
        near.set(socket.SOL_SOCKET, consts.SO_ZEROCOPY, 1)
        for _ in range(4):
            near.send(block, consts.MSG_ZEROCOPY)
    e.until(lambda: counters.gained("post_send SDP_MID_SRCAVAIL") >= MANY, "adverts")
    with tracing.durations("ib_unregister_device_and_put") as took:
        with without("self", "rxe0"):
            results = [task.result() for task in tasks]
            results += [e.error(near.send, b"x", socket.MSG_NOSIGNAL) for near, _ in pairs[4:]]
        [seconds] = took()
    e.check("ok" not in results, f"ended with {results}")
    e.note("seconds", round(seconds, 2))
    e.check(seconds < e.patience / 2, f"the removal took {seconds:.2f} s")
    blocks.unpinned(e)


@case(reference=False, families=("v4",), timeout=120)
def device_goes_after_a_fault(e):
    """The connection is lost while a call waits for its own memory, and the memory then turns out
    to be unmapped. The socket keeps no reference to the device, which would block the removal
    unnoticed."""
    if not shutil.which("rdma"):
        e.skip("no rdma tool")
    device = netns.device()
    near, far = e.pair()
    near.send(b"what is sent from stays ready for the device")
    far.recv(100)
    absent = memory.Absent(memory.PAGE)
    task = e.task(lambda: e.error(calls.sized, "send", near.fileno(), ctypes.c_void_p(absent.address), ctypes.c_size_t(100), 0))
    e.until(absent.touched, "the call meets absent memory")
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
    far.close()
    e.wait_mask(near, "ERR")
    absent.protect(0)
    absent.close()
    e.check(task.result() in ("EFAULT", "EPIPE", "ECONNRESET"), f"send() gave {task.result()}")
    removal = e.task(netns.run, "self", "rdma link del rxe0")
    try:
        removal.result()
    finally:
        near.close()
        removal.join()
        netns.run("self", f"rdma link add rxe0 type rxe netdev {device}")


def copied_out(e):
    near, far = e.pair()
    near.send(b"what is sent from stays mapped for the device")
    far.recv(100)
    return near, far, memory.Absent(memory.PAGE), lambda absent: calls.send_at(near, absent.address, 100)


def copied_in(e):
    near, far = e.pair()
    far.send(b"what came")
    e.wait(near)
    return near, far, memory.Absent(memory.PAGE), lambda absent: calls.recv_at(near, absent.address, 100)


def to_be_read(e):
    near, far = blocks.pair(e)
    return near, far, memory.Absent(blocks.MIB, memory.PAGE), lambda absent: calls.send_at(near, absent.address, blocks.MIB)


def to_be_written(e):
    far, near = blocks.pipelined(e, -1)
    return near, far, memory.Absent(blocks.MIB, memory.PAGE), lambda absent: calls.recv_at(near, absent.address, blocks.MIB, socket.MSG_WAITALL)


def read_into(e):
    near, far = blocks.pair(e)
    counters = blocks.Counters()
    e.task(e.error, far.send, pattern.Pattern(1).at(0, blocks.MIB), socket.MSG_NOSIGNAL)
    e.until(lambda: counters.gained("post_send SDP_MID_SRCAVAIL"), "an advert")
    return near, far, memory.Absent(blocks.MIB, memory.PAGE), lambda absent: calls.recv_at(near, absent.address, blocks.MIB, socket.MSG_WAITALL)


def taken_back(e):
    """The peer cancels its advert during the call, and sends a part of the block."""
    return read_into(e)


def option(sock, absent):
    """Calls setsockopt(2) with an address; returns 0 or the errno's name."""
    return calls.plain("setsockopt", sock.fileno(), socket.SOL_TCP, socket.TCP_NODELAY, ctypes.c_void_p(absent.address), 4)


def set_on(e):
    near, far = e.pair()
    return near, far, memory.Absent(memory.PAGE), lambda absent: option(near, absent)


def set_on_both(e):
    """A call on a listener of both protocols holds the mutex of the choice between SDP and TCP."""
    near = either.listen(e, where="self")
    return near, either.connect(e, near, host=e.here), memory.Absent(memory.PAGE), lambda absent: option(near, absent)


@case(reference=False, families=("v4",), timeout=60)
def workers_in_a_fault(e):
    """A call waits in an unresolved page fault of its own memory, and holds a socket lock, or the
    mutex of the choice between SDP and TCP. No worker waits for the call: more connections than
    processors connect, fall back, and end during the fault."""
    begun = []
    for begin in (copied_out, copied_in, set_on, set_on_both):
        near, far, absent, call = begin(e)
        begun.append((near, far, absent, e.task(e.outcome, call, absent)))
        e.until(absent.touched, f"the call meets absent memory, {begin.__name__}")
    try:
        # Messages for the two sockets of the blocked calls, and expired timers.
        begun[0][1].send(b"comes")
        begun[2][1].send(b"comes")
        nobody = e.refused_port()
        for _ in range(2 * os.cpu_count() + 2):
            with either.parameters(ipproto_wait=5000, ipproto_memory=0), either.counts(e, tcp_refused=1):
                e.equal(e.error(either.make(e).connect, e.address(e.there, nobody)), "ECONNREFUSED", "by SDP and then by TCP")
            near, far = e.pair()
            near.send(b"x" * 100000)
            e.equal(far.recv_exactly(100000), b"x" * 100000, "others")
            near.close()
            far.close()
        stuck = [stack for stack in worker_stacks() if "ib_sdp" in stack]
        e.equal(stuck, [], "workers that wait")
        e.check(all(task.is_alive() for *_, task in begun), "a call has ended")
    finally:
        for _, _, absent, _ in begun:
            absent.close()
    e.equal([task.result() for *_, task in begun], [100, 9, 0, 0], "the calls")


def worker_stacks():
    """Returns the stacks of the kernel's workers that sleep during a work item."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().startswith("kworker"):
                yield (folder / "stack").read_text()
        except OSError:
            pass        # the task has just ended


@case(reference=False, families=("v4",), timeout=180)
def device_goes_in_a_fault(e):
    """A call waits in an unresolved page fault of its own memory while the call copies or pins the
    memory. The device is removed without waiting for the call, and the call ends when its memory is
    available."""
    if not shutil.which("rdma"):
        e.skip("no rdma tool")
    device = netns.device()
    for begin in (copied_out, copied_in, set_on, set_on_both, to_be_read, to_be_written, read_into, taken_back):
        counters = blocks.Counters()
        near, far, absent, call = begin(e)
        task = e.task(e.outcome, call, absent)
        e.until(absent.touched, f"the call meets absent memory, {begin.__name__}")
        if begin is taken_back:
            e.until(lambda: counters.gained("post_send SDP_MID_SRCAVAIL_CANCEL") and counters.gained("received SDP_MID_DATA"), "bytes of the advert")
        removal = e.task(netns.run, "self", "rdma link del rxe0")
        try:
            e.until(lambda: not removal.is_alive(), f"the end of the device, {begin.__name__}")
            e.check(task.is_alive(), f"the call has ended, {begin.__name__}")
        finally:
            absent.close()
            removal.join()
            netns.run("self", f"rdma link add rxe0 type rxe netdev {device}")
        got = task.result()
        if begin is copied_in:
            e.equal((got, bytes(absent.map[:9])), (9, b"what came"), "what had come before")
        elif begin in (set_on, set_on_both):
            e.equal(got, 0, f"the option, {begin.__name__}")
        elif begin is taken_back or begin is read_into and isinstance(got, int):
            # on a slow machine the peer may have read the block already
            e.check(isinstance(got, int) and 0 < got < blocks.MIB, f"{begin.__name__} gave {got}")
            e.check(absent.map[:got] == pattern.Pattern(1).at(0, got), f"others than the peer's {got} bytes")
        else:
            e.check(got in ("EPIPE", "ECONNRESET", "ENETRESET"), f"{begin.__name__} gave {got}")
        near.close()
        far.close()


@case(reference=False, timeout=120)
def killed_anywhere(e):
    """Busy processes are killed at random moments: their peers get the end of the stream or an
    error, and the listener continues."""
    listener = e.listen(backlog=64)
    choice = random.Random(11)

    def work():
        while True:
            near = e.connect(listener)
            for _ in range(choice.randrange(1, 20)):
                near.sendall(b"x" * choice.randrange(1, 100000))
                near.recv(10)
            near.close()

    def serve():
        while True:
            far, _ = listener.accept()
            try:
                while data := far.recv(50000):
                    far.send(data[:1], socket.MSG_NOSIGNAL)
            except OSError:
                pass
            far.close()

    for _ in range(4):
        e.task(serve)
    workers = [e.child(work) for _ in range(4)]
    for turn in range(e.rounds(40)):
        time.sleep(choice.random() * 0.1)
        worker = workers.pop(choice.randrange(len(workers)))
        worker.kill()
        workers.append(e.child(work))
    for worker in workers:
        worker.kill()
    near = e.connect(listener)
    near.sendall(b"y" * 10)
    e.equal(near.recv(1), b"y", "the server's answer")


@case(reference=False, timeout=120)
def killed_servers(e):
    """Like `killed_anywhere`, but for the accepting end."""
    choice = random.Random(12)
    for turn in range(10):
        port = e.refused_port()

        def serve():
            listener = e.listen(port=port, backlog=16, prepare=reusable)
            while True:
                far, _ = listener.accept()
                far.recv(choice.randrange(1, 50000))
                far.sendall(b"z" * 1000)
                e.keep(far)

        server = e.child(serve)
        e.until(lambda: e.error(lambda: e.socket().connect(e.address(e.there, port))) == "ok", "the server")
        socks = [e.socket() for _ in range(5)]
        for sock in socks:
            e.error(sock.connect, e.address(e.there, port))
            e.outcome(calls.send, sock, b"x" * 10000, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        server.kill()
        for sock in socks:
            e.wait_mask(sock, "RDHUP")
            sock.close()
    e.equal(e.error(e.listen, "peer", 1, port, None, reusable), "ok", "its port afterwards")


@case(reference=False, families=("v4",), timeout=120)
def out_of_memory(e):
    """Exactly the bytes that a send call returns arrive, although allocations fail occasionally (on
    a kernel with fault injection)."""
    for seed in range(e.rounds(40)):
        near, far = e.pair()
        stream, taken = pattern.Pattern(seed), 0
        with faults.faults("failslab", 10) if faults.possible() else contextlib.nullcontext():
            for size in (1, 1000, 70000, 5, 3000):
                told = e.outcome(calls.send, near, stream.at(taken, size))
                e.check(isinstance(told, int) or told == "ENOMEM", f"send gave {told}")
                taken += told if isinstance(told, int) else 0
        near.shutdown(socket.SHUT_WR)
        e.equal(pattern.receive(far, seed, taken + 1, [4096]), taken, f"bytes of stream {seed}")
        near.close()
        far.close()


@case(reference=False, families=("v4",), timeout=120)
def nothing_stays(e):
    """After all faults no resource is left, and the module can be unloaded and loaded."""
    settled(e)
    for command in (["rmmod", "ib_sdp"], ["insmod", observe.MODULE]):
        def run():
            return subprocess.run(command, capture_output=True, text=True)
        e.until(lambda: run().returncode == 0, lambda: f"{command}: {run().stderr.strip()}", patience=e.patience * 6)
    near, far = e.pair()
    near.send(b"new")
    e.equal(far.recv(10), b"new", "data")
