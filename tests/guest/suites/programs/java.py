# SPDX-License-Identifier: GPL-2.0-only
"""OpenJDK 21 with -Dcom.sun.sdp.conf: programs that know nothing of SDP."""

import os
import shutil
import tempfile

from lib import netns, observe, programs
from lib.programs import HERE, JAVAC, Program
from lib.registry import case

PORT = "7200"
JAVA = [*programs.JAVA, "-Djava.net.preferIPv4Stack=true"]


def run(e, mode, size):
    if not shutil.which("javac"):
        e.skip("no JDK")
    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "sdp.conf")
        with open(rules, "w") as file:
            file.write(f"bind {e.there} {PORT}\nconnect {e.there} {PORT}\n")
        Program(e, [*JAVAC, "-d", folder, str(HERE / "Transfer.java")]).output(e.patience * 20)
        there = "/tmp/ib_sdp_java"
        copy = f"mkdir -p {there} && printf 'bind {e.there} {PORT}\\nconnect {e.there} {PORT}\\n' > {there}/sdp.conf && "
        if netns.local():
            there, copy = folder, ""
        else:
            copy += f"{' '.join(JAVAC)} -d {there} {HERE}/Transfer.java && "
        before = observe.stats()["tx_bytes"]
        words = " ".join([*JAVA, f"-Dcom.sun.sdp.conf={there}/sdp.conf", "-cp", there, "Transfer", mode + "server",
                          e.there, PORT])
        server = Program(e, ["sh", "-c", f"{copy}exec {words}"], "peer")
        client = Program(e, [*JAVA, f"-Dcom.sun.sdp.conf={rules}", "-cp", folder, "Transfer", mode + "client", e.there,
                             PORT, str(size)])
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
