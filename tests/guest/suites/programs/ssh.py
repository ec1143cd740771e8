# SPDX-License-Identifier: GPL-2.0-only
"""OpenSSH under sdp-run: a server that forks, executes itself anew and shuts itself in, for each connection."""

import hashlib
import os
import random
import subprocess
import tempfile

from lib.preload import each_way
from suites.life.states import THOROUGH

PORT = 2222
# With THOROUGH in the environment what a program copies that moves a day's files.
MIB = {"by_rdma": 300, "locally": 300, "by_tcp": 100} if THOROUGH else {"by_rdma": 48, "locally": 32, "by_tcp": 20}

SETTINGS = """
Port {port}
ListenAddress {host}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
KexAlgorithms curve25519-sha256
Subsystem sftp internal-sftp
"""


@each_way(ways=tuple(MIB), timeout=1200 if THOROUGH else 240)
def copies(e, way):
    """scp there and back, and what a command says of the copy."""
    way.needs("scp", "/usr/sbin/sshd")
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ssh-") as folder:
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"], check=True)
        with open(f"{folder}/sshd_config", "w") as file:
            file.write(SETTINGS.format(port=PORT, host=way.host, folder=folder))
        part, digest = random.Random(PORT).randbytes(1 << 20), hashlib.sha256()
        with open(f"{folder}/sent", "wb") as file:
            for number in range(MIB[way.name]):
                block = number.to_bytes(8, "big") + part[8:]
                file.write(block)
                digest.update(block)
        serving = way.server(["/usr/sbin/sshd", "-D", "-e", "-f", f"{folder}/sshd_config"], PORT)
        options = ["-F", "none", "-i", f"{folder}/user", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        size = MIB[way.name] << 20
        with way.carries(sent=size, received=0):
            way.client(["scp", *options, "-P", PORT, f"{folder}/sent", f"root@{way.host}:{folder}/there"])
            said = way.client(["ssh", *options, "-p", PORT, f"root@{way.host}", f"sha256sum {folder}/there"])
        e.equal(said.split()[0], digest.hexdigest(), "the sum of the copy")
        os.unlink(f"{folder}/sent")
        with way.carries(sent=0, received=size):
            way.client(["scp", *options, "-P", PORT, f"root@{way.host}:{folder}/there", f"{folder}/back"])
        with open(f"{folder}/back", "rb") as file:
            e.equal(hashlib.file_digest(file, "sha256").hexdigest(), digest.hexdigest(), "the sum of what came back")
        e.check(serving.running(), "the server has ended")
        serving.end()
