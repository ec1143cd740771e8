# SPDX-License-Identifier: GPL-2.0-only
"""Where a peer, the rules or the kernel have no SDP, programs under sdp-run stay on TCP and do not notice."""

import os
import subprocess

from lib import netns, observe
from lib.preload import ECHO, Carried, under, wait_for_listener
from lib.programs import Program
from lib.registry import case

PORT = 7310
CLIENTS = ("blocking", "timeout", "asyncio", "selectors")


def output(program, patience):
    """What a client has printed, and what the library has said."""
    out, err = program._process.communicate(timeout=patience)
    if program._process.returncode:
        raise RuntimeError(f"{program.name}: {out}{err}")
    return out, err


def client(e, how, rules=None, address=None, **more):
    command = [*ECHO, "client", how, address or e.there, str(PORT), "2", "50000"]
    said, log = output(Program(e, under(e, command, rules, **more)), e.patience * 12)
    e.check(said.endswith("2 of 2 came back\n"), f"{how} said {said}, and the library {log}")
    return log


@case(reference=False, timeout=120)
def the_peer_has_tcp_only(e):
    """Clients of each kind get to a server that has nothing of SDP."""
    for how in ("selectors",) if e.six else CLIENTS:
        carried = Carried()
        serving = Program(e, [*ECHO, "server", "threads", e.any, str(PORT), "2"], "peer")
        wait_for_listener(e, PORT, sdp=False)
        log = client(e, how)
        serving.output(e.patience * 6)
        e.equal(carried.sent(), 0, "bytes that SDP sent")
        e.equal(log.count("TCP (SDP: connection refused)"), 2, f"what is told of {how}: {log}; fallbacks")


@case(reference=False, families=("v4",), timeout=60)
def the_peers_sdp_is_silent(e):
    """A client that waits for less time than SDP takes to fail gets to the server by TCP, the first time."""
    e.needs_wire()
    serving = Program(e, [*ECHO, "server", "threads", e.any, str(PORT), "2"], "peer")
    wait_for_listener(e, PORT, sdp=False)
    with netns.firewall():
        log = client(e, "hurried", wait=None)
    serving.output(e.patience * 6)
    e.equal((log.count("TCP (SDP: timed out)"), log.count("TCP (no SDP lately)")), (1, 1), f"what is told: {log}; connections")


@case(reference=False, timeout=120)
def the_peer_comes_by_tcp(e):
    """A server under sdp-run takes connections of both kinds."""
    carried = Carried()
    serving = Program(e, under(e, [*ECHO, "server", "asyncio", e.any, str(PORT), "4"]), "peer")
    wait_for_listener(e, PORT, sdp=True)
    client(e, "blocking", "use sdp client * *:*\n")
    e.equal(carried.sent(), 100000, "bytes that SDP sent")
    client(e, "blocking", "use tcp client * *:*\n")
    e.equal(carried.sent(), 100000, "bytes that SDP sent, after TCP")
    _, log = output(serving, e.patience * 6)
    e.equal((log.count(": SDP\n"), log.count(": TCP\n")), (2, 2), f"in {log}: connections by SDP and TCP")


@case(reference=False, families=("v4",), timeout=120)
def rules_decide(e):
    """By program, role, address and port."""
    net = "10.77.0.0/16"
    for rules, bytes_by_sdp in ((f"use tcp client python3* {net}:{PORT}\n", 0),
                                (f"use tcp client python3* {net}:1-{PORT - 1}\nuse tcp client other *:*\nuse sdp client * *:*\n", 100000),
                                ("use tcp server * *:*\n", 100000)):
        carried = Carried()
        serving = Program(e, under(e, [*ECHO, "server", "threads", e.any, str(PORT), "2"]), "peer")
        wait_for_listener(e, PORT, sdp=True)
        client(e, "blocking", rules)
        serving.output(e.patience * 6)
        e.equal(carried.sent(), bytes_by_sdp, f"bytes that SDP sent, with {rules!r}")


@case(reference=False, timeout=60)
def sdp_only(e):
    """A client for which the rules say SDP does not fall back, and a server takes nothing by TCP."""
    serving = Program(e, under(e, [*ECHO, "server", "threads", e.any, str(PORT), "2"], "use sdp server * *:*\n"), "peer")
    wait_for_listener(e, PORT, tcp=False, sdp=True)
    with e.tcp() as plain:
        e.equal(e.error(plain.connect, e.address(e.there, PORT)), "ECONNREFUSED", "a connection by TCP")
    client(e, "blocking")
    serving.output(e.patience * 6)
    listener = e.keep(e.tcp("peer"))
    listener.bind(e.address(e.any, PORT))
    listener.listen(1)
    process = Program(e, under(e, [*ECHO, "client", "blocking", e.there, str(PORT), "1", "1"], "use sdp client * *:*\n"))
    _, err = process._process.communicate(timeout=e.patience * 6)
    e.check(process._process.returncode == 1 and "ConnectionRefusedError" in err, f"the client said {err}")


@case(reference=False, families=("v4",), timeout=60)
def nobody_listens(e):
    """A client sees TCP's errno, at once."""
    for how in CLIENTS:
        process = Program(e, under(e, [*ECHO, "client", how, e.there, str(PORT), "1", "1"]))
        _, err = process._process.communicate(timeout=e.patience * 6)
        e.check(process._process.returncode == 1 and "ConnectionRefusedError" in err, f"{how} said {err}")


@case(reference=False, families=("v4",), timeout=60)
def a_mistake_in_the_rules(e):
    """Everything stays TCP, and the place of the mistake is told."""
    carried = Carried()
    serving = Program(e, under(e, [*ECHO, "server", "threads", e.any, str(PORT), "2"]), "peer")
    wait_for_listener(e, PORT, sdp=True)
    log = client(e, "blocking", "use sdp client * *:*\nuse sdp server * *:70000\n")
    e.equal(log.count("\n"), 1, f"lines in {log}")
    e.check("line 2, column 20: expected a port" in log and "every socket stays TCP" in log, f"the library said {log}")
    serving.output(e.patience * 6)
    e.equal(carried.sent(), 0, "bytes that SDP sent")


@case(reference=False, families=("v4",), timeout=180)
def without_the_module(e):
    """TCP at both ends, and one line that says so; back with the module it is SDP again."""
    def unload():
        done = subprocess.run(["rmmod", "ib_sdp"], capture_output=True, text=True)
        return done.returncode == 0 or "in use" not in done.stderr

    e.until(unload, "the module stays in use", patience=e.patience * 6)
    e.check(not os.path.exists(observe.ROWS), "the module is still there")
    try:
        for how in ("blocking", "selectors"):
            serving = Program(e, under(e, [*ECHO, "server", "threads", e.any, str(PORT), "2"]), "peer")
            wait_for_listener(e, PORT, sdp=False)
            log = client(e, how)
            e.equal(log.count("\n"), 1, f"lines of the library's log {log}")
            e.check("the kernel has no SDP (address family not supported)" in log, f"the library said {log}")
            serving.output(e.patience * 6)
    finally:
        subprocess.run(["insmod", observe.MODULE], check=True)
    carried = Carried()
    serving = Program(e, under(e, [*ECHO, "server", "threads", e.any, str(PORT), "2"]), "peer")
    wait_for_listener(e, PORT, sdp=True)
    client(e, "blocking")
    serving.output(e.patience * 6)
    e.equal(carried.sent(), 100000, "bytes that SDP sent")
