# SPDX-License-Identifier: GPL-2.0-only
"""Addresses on VLANs, bonds, macvlans, bridges and VRFs, over rxe on the device below."""

import contextlib
import errno
import os
import socket
import time

from lib import either, netns, pattern
from lib.links import NUMBERS, active, bonds, interfaces, take_down
from lib.registry import case

SIZE = 1 << 20
TCP = either.TCP
BEDS = (1, 2)


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


@case(reference=False, timeout=60, hosts=BEDS)
def vlan(e):
    with interfaces(e, "8021q", "v10", "link add link DEV name v10 type vlan id 10", "link set v10 up") as addresses:
        by_sdp(e, addresses)


@case(reference=False, timeout=60, hosts=BEDS)
def vlan_on_vlan(e):
    with interfaces(e, "8021q", "v11", "link add link DEV name v10 type vlan id 10", "link set v10 up",
                    "link add link v10 name v11 type vlan id 11", "link set v11 up") as addresses:
        by_sdp(e, addresses)


@case(reference=False, timeout=60, hosts=BEDS)
def macvlan(e):
    """Frames to a macvlan's own address do not reach the rxe device below it."""
    with interfaces(e, "macvlan", "m0", "link add link DEV name m0 type macvlan mode bridge", "link set m0 up") as addresses:
        by_tcp(e, addresses)


@case(reference=False, timeout=60, hosts=BEDS)
def ipvlan(e):
    with interfaces(e, "ipvlan", "i0", "link add link DEV name i0 type ipvlan mode l2", "link set i0 up") as addresses:
        by_tcp(e, addresses)


@case(reference=False, timeout=60, hosts=BEDS)
def bridge(e):
    with interfaces(e, "8021q bridge", "b0", "link add b0 type bridge", "link add link DEV name v12 type vlan id 12",
                    "link set v12 master b0", "link set v12 up", "link set b0 up") as addresses:
        by_tcp(e, addresses)


@case(reference=False, timeout=60, hosts=BEDS)
def vrf(e):
    """Sockets bound to the VRF."""
    with interfaces(e, "8021q vrf", "v13", "link add r0 type vrf table 50", "link set r0 up", "link add link DEV name v13 type vlan id 13",
                    "link set v13 master r0", "link set v13 up") as addresses:
        by_tcp(e, addresses, "r0")


@case(reference=False, timeout=120, hosts=BEDS)
def bond(e):
    """After the active device of a bond has gone down, new connections use the other device."""
    with bonds(e) as addresses:
        by_sdp(e, addresses)
        first = active("self")
        take_down(first)
        for host in NUMBERS:
            e.until(lambda host=host: active(host) not in ("", first), f"the other device is active on {host}")
        by_sdp(e, addresses)


@case(reference=False, brief=False, timeout=120, hosts=BEDS)
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
        take_down("s0")
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


@case(reference=False, brief=False, families=("v4",), timeout=400, hosts=BEDS)
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
        take_down(first)
        rest, error = received(far, length - len(head))
        got = head + rest
        e.until(lambda: not sent.is_alive(), "the end of the send", 4 * e.patience)
        e.equal(got == data[:len(got)], True, "the bytes that arrived")
        if len(got) < length:
            # ECONNABORTED: the peer has not returned the memory of a zero-copy receive for 10 s
            ends = (errno.ECONNRESET, errno.ETIMEDOUT, errno.ECONNABORTED)
            e.check(error in ends, f"{len(got)} bytes arrived, and then {error}")
            e.check(sent.result() in ("ECONNRESET", "ETIMEDOUT", "EPIPE"), f"the sender got {sent.result()}")
        else:
            e.equal(sent.result(), "ok", "the result of the sender")
        for host in NUMBERS:
            e.until(lambda host=host: active(host) not in ("", first), f"the other device is active on {host}")
        # without the ping, REQs of two minutes get no reply; the cause is unknown
        e.until(lambda: replies(addresses[1]), "a reply by the other device")
        by_sdp(e, addresses)


def remove(link):
    """Deletes a link, unless the namespace of its other end has ended first."""
    with contextlib.suppress(RuntimeError):
        netns.run("self", f"ip link del {link}")


@case(reference=False, timeout=60, hosts=BEDS)
def veth(e):
    """A pod with routes through a veth of the node: no RDMA device leads to the pod, so connections
    use TCP at once."""
    if netns.is_one():
        e.skip("both hosts are the same namespace")
    pod, node, bits = ("fd78::9", "fd78::1", 128) if e.six else ("10.78.0.9", "10.78.0.1", 32)
    listener = listening(e, either.make(e, where="peer"), e.there)
    # the agent of the other machine is out of reach from the pod
    address = e.address(e.there, listener.port)
    version = "ipv6" if e.six else "ipv4"
    reader, writer = os.pipe()

    def run():
        os.unshare(netns.CLONE_NEWNET)
        os.write(writer, b"!")
        e.until(lambda: "pod0" in (name for _, name in socket.if_nameindex()), "the interface")
        for words in (f"addr add {pod}/{bits} dev pod0" + " nodad" * e.six, "link set pod0 up", f"route add {node} dev pod0", f"route add default via {node}"):
            netns.run("self", f"ip {words}")
        sock = either.make(e)
        start = time.monotonic()
        sock.connect(address)
        took = time.monotonic() - start
        sock.sendall(b"from a pod")
        return either.protocol(sock), took < 10

    with contextlib.ExitStack() as until_then:
        netns.run("self", "ip link add node0 type veth peer name pod0")
        until_then.callback(remove, "node0")
        before = netns.sysctl(f"{version}/conf/all/forwarding", 1)
        until_then.callback(netns.sysctl, f"{version}/conf/all/forwarding", before)
        for words in (f"addr add {node}/{bits} dev node0" + " nodad" * e.six, "link set node0 up", f"route add {pod} dev node0"):
            netns.run("self", f"ip {words}")
        netns.run("peer", f"ip route add {pod} via {e.here}")
        until_then.callback(netns.run, "peer", f"ip route del {pod}")
        with either.parameters(ipproto_wait=30000, ipproto_memory=0):
            child = e.child(run)
            os.read(reader, 1)
            netns.run("self", f"ip link set pod0 netns {child.pid}")
            e.equal(child.result(), (TCP, True), "the protocol, and an end before ipproto_wait")
            e.equal(either.accept(e, listener).recv_exactly(10), b"from a pod", "the bytes")


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
