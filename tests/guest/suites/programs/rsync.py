# SPDX-License-Identifier: GPL-2.0-only
"""rsync's daemon, which forks for each connection: copies a file in both directions."""

from lib.forms import form

SETTINGS = """
use chroot = no
uid = root
gid = root
[files]
path = {folder}
read only = no
"""
CLIENT = """
cd {folder} && head -c 3000000 /dev/urandom > content
rsync content rsync://{host}:{port}/files/there && rsync rsync://{host}:{port}/files/there back && cmp content back && echo the same
"""

form(needs=("rsync",), server=("rsync", "--daemon", "--no-detach", "--config={folder}/rsyncd.conf", "--address={host}", "--port={port}"),
     client=("sh", "{folder}/client"), files={"rsyncd.conf": SETTINGS, "client": CLIENT}, says="the same", sent=3_000_000, received=3_000_000)
