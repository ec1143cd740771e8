# SPDX-License-Identifier: GPL-2.0-only
"""OpenJDK 21: with -Dcom.sun.sdp.conf, which it has for SDP, under sdp-run, and mapped by the kernel. The programs know nothing of SDP."""

import contextlib
import os
import tempfile

from lib import netns, observe, programs
from lib.mapping import Mapping
from lib.preload import each_way, wait_for_listener
from lib.programs import Program, compiled
from lib.registry import case

PORT = 7200
JAVA = [*programs.JAVA, "-Djava.net.preferIPv4Stack=true"]
CLIENTS, SIZE = 2, 1_000_000


def run(e, mode, size, host=None, where="peer"):
    """Both ends by rules of their own; how many bytes SDP has sent from here."""
    classes, host = compiled(e), host or e.there
    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "sdp.conf")
        text = f"bind {host} {PORT}\nconnect {host} {PORT}\n"
        with open(rules, "w") as file:
            file.write(text)
        if not netns.local():
            programs.put(e, rules, text.encode())
        before = observe.stats()["tx_bytes"]
        command = [*JAVA, f"-Dcom.sun.sdp.conf={rules}", "-cp", classes, "Transfer"]
        server = Program(e, [*command, mode + "server", host, str(PORT)], where)
        client = Program(e, [*command, mode + "client", host, str(PORT), str(size)])
        said = client.output(e.patience * 20).split()
        e.check(said[:1] == [str(size)] and len(said[1]) == 64, f"the client said {said}")
        server.output(e.patience * 4)
        return observe.stats()["tx_bytes"] - before


@case(reference=False, families=("v4",), hosts=(1, 2), timeout=240)
def streams(e):
    """Socket and ServerSocket."""
    size = 5000000
    moved = run(e, "", size)
    e.equal(moved, 2 * (size + 4), "bytes sent by SDP")


@case(reference=False, families=("v4",), hosts=(1, 2), timeout=240)
def channels(e):
    """Channels and a selector, without blocking."""
    size = 3000000
    moved = run(e, "nio-", size)
    e.equal(moved, size, "bytes sent by SDP")


@case(reference=False, families=("v4",), timeout=240)
def streams_on_one_machine(e):
    """To 127.0.0.1, which no RDMA device has."""
    before = netns.local_transport(True)
    try:
        moved = run(e, "", SIZE, "127.0.0.1", "self")
    finally:
        netns.local_transport(before)
    e.equal(moved, CLIENTS * (SIZE + 4 + 32), "bytes sent by SDP")


def serves(e, way, server, client, mode=""):
    """A server and its client, each started by one of the functions, as any Java program is: with IPv6 sockets for IPv4 addresses."""
    command = [*programs.JAVA, "-cp", compiled(e), "Transfer"]
    serving = server([*command, mode + "server", way.host, PORT])
    sent, received = (SIZE, SIZE) if mode else (CLIENTS * SIZE, CLIENTS * 32)
    with way.carries(sent, received):
        said = client([*command, mode + "client", way.host, PORT, SIZE]).split()
    e.equal((said[0], len(said[1])), (str(SIZE), 64), "what the client said of size and sum")
    serving.output(e.patience * 6)


@each_way(timeout=240)
def server_socket_with_sdp_run(e, way):
    serves(e, way, lambda command: way.server(command, PORT), lambda command: way.client(command, patience=20))


@each_way(timeout=240, ways=("by_rdma",))
def channels_with_sdp_run(e, way):
    serves(e, way, lambda command: way.server(command, PORT), lambda command: way.client(command, patience=20), "nio-")


@each_way(timeout=240)
def server_socket_with_a_mapping(e, way):
    """Of both, or of the client alone, whose server has nothing of SDP."""
    def start(command, where="self"):
        return Program(e, list(map(str, command)), where)

    def server(command):
        if way.sdp:
            mappings.enter_context(Mapping(e, "--program", "java"))
        program = start(command, way.where)
        wait_for_listener(e, PORT, way.where, tcp=not way.sdp, sdp=way.sdp)
        if not way.sdp:
            mappings.enter_context(Mapping(e, "--program", "java"))
        return program

    with contextlib.ExitStack() as mappings:
        serves(e, way, server, lambda command: start(command).output(e.patience * 20))
