# SPDX-License-Identifier: GPL-2.0-only
"""Addresses on VLANs, bonds, macvlans, bridges and VRFs, over rxe on the device below."""

import contextlib
import socket
import subprocess

from lib import either, netns, pattern
from lib.registry import case

SIZE = 1 << 20
TCP = either.TCP
NUMBERS = {"self": 1, "peer": 2}
SLAVES = "s0", "s1"


@contextlib.contextmanager
def interfaces(e, modules, name, *commands):
    """Yields the addresses of an interface created on both hosts by `ip` commands.

    DEV in a command is the port's device, N is 1 or 2."""
    if netns.is_one():
        e.skip("both hosts are the same namespace")
    for module in modules.split():
        subprocess.run(["modprobe", module], check=True)
    with contextlib.ExitStack() as until_then:
        found = []
        for host, number in NUMBERS.items():
            device = netns.device(host)
            for command in commands:
                words = command.replace("DEV", device).replace("N", str(number))
                netns.run(host, f"ip {words}")
                if words.startswith("link add"):
                    made = words.split(" type ")[0].split()[-1]
                    until_then.callback(netns.run, host, f"ip link del {made}")
            address = f"fd78::{number}" if e.six else f"10.78.0.{number}"
            netns.run(host, f"ip addr add {address}" + ("/64 nodad" if e.six else "/24") + f" dev {name}")
            found.append(address)
        yield found


def transfers(e, near, far):
    for one, other in ((near, far), (far, near)):
        data = pattern.Pattern(7).at(0, SIZE)
        sent = e.task(one.sendall, data)
        e.equal(other.recv_exactly(SIZE) == data, True, "the bytes")
        sent.result()


def bound(sock, device):
    if device:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
    return sock


def listening(e, sock, address):
    sock.bind(e.address(address, 0))
    sock.listen(4)
    return sock


def by_sdp(e, addresses):
    """Connections of family 27 and of IPPROTO_SDP between the two addresses use SDP."""
    listener = listening(e, e.socket("peer"), addresses[1])
    near = e.socket()
    near.connect(e.address(addresses[1], listener.port))
    transfers(e, near, e.keep(listener.accept()[0]))
    listener = listening(e, either.make(e, where="peer"), addresses[1])
    near = either.make(e)
    near.connect(e.address(addresses[1], listener.port))
    e.equal(either.protocol(near), either.SDP, "the protocol")
    transfers(e, near, either.accept(e, listener))


def by_tcp(e, addresses, device=None, counted="tcp_no_answer"):
    """rxe drops SDP's request, or there is no device: IPPROTO_SDP uses TCP."""
    listener = listening(e, bound(either.make(e, where="peer"), device), addresses[1])
    near = bound(either.make(e), device)
    with either.parameters(ipproto_wait=200, ipproto_memory=0), either.counts(e, **{counted: 1}):
        near.connect(e.address(addresses[1], listener.port))
    e.equal(either.protocol(near), TCP, "the protocol")
    transfers(e, near, either.accept(e, listener))


@case(reference=False, timeout=60)
def vlan(e):
    with interfaces(e, "8021q", "v10", "link add link DEV name v10 type vlan id 10", "link set v10 up") as addresses:
        by_sdp(e, addresses)


@case(reference=False, timeout=60)
def vlan_on_vlan(e):
    with interfaces(e, "8021q", "v11", "link add link DEV name v10 type vlan id 10", "link set v10 up",
                    "link add link v10 name v11 type vlan id 11", "link set v11 up") as addresses:
        by_sdp(e, addresses)


@case(reference=False, timeout=60)
def macvlan(e):
    """Frames to a macvlan's own address do not reach the rxe device below it."""
    with interfaces(e, "macvlan", "m0", "link add link DEV name m0 type macvlan mode bridge", "link set m0 up") as addresses:
        by_tcp(e, addresses)


@case(reference=False, timeout=60)
def ipvlan(e):
    with interfaces(e, "ipvlan", "i0", "link add link DEV name i0 type ipvlan mode l2", "link set i0 up") as addresses:
        by_tcp(e, addresses)


@case(reference=False, timeout=60)
def bridge(e):
    with interfaces(e, "8021q bridge", "b0", "link add b0 type bridge", "link add link DEV name v12 type vlan id 12",
                    "link set v12 master b0", "link set v12 up", "link set b0 up") as addresses:
        by_tcp(e, addresses)


@case(reference=False, timeout=60)
def vrf(e):
    """Sockets bound to the VRF."""
    with interfaces(e, "8021q vrf", "v13", "link add r0 type vrf table 50", "link set r0 up", "link add link DEV name v13 type vlan id 13",
                    "link set v13 master r0", "link set v13 up") as addresses:
        by_tcp(e, addresses, "r0")


@contextlib.contextmanager
def bonds(e):
    """Yields the addresses of a bond of two devices on each host, with rxe on the bond."""
    if netns.is_one() or not netns.local():
        e.skip("the bonds need a second and a third link between two namespaces")
    subprocess.run(["modprobe", "bonding"], check=True)
    with contextlib.ExitStack() as until_then:
        for slave in SLAVES:
            netns.run("self", f"ip link add {slave} mtu 9000 type veth peer name {slave} mtu 9000 netns peer")
            until_then.callback(netns.run, "self", f"ip link del {slave}")
        for host, number in NUMBERS.items():
            netns.run(host, "ip link add bond9 mtu 9000 type bond mode active-backup miimon 50")
            until_then.callback(netns.run, host, "ip link del bond9")
            for slave in SLAVES:
                netns.run(host, f"ip link set {slave} master bond9")
                netns.run(host, f"ip link set {slave} up")
            netns.run(host, f"ip addr add 10.78.0.{number}/24 dev bond9")
            netns.run(host, "ip link set bond9 up")
            netns.run(host, f"rdma link add rxeb{number} type rxe netdev bond9")
            until_then.callback(netns.run, host, f"rdma link del rxeb{number}")
        yield "10.78.0.1", "10.78.0.2"


def active(host):
    return netns.run(host, "cat /sys/class/net/bond9/bonding/active_slave").strip()


@case(reference=False, families=("v4",), timeout=120)
def bond(e):
    """New connections use the other device of a bond after the active one has gone down."""
    with bonds(e) as addresses:
        by_sdp(e, addresses)
        first = active("self")
        netns.run("self", f"ip link set {first} down")
        for host in NUMBERS:
            e.until(lambda host=host: active(host) not in ("", first), f"the other device is active on {host}")
        by_sdp(e, addresses)
