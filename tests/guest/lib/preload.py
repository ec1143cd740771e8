# SPDX-License-Identifier: GPL-2.0-only
"""Programs without SDP support, started by sdp-run when the case runs on SDP."""

import contextlib
import os
import pathlib
import shutil
import tempfile

from . import netns, observe
from .env import CaseFailure
from .programs import HERE, Program
from .registry import case

BUILT = pathlib.Path(__file__).resolve().parents[3] / "build" / "cargo" / "release"
# A long timeout, and no cache of peers: neither a slow machine nor an earlier case makes a
# connection use TCP.
PATIENT = {"ipproto_wait": 20000, "ipproto_memory": 0}
# Python without `site`: the programs do not need this module, and importing it doubles their start
# time.
ECHO = ("python3", "-S", str(HERE / "echo.py"))


def be_patient(e):
    """Gives the module a long timeout, and no cache of peers, until the case ends."""
    if not os.path.exists("/sys/module/ib_sdp/parameters"):
        return
    for name, value in PATIENT.items():
        before = netns.parameter(name, value)
        if before != value:
            e.at_end.append(lambda name=name, before=before: netns.parameter(name, before))


def under(e, command, rules=None, log="stderr:7", patient=True):
    """Returns the command, under sdp-run. `rules`: statements of libsdp.conf; without rules the
    library's default applies."""
    if patient:
        be_patient(e)
    for name in ("sdp-run", "libsdp.so"):
        if not (BUILT / name).exists():
            e.skip(f"{name} is not built (scripts/cargo build --release -p sdp-run -p libsdp)")
    options = ["--log", log]
    if rules is not None:
        with tempfile.NamedTemporaryFile("w", prefix="rules-", delete=False) as file:
            file.write(rules)
        options += ["--config", file.name]
    return [str(BUILT / "sdp-run"), *options, *command]


def start(e, command, where="self", rules=None):
    """The program as it is on TCP, or under sdp-run on SDP."""
    return Program(e, under(e, command, rules) if e.sdp else command, where)


def wait_for_listener(e, port, where="peer", tcp=True, sdp=None):
    """Waits until a listener exists on that host, by the server's output."""
    sdp = e.sdp if sdp is None else sdp

    def listens():
        if sdp and not any(row.state == "LISTEN" and row.local[1] == port for row in observe.rows(where)):
            return False
        files = [observe.read(f"/proc/thread-self/net/{name}" if netns.local() else f"/proc/net/{name}", where)
                 for name in ("tcp", "tcp6")]
        rows = [line.split() for text in files for line in text.splitlines()[1:]]
        return not tcp or any(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port for row in rows)

    e.until(listens, f"nobody listens on port {port}", patience=e.patience * 6)


class Carried:
    """Counts the bytes that SDP has sent and received on this host since its creation."""

    def __init__(self):
        self._before = observe.stats()

    def sent(self):
        return observe.stats()["tx_bytes"] - self._before["tx_bytes"]

    def received(self):
        return observe.stats()["rx_bytes"] - self._before["rx_bytes"]


def each_way(families=("v4",), timeout=120, ways=("by_rdma", "locally", "by_tcp")):
    """Registers the function as one case for each Way. The function gets the case's environment and
    the Way.
    """
    def mark(function):
        for name in ways:
            def run(e, name=name):
                with Way(e, name) as way:
                    function(e, way)
            run.__module__, run.__name__, run.__doc__ = function.__module__, f"{function.__name__}_{name}", function.__doc__
            case(run, families=families, reference=False, timeout=timeout)
        return function
    return mark


class Way:
    """Way of a connection: the server's host, its address for the clients, and the transport that
    has to carry the bytes.

    by_rdma: to the peer, both ends under sdp-run. locally: through 127.0.0.1, both under sdp-run,
    no RDMA device. by_tcp: to a peer without SDP, with only the client under sdp-run."""

    def __init__(self, e, name):
        self.e, self.name, self.sdp = e, name, name != "by_tcp"
        self.where, self.host = ("self", e.loopback) if name == "locally" else ("peer", e.there)

    def __enter__(self):
        self._before = netns.local_transport(self.name == "locally")
        return self

    def __exit__(self, *_):
        netns.local_transport(self._before)

    def needs(self, *programs):
        for program in programs:
            if not shutil.which(program):
                self.e.skip(f"{program} is not installed")

    def started(self, command):
        """Returns a command so started that its sockets use SDP."""
        return under(self.e, command, log="stderr:8")

    def server(self, command, port, tcp=True):
        """Starts a server, and waits until it listens on the port; without `tcp`, by SDP alone."""
        command = [str(word) for word in command]
        program = Program(self.e, self.started(command) if self.sdp else command, self.where)
        try:
            wait_for_listener(self.e, port, self.where, tcp=tcp, sdp=self.sdp)
        except CaseFailure as failure:
            raise CaseFailure(f"{failure}; output of {program.name}: {program.said()}") from None
        return program

    def client(self, command, patience=12):
        """Returns the output of a program that ends by itself."""
        return Program(self.e, self.started([str(word) for word in command])).output(self.e.patience * patience)

    @contextlib.contextmanager
    def carries(self, sent, received):
        """Checks that at least these numbers of bytes are sent to the server and received from it
        in the block, and none by the other protocol."""
        sdp, tcp = Carried(), tcp_segments(self.where)
        yield
        # on the server's host, traffic with other hosts counts, too
        moved, segments = (sdp.sent(), sdp.received()), tcp_segments(self.where) - tcp
        if not self.sdp:
            self.e.equal(moved, (0, 0), "bytes that SDP sent and received")
            self.e.check(segments > (sent + received) >> 16, f"TCP sent and received {segments} segments only")
            return
        # Within one namespace both ends use the same counters.
        least = (sent + received,) * 2 if self.name == "locally" else (sent, received)
        self.e.check(moved[0] >= least[0] and moved[1] >= least[1], f"SDP sent and received {moved}, not {least}")
        self.e.equal(segments, 0, "segments that TCP sent and received")


def tcp_segments(where="self"):
    """Returns the segments that TCP has sent and received on a host."""
    names, values = (line.split() for line in observe.read("/proc/thread-self/net/snmp", where).splitlines() if line.startswith("Tcp:"))
    counters = dict(zip(names, values))
    return int(counters["OutSegs"]) + int(counters["InSegs"])
