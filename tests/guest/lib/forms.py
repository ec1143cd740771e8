# SPDX-License-Identifier: GPL-2.0-only
"""Programs tested by a form: a server, a client, and the output that shows success. Each program
runs unmodified with TCP, then under sdp-run and under `sdpctl map`, to the peer and locally, and to
a peer that only has TCP. Counters prove which transport carried the bytes.

Without EVERY=1 in the environment, one program runs under sdp-run to the peer, and the next one
mapped and local."""

import contextlib
import os
import sys
import tempfile
import zlib

from . import netns
from .mapping import Mapping
from .preload import Way
from .programs import put
from .registry import case

PORT = 7460
HOWS, PLACES = ("tcp", "sdp_run", "mapped"), ("by_rdma", "locally", "by_tcp")
# Without EVERY, each program runs in one of the two ways below.
IN_TURN = (("sdp_run", "by_rdma"), ("mapped", "locally"))
ALL = {(how, place) for how in HOWS for place in PLACES} - {("tcp", "by_tcp")}
EVERY = bool(os.environ.get("EVERY"))


class Started(Way):
    """A Way on which programs are started by one of HOWS. by_tcp: only the client's side has SDP.
    """

    def __init__(self, e, place, how):
        super().__init__(e, place)
        self._how, self.sdp = how, how != "tcp" and self.sdp
        self._stack = contextlib.ExitStack()

    def __exit__(self, *error):
        self._stack.close()
        super().__exit__(*error)

    def _map(self):
        if self._how == "mapped":
            # runtimes rename their threads
            self._stack.enter_context(Mapping(self.e, "--all"))

    def started(self, command):
        return super().started(command) if self._how == "sdp_run" else command

    def server(self, command, port, tcp=True):
        if self.sdp:
            self._map()
        program = super().server(command, port, tcp)
        if not self.sdp:
            self._map()
        return program


def form(needs, server, client, says, sent, received, files=None, also=None, name="", also_by=(), ways=ALL, tcp=True, timeout=120):
    """Registers the cases of one program. Returns a function that runs the program on any Way.

    server, client: command lines. The client ends by itself; its last line of output is `says`.
    files: contents of files to write before, by name.
    {host}, {port}, {next} (another port), {folder} (of the files) and the results of `also` are
    replaced in the above.
    sent, received: least numbers of bytes from the client and to it.
    also_by: ways that `make test` runs besides; ways: all.
    tcp: False if the server listens on SDP only.
    name: needed if a file has several forms."""
    module = sys._getframe(1).f_globals["__name__"]

    def run(e, way):
        with tempfile.TemporaryDirectory(prefix="form-") as folder:
            os.chmod(folder, 0o755)     # for servers that change their user
            way.needs(*needs)
            names = {"host": way.host, "port": PORT, "next": PORT + 1, "folder": folder, **(also(e) if also else {})}

            def filled(text):
                for word, meaning in names.items():
                    text = str(text).replace("{%s}" % word, str(meaning))
                return text

            for path, content in (files or {}).items():
                content = filled(content)
                with open(f"{folder}/{path}", "w") as file:
                    file.write(content)
                if not netns.local():
                    put(e, f"{folder}/{path}", content.encode())
            serving = way.server([filled(word) for word in server], PORT, tcp)
            with way.carries(sent, received):
                said = way.client([filled(word) for word in client], patience=20)
            e.equal(said.splitlines()[-1:], [says], "what the client says in the end")
            serving.end()

    turn = zlib.crc32(f"{module}.{name}".encode()) % len(IN_TURN)
    for how, place in sorted(ways if EVERY else {IN_TURN[turn], *also_by}):
        def one(e, how=how, place=place):
            with Started(e, place, how) as way:
                run(e, way)

        one.__module__, one.__name__ = module, "_".join(filter(None, (name, how, place)))
        case(one, families=("v4",), reference=False, timeout=timeout)
    run.__module__, run.__name__ = module, name or module.rpartition(".")[2]
    return run
