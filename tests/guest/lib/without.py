# SPDX-License-Identifier: GPL-2.0-only
"""Two machines, one of them without the module: all programs under sdp-run, or mapped, use TCP.

Without EVERY=1 in the environment, the server of one program has no module, and the client of the
next program has none."""

import contextlib
import zlib

from . import module, observe
from .env import CaseFailure
from .forms import EVERY
from .mapping import SDPCTL, needs
from .preload import Way, tcp_segments, under, wait_for_listener
from .programs import Program
from .registry import case

# Messages of libsdp about a connect to a host without the module, and about a connect on such a
# host.
TOLD = {"server": ": TCP (", "client": "the kernel has no SDP (the module ib_sdp is not loaded: "}


def sides(name):
    """Returns the sides for a case of this name."""
    both = ("server", "client")
    return both if EVERY else both[zlib.crc32(name.encode()) % 2:][:1]


def each_side(timeout=120, brief=True):
    """Registers the function as one case for each side without the module. The function gets the
    case's environment and a Without."""
    def mark(function):
        for name in sides(function.__name__):
            def run(e, name=name):
                with Without(e, name) as way:
                    function(e, way)
            run.__module__, run.__name__, run.__doc__ = function.__module__, f"{function.__name__}_no_module_at_the_{name}", function.__doc__
            case(run, families=("v4",), hosts=(2,), reference=False, timeout=timeout, brief=brief)
        return function
    return mark


class Without(Way):
    """A Way: the server on this host, clients on the other machine, and no module on `name`, the
    server or the client."""

    def __init__(self, e, name, mapped=False):
        self.e, self.name, self._mapped = e, name, mapped
        self.where, self.host = "self", e.here
        # the host that still has the module, and true if a server listens by SDP as well
        self._has, self.sdp = ("peer", False) if name == "server" else ("self", True)
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        self._stack.enter_context(module.unloaded(self.e, "self" if self.name == "server" else "peer"))
        return self

    def __exit__(self, *_):
        self._stack.close()

    def server(self, command, port, tcp=True):
        command = [str(word) for word in command]
        program = Program(self.e, command if self._mapped else under(self.e, command))
        try:
            wait_for_listener(self.e, port, "self", tcp=tcp, sdp=self.sdp)
        except CaseFailure as failure:
            raise CaseFailure(f"{failure}; output of {program.name}: {program.said()}") from None
        return program

    def client(self, command, patience=12):
        """Returns the program's output. Under sdp-run the library prints the reason for TCP."""
        command = [str(word) for word in command]
        program = Program(self.e, command if self._mapped else under(self.e, command), "peer")
        out, told = program.outputs(self.e.patience * patience)
        if not self._mapped:
            self.e.check(TOLD[self.name] in told, f"the library said {told[-500:]}")
        return out

    @contextlib.contextmanager
    def carries(self, sent, received):
        """Checks that no byte uses SDP."""
        def counted():
            stats = observe.stats(self._has)
            return stats["tx_bytes"], stats["rx_bytes"]

        before, tcp = counted(), tcp_segments()
        yield
        self.e.equal(counted(), before, "bytes that SDP has sent and received on the machine that has it")
        segments = tcp_segments() - tcp
        self.e.check(segments > (sent + received) >> 16, f"TCP sent and received {segments} segments only")


@contextlib.contextmanager
def mapped(e, *names):
    """Maps programs of these names on both machines, beginning before one of them unloads its
    module."""
    needs(e)
    words = [str(SDPCTL), "map", "add", *(word for name in names for word in ("--program", name))]
    programs = [Program(e, words, where) for where in ("self", "peer")]
    for program in programs:
        said = program.line()
        e.check(said.endswith("TCP sockets become SDP's until this ends\n"), f"sdpctl map said {said!r}")
    yield
    for program in programs:
        program.end()
