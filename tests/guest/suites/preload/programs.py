# SPDX-License-Identifier: GPL-2.0-only
"""Programs under sdp-run behave as on TCP, and use SDP."""

import json
import os
import shutil
import tempfile

from lib import either, netns
from lib.preload import ECHO, Carried, start, wait_for_listener
from lib.registry import case

PORT = 7300


def told(e, said):
    """Returns a client's output, with SDP's SO_PROTOCOL replaced by TCP's: no other difference is
    visible."""
    words = said.split(" ")
    protocols = [word for word in words if word in (str(either.SDP), str(either.TCP))]
    e.equal(set(protocols), {str(either.SDP if e.sdp else either.TCP)} if protocols else set(), "what SO_PROTOCOL says")
    return " ".join(str(either.TCP) if word == str(either.SDP) else word for word in words)


def echo(e, server, client, count, size):
    """Both ends under sdp-run. Returns the output of the client."""
    carried = Carried() if e.sdp else None
    serving = start(e, [*ECHO, "server", server, e.any, str(PORT), str(count)], "peer")
    wait_for_listener(e, PORT)
    said = start(e, [*ECHO, "client", client, e.there, str(PORT), str(count), str(size)]).output(e.patience * 12)
    e.note("server", serving.output(e.patience * 6))
    e.note("client", told(e, said))
    e.check(said.endswith(f"{count} of {count} came back\n"), f"the client said {said}")
    if carried:
        total = count * size
        e.equal((carried.sent(), carried.received()), (total, total), "bytes that SDP sent and received")


@case(hosts=(1, 2), timeout=120)
def threads(e):
    """A server with a thread for each connection, and a blocking client."""
    echo(e, "threads", "blocking", 3, 1000000)


@case(reference=False, families=("v4",), timeout=120)
def forks(e):
    """A server with a process for each connection, and a client with a time limit and non-blocking
    sockets."""
    echo(e, "forks", "timeout", 4, 300000)


@case(reference=False, families=("v4",), timeout=120)
def started(e):
    """subprocess.Popen() passes a listener to another program, which uses the listener in blocking
    mode."""
    echo(e, "started", "blocking", 2, 100000)


@case(families=("v4",), hosts=(1, 2), timeout=120)
def events(e):
    """asyncio at both ends, 20 connections at once."""
    echo(e, "asyncio", "asyncio", 20, 50000)


@case(reference=False, families=("v4",), timeout=120)
def readiness(e):
    """epoll at both ends, with sockets that are added before they are connected."""
    echo(e, "selectors", "selectors", 5, 200000)


@case(reference=False, families=("v4",), timeout=120)
def older_readiness(e):
    """poll() and select() as servers use them."""
    for server in ("poll", "select"):
        carried = Carried() if e.sdp else None
        serving = start(e, [*ECHO, "server", server, e.any, str(PORT), "3"], "peer")
        wait_for_listener(e, PORT)
        said = start(e, [*ECHO, "client", "asyncio", e.there, str(PORT), "3", "100000"]).output(e.patience * 12)
        e.note(f"client of {server}", said)
        serving.output(e.patience * 6)
        if carried:
            e.equal(carried.sent(), 300000, f"bytes that SDP sent to the server by {server}")


@case
def one_machine(e):
    """Both ends are on this host and use the loopback address."""
    before = netns.local_transport(True)
    carried = Carried() if e.sdp else None
    try:
        serving = start(e, [*ECHO, "server", "threads", e.loopback, str(PORT), "2"])
        wait_for_listener(e, PORT, "self")
        said = start(e, [*ECHO, "client", "blocking", e.loopback, str(PORT), "2", "100000"]).output(e.patience * 6)
        e.note("client", told(e, said))
        serving.output(e.patience * 6)
    finally:
        netns.local_transport(before)
    if carried:
        e.equal(carried.sent(), 400000, "bytes that SDP carried, there and back")


@case
def netcat(e):
    if not shutil.which("nc"):
        e.skip("nc is not installed")
    carried = Carried() if e.sdp else None
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(500000))
        file.flush()
        command = f"exec nc -N {e.there} {PORT} < {file.name}"
        serving = start(e, ["sh", "-c", f"nc -l {'-6' if e.six else '-4'} {PORT} | wc -c"], "peer")
        wait_for_listener(e, PORT)
        start(e, ["sh", "-c", command]).output(e.patience * 6)
        e.note("bytes", serving.output(e.patience * 6).strip())
    if carried:
        e.equal(carried.sent(), 500000, "bytes that SDP sent")


@case(timeout=60)
def socat(e):
    """A server starts a process for each connection, with the socket as input and output of another
    program."""
    if not shutil.which("socat"):
        e.skip("socat is not installed")
    kind, host = ("TCP6", f"[{e.there}]") if e.six else ("TCP4", e.there)
    carried = Carried() if e.sdp else None
    serving = start(e, ["socat", "-t", "60", f"{kind}-LISTEN:{PORT},reuseaddr,fork,max-children=2", "EXEC:tr a-z A-Z"], "peer")
    wait_for_listener(e, PORT)
    for number in range(3):
        said = start(e, ["sh", "-c", f"echo number {number} | socat -t 60 - {kind}:{host}:{PORT}"]).output(e.patience * 6)
        e.note(f"answer {number}", said)
    e.check(serving.running(), "the server has ended")
    serving.end()
    if carried:
        e.equal((carried.sent(), carried.received()), (27, 27), "bytes that SDP sent and received")


@case(reference=False, families=("v4",), timeout=120)
def iperf3(e):
    """iperf3 sets many options, and reads TCP_INFO."""
    if not shutil.which("iperf3"):
        e.skip("iperf3 is not installed")
    carried = Carried() if e.sdp else None
    serving = start(e, ["iperf3", "-s", "-1", "-p", str(PORT)], "peer")
    wait_for_listener(e, PORT)
    text = start(e, ["iperf3", "-c", e.there, "-p", str(PORT), "-n", "10M", "-P", "2", "-J"]).output(e.patience * 12)
    serving.output(e.patience * 6)
    streams = json.loads(text)["end"]["streams"]
    e.note("streams", len(streams))
    moved = sum(stream["receiver"]["bytes"] for stream in streams)
    e.check(moved >= 10 << 20, f"{moved} bytes")
    if carried:
        e.check(carried.sent() >= 10 << 20, f"SDP sent {carried.sent()} bytes")
