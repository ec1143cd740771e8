# SPDX-License-Identifier: GPL-2.0-only
"""tools/sdpstat on the real files: sdpstat parses the files, and shows the sockets."""

import json
import os
import pathlib
import subprocess
import time

from lib import either, netns, observe
from lib.registry import case

BUILT = pathlib.Path(__file__).resolve().parents[4] / "build" / "cargo"


def sdpstat(e, *words, where="self", user=None):
    """Returns the output of sdpstat. The suite needs the build of the host suite (cargo test)."""
    built = [path for path in (BUILT / "release" / "sdpstat", BUILT / "debug" / "sdpstat") if path.exists()]
    if not built:
        e.skip("sdpstat is not built (scripts/cargo build -p sdpstat)")
    newest = max(built, key=lambda path: path.stat().st_mtime)
    with netns.inside(where):
        done = subprocess.run([newest, *words], capture_output=True, text=True, user=user)
    e.equal((done.returncode, done.stderr), (0, ""), f"status and complaints of sdpstat {' '.join(words)}")
    return done.stdout


@case(reference=False)
def sockets(e):
    """The rows of sdpstat show each socket with the processes that hold it."""
    near, far = e.pair()
    near.send(b"x" * 1234)
    e.unread(far, 1234)
    for sock, where, waiting in ((near, "self", 0), (far, "peer", 1234)):
        shown = json.loads(sdpstat(e, "sockets", "--json", "--processes", where=where))["sockets"]
        inode = os.fstat(sock.fileno()).st_ino
        ours = [row for row in shown if row["inode"] == inode]
        e.equal(len(ours), 1, f"rows of the socket on {where}")
        row = ours[0]
        here, there = sock.getsockname(), sock.getpeername()
        e.equal((row["local"], row["remote"]), ({"address": here[0], "port": here[1]}, {"address": there[0], "port": there[1]}), "its addresses")
        e.equal((row["family"], row["state"], row["rx_queue"]), (28 if e.six else 27, "ESTAB", waiting), "family, state, receive queue")
        e.check({"name": own_name(), "pid": os.getpid(), "fd": sock.fileno()} in row["processes"], f"processes {row['processes']}")
    table = sdpstat(e, "sockets").splitlines()
    e.equal(table[0].split(), ["State", "Recv-Q", "Send-Q", "Local", "Remote", "User", "Inode"], "heading")
    e.check(any(line.split()[3].endswith(f":{near.port}") for line in table[1:]), "the connector is not in the table")


def own_name():
    with open("/proc/self/comm") as file:
        return file.read().strip()


@case(reference=False)
def details(e):
    """Transport of each connection and its bytes by method, from the socket's own statistics."""
    near, far = e.pair()
    near.sendall(b"x" * 5000)
    far.recv_exactly(5000)
    for sock, where, moved in ((near, "self", "tx_bytes"), (far, "peer", "rx_bytes")):
        inode = os.fstat(sock.fileno()).st_ino
        shown = json.loads(sdpstat(e, "sockets", "--json", "--details", where=where))["sockets"]
        info = next(row for row in shown if row["inode"] == inode)["info"]
        e.equal({**info, "transport": ("none", "rdma", "local").index(info["transport"])}, observe.info(sock), "SDP_INFO")
        e.equal(info[moved], 5000, moved)
    lines = sdpstat(e, "sockets", "--details").splitlines()
    ours = next(number for number, line in enumerate(lines) if line.split()[3].endswith(f":{near.port}"))
    e.equal(lines[ours + 1].split()[1], "tx_bytes:5000", "below the connector")
    # a user without access to another's process sees none of its sockets
    shown = json.loads(sdpstat(e, "sockets", "--json", "--details", user=65534))["sockets"]
    e.check(shown and not any("info" in row for row in shown), f"another user was shown {shown}")


@case(reference=False)
def choices(e):
    """sdpstat shows sockets of IPPROTO_SDP with their protocol, including sockets that switched to
    TCP."""
    sdpstat(e, "sockets")               # skips the case if the module of the test is not built
    with either.parameters(ipproto_wait=5000, ipproto_memory=0):
        ends = [either.connect(e, either.listen(e, protocol)) for protocol in (either.SDP, either.TCP)]
    shown = {row["inode"]: row for row in json.loads(sdpstat(e, "sockets", "--json"))["sockets"]}
    for sock, choice in zip(ends, ("SDP", "TCP: refused")):
        row = shown[os.fstat(sock.fileno()).st_ino]
        here, there = sock.getsockname(), sock.getpeername()
        e.equal((row["local"], row["remote"]), ({"address": here[0], "port": here[1]}, {"address": there[0], "port": there[1]}), f"addresses, {choice}")
        e.equal((row["family"], row["state"], row["ipproto"]), (e.family, "ESTAB", choice), "family, state, choice")
    table = sdpstat(e, "sockets").splitlines()
    e.equal(table[0].split(), ["State", "Recv-Q", "Send-Q", "Local", "Remote", "User", "Inode", "IPPROTO_SDP"], "heading")
    e.check(any("TCP: refused" in line and f":{ends[1].port} " in line for line in table), "the table does not tell of TCP")


@case(reference=False)
def statistics(e):
    """sdpstat prints the numbers of the file."""
    near, far = e.pair()
    near.sendall(b"x" * 5000)
    far.recv_exactly(5000)
    shown = json.loads(sdpstat(e, "statistics", "--json"))["statistics"]
    said = observe.stats()
    e.equal((shown["tx_bytes"], shown["rx_bytes"]), (said["tx_bytes"], said["rx_bytes"]), "bytes sent and received")
    e.check("backlog full" in shown["Refused and lost"], f"sections {sorted(shown)}")
    flat = {name: value for name, value in shown.items() if isinstance(value, int)}
    e.check(set(flat) <= set(said) and len(flat) > 10, f"counters {sorted(set(flat) - set(said))} are not in the file")


@case(reference=False, families=("v4",))
def watching(e):
    """--watch prints the increments per second."""
    sdpstat(e, "statistics")            # skips if it is not built
    near, far = e.pair()
    newest = max((path for path in BUILT.glob("*/sdpstat") if path.is_file()), key=lambda path: path.stat().st_mtime)
    with subprocess.Popen([newest, "statistics", "--json", "--watch", "0.5"], stdout=subprocess.PIPE, text=True) as process:
        try:
            first = json.loads(process.stdout.readline())
            e.check("per_second" not in first, "rates at first")
            start = time.monotonic()
            near.sendall(b"x" * 100000)
            far.recv_exactly(100000)
            gained = 0
            while not gained and time.monotonic() < start + e.patience:
                gained = json.loads(process.stdout.readline())["per_second"]["tx_bytes"]
            e.check(0 < gained <= 200000, f"{gained} bytes per second, of 100000 in some half seconds")
        finally:
            process.kill()


@case(reference=False)
def devices(e):
    """`sdpstat devices` shows each port with its GIDs, the module's objects on the device, and the
    connections by the port's addresses."""
    e.needs_wire()
    ends = [e.pair() for _ in range(3)]
    for near, far in ends:
        near.send(b"x")
        far.recv(1)
    shown = json.loads(sdpstat(e, "devices", "--json"))
    port = next(row for row in shown["devices"] if row["connections"])
    e.equal((port["state"], port["link_layer"], port["port"]), ("ACTIVE", "Ethernet", 1), "port")
    e.check(port["connections"] >= 3 and port["queue_pairs"] >= 3, f"connections and queue pairs of {port}")
    e.check(any(gid["gid"].endswith(e.here) for gid in port["gids"]), f"GIDs of {port}")
    e.check(isinstance(port["region_bytes"], int) and isinstance(shown["pinned_send_bytes"], int), f"bytes of {shown}")
    table = sdpstat(e, "devices").splitlines()
    e.equal(table[0].split()[:4], ["Device", "Port", "State", "Link"], "heading")
    e.check(any(line.split()[:3] == [port["device"], "1", "ACTIVE"] for line in table), "no row of the port")


@case(reference=False, families=("v4",))
def peers(e):
    """`sdpstat peers` shows each host with its connections, the bytes of these connections, and
    reasons for TCP."""
    e.needs_wire()
    sdpstat(e, "peers")                 # skips if it is not built
    near, far = e.pair()
    near.sendall(b"x" * 5000)
    far.recv_exactly(5000)
    with either.parameters(ipproto_wait=5000, ipproto_memory=1000):
        ends = [either.connect(e, either.listen(e, protocol)) for protocol in (either.SDP, either.TCP)]
        shown = json.loads(sdpstat(e, "peers", "--json"))["peers"]
        table = sdpstat(e, "peers")
    e.check(len(ends) == 2, "ends")
    host = next(row for row in shown if row["address"] == e.there)
    e.check(host["connections"] >= 2 and host["tx_bytes"] >= 5000 and host["with_info"] >= 2, f"row {host}")
    e.equal(host["tcp"].get("refused"), 1, "sockets that TCP has")
    e.check({row["choice"] for row in host["remembered"]} == {"SDP", "TCP"}, f"remembered {host}")
    e.check("TCP: refused 1" in table and "remembered for" in table, table)
