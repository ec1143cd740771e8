# SPDX-License-Identifier: GPL-2.0-only
"""Processes and sockets that `sdpctl map` maps to IPPROTO_SDP."""

import os
import socket
import threading

from lib import consts
from lib.mapping import GROUPS, Group, Mapping, asks, become, control, needs, protocol_of, rows
from lib.registry import case

TCP, MPTCP, NOBODY = socket.IPPROTO_TCP, socket.IPPROTO_MPTCP, 65534


@case(reference=False)
def kinds(e):
    """IPv4 and IPv6 streams of TCP or MPTCP are mapped; other sockets are not."""
    family, flags = (socket.AF_INET6 if e.six else socket.AF_INET), socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    plain = (socket.SOCK_DGRAM, 0), (socket.SOCK_DGRAM, socket.IPPROTO_UDP), (socket.SOCK_RAW, TCP)
    before = [protocol_of(family, *words) for words in plain]
    with Mapping(e, "--all") as mapping:
        for words in ((socket.SOCK_STREAM, 0), (socket.SOCK_STREAM, TCP), (socket.SOCK_STREAM, MPTCP), (socket.SOCK_STREAM | flags, 0)):
            e.equal(protocol_of(family, *words), mapping.protocol, f"SO_PROTOCOL of {words}")
        e.equal([protocol_of(family, *words) for words in plain], before, "SO_PROTOCOL of others")
        e.equal(protocol_of(consts.AF_INET6_SDP if e.six else consts.AF_INET_SDP), TCP, "SO_PROTOCOL of family 27 or 28")
        e.equal(protocol_of(socket.AF_UNIX), 0, "SO_PROTOCOL of AF_UNIX")
        with socket.socket(family, socket.SOCK_STREAM | flags) as sock:
            e.equal((sock.getblocking(), os.get_inheritable(sock.fileno())), (False, False), "blocks, stays open in exec")
    e.equal(protocol_of(family), TCP, "SO_PROTOCOL afterwards")


@case(reference=False)
def programs(e):
    """By the name of the process, complete or a prefix."""
    with Mapping(e, "--program", "redis-server", "--program", "web*", "--program", "a_name_of_15_length") as mapping:
        for name, wanted in (("redis-server", mapping.protocol), ("redis-serve", TCP), ("redis-server2", TCP), ("web", mapping.protocol),
                             ("webserver", mapping.protocol), ("we", TCP), ("a_name_of_15_length", mapping.protocol), ("a_name_of_15_l", TCP),
                             ("sdpctl", TCP)):
            e.equal(asks(e, name), wanted, f"SO_PROTOCOL for {name}")


@case(reference=False, families=("v4",))
def threads(e):
    """A renamed thread belongs to its process."""
    def run():
        become("theprogram")
        seen = []

        def work(name):
            become(name)
            seen.append(protocol_of(socket.AF_INET))

        for name in ("theprogram", "worker"):
            thread = threading.Thread(target=work, args=(name,))
            thread.start()
            thread.join()
        return seen

    with Mapping(e, "--program", "theprogram") as mapping:
        e.equal(e.child(run).result(), [mapping.protocol] * 2, "SO_PROTOCOL in threads")
    with Mapping(e, "--program", "worker"):
        e.equal(e.child(run).result(), [TCP] * 2, "SO_PROTOCOL in threads of another")


@case(reference=False)
def users(e):
    with Mapping(e, "--user", "nobody", "--user", 1234) as mapping:
        for user, wanted in ((None, TCP), (NOBODY, mapping.protocol), (1234, mapping.protocol), (1235, TCP)):
            e.equal(asks(e, user=user), wanted, f"SO_PROTOCOL for user {user}")


@case(reference=False, families=("v4",))
def cgroups(e):
    """`--cgroup` selects processes in the cgroup and in any cgroup below."""
    needs(e)
    with Group(e) as group:
        with Mapping(e, "--cgroup", group.path) as mapping:
            e.equal((asks(e), asks(e, group=group.path), asks(e, group=group.below)), (TCP, mapping.protocol, mapping.protocol), "SO_PROTOCOL")
        # a relative path is below /sys/fs/cgroup
        with Mapping(e, "--cgroup", group.below.relative_to(GROUPS)) as mapping:
            e.equal((asks(e), asks(e, group=group.path), asks(e, group=group.below)), (TCP, TCP, mapping.protocol), "SO_PROTOCOL")


def options(name, values):
    return [word for value in values for word in (f"--{name}", value)]


@case(reference=False, families=("v4",))
def many(e):
    """A list with the maximum number of entries: the last entry works like the first."""
    needs(e)
    names = [f"program{n}" for n in range(250)]
    with Mapping(e, *options("program", names)) as mapping:
        for name, wanted in (("program0", mapping.protocol), ("program249", mapping.protocol), ("program250", TCP), ("program", TCP)):
            e.equal(asks(e, name), wanted, f"SO_PROTOCOL for {name}")
    with Mapping(e, *options("user", range(1000, 1400))) as mapping:
        for user, wanted in ((1000, mapping.protocol), (1399, mapping.protocol), (1400, TCP)):
            e.equal(asks(e, user=user), wanted, f"SO_PROTOCOL for user {user}")
    with Group(e) as group:
        with Mapping(e, *options("cgroup", [GROUPS / "."] * 200), *options("program", ["one"])) as mapping:
            e.equal((asks(e, "one"), asks(e, "two")), (mapping.protocol, TCP), "SO_PROTOCOL below the root")
        with Mapping(e, *options("cgroup", [group.below] * 80 + [group.path])) as mapping:
            e.equal((asks(e), asks(e, group=group.path)), (TCP, mapping.protocol), "SO_PROTOCOL in the last of 81 cgroups")
    status, out, said = control("add", *options("program", [f"program{n}" for n in range(400)]))
    e.equal((status, out, said), (1, "", "sdpctl: that is too much for one mapping\n"), "more than there is room for")
    e.equal(rows(), [], "mappings that are left")


@case(reference=False, families=("v4",))
def together(e):
    """Conditions of different kinds must all hold, and several mappings may coexist."""
    with Mapping(e, "--program", "one", "--user", NOBODY) as mapping:
        e.equal((asks(e, "one"), asks(e, "other", NOBODY), asks(e, "one", NOBODY)), (TCP, TCP, mapping.protocol), "SO_PROTOCOL")
        with Mapping(e, "--program", "other"):
            e.equal((asks(e, "one"), asks(e, "other"), asks(e, "one", NOBODY)), (TCP, mapping.protocol, mapping.protocol), "SO_PROTOCOL with two")
        e.equal((asks(e, "other"), asks(e, "one", NOBODY)), (TCP, mapping.protocol), "SO_PROTOCOL with one again")
