# SPDX-License-Identifier: GPL-2.0-only
"""OpenSSH: a server that forks, executes itself and enters a sandbox for each connection; copies a
file in both directions by scp."""

import os
import pathlib
import subprocess
import tempfile

from lib.forms import form
from suites.lifecycle.states import THOROUGH

# With THOROUGH in the environment as many bytes as a daily backup.
SIZE = (300 if THOROUGH else 6) << 20
SETTINGS = """
Port {port}
ListenAddress {host}
HostKey {folder}/server/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
KexAlgorithms curve25519-sha256
Subsystem sftp internal-sftp
"""
SERVER = """
mkdir -p /run/sshd {folder}/server
install -m 600 {folder}/host {folder}/server
exec /usr/sbin/sshd -D -e -f {folder}/sshd_config
"""
CLIENT = """
mkdir {folder}/client && cd {folder}/client && install -m 600 ../user . || exit
options="-F none -i user -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
head -c %d /dev/urandom > sent
scp $options -P {port} sent root@{host}:{folder}/server/there || exit
ssh $options -p {port} root@{host} sha256sum {folder}/server/there | cut -c1-64 > there
sha256sum sent | cut -c1-64 | cmp - there || exit
rm sent && scp $options -P {port} root@{host}:{folder}/server/there back || exit
sha256sum back | cut -c1-64 | cmp - there && echo the same
""" % SIZE


def keys(e):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"], check=True)
        return {f"key {name}": pathlib.Path(folder, name).read_text() for name in os.listdir(folder)}


copies = form(needs=("scp", "/usr/sbin/sshd"), server=("sh", "{folder}/serve"), client=("sh", "{folder}/copy"), also=keys,
              files={"sshd_config": SETTINGS, "serve": SERVER, "copy": CLIENT, **{name: "{key %s}" % name for name in ("host", "user", "user.pub")}},
              says="the same", sent=SIZE, received=SIZE, timeout=1200 if THOROUGH else 240)
