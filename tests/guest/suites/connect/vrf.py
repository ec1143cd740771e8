# SPDX-License-Identifier: GPL-2.0-only
"""VRFs, which confine connections."""

import contextlib
import socket
import subprocess

from lib import consts, netns
from lib.env import OneOf
from lib.registry import case

ADDRESS = "10.99.0.1"


@contextlib.contextmanager
def vrf():
    subprocess.run(["modprobe", "vrf"], check=True)
    for command in ("link add vrf9 type vrf table 109", "link set vrf9 up", "link add in9 type dummy", "link set in9 master vrf9",
                    f"addr add {ADDRESS}/24 dev in9", "link set in9 up"):
        netns.run("self", "ip " + command)
    try:
        yield
    finally:
        for link in ("in9", "vrf9"):
            netns.run("self", f"ip link del {link}")


@contextlib.contextmanager
def local_connections():
    before = netns.local_transport(True)
    try:
        with vrf():
            yield
    finally:
        if before is not None:
            netns.local_transport(before)


def bound(sock, device):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
    return sock


@case(families=("v4",))
def listener_outside(e):
    """A listener that is not bound to an interface is outside the VRF."""
    with local_connections():
        listener = e.listen("self", host=e.any)
        for device in ("vrf9", "in9"):
            near = bound(e.socket(), device)
            e.note(f"bound to {device}", e.error(near.connect, e.address(ADDRESS, listener.port)),
                   sdp=OneOf("ECONNREFUSED", "ENETUNREACH"), because="27 has no TCP to go by")
            near.close()


@case(families=("v4",))
def listener_inside(e):
    """A listener bound to the VRF gets connections of sockets bound to the VRF or to a device of
    the VRF."""
    with local_connections():
        listener = bound(e.socket(), "vrf9")
        listener.bind(e.address(ADDRESS, 0))
        listener.listen(4)
        for device in ("vrf9", "in9"):
            near = bound(e.socket(), device)
            near.connect(e.address(ADDRESS, listener.port))
            e.note(f"protocol when bound to {device}", near.get(socket.SOL_SOCKET, consts.SO_PROTOCOL))
            near.sendall(b"inside")
            e.equal(e.keep(listener.accept()[0]).recv_exactly(6), b"inside", "the bytes")
