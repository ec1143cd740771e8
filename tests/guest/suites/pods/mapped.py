# SPDX-License-Identifier: GPL-2.0-only
"""Programs of a pod whose cgroup is mapped by the node."""

import pathlib

from lib import pod
from lib.mapping import Group, Mapping, needs
from lib.preload import Carried, wait_for_listener
from lib.programs import Program
from lib.registry import case

STATIC = pathlib.Path(__file__).resolve().parents[4] / "build" / "programs" / "static"
PORT, SIZE = 7460, 1_000_000


@case(reference=False, families=("v4",), timeout=120)
def by_cgroup(e):
    """A static program uses SDP while its cgroup is mapped, and TCP before and afterwards."""
    protocol = needs(e)
    if not STATIC.exists():
        e.skip(f"{STATIC} is not built (scripts/programs)")
    server = Program(e, [str(STATIC), "2", str(protocol), "server", e.there, str(PORT), "3"], "peer")
    wait_for_listener(e, PORT, sdp=True)

    def carried(group):
        """Returns the bytes that SDP sends for a client in the pod."""
        before = Carried()
        client = Program(e, [*pod.COMMAND, str(group.path), str(STATIC), "2", "0", "client", e.there, str(PORT), str(SIZE)])
        e.equal(client.output(e.patience * 6), f"{SIZE} came back\n", "what the client says")
        return before.sent()

    with Group(e) as group:
        e.equal(carried(group), 0, "bytes of SDP without a mapping")
        with Mapping(e, "--cgroup", group.path.name):
            e.equal(carried(group), SIZE, "bytes of SDP")
        e.equal(carried(group), 0, "bytes of SDP after the mapping")
    server.output(e.patience)
