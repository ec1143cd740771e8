# SPDX-License-Identifier: GPL-2.0-only
"""OpenJDK 21: by its own -Dcom.sun.sdp.conf, under sdp-run, and mapped by the kernel. The Java
programs do not mention SDP."""

import os
import tempfile

from lib import netns, observe, programs
from lib.forms import form
from lib.programs import Program, compiled
from lib.registry import case

PORT = 7200
JAVA = [*programs.JAVA, "-Djava.net.preferIPv4Stack=true"]
CLIENTS, SIZE = 2, 1_000_000
# checksum of the bytes of this size that Transfer sends
SUM = "3ca15d0514ce533c6c49c9fd2a3e383f3f567767875b15fc909f476d6fa2a864"


def run(e, mode, size, host=None, where="peer"):
    """Runs both ends of a program, each end with its own rules. Returns the number of bytes that
    SDP has sent from this host."""
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


@case(reference=False, families=("v4",), hosts=(2,), timeout=240, brief=False)
def streams(e):
    """Transfers a file by Socket and ServerSocket."""
    size = 5000000
    moved = run(e, "", size)
    e.equal(moved, 2 * (size + 4), "bytes sent by SDP")


@case(reference=False, families=("v4",), hosts=(2,), timeout=240)
def channels(e):
    """Transfers a file by channels and a selector, without blocking."""
    size = 3000000
    moved = run(e, "nio-", size)
    e.equal(moved, size, "bytes sent by SDP")


@case(reference=False, families=("v4",), timeout=240)
def streams_on_one_machine(e):
    """Transfers a file to 127.0.0.1, an address without an RDMA device."""
    before = netns.local_transport(True)
    try:
        moved = run(e, "", SIZE, "127.0.0.1", "self")
    finally:
        netns.local_transport(before)
    e.equal(moved, CLIENTS * (SIZE + 4 + 32), "bytes sent by SDP")


def classes(e):
    return {"classes": compiled(e)}


# The program runs like any Java program: with IPv6 sockets for IPv4 addresses.
RUN = (*programs.JAVA, "-cp", "{classes}", "Transfer")
sockets = form(name="sockets", needs=("java",), server=(*RUN, "server", "{host}", "{port}"), client=(*RUN, "client", "{host}", "{port}", SIZE), also=classes,
               says=f"{SIZE} {SUM}", sent=CLIENTS * SIZE, received=CLIENTS * 32, timeout=240)
