# SPDX-License-Identifier: GPL-2.0-only
"""Programs under sdp-run use TCP without an error if the peer, the rules or the kernel exclude
SDP."""

import os
import socket
import subprocess
import tempfile

from lib import either, netns, observe
from lib.preload import ECHO, Carried, under, wait_for_listener
from lib.programs import Program
from lib.registry import case

PORT = 7310
# A blocking client, and a client that connects like event loops.
CLIENTS = ("blocking", "selectors")
# The library's only output in a guest without the module.
ABSENT = f"the kernel has no SDP (the module ib_sdp is not loaded: it is not installed for kernel {os.uname().release}); sockets are TCP"


def output(program, patience):
    """Returns the output of a client, and the output of the library."""
    out, err = program._process.communicate(timeout=patience)
    if program._process.returncode:
        raise RuntimeError(f"{program.name}: {out}{err}")
    return out, err


def unload(e):
    def gone():
        done = subprocess.run(["rmmod", "ib_sdp"], capture_output=True, text=True)
        return done.returncode == 0 or "in use" not in done.stderr

    e.until(gone, "the module stays in use", patience=e.patience * 6)
    e.check(not os.path.exists(observe.ROWS), "the module is still there")


def load(*parameters):
    subprocess.run(["insmod", observe.MODULE, *parameters], check=True)


def client(e, how, rules=None, address=None, **more):
    command = [*ECHO, "client", how, address or e.there, str(PORT), "2", "50000"]
    said, log = output(Program(e, under(e, command, rules, **more)), e.patience * 12)
    e.check(said.endswith("2 of 2 came back\n"), f"{how} said {said}, and the library {log}")
    return log


@case(reference=False, timeout=120)
def the_peer_has_tcp_only(e):
    """Clients of each kind reach a server without SDP."""
    for how in ("selectors",) if e.six else CLIENTS:
        carried = Carried()
        serving = Program(e, [*ECHO, "server", "threads", e.any, str(PORT), "2"], "peer")
        wait_for_listener(e, PORT, sdp=False)
        log = client(e, how)
        serving.output(e.patience * 6)
        e.equal(carried.sent(), 0, "bytes that SDP sent")
        e.equal(log.count(": TCP (refused)\n"), 2, f"what is told of {how}: {log}; fallbacks")


@case(reference=False, families=("v4",), timeout=60)
def the_peers_sdp_is_silent(e):
    """A client with a shorter time limit than SDP's reaches the server by TCP, the first time."""
    e.needs_wire()
    serving = Program(e, [*ECHO, "server", "threads", e.any, str(PORT), "2"], "peer")
    wait_for_listener(e, PORT, sdp=False)
    with netns.firewall():
        log = client(e, "hurried", patient=False)
    serving.output(e.patience * 6)
    e.equal((log.count(": TCP (no answer)\n"), log.count(": TCP (remembered)\n")), (1, 1), f"what is told: {log}; connections")


@case(reference=False, timeout=120)
def the_peer_comes_by_tcp(e):
    """A server under sdp-run accepts connections of both protocols."""
    carried = Carried()
    serving = Program(e, under(e, [*ECHO, "server", "asyncio", e.any, str(PORT), "4"]), "peer")
    wait_for_listener(e, PORT, sdp=True)
    with either.counts(e, "peer", accepted_by_sdp=2, accepted_by_tcp=2):
        log = client(e, "blocking", "use sdp client * *:*\n")
        e.equal((carried.sent(), log.count(": SDP only\n")), (100000, 2), f"bytes that SDP sent, and connections in {log}")
        log = client(e, "blocking", "use tcp client * *:1-65535\n")
        e.equal((carried.sent(), log.count(": TCP (chosen)\n")), (100000, 2), f"the same after TCP: {log}")
    _, log = output(serving, e.patience * 6)
    e.equal(log.count(": SDP and TCP\n"), 1, f"in {log}: listeners")


@case(reference=False, families=("v4",), timeout=120)
def rules_decide(e):
    """Rules by program, role, address and port."""
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
    """A client whose rules allow only SDP does not fall back to TCP, and a server with such rules
    accepts no TCP connection."""
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
    """A client gets TCP's errno, at once."""
    for how in CLIENTS:
        process = Program(e, under(e, [*ECHO, "client", how, e.there, str(PORT), "1", "1"]))
        _, err = process._process.communicate(timeout=e.patience * 6)
        e.check(process._process.returncode == 1 and "ConnectionRefusedError" in err, f"{how} said {err}")


@case(reference=False, families=("v4",), timeout=60)
def a_mistake_in_the_rules(e):
    """All sockets use TCP, and a message shows the position of the error."""
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
    """Both ends use TCP, and the library logs one line; after the module is loaded, programs use
    SDP again."""
    unload(e)
    try:
        for how in ("blocking", "selectors"):
            serving = Program(e, under(e, [*ECHO, "server", "threads", e.any, str(PORT), "2"]), "peer")
            wait_for_listener(e, PORT, sdp=False)
            log = client(e, how)
            e.equal(log.count("\n"), 1, f"lines of the library's log {log}")
            e.check(ABSENT in log, f"the library said {log}")
            serving.output(e.patience * 6)
    finally:
        load()
    carried = Carried()
    serving = Program(e, under(e, [*ECHO, "server", "threads", e.any, str(PORT), "2"]), "peer")
    wait_for_listener(e, PORT, sdp=True)
    client(e, "blocking")
    serving.output(e.patience * 6)
    e.equal(carried.sent(), 100000, "bytes that SDP sent")


# Connects once for each new file, and prints the protocol of the connection.
AGAIN = """
import os, socket, sys, time
host, port, *files = sys.argv[1:]
for file in files:
    while not os.path.exists(file):
        time.sleep(0.02)
    with socket.create_connection((host, int(port))) as sock:
        print(sock.getsockopt(socket.SOL_SOCKET, 38), flush=True)
        sock.sendall(b"x")
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1):
            pass
"""


@case(reference=False, families=("v4",), timeout=180)
def the_module_goes_and_comes(e):
    """A program that outlives the module continues with TCP, prints one line, and uses SDP when the
    module is loaded again."""
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, str(number)) for number in range(4)]
        serving = Program(e, under(e, [*ECHO, "server", "asyncio", e.any, str(PORT), "1"]), "peer")
        wait_for_listener(e, PORT, sdp=True)
        going = Program(e, under(e, ["python3", "-c", AGAIN, e.there, str(PORT), *files]))

        def next_one(number):
            open(files[number], "w").close()
            return int(going.line())

        e.equal(next_one(0), either.SDP, "the protocol with the module")
        serving.output(e.patience * 6)
        unload(e)
        try:
            plain = e.keep(e.tcp("peer"))
            plain.set(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            plain.bind(e.address(e.any, PORT))
            plain.listen(4)
            for number in (1, 2):
                e.equal(next_one(number), either.TCP, "the protocol without")
                far = plain.accept()[0]
                e.equal(far.recv(2), b"x", "what came")
                far.close()
            plain.close()
        finally:
            load()
        serving = Program(e, under(e, [*ECHO, "server", "asyncio", e.any, str(PORT), "1"]), "peer")
        wait_for_listener(e, PORT, sdp=True)
        e.equal(next_one(3), either.SDP, "the protocol with the module again")
        _, log = output(going, e.patience * 6)
        serving.output(e.patience * 6)
        e.equal(log.count(ABSENT), 1, f"said once in {log}")


@case(reference=False, families=("v4",), timeout=180)
def another_number(e):
    """The library finds the module's number of IPPROTO_SDP. If the module has no number for
    IPPROTO_SDP, the library prints one line, and sockets use TCP."""
    for number in (260, 0):
        unload(e)
        load(f"ipproto={number}")
        try:
            carried = Carried()
            serving = Program(e, under(e, [*ECHO, "server", "threads", e.any, str(PORT), "2"]), "peer")
            wait_for_listener(e, PORT, sdp=number != 0)
            log = client(e, "blocking")
            _, theirs = output(serving, e.patience * 6)
            e.equal(carried.sent(), 100000 if number else 0, f"bytes that SDP sent with ipproto={number}")
            why = "the module ib_sdp has no number for IPPROTO_SDP (ipproto=0); sockets are TCP"
            e.equal((log.count(why), theirs.count(why)), (0, 0) if number else (1, 1), f"in {log} and {theirs}: why")
        finally:
            unload(e)
            load()


@case(reference=False, families=("v4",), timeout=60)
def addresses_of_servers(e):
    """Rules match the address of bind(), even if the socket connects afterwards."""
    rules = f"use tcp server * {e.there}:*\nuse sdp client * *:*\nuse sdp server * *:{PORT + 1}\n"
    for port, sdp, tcp in ((PORT, False, True), (PORT + 1, True, False)):
        host = e.there if tcp else e.any
        serving = Program(e, under(e, [*ECHO, "server", "threads", host, str(port), "1"], rules), "peer")
        wait_for_listener(e, port, tcp=tcp, sdp=sdp)
        e.equal(any(row.local[1] == port for row in observe.rows("peer")), sdp, f"a listener of SDP on {port}")
        serving.end()
    serving = Program(e, under(e, [*ECHO, "server", "threads", e.any, str(PORT), "1"]), "peer")
    wait_for_listener(e, PORT, sdp=True)
    carried = Carried()
    bound = "import socket, sys; s = socket.socket(); s.bind(('', 0)); s.connect((sys.argv[1], int(sys.argv[2]))); s.sendall(b'12345')"
    rules = "use tcp server * *:*\nuse sdp client * *:*\n"
    _, log = output(Program(e, under(e, ["python3", "-c", bound, e.there, str(PORT)], rules)), e.patience * 6)
    serving.output(e.patience * 6)
    e.equal((carried.sent(), log.count(": SDP only\n")), (5, 1), f"bytes by SDP, and connections in {log}")


@case(reference=False, families=("v4",), timeout=60)
def nothing_hidden(e):
    """The program has only the descriptors that it has created."""
    listing = "import os, socket; s = [socket.socket() for _ in range(3)]; s[0].bind(('', 0)); s[0].listen(1); print(len(os.listdir('/proc/self/fd')))"
    counts = [Program(e, command).output(e.patience * 6) for command in (["python3", "-c", listing], under(e, ["python3", "-c", listing]))]
    e.equal(counts[1], counts[0], "descriptors under sdp-run, and without")
