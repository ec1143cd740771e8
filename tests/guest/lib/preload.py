# SPDX-License-Identifier: GPL-2.0-only
"""Programs that know nothing of SDP, started with sdp-run where the case is on SDP."""

import pathlib
import tempfile

from . import netns, observe
from .programs import HERE, Program

BUILT = pathlib.Path(__file__).resolve().parents[3] / "build" / "cargo" / "release"
ECHO = ("python3", str(HERE / "echo.py"))


def under(e, command, rules=None, log="stderr:7"):
    """The command, under sdp-run. Rules are statements; without, the library's own hold."""
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
    """Until somebody listens there, by what is said."""
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
    """How many bytes SDP has carried from here, and to here, since."""

    def __init__(self):
        self._before = observe.stats()

    def sent(self):
        return observe.stats()["tx_bytes"] - self._before["tx_bytes"]

    def received(self):
        return observe.stats()["rx_bytes"] - self._before["rx_bytes"]
