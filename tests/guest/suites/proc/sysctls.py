# SPDX-License-Identifier: GPL-2.0-only
"""net.sdp.*: parameters of a network namespace."""

import os
import pathlib
import re
import socket

from lib import calls, either, netns, observe
from lib.consts import SDP_ASYNC_SEND, SDP_ZCOPY_THRESH
from lib.registry import case
from lib.tracing import tracing

from .module import refcount

TCP = socket.IPPROTO_TCP
TABLE = (pathlib.Path(__file__).parents[4] / "src/sys/params.def").read_text()
# name, default, least, most
ROWS = re.findall(r"^P\((\w+), (-?\d+), (-?\d+), (-?\w+), 0644, NET,", TABLE, re.M)
FOLDER = pathlib.Path("/proc/sys/net/sdp")
# Address of a new namespace's RDMA device.
OWN = "10.79.0.1"
# Size of the BSDH.
HEADER = 16


def sysctl_case(function):
    return case(function, reference=False, families=("v4",), timeout=60)


def sockets(e, most=10):
    """Opens up to `most` sockets. Returns the number of sockets that the limits allow."""
    kept = []
    for _ in range(most):
        try:
            kept.append(e.socket())
        except OSError as error:
            e.equal(error.strerror, os.strerror(105), "errno beyond the limit")
            break
    for sock in kept:
        sock.close()
    return len(kept)


def defaults(e):
    """Returns the initial values of new sockets of the namespace."""
    sock = e.socket()
    values = tuple(sock.get(TCP, name) for name in (socket.TCP_KEEPIDLE, SDP_ZCOPY_THRESH, SDP_ASYNC_SEND))
    sock.close()
    return values


def copied(e):
    """Sends 1 MiB within the namespace. Returns true if all of the bytes were copied."""
    netns.run("self", "ip link set lo up")
    listener, near = e.listen("self", host=e.loopback), e.socket()
    near.connect(e.address(e.loopback, listener.port))
    far = e.keep(listener.accept()[0])
    reader = e.task(far.recv, 1 << 20, socket.MSG_WAITALL)
    near.sendall(bytes(1 << 20))
    e.equal(len(reader.result()), 1 << 20, "bytes")
    return observe.stats()["zcopy tx_bytes"] == 0


def within(e, **values):
    """Returns the results of a new namespace with the given values."""
    def inside():
        netns.unshare()
        for name, value in values.items():
            netns.sysctl(f"sdp/{name}", value)
        return defaults(e), sockets(e, 6), copied(e)
    return e.child(inside).result()


@sysctl_case
def two_namespaces(e):
    """Namespaces with different values behave differently, and do not affect a third namespace."""
    before = netns.local_transport(True)
    try:
        here = defaults(e)
        one = within(e, sdp_keepalive_time=11, sdp_zcopy_thresh=0, async_send=1, max_sockets_per_user=3)
        e.equal(one, ((11, 0, 1), 3, True), "one")
        other = within(e, sdp_keepalive_time=22, sdp_zcopy_thresh=8192, async_send=0, max_sockets_per_net=5)
        e.equal(other, ((22, 8192, 0), 5, False), "the other")
        e.equal(defaults(e), here, "here")
    finally:
        netns.local_transport(before)


@sysctl_case
def bounds(e):
    """Each sysctl has the module's value until the sysctl is written. Writing words and values out
    of bounds fails with EINVAL and has no effect."""
    def inside():
        netns.unshare()
        e.equal({name for name, *_ in ROWS}, set(os.listdir(FOLDER)), "files")
        for name, _, least, most in ROWS:
            file, largest = FOLDER / name, "2147483647" if most == "INT_MAX" else most
            e.equal(file.stat().st_mode & 0o777, 0o644, f"mode of {name}")
            e.equal(file.read_text(), pathlib.Path(f"/sys/module/ib_sdp/parameters/{name}").read_text(), f"{name} at first")
            for value in (least, largest):
                file.write_text(value)
                e.equal(file.read_text(), value + "\n", f"{name} when {value} has been written")
            for value in (str(int(least) - 1), str(int(largest) + 1), "many"):
                e.equal(e.error(file.write_text, value), "EINVAL", f"{value} to {name}")
                e.equal(file.read_text(), largest + "\n", f"{name} when {value} has been refused")
        return len(ROWS)
    e.check(e.child(inside).result() > 0, "no rows in params.def")


@sysctl_case
def follows_the_module(e):
    """A namespace without its own value uses the module's parameter."""
    def inside():
        netns.unshare()
        with either.parameters(sdp_keepalive_time=77):
            early = defaults(e)[0], netns.sysctl("sdp/sdp_keepalive_time")
            netns.sysctl("sdp/sdp_keepalive_time", 5)
            return early, defaults(e)[0]
    e.equal(e.child(inside).result(), ((77, "77"), 5), "the module's value, then its own")


@sysctl_case
def owner(e):
    """The owner of a container sets the container's sysctls without privilege on the host, and
    cannot exceed the host's limits. Users without CAP_NET_ADMIN cannot set the sysctls."""
    def inside():
        for name, value in {"max_sockets_per_user": 1000000, "max_sockets_per_net": -1, "async_send": 1, "sdp_keepalive_time": 33}.items():
            netns.sysctl(f"sdp/{name}", value)
        early = defaults(e)[::2], sockets(e, 10)
        netns.sysctl("sdp/max_sockets_per_user", 2)
        return early, sockets(e, 10)

    def without_privilege():
        os.setresgid(*[netns.NOBODY] * 3)
        os.setresuid(*[netns.NOBODY] * 3)
        return {e.error((FOLDER / name).write_text, "1") for name, *_ in ROWS}

    with either.parameters(max_sockets_per_user=4, async_send=-1):
        e.equal(e.child(netns.root_elsewhere, True, inside).result(), (((33, 0), 4), 2), "in the container")
    e.equal(e.child(without_privilege).result(), {"EACCES"}, "without privilege")
    e.equal(e.child(netns.root_elsewhere, False, lambda: {e.error((FOLDER / name).write_text, "1") for name, *_ in ROWS}).result(), {"EACCES"},
            "root of another user namespace")


def buffers(e):
    """Returns the maximum number of receive buffers that an end posts, and the initial payload of
    each."""
    listener, near = e.listen("self", host=OWN), e.socket()
    near.connect(e.address(OWN, listener.port))
    far = e.keep(listener.accept()[0])
    size = near.get(TCP, socket.TCP_MAXSEG)
    with tracing(e, "sdp_send") as read:
        far.recv_exactly(e.fill(near))
        near.sendall(bytes(100000))
        far.recv_exactly(100000)
        return max(int(fields["bufs"]) for _, fields in read() if fields["remote"].endswith(f":{near.port}")), size


def over_budget(e):
    """Returns true if the limit prevented pinning the memory of two connections at once."""
    listener, before = e.listen("self", host=OWN), observe.stats()["pin over budget"]
    for _ in range(3):
        tasks = []
        for _ in range(2):
            near = e.socket()
            near.connect(e.address(OWN, listener.port))
            tasks.append((e.keep(listener.accept()[0]).recv, 2 << 20, socket.MSG_WAITALL))
            tasks.append((near.sendall, bytes(2 << 20)))
        readers = [e.task(*task) for task in tasks][::2]
        e.equal([len(reader.result()) for reader in readers], [2 << 20] * 2, "bytes")
        if observe.stats()["pin over budget"] > before:
            return True
    return False


@case(reference=False, families=("v4",), timeout=120)
def lower_only(e):
    """A value above the module's value has no effect; a lower value has an effect. Covers each
    parameter of params.def that docs/parameters.md calls `lower only`, and rcvbuf_initial_size,
    which has a limit as well."""
    # For each parameter: the module's value, the namespace's value, and the effect of both values.
    table = {
        "max_sockets_per_user": (sockets, (4, 1000000, 4), (4, -1, 4), (4, 2, 2), (-1, 3, 3)),
        "max_sockets_per_net": (sockets, (4, 1000000, 4), (4, -1, 4), (4, 2, 2), (-1, 3, 3)),
        "max_pinned_send_user": (over_budget, (0, 1000000, True), (0, -1, True), (-1, 0, True), (-1, 1000000, False)),
        "max_pinned_receive_user": (over_budget, (0, 1000000, True), (0, -1, True), (-1, 0, True), (-1, 1000000, False)),
        "sdp_rx_size": (lambda e: buffers(e)[0] > 8, (8, 63, False), (31, 8, False), (31, 63, True)),
        "rcvbuf_initial_size": (lambda e: buffers(e)[1], (2048, 65536, 8192 - HEADER), (2048, 512, 512 - HEADER), (16384, 65536, 16384 - HEADER)),
    }
    page = (pathlib.Path(__file__).parents[4] / "docs/parameters.md").read_text()
    limited = set(re.findall(r"(?m)^\| `net\.sdp\.(\w+)` \| (?:lower only|up to)", page))
    e.equal(set(table), limited, "rows of docs/parameters.md")

    def inside():
        netns.unshare()
        for command in ("ip link set lo up", "ip link add own0 mtu 9000 type dummy", f"ip addr add {OWN}/24 dev own0", "ip link set own0 up",
                        "rdma link add own0 type rxe netdev own0"):
            netns.run("self", command)
        results = []
        for name, (effect, *rows) in table.items():
            for of_module, own, _ in rows:
                netns.sysctl(f"sdp/{name}", own)
                with either.parameters(**{name: of_module}):
                    results.append([name, of_module, own, effect(e)])
            # Sets the namespace's value as high as the module's.
            netns.sysctl(f"sdp/{name}", max(row[1] for row in rows))
        netns.run("self", "rdma link del own0")
        return results
    wanted = [[name, *row] for name, (_, *rows) in table.items() for row in rows]
    before = netns.local_transport(False)
    try:
        child = e.child(inside)
        child.done(70)
        e.equal(child.result(), wanted, "effects")
    finally:
        netns.local_transport(before)


@sysctl_case
def forgets(e):
    """Setting ipproto_memory to 0 clears the namespace's cache of peers."""
    def remembered():
        return [line.split()[0] for line in observe.read("/proc/thread-self/net/sdp_peers").splitlines()[1:]]

    def remember():
        sock = e.keep(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 257))
        sock.setblocking(False)
        e.error(sock.connect, ("10.99.0.2", 9))
        e.until(lambda: remembered() == ["10.99.0.2"], remembered)

    def inside():
        netns.unshare()
        for command in ("link add d0 type dummy", "addr add 10.99.0.1/24 dev d0", "link set d0 up"):
            netns.run("self", f"ip {command}")
        remember()
        netns.sysctl("sdp/ipproto_memory", 0)
        netns.sysctl("sdp/ipproto_memory", 60)
        after = remembered()
        remember()
        return after
    e.equal(e.child(inside).result(), [], "remembered after 0")


@sysctl_case
def namespace_goes(e):
    """A network namespace ends while one of its files is open. Reads of the open file fail, and no
    reference is left."""
    before = refcount()

    def inside():
        home = os.open(netns.OWN, os.O_RDONLY)
        netns.unshare()
        netns.sysctl("sdp/recv_poll", 3)
        e.socket().close()
        file = os.open(FOLDER / "recv_poll", os.O_RDONLY)
        e.equal(os.pread(file, 10, 0), b"3\n", "recv_poll")
        calls.setns(home)
        os.close(netns._spaces["self"])
        e.until(lambda: e.error(os.pread, file, 10, 0) != "ok", "the end of the namespace", patience=e.patience * 6)
    e.child(inside).result()
    e.until(lambda: refcount() <= before, lambda: f"{refcount()} references, {before} before", patience=e.patience * 6)
