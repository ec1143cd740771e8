# SPDX-License-Identifier: GPL-2.0-only
"""Hosts without the module, without RDMA, or with a firewall: a reply decides at once, silence
decides after the timeout, and the module caches either result."""

import contextlib
import json
import subprocess
import time

from lib import either, mapping, module, netns, observe
from lib.either import SDP, TCP
from lib.registry import case


def falls(e, listener, **counted):
    """Checks that a connect uses TCP; returns its duration in seconds."""
    with either.counts(e, **counted):
        begun = time.monotonic()
        near = either.connect(e, listener)
        took = time.monotonic() - begun
    e.equal(either.protocol(near), TCP, "the protocol")
    either.echo(e, near, either.accept(e, listener))
    return took


def answered(e, listener):
    """Connects to a host that has SDP."""
    with either.parameters(ipproto_wait=5000, ipproto_memory=0), either.counts(e, connected_by_sdp=1):
        near = either.connect(e, listener)
    e.equal(either.protocol(near), SDP, "the protocol of a host that answers")
    either.echo(e, near, either.accept(e, listener))


def silent(e):
    """Connects to a host that never replies by SDP."""
    first, second = either.listen(e, TCP), either.listen(e, TCP)
    with either.parameters(ipproto_wait=400, ipproto_memory=0):
        took = falls(e, first, tcp_no_answer=1)
        e.note("nothing known", took)
        # and not after SDP's own time-out
        e.check(0.4 <= took < 15, f"it was given up after {took:.3f} s")
    with either.parameters(ipproto_wait=100, ipproto_memory=1000):
        falls(e, first, tcp_no_answer=1)
    # the result of the host is cached for all ports, and later connects do not wait for a reply
    with either.parameters(ipproto_wait=100000, ipproto_memory=1000):
        e.note("again", falls(e, first, tcp_remembered=1))
        e.note("another port", falls(e, second, tcp_remembered=1))


@contextlib.contextmanager
def without_rdma():
    device = netns.device("peer")
    netns.run("peer", "rdma link del rxe0")
    try:
        yield
    finally:
        netns.run("peer", f"rdma link add rxe0 type rxe netdev {device}")


@case(reference=False, hosts=(2,), timeout=60)
def without_the_module(e):
    """The peer's connection manager rejects requests without a listener."""
    with module.unloaded(e, "peer"):
        listener, other = either.listen(e, TCP), either.listen(e, TCP)
        with either.parameters(ipproto_wait=100000, ipproto_memory=1000):
            e.note("first", falls(e, listener, tcp_refused=1))
            e.note("again", falls(e, listener, tcp_remembered=1))
            e.note("another port", falls(e, other, tcp_refused=1))
    answered(e, either.listen(e))


@case(reference=False, hosts=(2,), timeout=60)
def without_rdma_there(e):
    """The peer has the module but no device: no reply arrives."""
    with without_rdma():
        silent(e)
    answered(e, either.listen(e))


@case(reference=False, hosts=(1, 2), timeout=60)
def full_backlog(e):
    """A port with a full backlog does not reply. A host that has replied before is not cached as a
    host without SDP."""
    e.needs_wire()
    full, other = either.listen(e, backlog=0), either.listen(e)
    with either.parameters(ipproto_wait=5000, ipproto_memory=1000):
        with either.counts(e, connected_by_sdp=2):
            for listener in (other, full):
                either.connect(e, listener)
    with either.parameters(ipproto_wait=100, ipproto_memory=1000):
        with either.counts(e, tcp_no_answer=1):
            either.connect(e, full)
        with either.counts(e, connected_by_sdp=1):
            either.connect(e, other)


@case(reference=False, hosts=(1, 2), timeout=60)
def behind_a_firewall(e):
    """A server for both protocols that can be reached only by TCP."""
    e.needs_wire()
    with netns.firewall():
        silent(e)
        listener = either.listen(e)
        with either.parameters(ipproto_wait=400, ipproto_memory=1000), either.counts(e, "peer", accepted_by_tcp=1):
            falls(e, listener, tcp_remembered=1)
    answered(e, listener)


PEERS = "/proc/thread-self/net/sdp_peers"


def remembered(e, port):
    """Returns the cached results of the host and of its port."""
    rows = [line.split() for line in observe.read(PEERS).splitlines()[1:]]
    found = {int(port): choice for ip, port, choice, left in rows if ip == e.there and 0 <= int(left) <= 1000}
    return found.get(0), found.get(port)


def forget(line):
    with netns.inside("self"), open(PEERS, "w") as file:
        file.write(line)


@case(reference=False, timeout=60)
def seen_and_cleared(e):
    """/proc/net/sdp_peers shows the cache; a write to the file, or ipproto_memory=0, clears the
    cache."""
    e.needs_wire()
    listener = either.listen(e, TCP)

    def memory(value):
        netns.parameter("ipproto_memory", value)

    def again(**counted):
        falls(e, listener, **counted)
        e.equal(remembered(e, listener.port), ("SDP", "TCP"), "what is remembered")

    with either.parameters(ipproto_wait=5000, ipproto_memory=1000):
        forget("\n")
        again(tcp_refused=1)
        forget("10.99.99.99\n")
        again(tcp_remembered=1)
        e.equal(e.error(forget, "nonsense\n"), "EINVAL", "no address")
        for clear in (lambda: forget(f"{e.there}\n"), lambda: forget("\n"), lambda: memory(0)):
            clear()
            memory(1000)
            e.equal(remembered(e, listener.port), (None, None), "what is remembered once it is cleared")
            again(tcp_refused=1)


@case(reference=False, timeout=60)
def by_sdpctl(e):
    """Like `seen_and_cleared`, but by `sdpctl peers`."""
    e.needs_wire()
    mapping.needs(e)

    def peers(*words):
        with netns.inside("self"):
            done = subprocess.run([mapping.SDPCTL, "peers", *words], capture_output=True, text=True)
        e.equal((done.returncode, done.stderr), (0, ""), f"status and complaints of sdpctl peers {' '.join(words)}")
        return done.stdout

    listener = either.listen(e, TCP)
    with either.parameters(ipproto_wait=5000, ipproto_memory=1000):
        for words in (("flush",), ("flush", e.there)):
            falls(e, listener, tcp_refused=1)
            rows = {row["port"]: row["choice"] for row in json.loads(peers("--json")) if row["address"] == e.there}
            e.equal((rows.get(None), rows.get(listener.port)), ("SDP", "TCP"), "what is remembered")
            e.check(any(line.split()[:3] == [e.there, "all", "SDP"] for line in peers().splitlines()), "no row of the host")
            peers(*words)
            e.equal(remembered(e, listener.port), (None, None), "what is remembered once it is flushed")
