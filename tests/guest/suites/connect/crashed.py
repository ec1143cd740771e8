# SPDX-License-Identifier: GPL-2.0-only
"""A host restarts after a crash: its peers still have old connections to queue pair numbers that
the host allocates again."""

import errno

from lib import netns, observe
from lib.registry import case

BEFORE = 3


def new_device():
    """Removes and re-creates the device of this host, so that queue pair numbers start again."""
    device = netns.device("self")
    netns.run("self", "rdma link del rxe0")
    netns.run("self", f"rdma link add rxe0 type rxe netdev {device}")


@case(reference=False, timeout=60)
def comes_back(e):
    """The host reconnects at once. The peers of the host's old connections then get the end of the
    stream."""
    if netns.is_one():
        e.skip("both hosts are the same namespace")
    new_device()
    listener = e.listen(backlog=8)
    old = [e.pair(listener) for _ in range(BEFORE)]
    with netns.firewall():     # the peer gets no notification of the removal
        new_device()
    known = [row for row in observe.rows("peer") if row.local[1] == listener.port]
    e.equal(len(known), BEFORE + 1, "sockets there, which know of nothing")
    near = e.socket()
    near.connect(e.address(e.there, listener.port))
    far, _ = listener.accept()
    near.sendall(b"again")
    e.equal(far.recv_exactly(5), b"again", "bytes")
    for _, there in old:
        try:
            got = there.recv(1)
        except OSError as error:
            e.equal(error.errno, errno.ECONNRESET, "how an old connection ends")
        else:
            e.check(False, f"an old connection gives {got}")
