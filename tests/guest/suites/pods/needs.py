# SPDX-License-Identifier: GPL-2.0-only
"""SDP in a pod requires no privilege or setting of the pod."""

import os
import socket
import subprocess

from lib import consts, either, netns, observe, pattern, pod
from lib.registry import case

SIZE = 16 << 20
TCP = socket.IPPROTO_TCP


def ways(e):
    """For sockets of family 27 and of IPPROTO_SDP: a function that makes a socket, and the
    SO_PROTOCOL of that socket."""
    # SO_PROTOCOL of family 27 returns TCP's number.
    return (lambda where="self": e.socket(where), TCP), (lambda where="self": either.make(e, where=where), either.SDP)


def eager(sock):
    sock.set(TCP, consts.SDP_ZCOPY_THRESH, 65536)
    return sock


def exchange(e, make, memlock):
    """Sends SIZE bytes in each direction between a pod and the other host.

    Returns SO_PROTOCOL, sets of capabilities and SDP_INFO of the pod's end."""
    listener = make("peer")
    listener.bind(e.address(e.there, 0))
    listener.listen(4)

    def run():
        pod.enter(memlock)
        sock = make()
        sock.connect(e.address(e.there, listener.port))
        eager(sock)
        pattern.send(sock, 9, SIZE, [SIZE])
        got = pattern.receive(sock, 8, SIZE, [SIZE], socket.MSG_WAITALL)
        return got, either.protocol(sock), pod.capabilities(), observe.info(sock)

    child = e.child(run)
    far = eager(e.keep(listener.accept()[0]))
    e.equal(pattern.receive(far, 9, SIZE, [1 << 20], socket.MSG_WAITALL), SIZE, "bytes from the pod")
    pattern.send(far, 8, SIZE, [1 << 20])
    got, *rest = child.result()
    e.equal(got, SIZE, "bytes to the pod")
    return rest


@case(reference=False, timeout=120)
def nothing(e):
    """Sends use zero copy up to RLIMIT_MEMLOCK, and copy if no memory may be locked."""
    for make, protocol in ways(e):
        def attempt(make=make, protocol=protocol):
            was, capabilities, info = exchange(e, make, pod.MEMLOCK)
            e.equal((was, capabilities), (protocol, []), "the protocol, and capabilities")
            e.equal((info["tx_bytes"], info["rx_bytes"]), (SIZE, SIZE), "bytes of SDP")
            return info["tx_read"] + info["tx_written"] > 0 and info["rx_read"] + info["rx_written"] > 0
        e.lucky(attempt, "all was copied")
        _, _, info = exchange(e, make, 0)
        e.equal([info[f"{way}_{how}"] for way in ("tx", "rx") for how in ("read", "written")], [0] * 4, "bytes without a copy, with nothing to lock")


@case(reference=False, families=("v4",), timeout=60)
def on_macvlan(e):
    """A pod with a macvlan of the node's device uses TCP, because rxe receives no frames of the
    macvlan."""
    subprocess.run(["modprobe", "macvlan"], check=True)
    netns.run("self", f"ip link add link {netns.device()} name pod0 type macvlan mode bridge")
    listener = either.make(e, where="peer")
    listener.bind(e.address(e.there, 0))
    listener.listen(4)
    reader, writer = os.pipe()

    def run():
        os.unshare(netns.CLONE_NEWNET)
        os.write(writer, b"!")
        e.until(lambda: "pod0" in (name for _, name in socket.if_nameindex()), "the interface")
        for words in ("addr add 10.77.0.99/24 dev pod0", "link set pod0 up"):
            subprocess.run(["ip", *words.split()], check=True)
        pod.enter()
        sock = either.make(e)
        sock.connect(e.address(e.there, listener.port))
        sock.sendall(b"from a pod")
        return either.protocol(sock), sock.getsockname()[0]

    with either.parameters(ipproto_wait=200, ipproto_memory=0):
        child = e.child(run)
        os.read(reader, 1)
        netns.run("self", f"ip link set pod0 netns {child.pid}")
        far = e.keep(listener.accept()[0])
        e.equal(far.recv_exactly(10), b"from a pod", "the bytes")
        e.equal(child.result(), (TCP, "10.77.0.99"), "the protocol and the address")
