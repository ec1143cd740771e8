# SPDX-License-Identifier: GPL-2.0-only
"""Every method to send and to receive, mixed on one connection.

    env SEED=7 tests/guest/run ways # ROUNDS connections, STEPS calls each way env SEED=7 ONLY=12
    STEPS=60 tests/guest/run ways # one of them again

Seed and number of a connection determine its family, its transport and the calls of its four
threads. Options and parameters change during the calls, signals interrupt calls, and the process
forks. Every byte is checked. Memory is overwritten as soon as the program may write to it."""

import os
import random
import signal
import threading
import time
import traceback

from lib import consts, netns, observe
from lib.env import Child
from lib.registry import case
from lib.sock import Sock
from suites.ways.receiving import Reader
from suites.ways.sending import Writer

ROUNDS, STEPS = 32, 60
# Maximum duration of a connection in seconds.
TIME = 120
PARAMETERS = {"zcopy_ways": (1, 2, 3), "pin_cache": (-1, 0, 1), "recv_poll": (0, 700), "sdp_zcopy_thresh": (-1, 0, 65536), "sdp_inline_thresh": (0, 48)}


def parameter(name):
    return f"/sys/module/ib_sdp/parameters/{name}"


def change(name, value):
    with open(parameter(name), "w") as file:
        file.write(str(value))


def connect(e, protocol, local):
    """Makes two ends of a connection by family 27 or 28, or IPPROTO_SDP."""
    domain = e.family if protocol else {4: consts.AF_INET_SDP, 6: consts.AF_INET6_SDP}[6 if e.six else 4]
    where = "self" if local else "peer"
    before = netns.local_transport(local)
    try:
        with netns.inside(where):
            listener = Sock.make(domain, protocol=protocol)
        listener.bind(e.address(e.host(where), 0))
        listener.listen()
        near = Sock.make(domain, protocol=protocol)
        near.connect(e.address(e.host(where), listener.port))
        far, _ = listener.accept()
        listener.close()
    finally:
        netns.local_transport(before)
    return near, far


class Thread(threading.Thread):
    def __init__(self, name, worker):
        super().__init__(name=name, daemon=True)
        self.worker, self.result, self.error = worker, None, None

    def run(self):
        try:
            self.result = self.worker.run()
        except BaseException as error:
            places = [f"{entry.name}:{entry.lineno}" for entry in traceback.extract_tb(error.__traceback__)]
            self.error = f"{type(error).__name__} {error} ({' '.join(places)})"


def disturb(dice, threads, parameters):
    """Sends a signal, forks, or changes a parameter."""
    what = dice.random()
    if what < 0.1:
        child = os.fork()
        if not child:
            time.sleep(0.01)
            os._exit(0)
        os.waitpid(child, 0)
    elif what < 0.3 and parameters:
        name = dice.choice(list(parameters))
        change(name, dice.choice(parameters[name]))
    else:
        thread = dice.choice(threads)
        if thread.is_alive():
            signal.pthread_kill(thread.ident, signal.SIGUSR1)


def play(e, seed, number, steps, parameters):
    """Runs one connection; returns the reason if the connection fails."""
    dice = random.Random(seed * 1000003 + number)
    near, far = connect(e, consts.IPPROTO_SDP if number & 1 else 0, bool(number & 2))
    e.equal({observe.info(sock)["transport"] for sock in (near, far)}, {2 if number & 2 else 1}, "transport")
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.siginterrupt(signal.SIGUSR1, True)
    seeds = [dice.randrange(1 << 30) for _ in range(4)]
    writers = [Writer(near, seeds[0], steps), Writer(far, seeds[1], steps)]
    readers = [Reader(far, seeds[2], seeds[0]), Reader(near, seeds[3], seeds[1])]
    threads = [Thread(name, worker) for name, worker in zip(("to send", "to send back", "to receive", "to receive back"), writers + readers)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + TIME
    while any(t.is_alive() for t in threads) and not any(t.error for t in threads) and time.monotonic() < end:
        threads[0].join(dice.choice((0.002, 0.02, 0.1)))
        disturb(dice, threads, parameters)
    states = [f"{t.name}: {t.error or ('goes on' if t.is_alive() else t.result)} {t.worker.history[-6:]}" for t in threads]
    sent, back, received, received_back = (t.result for t in threads)
    good = None not in (sent, back) and (sent, back) == (received, received_back)
    if not good and any(t.is_alive() for t in threads):
        time.sleep(1)
        states = [f"{t.name}: {t.error or ('goes on' if t.is_alive() else t.result)} {t.worker.history[-6:]}" for t in threads]
    near.close()
    far.close()
    return (sent or 0) + (back or 0), None if good else "\n  # ".join(states)


@case(reference=False, families=("v4", "v6"), timeout=3000)
def mixed(e):
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 20))
    rounds, steps = int(os.environ.get("ROUNDS") or e.rounds(ROUNDS)), int(os.environ.get("STEPS") or STEPS)
    only = os.environ.get("ONLY")
    e.note("seed", seed)
    values = {name: open(parameter(name)).read() for name in PARAMETERS}
    total = 0
    try:
        for number in [int(only)] if only else range(rounds):
            count, why = Child(TIME + 60, play, e, seed, number, steps, PARAMETERS).result()
            e.check(not why, f"SEED={seed} ONLY={number} STEPS={steps}: {why}")
            total += count
    finally:
        for name, value in values.items():
            change(name, value)
    e.note("bytes", total)
    for where in ("self", "peer"):
        e.until(lambda where=where: not observe.rows(where), lambda where=where: f"{len(observe.rows(where))} sockets stay", e.patience * 6)
