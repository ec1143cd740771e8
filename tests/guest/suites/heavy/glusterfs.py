# SPDX-License-Identifier: GPL-2.0-only
"""GlusterFS: a brick, and a FUSE mount of it; copies a file in both directions. Runs the daemons
that glusterd would run, with settings of the test."""

from lib.forms import IN_TURN, form

BRICK = """
volume files
    type storage/posix
    option directory {folder}/brick
end-volume
volume locks
    type features/locks
    subvolumes files
end-volume
volume server
    type protocol/server
    option transport-type tcp
    option transport.socket.bind-address {host}
    option transport.socket.listen-port {port}
    option transport.address-family {family}
    option auth.addr.locks.allow *
    subvolumes locks
end-volume
"""
MOUNT = """
volume brick
    type protocol/client
    option transport-type tcp
    option remote-host {host}
    option remote-port {port}
    option remote-subvolume locks
end-volume
"""
SERVER = "mkdir {folder}/brick && exec glusterfsd -N -l /dev/stderr -f {folder}/brick.vol"
# The kernel's cache does not contain the file that the client reads.
CLIENT = """
cd {folder} && mkdir mount && modprobe fuse
glusterfs -l {folder}/log --direct-io-mode=enable -f {folder}/mount.vol {folder}/mount || cat {folder}/log
head -c 3000000 /dev/urandom > sent && cp sent mount/copy && cmp sent mount/copy && cmp sent brick/copy && echo the same
umount mount || cat {folder}/log
"""

# A brick that listens by family 27 is reached by clients whose TCP sockets use SDP, and by no other
# clients.
for name, family, more in (("", "inet", {}), ("inet_sdp", "inet-sdp", {"tcp": False, "ways": set(IN_TURN)})):
    form(name=name, needs=("glusterfsd", "glusterfs"), server=("sh", "-c", SERVER), client=("sh", "{folder}/client"), timeout=240,
         files={"brick.vol": BRICK.replace("{family}", family), "mount.vol": MOUNT, "client": CLIENT}, says="the same",
         sent=3_000_000, received=3_000_000, **more)
