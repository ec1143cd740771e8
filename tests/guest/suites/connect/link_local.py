# SPDX-License-Identifier: GPL-2.0-only
"""Link-local peers: every link-local address needs an interface."""

import json
import struct

from lib import calls, netns
from lib.registry import case


def link(host):
    """Link-local address and index of a host's network device."""
    found = json.loads(netns.run(host, f"ip -j -6 addr show dev {netns.device(host)}"))[0]
    return next(a["local"] for a in found["addr_info"] if a["scope"] == "link"), found["ifindex"]


def scope(name):
    return struct.unpack_from("=I", name[0], 24)[0]


@case(families=("v6",))
def names(e):
    if netns.is_one():
        e.skip("no link between the hosts")
    listener = e.listen(host="::")
    there, _ = link("peer")
    here, index = link("self")
    e.note("without scope", e.error(calls.connect, e.socket(), calls.sa_in6(there, listener.port)))
    e.note("of no device", e.error(calls.connect, e.socket(), calls.sa_in6(there, listener.port, scope=999)))
    other = e.socket()
    other.setsockopt(1, 25, b"lo\0")      # SO_BINDTODEVICE
    e.note("of another device", e.error(calls.connect, other, calls.sa_in6(there, listener.port, scope=index)))
    near = e.socket()
    e.note("connect", e.error(calls.connect, near, calls.sa_in6(there, listener.port, scope=index)))
    far, _ = listener.accept()
    e.note("here", [scope(call(near)) == index for call in (calls.getsockname, calls.getpeername)])
    with netns.inside("peer"):
        there_index = link("peer")[1]
    e.note("there", [scope(call(far)) == there_index for call in (calls.getsockname, calls.getpeername)])
    near.sendall(b"bytes")
    e.note("data", far.recv_exactly(5))


@case(families=("v6",))
def by_device(e):
    """SO_BINDTODEVICE replaces the scope."""
    if netns.is_one():
        e.skip("no link between the hosts")
    listener = e.listen(host="::")
    there, _ = link("peer")
    near = e.socket()
    near.setsockopt(1, 25, netns.device("self").encode() + b"\0")
    e.note("connect", e.error(calls.connect, near, calls.sa_in6(there, listener.port)))
    e.note("here", [scope(call(near)) == link("self")[1] for call in (calls.getsockname, calls.getpeername)])
    listener.accept()
