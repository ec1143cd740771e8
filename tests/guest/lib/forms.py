# SPDX-License-Identifier: GPL-2.0-only
"""Programs told by a form: a server, a client, and what shows that it worked. Each is run as it is, by TCP, then under sdp-run
and under `sdpctl map`, to the peer and on one machine, and to a peer that has TCP alone; counters tell what carried the bytes.

Without EVERY=1 in the environment one program runs under sdp-run to the peer, and the next mapped on one machine."""

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
# Each program runs by one of these without EVERY.
IN_TURN = (("sdp_run", "by_rdma"), ("mapped", "locally"))
ALL = {(how, place) for how in HOWS for place in PLACES} - {("tcp", "by_tcp")}
EVERY = bool(os.environ.get("EVERY"))


class Started(Way):
    """A Way on which programs are started in one of HOWS. by_tcp: SDP is on the client's side alone."""

    def __init__(self, e, place, how):
        super().__init__(e, place)
        self._how, self.sdp = how, how != "tcp" and self.sdp
        self._stack = contextlib.ExitStack()

    def __exit__(self, *error):
        self._stack.close()
        super().__exit__(*error)

    def _map(self):
        if self._how == "mapped":
            # runtimes give their threads names of their own
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
    """The cases of one program. `server` and `client` are words; the client ends by itself, and the last line of what it prints
    is `says`. `files` are written before, by their names. {host}, {port}, {next}, another port, and {folder}, where they are, stand
    for what they say in all of it, and so does what `also` gives. `sent` and `received` are the bytes that have to go from the client
    and to it, at least. `also_by` are ways that `make test` has besides, `ways` all. Without `tcp` the server listens by SDP alone. `name` is of one form among several in a file.

    Returns what runs it on any Way."""
    module = sys._getframe(1).f_globals["__name__"]

    def run(e, way):
        with tempfile.TemporaryDirectory(prefix="form-") as folder:
            os.chmod(folder, 0o755)     # for servers that become somebody else
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
