# SPDX-License-Identifier: GPL-2.0-only
"""`rdma system set netns exclusive`: each device belongs to one namespace. The suite needs two
guests: the exclusive mode can only be set while a single network namespace exists."""

import os

from lib import calls, netns
from lib.registry import case

OWN, INSIDE, CONTAINER = "10.79.0.1", "10.79.0.2", "inner"


@case(reference=False, families=("v4",), hosts=(2,), timeout=120)
def devices(e):
    """All of rxe's devices belong to the first namespace. Another namespace cannot use rxe's
    devices, even if it contains the network device below an rxe device. The first namespace and the
    other host are not affected."""
    netns.run("self", "rdma system set netns exclusive")
    try:
        for mode in ("exclusive", "shared"):
            netns.run("self", f"ip netns add {CONTAINER}")
            try:
                netns.run("self", f"ip link add out0 mtu 9000 type veth peer name in0 netns {CONTAINER}")
                for prefix, link, address in (("", "out0", OWN), (f"ip netns exec {CONTAINER} ", "in0", INSIDE)):
                    netns.run("self", f"{prefix}ip addr add {address}/24 dev {link}")
                    netns.run("self", f"{prefix}ip link set {link} up")
                    netns.run("self", f"{prefix}rdma link add {link} type rxe netdev {link}")
                listener = e.listen("self", host=OWN)
                space = os.open(f"/run/netns/{CONTAINER}", os.O_RDONLY)

                def inside():
                    calls.setns(space)
                    return e.error(e.socket().connect, e.address(OWN, listener.port))

                e.equal(e.child(inside).result(), {"exclusive": "ENETUNREACH", "shared": "ok"}[mode], f"connect from inside, {mode}")
                os.close(space)
                listener.close()
                near, far = e.pair()
                near.sendall(b"as before")
                e.equal(far.recv_exactly(9), b"as before", f"between the hosts, {mode}")
            finally:
                netns.run("self", f"ip netns del {CONTAINER}")
            e.until(lambda: not netns.has_link("self", "out0"), "the end of the namespace's devices", e.patience * 9)
            e.until(lambda: chosen("shared"), "the end of the namespace", e.patience * 9)
    finally:
        e.until(lambda: chosen("shared"), "shared devices", e.patience * 9)


def chosen(mode):
    """The exclusive mode cannot be set while other namespaces exist."""
    try:
        netns.run("self", f"rdma system set netns {mode}")
    except RuntimeError:
        return False
    return True
