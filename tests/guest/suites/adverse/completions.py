# SPDX-License-Identifier: GPL-2.0-only
"""Completion queues with every behaviour that a driver may show. Runs cases of other suites on
devices with each behaviour."""

import itertools
import time

from lib import adverse, registry
from lib.registry import case

from ..zcopy.blocks import eager

# Tests each behaviour alone, and all behaviours together.
DEVICES = {
    "unarmed": dict(unarmed=1),
    "one": dict(one=1),
    "none": dict(none=3),
    "spurious": dict(spurious=50),
    "late": dict(late=2000),
    "sent_late": dict(sent_late=3000),
    "mixed": dict(unarmed=1, one=1, none=2, spurious=30, late=500, sent_late=1000),
}
CASES = (
    "data.stream.hello", "data.stream.ping_pong", "data.stream.random_sizes", "data.stream.both_fill_first", "data.buffers.full",
    "data.buffers.blocked_sender_wakes", "data.oob.far_ahead",
    "close.closing.plain", "close.closing.with_much_queued", "close.closing.unread_data", "close.shutdown.behind_data",
    "poll.epoll.edge", "poll.epoll.edge_of_writing", "poll.states.wakes",
    "zcopy.blocks.whole", "zcopy.blocks.written", "zcopy.blocks.in_parts", "zcopy.blocks.interrupted",
)


@case(families=("v4",))
def answers(e):
    """Neither end polls the adapter: each message needs a completion event."""
    for name, settings in DEVICES.items():
        with adverse.device(e, **settings):
            near, far = e.pair()
            task = e.task(lambda: [far.send(far.recv(100)) for _ in range(50)])
            for number in range(50):
                near.send(b"%d" % number)
                e.equal(near.recv(100), b"%d" % number, f"{name}, answer {number}")
            task.result()
            near.close()
            e.equal(far.recv(1), b"", f"{name}, end")


@case(families=("v4",), reference=False)
def out_of_order(e):
    """The completion of a SEND overtakes that of an earlier READ, as on siw. The completed READ
    request may not have written the memory yet: the connection ends, and the reader gets no byte of
    the memory."""
    size = 1 << 16
    near, far = e.pair()
    eager(near)
    far.send(b"x")
    near.recv(1)
    with adverse.device(e, overtaken=300_000):
        near, far = e.pair()
        eager(near)
        sender = e.task(lambda: e.error(near.sendall, b"\x5a" * size))
        reader = e.task(lambda: e.outcome(far.recv, size))

        def answers():
            while e.error(far.send, b"x") == "ok":
                time.sleep(0.005)

        answerer = e.task(answers)
        got = reader.result()
        # the error is reported once, perhaps to send()
        e.check(got in ("ECONNABORTED", b""), f"recv() gave {got[:60]!r}")
        sender.result()
        near.close()
        answerer.result()


def on_device(name, settings, other, module=__name__):
    """Runs a case of another suite on a device with the tested behaviour."""
    def run(e):
        with adverse.device(e, **settings):
            other.function(e)
    run.__name__ = f"{name}_{other.name.replace('.', '_')}"
    run.__module__ = module
    case(run, families=other.families[:1], reference=other.reference, timeout=60 + 2 * other.timeout)


for _device, _case in itertools.product(DEVICES.items(), registry.others(CASES)):
    if adverse.suits(_case, _device[1]):
        on_device(*_device, _case)
