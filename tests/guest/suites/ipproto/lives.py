# SPDX-License-Identifier: GPL-2.0-only
"""Processes that share IPPROTO_SDP sockets, or die with such sockets; an unloaded module; programs
without SDP support."""

import array
import errno
import os
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

from lib import consts, either, kmsg, netns, observe
from lib.either import SDP, TCP
from lib.registry import case
from lib.sock import Sock

PATIENT = {"ipproto_wait": 5000, "ipproto_memory": 0}


def refcount():
    with open("/sys/module/ib_sdp/refcnt") as file:
        return int(file.read())


def rmmod():
    done = subprocess.run(["rmmod", "ib_sdp"], capture_output=True, text=True)
    return done.returncode, done.stderr.strip()


def insmod(*parameters):
    done = subprocess.run(["insmod", observe.MODULE, *parameters], capture_output=True, text=True)
    return done.returncode, done.stderr.strip()


@case(reference=False)
def fork(e):
    """A child connects the socket that its parent has created; the parent continues to use the
    socket."""
    with either.parameters(**PATIENT):
        for protocol in (SDP, TCP):
            listener, near = either.listen(e, protocol), either.make(e)
            e.child(near.connect, e.address(e.there, listener.port)).result()
            e.equal(either.protocol(near), protocol, "the protocol, for the parent")
            either.echo(e, near, either.accept(e, listener))


@case(reference=False)
def passed_on(e):
    """A socket is passed to another process, which connects the socket."""
    with either.parameters(**PATIENT):
        for protocol in (SDP, TCP):
            listener, near = either.listen(e, protocol), either.make(e)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

            def other():
                _, control, _, _ = theirs.recvmsg(1, 100)
                got = Sock.wrap(array.array("i", control[0][2])[0], e.family)
                got.connect(e.address(e.there, listener.port))
                got.sendall(b"from the other")

            child = e.child(other)
            ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [near.fileno()]))])
            child.result()
            far = either.accept(e, listener)
            e.equal(far.recv_exactly(14), b"from the other", "what the other process has sent")
            e.equal(either.protocol(near), protocol, "the protocol")
            either.echo(e, near, far)


@case(reference=False, timeout=120)
def killed(e):
    """A process that dies in connect(2), in accept(2) and with sockets of each kind leaves no
    resource.
    """
    silent = e.silent()
    with either.parameters(ipproto_wait=100000, ipproto_memory=0):
        listener, plain = either.listen(e), either.listen(e, TCP)

        def connecting():
            for other in (listener, plain):
                either.connect(e, other)
            either.make(e).bind(e.address(e.here, 0))
            either.make(e).connect(e.address(silent, 7))

        def accepting():
            either.listen(e, where="self").accept()

        child = e.child(connecting)
        e.until(lambda: any(row.remote[0] == silent for row in observe.rows()), "a row of the silent host")
        child.wait_asleep("connect").kill()
        e.child(accepting).wait_asleep("accept4").kill()
        for sock in (listener, plain):      # including connections that were not accepted
            sock.close()
        e.until(lambda: not observe.rows("self"), lambda: f"rows stay: {observe.read(observe.ROWS)}", patience=e.patience * 6)


@case(reference=False, timeout=60)
def closed_while_falling(e):
    """Sockets that are closed at any moment of their fallback to TCP leave no resource."""
    with either.parameters(**PATIENT):
        listener = either.listen(e, TCP, backlog=200)
        for turn in range(60):
            near = either.make(e)
            near.setblocking(False)
            near.connect_ex(e.address(e.there, listener.port))
            for _ in range(turn):
                near.mask()
            near.close()
        e.until(lambda: not observe.rows("self"), lambda: f"rows stay: {observe.read(observe.ROWS)}")


@case(reference=False, timeout=60)
def shared_by_threads(e):
    """Threads set options, poll, get names and try to connect while a socket falls back to TCP."""
    with either.parameters(**PATIENT):
        listener = either.listen(e, TCP)
        for _ in range(20):
            near = either.make(e)
            near.setblocking(False)
            over = threading.Event()

            def meddle():
                while not over.is_set():
                    near.mask()
                    e.outcome(near.getsockname)
                    e.outcome(near.getpeername)
                    near.set(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    near.set(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    e.outcome(near.connect, e.address(e.there, listener.port))

            tasks = [e.task(meddle) for _ in range(3)]
            far = either.accept(e, listener)
            e.until(lambda: e.error(near.getpeername) == "ok", "the connection")
            over.set()
            for task in tasks:
                task.result()
            near.setblocking(True)
            e.equal(near.get(socket.IPPROTO_TCP, socket.TCP_NODELAY), 1, "TCP_NODELAY")
            either.echo(e, near, far)
            near.close()
            far.close()


@case(reference=False, timeout=120)
def device_goes(e):
    """Removal of an RDMA device ends an SDP connection; a connect in progress and later connects
    use TCP."""
    silent, device = e.silent(), netns.device()
    with either.parameters(ipproto_wait=100000, ipproto_memory=0):
        listener = either.listen(e)
        near = either.connect(e, listener)
        far = either.accept(e, listener)
        connecting = either.make(e)
        connecting.setblocking(False)
        e.equal(connecting.connect_ex(e.address(silent, 7)), errno.EINPROGRESS, "connect() to a host that is silent")
        netns.run("self", "rdma link del rxe0")
        try:
            e.wait_mask(near, "ERR|HUP")
            e.until(lambda: either.protocol(connecting) == TCP, "the connection that is made by TCP")
            without = either.connect(e, listener)
            e.equal(either.protocol(without), TCP, "the protocol without a device")
            either.echo(e, without, either.accept(e, listener))
        finally:
            netns.run("self", f"rdma link add rxe0 type rxe netdev {device}")
        far.close()

        def anew():
            near = either.connect(e, listener)
            far = either.accept(e, listener)
            while either.protocol(far) != either.protocol(near):    # an attempt that has failed at this end only
                far = either.accept(e, listener)
            either.echo(e, near, far)
            return either.protocol(near) == SDP

        with either.parameters(ipproto_wait=1000):
            e.until(anew, "a connection by the new device", patience=e.patience * 3)


@case(reference=False)
def namespace_ends(e):
    """A network namespace ends together with a process that has sockets of each kind in the
    namespace."""
    def inside():
        netns.unshare()
        netns.run("self", "ip link set lo up")
        listener = either.make(e)
        listener.bind(e.address(e.loopback, 0))
        listener.listen(5)
        for protocol in (SDP, TCP):
            either.connect(e, listener, protocol, host=e.loopback)
        either.connect(e, listener, SDP, host=e.loopback)
        either.make(e).bind(e.address(e.loopback, 0))
        os.kill(os.getpid(), signal.SIGKILL)

    before = refcount()
    e.child(inside)
    e.until(lambda: refcount() == before, lambda: f"{refcount()} references, not {before}")


@case(reference=False, families=("v4",), timeout=180)
def unload(e):
    """rmmod is refused while an IPPROTO_SDP socket exists, whatever its protocol. A connection
    accepted by TCP does not count."""
    with either.parameters(**PATIENT):
        e.until(lambda: refcount() == 0, lambda: f"{refcount()} references at first", patience=e.patience * 6)
        listener, plain = either.listen(e), either.listen(e, TCP)
        by_tcp = either.connect(e, listener, TCP)
        accepted = either.accept(e, listener)
        listener.close()
        e.until(lambda: refcount() == 0, lambda: f"{refcount()} references after accept() by TCP")
        open_one, fallen = either.make(e), either.connect(e, plain)
        second = either.listen(e)
        by_sdp = either.connect(e, second)
        far = either.accept(e, second)
        for sock in (second, far, by_sdp, open_one, fallen):
            status, said = rmmod()
            e.check(status != 0 and "in use" in said, f"rmmod: {status} {said}")
            e.check(refcount() > 0, "no reference")
            sock.close()
        e.until(lambda: refcount() == 0, lambda: f"{refcount()} references stay", patience=e.patience * 6)
    e.equal(rmmod(), (0, ""), "rmmod")
    either.echo(e, by_tcp, accepted)
    e.equal(e.error(socket.socket, e.family, socket.SOCK_STREAM, SDP), "EPROTONOSUPPORT", "socket() without the module")
    e.equal(insmod(), (0, ""), "insmod")


@case(reference=False, families=("v4",), timeout=120)
def numbers(e):
    """If the protocol number is in use, the module refuses it with one log line that names the
    holder; 0 disables the protocol."""
    e.until(lambda: refcount() == 0, lambda: f"{refcount()} references stay", patience=e.patience * 6)
    e.equal(rmmod(), (0, ""), "rmmod")
    try:
        for number, error, words in ((262, "busy", "protocol 262 of AF_INET is taken by MPTCP (the kernel)"),
                                     (6, "Invalid parameters", "ipproto=6 is no number"), (300, "Invalid parameters", "`300' invalid for parameter `ipproto'")):
            log = kmsg.Log()
            status, said = insmod(f"ipproto={number}")
            e.check(status != 0 and error in said, f"insmod ipproto={number}: {status} {said}")
            lines = [line for line in log.lines() if "ib_sdp" in line and str(number) in line]
            e.check(len(lines) == 1 and words in lines[0], f"the kernel said of {number}: {lines}")
        e.equal(insmod("ipproto=0"), (0, ""), "insmod ipproto=0")
        e.equal(e.error(socket.socket, e.family, socket.SOCK_STREAM, SDP), "EPROTONOSUPPORT", "socket() without a number")
        e.equal(e.error(e.socket), "ok", "the family without it")
        e._keep.clear()
        e.until(lambda: refcount() == 0, lambda: f"{refcount()} references stay")
        e.equal(rmmod(), (0, ""), "rmmod")
        e.equal(insmod("ipproto=258"), (0, ""), "insmod ipproto=258")
        e.equal(e.error(socket.socket, e.family, socket.SOCK_STREAM, 258), "ok", "socket() by another number")
        e._keep.clear()
        e.equal(e.error(socket.socket, e.family, socket.SOCK_STREAM, SDP), "EPROTONOSUPPORT", "socket() by the usual one")
        e.until(lambda: refcount() == 0, lambda: f"{refcount()} references stay")
        e.equal(rmmod(), (0, ""), "rmmod")
    finally:
        insmod()


@case(reference=False, families=("v4",))
def aliases(e):
    """modprobe finds the module by the protocol."""
    text = subprocess.run(["modinfo", "-F", "alias", observe.MODULE], capture_output=True, text=True).stdout.split()
    e.check({"net-pf-2-proto-257-type-1", "net-pf-10-proto-257-type-1"} <= set(text), f"aliases {text}")


class Hello(BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(self.connection.getsockopt(socket.SOL_SOCKET, consts.SO_PROTOCOL)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@case(reference=False, families=("v4",), timeout=60)
def http(e):
    """Python's HTTP server and client, with IPPROTO_SDP sockets."""
    with either.parameters(**PATIENT):
        with netns.inside("peer"):
            server = HTTPServer((e.there, 0), Hello, bind_and_activate=False)
            server.socket.close()
            server.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, SDP)
            server.server_bind()
            server.server_activate()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://{e.there}:{server.server_port}/"
        plain = socket.socket
        e.equal(urllib.request.urlopen(url, timeout=e.patience).read(), b"6", "what carried a client of TCP")
        try:
            socket.socket = lambda family, kind, protocol=0, fileno=None: plain(family, kind, protocol if fileno else SDP, fileno)
            e.equal(urllib.request.urlopen(url, timeout=e.patience).read(), b"257", "what carried a client of IPPROTO_SDP")
        finally:
            socket.socket = plain
        server.shutdown()
        server.server_close()


@case(reference=False)
def time_of_both(e):
    """SO_SNDTIMEO limits the time of connect() for SDP and TCP together."""
    host = e.silent()
    with either.parameters(ipproto_wait=1500, ipproto_memory=0):
        near = either.make(e)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("qq", 3, 0))
        begun = time.monotonic()
        e.equal(e.error(near.connect, e.address(host, 99)), "EINPROGRESS", "connect()")
        took = time.monotonic() - begun
    e.equal(either.protocol(near), TCP, "the protocol")
    e.check(2.5 < took < 4.2, f"it took {took:.3f} s")
