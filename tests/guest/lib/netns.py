# SPDX-License-Identifier: GPL-2.0-only
"""The two hosts of the tests: with one guest the hosts are two network namespaces, `self` and
`peer`, or a single one."""

import contextlib
import ctypes
import json
import os
import socket
import subprocess

from .calls import libc

CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000
NOBODY, PR_SET_DUMPABLE = 65534, 4
ADDRESSES = {"self": ("10.77.0.1", "fd77::1"), "peer": ("10.77.0.2", "fd77::2")}
# UDP port of RoCE.
ROCE = 4791
OWN = "/proc/thread-self/ns/net"
LOCAL_TRANSPORT = "/sys/module/ib_sdp/parameters/local_transport"

_spaces = {}
_made = []


def _call(name, *args):
    if getattr(libc, name)(*args) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _patient_kernel():
    """Raises the time after which the kernel warns. ib_core removes hundreds of files from sysfs
    before rxe releases its network device, which can take longer than 10 s on a busy machine. The
    kernel still reports a device that is never released."""
    sysctl("core/netdev_unregister_timeout_secs", 120)


def find():
    """Finds the two namespaces of a guest; returns False on a guest whose peer is another machine.

    Switches the local transport off, so that local connections use RDMA."""
    local_transport(False)
    _patient_kernel()
    _spaces["self"] = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _spaces["peer"] = os.open("/run/netns/peer", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    return True


def here():
    """Creates one namespace that stands for both hosts: the namespace has the addresses of both
    hosts, and no RDMA device has one of these addresses. All connections between both hosts use the
    local transport."""
    local_transport(True)
    _patient_kernel()
    _made.append(os.getpid())
    _call("unshare", CLONE_NEWNET)
    _spaces["self"] = os.open(OWN, os.O_RDONLY)
    _spaces["peer"] = _spaces["self"]
    run("self", "ip link set lo up")
    run("self", "ip link add eth0 mtu 9000 type dummy")
    for four, six in ADDRESSES.values():
        run("self", f"ip addr add {four}/24 dev eth0")
        run("self", f"ip addr add {six}/64 dev eth0 nodad")
    run("self", "ip link set eth0 up")


def unshare():
    """Creates a namespace for this process alone, which stands for all hosts from now on."""
    _call("unshare", CLONE_NEWNET)
    _spaces["self"] = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    _spaces["peer"] = _spaces["self"]


def local_transport(on):
    """Sets whether the module uses its local transport. Returns the previous value, None without
    the module."""
    try:
        with open(LOCAL_TRANSPORT, "r+") as file:
            before = int(file.read())
            file.seek(0)
            file.write(str(int(on)))
    except FileNotFoundError:
        return None
    return bool(before)


def root_elsewhere(new_net, function):
    """Runs a function as user nobody, with root rights in its own user namespace, with or without a
    network namespace."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    _call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)     # so that the process may write its uid map below
    _call("unshare", CLONE_NEWUSER | (CLONE_NEWNET if new_net else 0))
    with open("/proc/self/uid_map", "w") as file:
        file.write(f"0 {NOBODY} 1")
    return function()


def parameter(name, value):
    """Sets a parameter of the module; returns the previous value."""
    with open(f"/sys/module/ib_sdp/parameters/{name}", "r+") as file:
        before = int(file.read())
        file.seek(0)
        file.write(str(int(value)))
    return before


def make():
    """Creates both namespaces on this machine, joined by a veth pair as in the guest: for TCP
    against TCP on any Linux."""
    _made.append(os.getpid())
    for name in ("peer", "self"):
        _call("unshare", CLONE_NEWNET)
        _spaces[name] = os.open(OWN, os.O_RDONLY)
    run("self", f"ip link add veth0 mtu 9000 type veth peer name veth1 mtu 9000 netns {path('peer')}")
    for name, device in (("self", "veth0"), ("peer", "veth1")):
        four, six = ADDRESSES[name]
        run(name, "ip link set lo up")
        run(name, f"ip addr add {four}/24 dev {device}")
        run(name, f"ip addr add {six}/64 dev {device} nodad")
        run(name, f"ip link set {device} up")


def is_one():
    """Returns true if both hosts are the same namespace."""
    return "self" in _spaces and _spaces.get("peer") == _spaces["self"]


def hosts():
    """Returns the hosts that have separate counters."""
    return ("self",) if is_one() else ("self", "peer")


def made_here():
    return bool(_made)


def path(name):
    """Returns a path to a namespace created here."""
    return f"/proc/{_made[0]}/fd/{_spaces[name]}"


def local():
    """Returns true if the peer is a namespace of this kernel."""
    return "peer" in _spaces


@contextlib.contextmanager
def inside(name):
    """Moves the calling thread to that namespace within the block; sockets that it creates
    meanwhile stay there."""
    if name == "self":
        yield
        return
    before = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", _spaces[name], CLONE_NEWNET)
        yield
    finally:
        _call("setns", before, CLONE_NEWNET)
        os.close(before)


def run(name, command):
    """Runs a command in that namespace; returns its output, or raises an exception with it."""
    words = command.split()
    if name == "peer" and not local():
        name, words = "self", ["peer", *words]
    with inside(name):
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stdout.strip()}")
    return done.stdout


def has_link(name, link):
    """Returns true if a network device exists; starts no program, for callers that poll."""
    with inside(name):
        return link in (other for _, other in socket.if_nameindex())


def device(name="self"):
    """Returns the network device that has the test address."""
    four = ADDRESSES[name][0]
    for link in json.loads(run(name, "ip -j addr show")):
        if any(address.get("local") == four for address in link["addr_info"]):
            return link["ifname"]
    raise RuntimeError(f"no device has {four}")


def bare(six):
    """Returns an address of this host that is on no RDMA device."""
    host = "fd79::1" if six else "10.79.0.1"
    if "bare0" not in run("self", "ip -o link show"):
        run("self", "ip link add bare0 type veth peer name bare1")
        run("self", "ip link set bare0 up")
    run("self", f"ip addr replace {host}/" + ("64 dev bare0 nodad" if six else "24 dev bare0"))
    return host


@contextlib.contextmanager
def firewall():
    """Makes the other host drop RoCE packets."""
    run("peer", "nft add table inet sdp_test")
    try:
        run("peer", "nft add chain inet sdp_test in { type filter hook input priority 0 ; }")
        run("peer", f"nft add rule inet sdp_test in udp dport {ROCE} drop")
        yield
    finally:
        run("peer", "nft delete table inet sdp_test")


def tidy():
    """Removes leftovers of an interrupted case: a host that does not reply for its address, and
    neighbour entries that were set by hand or do not reply."""
    for name in hosts():
        try:
            link = device(name)
        except RuntimeError:
            continue        # the case has removed the device
        with inside(name):
            sysctl(f"ipv4/conf/{link}/arp_ignore", 0)
        run(name, f"ip neigh flush dev {link} nud all")


def sysctl(path, value=None):
    """Reads a sysctl, or writes it and returns the previous value, in the calling thread's
    namespace."""
    path = "/proc/sys/net/" + path
    with open(path) as file:
        before = file.read().strip()
    if value is not None:
        with open(path, "w") as file:
            file.write(str(value))
    return before
