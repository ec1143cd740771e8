# SPDX-License-Identifier: GPL-2.0-only
"""The tracepoints below events/sdp report the events of each socket."""

import pathlib
import platform

from lib.registry import case
from lib.tracing import end, tracing


@case(reference=False)
def a_connection(e):
    """Trace events of a connection: its setup, its messages and its end."""
    with tracing(e, "sdp_connect", "sdp_send", "sdp_receive", "sdp_close") as read:
        near, far = e.pair()
        ours, theirs = end(e.here, near.port), end(e.there, near.getpeername()[1])
        near.send(b"x" * 100)
        e.equal(len(far.recv_exactly(100)), 100, "bytes")
        near.close()
        far.close()

        def of(event, local):
            return [fields for name, fields in read() if name == event and fields["local"] == local]

        e.until(lambda: of("sdp_close", ours) and of("sdp_close", theirs), "both sdp_close events")
        for local, remote in ((ours, theirs), (theirs, ours)):
            made = of("sdp_connect", local)
            e.equal([(f["remote"], f["state"], f["error"]) for f in made], [(remote, "ESTABLISHED", "0")], f"sdp_connect of {local}")
            ended = of("sdp_close", local)
            e.equal([f["error"] for f in ended], ["0"], f"sdp_close of {local}")
            e.check(ended[0]["state"] in ("FIN_WAIT2", "CLOSING", "LAST_ACK"), f"closed in {ended[0]['state']}")
            e.equal({f["skaddr"] for f in made}, {f["skaddr"] for f in ended}, "the socket's address in both")
        sent, received = of("sdp_send", ours), of("sdp_receive", theirs)
        for name, events in (("sdp_send", sent), ("sdp_receive", received)):
            kinds = [(f["mid"], f["len"]) for f in events]
            e.check(("Data", "116") in kinds, f"{name}: {kinds}")
            e.check("DisConn" in [kind for kind, _ in kinds], f"{name}: {kinds}")
            numbers = [int(f["mseq"]) for f in events]
            e.equal(numbers, list(range(1, len(numbers) + 1)), f"MSeq of {name}")


@case(reference=False)
def a_refusal(e):
    """A failed connect() is traced, with the program's errno."""
    port = e.refused_port()
    with tracing(e, "sdp_connect") as read:
        sock = e.socket()
        e.equal(e.error(sock.connect, e.address(e.there, port)), "ECONNREFUSED", "connect")
        events = [fields for _, fields in read() if fields["remote"] == end(e.there, port)]
        e.equal([(f["state"], f["error"]) for f in events], [("SYN_SENT", "111")], "events")


@case(reference=False)
def a_stall(e):
    """A sender whose peer does not read runs out of credits, and the trace shows it."""
    with tracing(e, "sdp_credit_stall") as read:
        near, far = e.pair()
        e.fill(near)
        ours = end(e.here, near.port)
        stalls = [fields for _, fields in read() if fields["local"] == ours]
        e.check(stalls, "no event")
        e.check(all(int(f["credits"]) <= 2 and int(f["unsent"]) > 0 for f in stalls), f"events {stalls[:3]}")
        e.keep(far)


@case(reference=False, families=("v4",))
def btf(e):
    """The module has BTF of its C functions, based on the kernel's BTF."""
    folder = pathlib.Path("/sys/kernel/btf")
    if platform.machine() != "x86_64" or not (folder / "vmlinux").exists():
        e.skip("the image of this kernel contains no BTF")
    names = (folder / "ib_sdp").read_bytes().split(b"\0")
    e.equal([name in names for name in (b"sdp_h_tcp_begin", b"tcp_sendmsg_locked")], [True, False], "names of the module and of the kernel")
