# SPDX-License-Identifier: GPL-2.0-only
"""bind(): the accepted addresses, and their forms."""

import json
import socket
import struct

from lib import calls, consts, netns
from lib.env import OneOf
from lib.registry import case

MAPPED = "::ffff:10.77.0.1"


def bound_name(e, raw, length=None):
    """Returns the result of bind(2), and the resulting name without its port."""
    sock = e.socket()
    result = e.error(calls.bind, sock, raw, length)
    family, address, port = calls.sa_text(calls.getsockname(sock)[0])
    sock.close()
    return result, family, address, port != 0


@case(families=("v4",))
def forms(e):
    """Every form seen in the field on a socket of family 27."""
    own, any_ = "10.77.0.1", "0.0.0.0"
    e.note("own", bound_name(e, calls.sa_in(own, 0)))
    e.note("any", bound_name(e, calls.sa_in(any_, 0)))
    e.note("unspec any", bound_name(e, calls.sa_in(any_, 0, 0)))
    e.note("unspec own", bound_name(e, calls.sa_in(own, 0, 0)))
    taken = ("ok", socket.AF_INET, own, True)
    anywhere = ("ok", socket.AF_INET, any_, True)
    e.note("family 27", bound_name(e, calls.sa_in(own, 0, 27)), sdp=taken,
           because="OFED's clients put the socket's own family into the address")
    e.note("family 27, any", bound_name(e, calls.sa_in(any_, 0, 27)), sdp=anywhere,
           because="OFED's clients put the socket's own family into the address")
    e.note("inet6 any", bound_name(e, calls.sa_in6("::", 0)), sdp=anywhere,
           because="qperf's server binds :: on a socket of family 27")
    e.note("inet6 mapped", bound_name(e, calls.sa_in6(MAPPED, 0)), sdp=taken,
           because="a v4-mapped address is the IPv4 address")
    e.note("inet6 mapped any", bound_name(e, calls.sa_in6("::ffff:0.0.0.0", 0)), sdp=anywhere,
           because="a v4-mapped address is the IPv4 address")
    for name, raw in (("inet6 own", calls.sa_in6("fd77::1", 0)), ("family 28", calls.sa_in6("fd77::1", 0, 28)),
                      ("unix", calls.sa_in(own, 0, 1)), ("family 255", calls.sa_in(own, 0, 255))):
        e.note(name, bound_name(e, raw)[0], sdp=OneOf("EAFNOSUPPORT", "EADDRNOTAVAIL"),
               because="there is no IPv4 address in it")


@case(families=("v6",))
def forms6(e):
    """Tries every form of an address on a socket of family 28."""
    own = "fd77::1"
    taken = ("ok", socket.AF_INET6, own, True)
    e.note("own", bound_name(e, calls.sa_in6(own, 0)))
    e.note("any", bound_name(e, calls.sa_in6("::", 0)))
    e.note("mapped", bound_name(e, calls.sa_in6(MAPPED, 0)))
    e.note("mapped any", bound_name(e, calls.sa_in6("::ffff:0.0.0.0", 0)))
    e.note("family 28", bound_name(e, calls.sa_in6(own, 0, 28)), sdp=taken,
           because="the socket's own family is taken as AF_INET6")
    e.note("flow and scope", bound_name(e, calls.sa_in6(own, 0, flow=7, scope=99)))
    e.note("unspec", bound_name(e, calls.sa_in6("::", 0, 0))[0])
    e.note("inet, short", bound_name(e, calls.sa_in("10.77.0.1", 0))[0])
    e.note("inet, long", bound_name(e, calls.sa_in("10.77.0.1", 0) + bytes(12))[0])
    e.note("family 27", bound_name(e, calls.sa_in6(own, 0, 27))[0])
    e.note("unix", bound_name(e, calls.sa_in6(own, 0, 1))[0])


@case(families=("v4",))
def lengths(e):
    raw = calls.sa_in("10.77.0.1", 0) + bytes(240)
    for length in (0, 1, 2, 3, 4, 8, 15, 16, 17, 28, 128, 129, 200):
        e.note(f"length {length}", bound_name(e, raw, length)[:3])
    e.note("negative length", bound_name(e, raw, -1)[0])
    e.note("bad pointer", e.error(calls.plain, "bind", e.socket().fileno(), 8, 16))
    # qperf passes short addresses: the kernel must not read beyond them
    short = calls.sa_in6("::", 0) + bytes(100)
    for length in (16, 23):
        e.note(f"inet6 of length {length}", bound_name(e, short, length)[0],
               sdp="EINVAL", because="too short for a sockaddr_in6")


@case(families=("v6",))
def lengths6(e):
    raw = calls.sa_in6("fd77::1", 0) + bytes(240)
    for length in (0, 1, 2, 8, 16, 23, 24, 27, 28, 29, 128, 129):
        e.note(f"length {length}", bound_name(e, raw, length)[:3])
    e.note("bad pointer", e.error(calls.plain, "bind", e.socket().fileno(), 8, 28))


@case
def not_here(e):
    """Addresses that no interface has."""
    strange = ("fd77::99", "2001:db8::1", "fd77::2") if e.six else ("10.77.0.99", "192.0.2.1", "10.77.0.2")
    for host in strange:
        e.note(host, bound_name(e, calls.sa(host, 0))[:3])


@case
def no_unicast(e):
    """Multicast and broadcast."""
    for host in ("ff02::1", "ff0e::7") if e.six else ("224.0.0.1", "239.1.2.3", "255.255.255.255", "10.77.0.255"):
        # TCP allows a bind to an IPv4 multicast or broadcast address, although the socket cannot be
        # used.
        e.note(host, bound_name(e, calls.sa(host, 0))[0], sdp=OneOf("EADDRNOTAVAIL", "EINVAL" if e.six else "ok"),
               because="no RDMA device has such an address")


@case(families=("v6",))
def link_local(e):
    """A link-local address is valid only with its interface."""
    link = next(link for link in json.loads(netns.run("self", "ip -j -6 addr show")) if link["ifname"] == netns.device())
    address = next(entry["local"] for entry in link["addr_info"] if entry["scope"] == "link")
    e.until(lambda: "tentative" not in netns.run("self", f"ip -6 addr show to {address}"), "end of DAD")
    e.note("without scope", bound_name(e, calls.sa_in6(address, 0))[0])
    result, _, name, _ = bound_name(e, calls.sa_in6(address, 0, scope=link["ifindex"]))
    e.note("with scope", (result, name == address))
    e.note("wrong scope", bound_name(e, calls.sa_in6(address, 0, scope=1))[0])
    sock = e.socket()
    calls.bind(sock, calls.sa_in6(address, 0, scope=link["ifindex"]))
    e.note("scope in the name", struct.unpack_from("=I", calls.getsockname(sock)[0], 24)[0] == link["ifindex"])


@case
def foreign_allowed(e):
    """IP_FREEBIND, IP_TRANSPARENT and ip_nonlocal_bind."""
    host = "fd77::99" if e.six else "10.77.0.99"
    options = [("freebind", socket.IPPROTO_IP, consts.IP_FREEBIND), ("transparent", socket.IPPROTO_IP, consts.IP_TRANSPARENT)]
    if e.six:
        options += [("freebind6", socket.IPPROTO_IPV6, consts.IPV6_FREEBIND), ("transparent6", socket.IPPROTO_IPV6, 75)]
    for name, level, option in options:
        sock = e.socket()
        e.note(name, e.error(sock.set, level, option, 1))
        e.note(f"{name} is", e.outcome(sock.get, level, option))
        e.note(f"bind by {name}", e.error(sock.bind, e.address(host, 0)))
        e.note(f"name by {name}", sock.getsockname()[0])
    knob = "ipv6/ip_nonlocal_bind" if e.six else "ipv4/ip_nonlocal_bind"
    before = netns.sysctl(knob, 1)
    try:
        e.note("sysctl", bound_name(e, calls.sa(host, 0))[:3])
    finally:
        netns.sysctl(knob, before)
    e.note("unprivileged transparent", e.as_user(
        lambda: e.socket().set(socket.IPPROTO_IP, consts.IP_TRANSPARENT, 1) and None))


@case
def without_a_device(e):
    """An address of the host on a device without RDMA."""
    host = netns.bare(e.six)
    sock = e.socket()
    # libsdp reads the option after a failed bind, and uses TCP for certain errors.
    e.note("bind", e.error(sock.bind, e.address(host, 0)), sdp="EADDRNOTAVAIL",
           because="SDP cannot listen or connect where no RDMA device is")
    if e.only_sdp:
        e.equal(sock.get(socket.IPPROTO_TCP, consts.SDP_LAST_BIND_ERR), -2, "SDP_LAST_BIND_ERR")
        again = e.socket()
        again.bind(e.address(e.here, 0))
        e.equal(again.get(socket.IPPROTO_TCP, consts.SDP_LAST_BIND_ERR), 0, "SDP_LAST_BIND_ERR after success")
        e.equal(e.error(again.set, socket.IPPROTO_TCP, consts.SDP_LAST_BIND_ERR, 1), "ENOPROTOOPT", "setting it")


@case(families=("v6",))
def v6only(e):
    level, option = socket.IPPROTO_IPV6, socket.IPV6_V6ONLY
    sock = e.socket()
    e.note("default", sock.get(level, option))
    sock.set(level, option, 1)
    e.note("on", sock.get(level, option))
    e.note("mapped", e.error(calls.bind, sock, calls.sa_in6(MAPPED, 0)))
    e.note("mapped any", e.error(calls.bind, sock, calls.sa_in6("::ffff:0.0.0.0", 0)))
    sock.bind(e.address("::", 0))
    e.note("after bind", e.error(sock.set, level, option, 0))
    mapped = e.socket()
    calls.bind(mapped, calls.sa_in6(MAPPED, 0))
    e.note("on a mapped socket", e.error(mapped.set, level, option, 1))
    e.note("mapped name", mapped.getsockname()[0])


@case
def name_lengths(e):
    """getsockname() into buffers of any size."""
    sock = e.bound("self")
    for room in (0, 1, 2, 4, 8, 15, 16, 24, 28, 64):
        raw, length = calls.getsockname(sock, room)
        e.note(f"room {room}", (len(raw), length, raw[:2] + raw[4:]))
    e.note("negative", e.error(calls.getsockname, sock, -1))
