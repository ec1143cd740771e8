# SPDX-License-Identifier: GPL-2.0-only
"""VRFs: a listener without an interface is outside."""

import contextlib
import socket
import subprocess

from lib import netns
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


@case(families=("v4",))
def listener_outside(e):
    before = netns.local_transport(True)
    try:
        with vrf():
            listener = e.listen("self", host=e.any)
            for device in ("vrf9", "in9"):
                near = e.socket()
                near.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
                e.note(f"bound to {device}", e.error(near.connect, e.address(ADDRESS, listener.port)),
                       sdp=OneOf("ECONNREFUSED", "ENETUNREACH"), because="27 has no TCP to go by")
                near.close()
    finally:
        if before is not None:
            netns.local_transport(before)
