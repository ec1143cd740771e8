# SPDX-License-Identifier: GPL-2.0-only
"""Programs without SDP support, started as usual, use SDP if a mapping matches them."""

import contextlib
import hashlib
import os
import random
import shutil
import tempfile

from lib.mapping import Mapping, needs
from lib.preload import Carried, tcp_segments, wait_for_listener
from lib.programs import Program
from lib.registry import case

PORT, SIZE = 7450, 3_000_000
FETCH = "import hashlib, sys, urllib.request; print(hashlib.sha256(urllib.request.urlopen(sys.argv[1]).read()).hexdigest())"


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp()
    try:
        yield path
    finally:
        shutil.rmtree(path)


@case(reference=False, timeout=120)
def http(e):
    """Python's own web server and client. If only one of the two programs is mapped, both use
    TCP."""
    needs(e)
    with folder() as path:
        # the name of a program is that of its file
        programs = {name: os.path.join(path, name) for name in ("web-server", "web-client")}
        for program in programs.values():
            os.symlink(shutil.which("python3"), program)
        content = random.Random(SIZE).randbytes(SIZE)
        with open(os.path.join(path, "content"), "wb") as file:
            file.write(content)
        host = f"[{e.there}]" if e.six else e.there
        for mapped in (["web-server", "web-client"], ["web-client"], ["web-server"]):
            with Mapping(e, *(word for name in mapped for word in ("--program", name))):
                command = [programs["web-server"], "-m", "http.server", "--bind", e.there, "--directory", path, str(PORT)]
                serving = Program(e, command, "peer")
                wait_for_listener(e, PORT, tcp=True, sdp="web-server" in mapped)
                carried, segments = Carried(), tcp_segments()
                fetched = Program(e, [programs["web-client"], "-c", FETCH, f"http://{host}:{PORT}/content"]).output(e.patience * 6)
                e.equal(fetched, hashlib.sha256(content).hexdigest() + "\n", "the sum of what was fetched")
                if len(mapped) == 2:
                    e.check(carried.received() > SIZE, f"SDP received {carried.received()} bytes")
                    e.equal(tcp_segments() - segments, 0, "segments of TCP")
                else:
                    e.equal((carried.sent(), carried.received()), (0, 0), f"bytes that SDP carried with {mapped} mapped")
                serving.end()
