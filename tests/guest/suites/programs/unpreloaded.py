# SPDX-License-Identifier: GPL-2.0-only
"""Programs that no library can be preloaded into: a static program in C, and a program in Go, which
makes system calls directly."""

import contextlib
import hashlib
import pathlib
import random
import shutil
import tempfile

from lib import observe
from lib.mapping import Mapping
from lib.preload import Way, wait_for_listener
from lib.programs import Program
from lib.registry import case

BUILT = pathlib.Path(__file__).resolve().parents[4] / "build" / "programs"
PORT = 7400
STATIC_CONNECTIONS, STATIC_BYTES = 3, 5_000_000
GO_CONNECTIONS, GO_BYTES = 8, 2_000_000

# Methods to give SDP sockets to programs without preloading: FAMILY and PROTOCOL of static.c, the
# program in Go, the options of `sdpctl map`, and the paths on which both programs have to work.
MAPPINGS = {
    "family_27": (("27", "0"), "transfer27", (), ("by_rdma", "locally")),
    "a_mapping": (("2", "0"), "transfer", ("--program", "static", "--program", "transfer"), ("by_rdma", "locally", "by_tcp")),
}


def mapped(e, words):
    return Mapping(e, *words) if words else contextlib.nullcontext()


def command(e, name, *words):
    if not (BUILT / name).exists():
        e.skip(f"{name} is not built (scripts/programs)")
    return [str(BUILT / name), *map(str, words)]


def start(e, name, *words):
    return Program(e, command(e, name, *words))


@contextlib.contextmanager
def serving(e, way, name, *words):
    """Starts a server and waits until the server listens. A server without SDP has another name,
    which no mapping matches."""
    path, *words = command(e, name, *words)
    with tempfile.TemporaryDirectory() as folder:
        if not way.sdp:
            path = shutil.copy(path, f"{folder}/plain")
        program = Program(e, [path, *words], way.where)
        wait_for_listener(e, PORT, way.where, tcp=not way.sdp, sdp=way.sdp)
        yield program


def static(e, way, sockets):
    """A forking server, and consecutive clients."""
    size = STATIC_CONNECTIONS * STATIC_BYTES
    words = *sockets, "server", way.host, PORT, STATIC_CONNECTIONS
    with serving(e, way, "static", *words) as server, way.carries(sent=size, received=size):
        for _ in range(STATIC_CONNECTIONS):
            client = start(e, "static", *sockets, "client", way.host, PORT, STATIC_BYTES)
            e.equal(client.output(e.patience * 6), f"{STATIC_BYTES} came back\n", "what the client said")
        server.output(e.patience * 6)


def go(e, way, name):
    """Simultaneous connections in both programs, by sendfile, splice and epoll."""
    size, content = GO_CONNECTIONS * GO_BYTES, random.Random(PORT).randbytes(GO_BYTES)
    words = "server", f"{way.host}:{PORT}", GO_CONNECTIONS
    before = observe.stats(way.where)
    with serving(e, way, name, *words) as server, tempfile.NamedTemporaryFile() as file, way.carries(sent=size, received=size):
        file.write(content)
        file.flush()
        client = start(e, name, "client", f"{way.host}:{PORT}", GO_CONNECTIONS, file.name)
        total, *sums = client.output(e.patience * 12).splitlines()
        server.output(e.patience * 6)
    e.equal(total.split()[0], str(size), "bytes that came back")
    e.equal(sums, [hashlib.sha256(content).hexdigest()] * GO_CONNECTIONS, "their sums")
    if name == "transfer" and way.name == "by_rdma":        # io.Copy of two TCPConns
        gained = {key: count - before[key] for key, count in observe.stats(way.where).items()}
        given, passed = gained["zcopy spliced"], gained["zcopy in messages"] + gained["zcopy tx_bytes"]
        print(f"# of {size} bytes {given} were given to pipes, {passed} sent from pages")
        e.check(min(given, passed) > size // 2, f"of {size} bytes {given} were given to pipes, {passed} sent from pages")


def cases():
    for mapping, (for_static, for_go, words, ways) in MAPPINGS.items():
        for name in ways:
            for program, sockets in ((static, for_static), (go, for_go)):
                def run(e, program=program, sockets=sockets, name=name, words=words):
                    with Way(e, name) as way, mapped(e, words):
                        program(e, way, sockets)
                run.__name__, run.__doc__ = f"{program.__name__}_with_{mapping}_{name}", program.__doc__
                case(run, families=("v4",), reference=False, timeout=120)


cases()
