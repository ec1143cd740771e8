# SPDX-License-Identifier: GPL-2.0-only
"""A file of 64 MiB through socket(27, SOCK_STREAM, 0), by a program of its own at each end."""

import hashlib
import os
import random
import tempfile

from lib import observe
from lib.programs import HERE, Program
from lib.registry import case

SIZE = 64 << 20


@case(hosts=(1, 2), timeout=240)
def file_of_64_mib(e):
    """Both ends agree on its SHA-256; the counters say that SDP carried it."""
    program, port = str(HERE / "transfer.py"), "7100"
    tcp = [] if e.sdp else ["--tcp"]
    folder = tempfile.mkdtemp()
    try:
        path, digest = os.path.join(folder, "sent"), hashlib.sha256()
        source = random.Random(SIZE)
        with open(path, "wb") as file:
            for _ in range(SIZE >> 20):
                part = source.randbytes(1 << 20)
                digest.update(part)
                file.write(part)
        before = observe.stats() if e.sdp else None
        receiver = Program(e, [program, "receive", e.there, port, "/tmp/ib_sdp_received", *tcp], "peer")
        sender = Program(e, [program, "send", e.there, port, path, *tcp])
        sent, received = sender.output(e.patience * 20).split(), receiver.output(e.patience).split()
        e.equal(sent[:2], [str(SIZE), digest.hexdigest()], "what was sent")
        e.equal(received[:2], sent[:2], "what was received")
        checked = Program(e, ["sha256sum", "/tmp/ib_sdp_received"], "peer").output(e.patience * 2).split()[0]
        e.equal(checked, sent[1], "the file on the other host")
        if before:
            moved = observe.stats()["tx_bytes"] - before["tx_bytes"]
            e.equal(moved, SIZE + 8, "bytes sent by SDP")
    finally:
        os.unlink(path)
        os.rmdir(folder)
        Program(e, ["rm", "-f", "/tmp/ib_sdp_received"], "peer").output(e.patience)
