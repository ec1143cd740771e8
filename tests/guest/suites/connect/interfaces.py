# SPDX-License-Identifier: GPL-2.0-only
"""Addresses on VLANs, bonds, macvlans, bridges and VRFs, over rxe on the device below."""

import contextlib
import errno
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
    """Yields the addresses of an interface that `ip` commands create on both hosts.

    In a command, DEV stands for the port's device and N for 1 or 2."""
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
    """If rxe drops SDP's request, or no RDMA device exists: IPPROTO_SDP uses TCP."""
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
def bonds(e, mode="active-backup", vlan=None):
    """Yields the addresses of a bond of two devices on each host, with rxe on the bond.

    The addresses are on the bond or on a VLAN of the bond."""
    if netns.is_one() or not netns.local():
        e.skip("the bonds need a second and a third wire between two namespaces")
    subprocess.run(["modprobe", "-a", "bonding", "8021q"], check=True)
    with contextlib.ExitStack() as until_then:
        for slave in SLAVES:
            netns.run("self", f"ip link add {slave} mtu 9000 type veth peer name {slave} mtu 9000 netns peer")
            until_then.callback(netns.run, "self", f"ip link del {slave}")
        found = []
        for host, number in NUMBERS.items():
            netns.run(host, f"ip link add bond9 mtu 9000 type bond mode {mode} miimon 50" + " lacp_rate fast" * (mode == "802.3ad"))
            until_then.callback(netns.run, host, "ip link del bond9")
            for slave in SLAVES:
                netns.run(host, f"ip link set {slave} master bond9")
                netns.run(host, f"ip link set {slave} up")
            netns.run(host, "ip link set bond9 up")
            name = "bond9"
            if vlan:
                name = "v15"
                netns.run(host, f"ip link add link bond9 name {name} type vlan id {vlan}")
                netns.run(host, f"ip link set {name} up")
            address = f"fd78::{number}" if e.six else f"10.78.0.{number}"
            netns.run(host, f"ip addr add {address}" + ("/64 nodad" if e.six else "/24") + f" dev {name}")
            netns.run(host, f"rdma link add rxeb{number} type rxe netdev bond9")
            until_then.callback(netns.run, host, f"rdma link del rxeb{number}")
            found.append(address)
        yield found


def active(host):
    return netns.run(host, "cat /sys/class/net/bond9/bonding/active_slave").strip()


@case(reference=False, timeout=120)
def bond(e):
    """After the active device of a bond has gone down, new connections use the other device."""
    with bonds(e) as addresses:
        by_sdp(e, addresses)
        first = active("self")
        netns.run("self", f"ip link set {first} down")
        for host in NUMBERS:
            e.until(lambda host=host: active(host) not in ("", first), f"the other device is active on {host}")
        by_sdp(e, addresses)


@case(reference=False, brief=False, timeout=120)
def vlan_on_bond(e):
    with bonds(e, vlan=15) as addresses:
        by_sdp(e, addresses)


def partner(host):
    """Returns true once both devices are in one aggregate with the devices of the other host."""
    with netns.inside(host):
        text = open("/proc/net/bonding/bond9").read()
    return "Number of ports: 2" in text and "Partner Mac Address: 00:00:00:00:00:00" not in text


@case(reference=False, brief=False, timeout=120)
def bond_802_3ad(e):
    """Connections over an aggregate, and new connections after one of its devices has gone down."""
    with bonds(e, "802.3ad") as addresses:
        for host in NUMBERS:
            e.until(lambda host=host: partner(host), f"the aggregate of {host}")
        by_sdp(e, addresses)
        netns.run("self", f"ip link set {SLAVES[0]} down")
        for host in NUMBERS:
            e.until(lambda host=host: not partner(host), f"an aggregate of one device on {host}")
        e.until(lambda: replies(addresses[1]), "a reply by the other device")
        by_sdp(e, addresses)


def replies(address):
    with contextlib.suppress(RuntimeError):
        return netns.run("self", f"ping -c 1 -W 1 {address}")


def received(sock, length):
    """Returns the bytes that arrive before the connection ends, and the errno of the end."""
    got = bytearray()
    try:
        while len(got) < length:
            part = sock.recv(min(SIZE, length - len(got)))
            if not part:
                break
            got += part
    except OSError as error:
        return bytes(got), error.errno
    return bytes(got), 0


@case(reference=False, brief=False, families=("v4",), timeout=400)
def bond_in_transfer(e):
    """The active device goes down during a transfer: all bytes arrive, or both ends get an error.

    If an error occurs, the bytes that arrived before are the first bytes of the stream. New
    connections use the other device."""
    length = 64 * SIZE
    data = pattern.Pattern(11).at(0, length)
    with bonds(e) as addresses:
        listener = listening(e, e.socket("peer"), addresses[1])
        near = e.socket()
        near.connect(e.address(addresses[1], listener.port))
        far = e.keep(listener.accept()[0])
        sent = e.task(e.error, near.sendall, data)
        head = far.recv_exactly(4 * SIZE)
        first = active("self")
        netns.run("self", f"ip link set {first} down")
        rest, error = received(far, length - len(head))
        got = head + rest
        # Once the sender stayed in send(2) for 40 s after the receiver had its error; cause
        # unknown.
        e.until(lambda: not sent.is_alive(), "the end of the send", 4 * e.patience)
        e.equal(got == data[:len(got)], True, "the bytes that arrived")
        if len(got) < length:
            e.check(error in (errno.ECONNRESET, errno.ETIMEDOUT), f"{len(got)} bytes arrived, and then {error}")
            e.check(sent.result() in ("ECONNRESET", "ETIMEDOUT", "EPIPE"), f"the sender got {sent.result()}")
        else:
            e.equal(sent.result(), "ok", "the result of the sender")
        for host in NUMBERS:
            e.until(lambda host=host: active(host) not in ("", first), f"the other device is active on {host}")
        by_sdp(e, addresses)


def alone(e, make):
    """Returns the result of connect(2) in a namespace that has only a loopback device."""
    def run():
        netns.unshare()
        netns.run("self", "ip link set lo up")
        return e.error(make().connect, e.address(e.there, 7))
    return e.child(run).result()


@case
def no_route(e):
    e.note("connect", alone(e, e.socket))


@case(reference=False)
def no_route_ipproto(e):
    """connect(2) of an IPPROTO_SDP socket fails at once, as on TCP."""
    e.equal(alone(e, lambda: either.make(e)), "ENETUNREACH", "connect")
