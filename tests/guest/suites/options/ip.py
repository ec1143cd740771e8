# SPDX-License-Identifier: GPL-2.0-only
"""SOL_IP and SOL_IPV6."""

import socket
import struct

from lib import calls, consts, netns
from lib.env import SAME, OneOf
from lib.registry import case

IP, IPV6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
# Options that TCP accepts with the value 1, but RDMA packets cannot implement.
PROMISES = {(IP, consts.IP_OPTIONS), (IP, consts.IP_MINTTL), (IPV6, consts.IPV6_MINHOPCOUNT)}


def number(value):
    return struct.pack("=i", value)


def sent_requests(e, tap):
    """Returns the primary service level and traffic class of each REQ of the connection manager
    that the socket has captured."""
    seen = []
    while frame := e.error_or(tap.recv, 10000):
        if frame[12:14] != (b"\x86\xdd" if e.six else b"\x08\0"):
            continue
        # Ethernet, IP, UDP, BTH and DETH; then the common header of MADs, with class and attribute
        mad = frame[14 + (40 if e.six else 20) + 8 + 12 + 8:]
        if len(mad) > 24 + 94 and (mad[1], mad[16:18]) == (7, b"\0\x10"):
            seen.append((mad[24 + 94] >> 4, mad[24 + 92]))
    return seen


@case(timeout=60)
def every_number(e):
    """Every option of both levels, set to 1 and read. IPV6_ADDRFORM is left out, because it changes
    the socket's family."""
    for level, top, without in ((IP, 56, ()), (IPV6, 81, (1,))):
        for option in range(1, top):
            if option in without:
                continue
            # options of netfilter and multicast routing depend on the loaded modules
            if level == IP and option in (64, 65):
                continue
            promises = (level, option) in PROMISES and (level == IP or e.six)
            expected = {"sdp": "EOPNOTSUPP", "because": "packets over RDMA cannot have it"} if promises else {}
            with e.socket() as sock:
                e.note(f"set {level} {option}", e.error(calls.setsockopt, sock, level, option, number(1)), **expected)
            with e.socket() as sock:
                e.note(f"get {level} {option}", e.error(calls.getsockopt, sock, level, option, 128))


@case
def traffic_class(e):
    level, option = (IPV6, socket.IPV6_TCLASS) if e.six else (IP, socket.IP_TOS)
    sock = e.socket()
    e.note("at first", sock.get(level, option))
    for value in (0, 0x10, 0x68, 0xB8, 0xFC, 0xFF, 0x103, 256, -1, -2):
        e.note(f"set {value}", (e.error(sock.set, level, option, value), sock.get(level, option)))
    e.note("priority then", sock.get(socket.SOL_SOCKET, socket.SO_PRIORITY))


@case(families=("v4",))
def priority_by_class(e):
    """IP_TOS sets the priority, as on TCP."""
    for value in (0, 0x08, 0x10, 0x18, 0xB8):
        sock = e.socket()
        sock.set(IP, socket.IP_TOS, value)
        e.note(f"class {value}", sock.get(socket.SOL_SOCKET, socket.SO_PRIORITY))
    sock = e.socket()
    calls.setsockopt(sock, IP, socket.IP_TOS, b"\x10")
    e.note("by a byte", sock.get(IP, socket.IP_TOS))


@case
def data_with_class(e):
    """A connection with a traffic class and a priority works, even if the program changes both
    later."""
    level, option = (IPV6, socket.IPV6_TCLASS) if e.six else (IP, socket.IP_TOS)

    def prepare(sock):
        sock.set(level, option, 0x68)
        sock.set(socket.SOL_SOCKET, socket.SO_PRIORITY, 3)

    near, far = e.pair(prepare=prepare)
    e.note("kept", (near.get(level, option), near.get(socket.SOL_SOCKET, socket.SO_PRIORITY)))
    near.send(b"first")
    e.note("data", far.recv(10))
    e.note("changed", e.error(near.set, level, option, 0xB8))
    near.send(b"second")
    e.note("more data", far.recv(10))


@case
def hops(e):
    level, option = (IPV6, socket.IPV6_UNICAST_HOPS) if e.six else (IP, socket.IP_TTL)
    sock = e.socket()
    e.note("at first", sock.get(level, option))
    for value in (1, 64, 255, 256, 0, -1, -2):
        e.note(f"set {value}", (e.error(sock.set, level, option, value), sock.get(level, option)))
    near, far = e.pair(prepare=lambda sock: sock.set(level, option, 9))
    near.send(b"nine hops")
    e.note("data", far.recv(10))


@case
def receive_options(e):
    """Options that request control messages are accepted, and have no effect on a stream's data."""
    near, far = e.pair()
    asked = [(IP, 8), (IP, 13), (IP, 12)] if not e.six else [(IPV6, 49), (IPV6, 66), (IPV6, 51)]
    e.note("set", [e.error(far.set, level, option, 1) for level, option in asked])
    near.send(b"word")
    e.wait(far)
    got, parts, flags, _, _ = calls.recvmsg(far, [10], 0, 200)
    e.note("data", (got, parts[0][:4], flags))


@case
def error_queue(e):
    sock = e.socket()
    level, option = (IPV6, 25) if e.six else (IP, consts.IP_RECVERR)
    e.note("set", (e.error(sock.set, level, option, 1), sock.get(level, option)))
    near, far = e.pair(prepare=lambda sock: sock.set(level, option, 1))
    near.send(b"word")
    e.note("data", far.recv(10))
    e.note("empty queue", e.error(calls.recv, near, 1, consts.MSG_ERRQUEUE | socket.MSG_DONTWAIT))


@case
def control_messages(e):
    """sendmsg() with control messages of these levels."""
    near, far = e.pair()
    level, kind = (IPV6, socket.IPV6_TCLASS) if e.six else (IP, socket.IP_TOS)
    e.note("class", e.outcome(near.sendmsg, [b"a"], [(level, kind, number(8))]))
    e.note("mark", e.outcome(near.sendmsg, [b"b"], [(socket.SOL_SOCKET, 36, number(8))]))
    e.note("unknown", e.outcome(near.sendmsg, [b"c"], [(socket.SOL_SOCKET, 999, number(8))]))
    near.shutdown(socket.SHUT_WR)
    e.note("data", far.drain())


@case(families=("v6",))
def of_a_mapped_connection(e):
    """A v4-mapped connection also accepts IPv4's options."""
    listener = e.listen(host="::")
    near = e.socket()
    near.connect(("::ffff:10.77.0.2", listener.port, 0, 0))
    e.note("class", (e.error(near.set, IP, socket.IP_TOS, 0x10), near.get(IP, socket.IP_TOS)))
    e.note("class of IPv6", (e.error(near.set, IPV6, socket.IPV6_TCLASS, 0x20), near.get(IPV6, socket.IPV6_TCLASS)))
    e.note("to IPv4", e.error(near.set, IPV6, 1, socket.AF_INET), sdp=OneOf("EINVAL", "ENOPROTOOPT", "EOPNOTSUPP"),
           because="IPV6_ADDRFORM makes a socket of AF_INET")


@case
def no_membership(e):
    """Multicast groups are for datagrams: a stream joins none."""
    sock = e.socket()
    if e.six:
        group = socket.inet_pton(socket.AF_INET6, "ff02::77") + struct.pack("=I", 0)
        for option in (20, 21):
            e.note(f"member {option}", e.error(calls.setsockopt, sock, IPV6, option, group))
    else:
        group = socket.inet_aton("239.1.2.3") + socket.inet_aton(e.here)
        for option in (35, 36):
            e.note(f"member {option}", e.error(calls.setsockopt, sock, IP, option, group))


@case
def nothing_promised(e):
    """Options that RDMA packets cannot implement are refused. An option value that requests nothing
    is accepted."""
    why = "IPsec and extension headers are not for RDMA packets"
    level, policies = (IPV6, (34, 35)) if e.six else (IP, (16, 17))
    sock = e.socket()
    for option in policies:
        e.note(f"no policy {option}", e.error(calls.setsockopt, sock, level, option, None, 0))
        e.note(f"bad policy {option}", e.error(calls.setsockopt, sock, level, option, bytes(3)))
        e.note(f"long policy {option}", e.error(calls.setsockopt, sock, level, option, bytes(5000)))
        # struct xfrm_userpolicy_info: from anywhere to anywhere, outgoing, allowed
        policy = bytearray(168)
        policy[160] = 1
        struct.pack_into("=H", policy, 40, 10 if e.six else 2)
        e.note(f"policy {option}", e.outcome(calls.setsockopt, sock, level, option, bytes(policy)),
               sdp=OneOf(SAME, "EINVAL"), because=why)
        e.note(f"nobody's policy {option}", e.as_user(lambda: e.socket().setsockopt(level, option, 0)))
    level, option = (IPV6, consts.IPV6_MINHOPCOUNT) if e.six else (IP, consts.IP_MINTTL)
    for value in (0, 255, 256, -1):
        expected = {"sdp": ("EOPNOTSUPP", 0), "because": why} if value == 255 else {}
        e.note(f"least hops {value}", (e.error(sock.set, level, option, value), sock.get(level, option)), **expected)
        e.error(sock.set, level, option, 0)
    if not e.six:
        e.note("no options", e.error(calls.setsockopt, sock, IP, consts.IP_OPTIONS, None, 0))
        e.note("bad options", e.error(calls.setsockopt, sock, IP, consts.IP_OPTIONS, bytes([7, 2, 0, 0])))
        e.note("options", (e.error(calls.setsockopt, sock, IP, consts.IP_OPTIONS, bytes([1, 1, 1, 0])),
                           calls.getsockopt(sock, IP, consts.IP_OPTIONS, 40)[1]), sdp=("EOPNOTSUPP", 0), because=why)
        return
    for option in (54, 55, 57, 59, 6):
        e.note(f"no header {option}", e.error(calls.setsockopt, sock, IPV6, option, None, 0))
        e.note(f"short header {option}", e.error(calls.setsockopt, sock, IPV6, option, bytes(7)))
    header = bytes([0, 0, 1, 4, 0, 0, 0, 0])        # six bytes of padding
    for option in (54, 59):
        e.note(f"header {option}", e.error(calls.setsockopt, sock, IPV6, option, header), sdp="EOPNOTSUPP", because=why)
        e.note(f"nobody's header {option}", e.as_user(lambda: e.socket().setsockopt(IPV6, option, header)))
    e.note("sticky source", e.error(calls.setsockopt, sock, IPV6, 50, bytes(20)))


@case(reference=False, timeout=60)
def service_level(e):
    """SO_PRIORITY chooses the service level by the map of the network device. The traffic class of
    the socket applies to the path."""
    own, other = ("fd83::1", "fd83::2") if e.six else ("10.83.0.1", "10.83.0.2")
    bits, nodad = (64, " nodad") if e.six else (24, "")
    netns.run("self", "ip link add level0 mtu 9000 numtxqueues 4 type veth peer name level1 mtu 9000 netns peer")
    try:
        for where, link, address in (("self", "level0", own), ("peer", "level1", other)):
            netns.run(where, f"ip addr add {address}/{bits} dev {link}{nodad}")
            netns.run(where, f"ip link set {link} up")
            netns.run(where, f"rdma link add {link} type rxe netdev {link}")
        netns.run("self", "tc qdisc add dev level0 root mqprio num_tc 4 map 0 0 1 0 2 3 3 0 0 0 0 0 0 0 0 0 "
                          "queues 1@0 1@1 1@2 1@3 hw 0")
        listener = e.listen("peer", host=other)
        level, option = (IPV6, socket.IPV6_TCLASS) if e.six else (IP, socket.IP_TOS)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as tap:      # ETH_P_ALL
            tap.bind(("level0", 0))
            tap.setblocking(False)
            for priority, tos, expected in ((None, 0, 0), (2, 0, 1), (4, 0, 2), (5, 0x20, 3), (1, 0, 0)):
                near = e.socket()
                near.set(level, option, tos)
                if priority is not None:
                    near.set(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
                near.connect(e.address(other, listener.port))
                far, _ = listener.accept()
                near.send(b"word")
                e.equal(far.recv(10), b"word", "data")
                seen = sent_requests(e, tap)
                e.check(seen and set(seen) == {(expected, tos)}, f"priority {priority} and class {tos} went as {seen}")
    finally:
        netns.run("self", "ip link del level0")
