# SPDX-License-Identifier: GPL-2.0-only
"""Interfaces above the network device of each host, such as VLANs and bonds."""

import contextlib

from . import netns

NUMBERS = {"self": 1, "peer": 2}
# Devices of the bonds, and keys of the tunnels that stand for them between two machines.
WIRES = {"s0": 20, "s1": 21}


def load(modules):
    for host in NUMBERS:
        netns.run(host, f"modprobe -a {modules}")


@contextlib.contextmanager
def interfaces(e, modules, name, *commands):
    """Yields the addresses of an interface that `ip` commands create on both hosts.

    In a command, DEV stands for the port's device and N for 1 or 2."""
    if netns.is_one():
        e.skip("both hosts are the same namespace")
    load(modules)
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


def wires(until_then):
    """Creates the devices of the bonds: veth pairs between namespaces, tunnels between machines.

    VLANs would not do: ib_core takes the VLAN of a device below a bond for that of its GIDs."""
    for slave, key in WIRES.items():
        if netns.local():
            netns.run("self", f"ip link add {slave} mtu 9000 type veth peer name {slave} mtu 9000 netns peer")
            until_then.callback(netns.run, "self", f"ip link del {slave}")
            continue
        for host, other in (("self", "peer"), ("peer", "self")):
            ends = f"local {netns.ADDRESSES[host][0]} remote {netns.ADDRESSES[other][0]}"
            netns.run(host, f"ip link add {slave} type gretap {ends} key {key}")
            until_then.callback(netns.run, host, f"ip link del {slave}")


@contextlib.contextmanager
def bonds(e, mode="active-backup", vlan=None, net=78):
    """Yields the addresses of a bond of two devices on each host, with rxe on the bond.

    The addresses are on the bond or on a VLAN of the bond."""
    if netns.is_one():
        e.skip("both hosts are the same namespace")
    load("bonding 8021q ip_gre")
    with contextlib.ExitStack() as until_then:
        wires(until_then)
        found = []
        for host, number in NUMBERS.items():
            netns.run(host, f"ip link add bond9 mtu 9000 type bond mode {mode} miimon 50" + " lacp_rate fast" * (mode == "802.3ad"))
            until_then.callback(netns.run, host, "ip link del bond9")
            for slave in WIRES:
                netns.run(host, f"ip link set {slave} master bond9")
                netns.run(host, f"ip link set {slave} up")
            netns.run(host, "ip link set bond9 up")
            name = "bond9"
            if vlan:
                name = "v15"
                netns.run(host, f"ip link add link bond9 name {name} type vlan id {vlan}")
                netns.run(host, f"ip link set {name} up")
            address = f"fd{net}::{number}" if e.six else f"10.{net}.0.{number}"
            netns.run(host, f"ip addr add {address}" + ("/64 nodad" if e.six else "/24") + f" dev {name}")
            netns.run(host, f"rdma link add rxeb{number} type rxe netdev bond9")
            until_then.callback(netns.run, host, f"rdma link del rxeb{number}")
            found.append(address)
        yield found


def active(host):
    return netns.run(host, "cat /sys/class/net/bond9/bonding/active_slave").strip()


def take_down(slave):
    """Takes one wire of the bonds down. The other end of a tunnel does not lose its carrier."""
    for host in NUMBERS if not netns.local() else ("self",):
        netns.run(host, f"ip link set {slave} down")
