# SPDX-License-Identifier: GPL-2.0-only
"""DRBD, whose kernel sockets have the family of the configured address: two DRBD devices on one
machine replicate to each other, by TCP, then by SDP, locally and over RDMA."""

import contextlib
import hashlib
import mmap
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from lib import leftovers, netns, observe
from lib.either import parameters
from lib.registry import case

SETUP, META = "/usr/lib/drbd/drbdsetup-84", "/usr/sbin/drbdmeta"
DISK, MIB, PORT = 32 << 20, 1 << 20, 7788
WRITTEN = 8 * MIB


def run(*words):
    done = subprocess.run(words, input="yes\n" * 4, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout.strip()}")
    return done.stdout.strip()


class Node:
    """One of the two DRBD devices, backed by a file."""

    def __init__(self, e, folder, number, family):
        self._e, self._name, self._number = e, f"r{number}", str(number)
        self.file = pathlib.Path(folder) / self._name
        self.file.write_bytes(bytes(DISK))
        self.disk = run("losetup", "-f", "--show", self.file)
        run(META, "--force", self._number, "v08", self.disk, "internal", "create-md")
        run(SETUP, "new-resource", self._name)
        run(SETUP, "new-minor", self._name, self._number, "0")
        run(SETUP, "attach", self._number, self.disk, self.disk, "internal")
        own, other = (f"{family}:{e.here}:{PORT + index}" for index in (number, 1 - number))
        self._addresses = own, other

    def connect(self):
        run(SETUP, "connect", self._name, *self._addresses, "--protocol=C")

    def disconnect(self):
        run(SETUP, "disconnect", *self._addresses)

    def primary(self):
        run(SETUP, "primary", self._number, "--force")

    def state(self):
        return re.search(rf"^ *{self._number}: (.*)", pathlib.Path("/proc/drbd").read_text(), re.M)[1]

    def is_in_sync(self):
        return bool(re.search(r"cs:Connected .* ds:Up\w+/Up\w+ ", self.state()))

    def write(self, offset):
        """Writes random bytes to the DRBD device. When `write` returns, the bytes have reached a
        connected device."""
        data = mmap.mmap(-1, WRITTEN)
        data.write(os.urandom(WRITTEN))
        device = os.open(f"/dev/drbd{self._number}", os.O_RDWR | os.O_DIRECT)
        self._e.equal(os.pwrite(device, data, offset), WRITTEN, "bytes written")
        os.close(device)

    def close(self):
        with contextlib.suppress(RuntimeError):
            run(SETUP, "down", self._name)
        run("losetup", "-d", self.disk)

    def digest(self):
        return hashlib.sha256(self.file.read_bytes()[:2 * WRITTEN]).hexdigest()


def replicate(e, family):
    with tempfile.TemporaryDirectory(prefix="drbd-") as folder, contextlib.ExitStack() as stack:
        nodes = first, second = [stack.enter_context(contextlib.closing(Node(e, folder, number, family))) for number in range(2)]

        def connect():
            for node in nodes:
                node.connect()

        def synchronous():
            e.until(lambda: all(node.is_in_sync() for node in nodes), lambda: f"{family}: {first.state()}, {second.state()}", e.patience * 6)

        connect()
        first.primary()
        synchronous()
        sent = observe.stats()["tx_bytes"]
        first.write(0)
        sent = observe.stats()["tx_bytes"] - sent
        for offset in (0, WRITTEN, WRITTEN // 2):
            second.disconnect()
            e.until(lambda: "cs:WFConnection" in first.state(), f"{family}: the end of the connection", e.patience * 3)
            first.write(offset)
            second.connect()
            synchronous()
        for node in nodes:
            node.close()
        stack.pop_all()
        e.equal(first.digest(), second.digest(), f"{family}: what the disks have")
        return sent


@case(reference=False, families=("v4",), timeout=600)
def replicates(e):
    if not os.path.exists(SETUP) or not shutil.which("losetup"):
        e.skip("DRBD is not installed (qemu/guest --programs)")
    os.makedirs("/run/lock", exist_ok=True)     # for drbdmeta
    run("modprobe", "loop")
    run("modprobe", "drbd", "usermode_helper=/bin/true", "minor_count=2")
    try:
        e.check(replicate(e, "ipv4") < MIB, "TCP's bytes are counted as SDP's")
        for local in (1, 0):
            with parameters(local_transport=local) if not netns.is_one() else contextlib.nullcontext():
                e.check(replicate(e, "sdp") >= WRITTEN, f"bytes of another transport, local_transport={local}")
    finally:
        run("rmmod", "drbd")
    left = leftovers.wait(e.patience * 6)
    e.check(not left, "left: " + "; ".join(left))
