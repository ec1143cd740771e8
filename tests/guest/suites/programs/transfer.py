# SPDX-License-Identifier: GPL-2.0-only
"""A file of 64 MiB through socket(27, SOCK_STREAM, 0), with the project's own program at each
end."""

import hashlib
import os
import random
import tempfile

from lib import observe
from lib.programs import HERE, Program
from lib.registry import case

SIZE = 64 << 20


@case(reference=False, families=("v4",), hosts=(2,), timeout=240)
def file_of_64_mib(e):
    """Both ends compute the same SHA-256 of the file; the counters show that SDP transferred the
    file."""
    program, port = str(HERE / "transfer.py"), "7100"
    folder = tempfile.mkdtemp()
    try:
        path, digest = os.path.join(folder, "sent"), hashlib.sha256()
        source = random.Random(SIZE)
        with open(path, "wb") as file:
            for _ in range(SIZE >> 20):
                part = source.randbytes(1 << 20)
                digest.update(part)
                file.write(part)
        before = observe.stats()
        receiver = Program(e, [program, "receive", e.there, port, "/tmp/ib_sdp_received"], "peer")
        sender = Program(e, [program, "send", e.there, port, path])
        sent, received = sender.output(e.patience * 20).split(), receiver.output(e.patience).split()
        e.equal(sent[:2], [str(SIZE), digest.hexdigest()], "what was sent")
        e.equal(received[:2], sent[:2], "what was received")
        checked = Program(e, ["sha256sum", "/tmp/ib_sdp_received"], "peer").output(e.patience * 2).split()[0]
        e.equal(checked, sent[1], "the file on the other host")
        e.equal(observe.stats()["tx_bytes"] - before["tx_bytes"], SIZE + 8, "bytes sent by SDP")
    finally:
        os.unlink(path)
        os.rmdir(folder)
        Program(e, ["rm", "-f", "/tmp/ib_sdp_received"], "peer").output(e.patience)
