# SPDX-License-Identifier: GPL-2.0-only
"""The end of a pod, whose network namespace ends with the pod's processes."""

import errno
import os
import socket
import subprocess

from lib import consts, netns, observe, pod
from lib.registry import case

HERE, THERE = "10.79.1.1", "10.79.1.2"
BLOCK = 1 << 20


def flood(sock):
    """Sends until the connection ends. Returns the errno of the failed call."""
    data = bytes(BLOCK)
    try:
        while True:
            sock.sendall(data)
    except OSError as error:
        return error.errno


def drain(sock, blocks=None):
    """Receives the given number of blocks, or until the connection ends."""
    try:
        while blocks != 0 and sock.recv(BLOCK, socket.MSG_WAITALL):
            blocks = blocks and blocks - 1
    except OSError as error:
        return error.errno
    return 0


@case(reference=False, families=("v4",), timeout=120)
def leaves_nothing(e):
    """SIGKILL during transfers in both directions: device and interface disappear, and no page
    stays pinned."""
    if not netns.local() or netns.is_one():
        e.skip("the pod needs a namespace of its own")
    netns.run("self", "ip link add pod0 mtu 9000 type veth peer name pod1 mtu 9000")
    netns.run("self", f"ip addr add {HERE}/24 dev pod0")
    netns.run("self", "ip link set pod0 up")
    netns.run("self", "rdma link add rxepod0 type rxe netdev pod0")
    listener = e.socket()
    listener.bind(e.address(HERE, 0))
    listener.listen(4)
    reader, writer = os.pipe()

    def run():
        os.unshare(netns.CLONE_NEWNET)
        os.write(writer, b"!")
        e.until(lambda: "pod1" in (name for _, name in socket.if_nameindex()), "the interface")
        for words in (f"ip addr add {THERE}/24 dev pod1", "ip link set pod1 up", "rdma link add rxepod1 type rxe netdev pod1"):
            subprocess.run(words.split(), check=True)
        pod.enter()
        sock = e.socket()
        sock.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, 65536)
        sock.connect(e.address(HERE, listener.port))
        e.task(flood, sock)
        drain(sock)

    child = e.child(run)
    os.read(reader, 1)
    netns.run("self", f"ip link set pod1 netns {child.pid}")
    near = e.keep(listener.accept()[0])
    near.set(socket.IPPROTO_TCP, consts.SDP_ZCOPY_THRESH, 65536)
    sender = e.task(flood, near)
    e.equal(drain(near, 4), 0, "four blocks from the pod")
    e.check(observe.pinned("self"), "nothing is pinned in the middle of the transfers")
    child.kill()
    e.check(drain(near) in (0, errno.ECONNRESET, errno.ETIMEDOUT), "the end of the stream")
    sender.result()
    near.close()
    listener.close()
    e.until(lambda: not netns.has_link("self", "pod0"), "the end of the interface")
    e.until(lambda: "rxepod" not in netns.run("self", "rdma link"), "the end of the devices")
    e.until(lambda: not observe.pinned("self"), "the end of all pinning")
    e.equal(observe.rows("self"), [], "sockets")
