# SPDX-License-Identifier: GPL-2.0-only
"""Programs told by a form: a server, a client, and what shows that it worked. Each is run as it is, by TCP, then under sdp-run
and under `sdpctl map`, to the peer and on one machine; counters tell what carried the bytes.

Without EVERY=1 in the environment only under sdp-run to the peer, and mapped on one machine."""

import contextlib
import os
import sys
import tempfile

from .mapping import Mapping
from .preload import Way
from .registry import case

PORT = 7460
HOWS, PLACES = ("tcp", "sdp_run", "mapped"), ("by_rdma", "locally")
FEW = {("sdp_run", "by_rdma"), ("mapped", "locally")}
EVERY = bool(os.environ.get("EVERY"))


class Started(Way):
    """A Way on which programs are started in one of HOWS."""

    def __init__(self, e, place, how):
        super().__init__(e, place)
        self._how, self.sdp = how, how != "tcp"
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        super().__enter__()
        if self._how == "mapped":
            try:
                # runtimes give their threads names of their own
                self._stack.enter_context(Mapping(self.e, "--all"))
            except BaseException:
                super().__exit__()
                raise
        return self

    def __exit__(self, *error):
        self._stack.close()
        super().__exit__(*error)

    def started(self, command):
        return super().started(command) if self._how == "sdp_run" else command


def form(needs, server, client, says, sent, received, files=None, timeout=120):
    """The cases of one program. `server` and `client` are words; the client ends by itself, and the last line of what it prints
    is `says`. `files` are written before, by their names. {host}, {port} and {folder}, where they are, stand for what they
    say in all of it. `sent` and `received` are the bytes that have to go from the client and to it, at least."""
    module = sys._getframe(1).f_globals["__name__"]

    def run(e, how, place):
        with Started(e, place, how) as way, tempfile.TemporaryDirectory(prefix="form-") as folder:
            os.chmod(folder, 0o755)     # for servers that become somebody else

            def filled(text):
                return str(text).replace("{host}", way.host).replace("{port}", str(PORT)).replace("{folder}", folder)

            way.needs(*needs)
            for name, content in (files or {}).items():
                with open(f"{folder}/{name}", "w") as file:
                    file.write(filled(content))
            serving = way.server([filled(word) for word in server], PORT)
            with way.carries(sent, received):
                said = way.client([filled(word) for word in client], patience=20)
            e.equal(said.splitlines()[-1:], [says], "what the client says in the end")
            serving.end()

    for how in HOWS:
        for place in PLACES:
            if not EVERY and (how, place) not in FEW:
                continue

            def one(e, how=how, place=place):
                run(e, how, place)

            one.__module__, one.__name__ = module, f"{how}_{place}"
            case(one, families=("v4",), reference=False, timeout=timeout)
