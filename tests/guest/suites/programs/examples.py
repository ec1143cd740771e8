# SPDX-License-Identifier: GPL-2.0-only
"""Programs of examples/: client and server by SDP over the wire and locally, and by TCP."""

import pathlib
import re

from lib import netns
from lib.preload import be_patient, each_way, wait_for_listener
from lib.programs import Program

PROJECT = pathlib.Path(__file__).resolve().parents[4]
BUILT, EXAMPLES = PROJECT / "build" / "programs", PROJECT / "examples"
PORT = 7430
# Arguments before the port of a server, and before the host of a client.
PROGRAMS = {
    "c": ([BUILT / "echo_server"], [BUILT / "echo_client"]),
    "python": (["python3", EXAMPLES / "echo_server.py"], ["python3", EXAMPLES / "echo_client.py"]),
    "asyncio": (["python3", EXAMPLES / "echo_asyncio.py", "server"], ["python3", EXAMPLES / "echo_asyncio.py", "client"]),
    "go": ([BUILT / "echo", "server"], [BUILT / "echo", "client"]),
}
# A TCP server, which shows that the clients fall back. -t: time in seconds that the second
# direction may last after the first has ended.
OF_TCP = ["socat", "-t60", f"TCP6-LISTEN:{PORT},fork,reuseaddr,ipv6only=0", "EXEC:cat"]


def words(e, command, *more):
    if not pathlib.Path(command[0]).exists() and "/" in str(command[0]):
        e.skip(f"{command[0]} is not built (scripts/programs)")
    return [str(word) for word in (*command, *more)]


def client_of(e, way, name, by):
    said, besides = Program(e, words(e, PROGRAMS[name][1], way.host, PORT, f"hello from {name}")).outputs(e.patience * 6)
    e.equal((said, besides), (f"hello from {name}\n", f"connected by {by}\n"), f"what the client in {name} says")


@each_way(timeout=300)
def echo(e, way):
    """Client and server in one language, by SDP; clients of each language with socat, by TCP."""
    be_patient(e)
    if not way.sdp:
        server = Program(e, OF_TCP, way.where)
        wait_for_listener(e, PORT, way.where, sdp=False)
        for name in PROGRAMS:
            client_of(e, way, name, "TCP")
        server.end()
        return
    for name, (server, _) in PROGRAMS.items():
        program = Program(e, words(e, server, PORT), way.where)
        e.equal(program.line(), f"listening on port {PORT}\n", f"the first line of the server in {name}")
        wait_for_listener(e, PORT, way.where, sdp=True)
        client_of(e, way, name, "SDP")
        e.equal(program.line(), "connection by SDP\n", f"the second line of the server in {name}")
        program.end()


@each_way(ways=("by_rdma", "locally"))
def completions(e, way):
    """Sends and receives that complete by an eventfd: nothing is copied in either direction. The
    server also replies to another client."""
    be_patient(e)
    before = netns.parameter("sdp_zcopy_thresh", 65536)
    e.at_end.append(lambda: netns.parameter("sdp_zcopy_thresh", before))
    program = Program(e, words(e, [BUILT / "completions"], PORT), way.where)
    e.equal(program.line(), f"listening on port {PORT}\n", "the first line of the server")
    wait_for_listener(e, PORT, way.where, sdp=True)
    client_of(e, way, "c", "SDP")
    client = words(e, [BUILT / "completions"], way.host, PORT, 1 << 20, 5)
    for how in ([], ["plain"]):
        def copies_nothing(how=how):
            said = Program(e, client + how).output(e.patience * 6)
            found = re.fullmatch(r"5 messages of 1048576 bytes, [0-9.]+ us each, not copied: (\d+) % sent, (\d+) % received\n", said)
            e.check(found, f"the client said {said!r}")
            return found.groups() == ("100", "100")
        e.lucky(copies_nothing, f"{how}: something was copied")
    e.check(program.running(), "the server has ended")
    program.end()
