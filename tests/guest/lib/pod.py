# SPDX-License-Identifier: GPL-2.0-only
"""Makes processes like those of a pod: no capability, no RDMA device in /dev, 8 MiB of memory to
lock."""

import os
import resource
import subprocess

from . import netns
from .calls import libc

MEMLOCK = 8 << 20
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CAPABILITIES = 41
# Words before a command, with the directory of a cgroup as the last one.
COMMAND = ["unshare", "--mount", "sh", "-ec", f"""
    [ ! -d /dev/infiniband ] || mount -t tmpfs none /dev/infiniband
    echo 0 >"$0/cgroup.procs"
    exec prlimit --memlock={MEMLOCK} setpriv --reuid={netns.NOBODY} --regid={netns.NOBODY} --clear-groups --bounding-set=-all --no-new-privs "$@"
"""]


def enter(memlock=MEMLOCK):
    """Turns the calling process into a process of a pod."""
    os.unshare(os.CLONE_NEWNS)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    if os.path.isdir("/dev/infiniband"):
        subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/infiniband"], check=True)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (memlock, memlock))
    for capability in range(CAPABILITIES):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups([])
    os.setresgid(netns.NOBODY, netns.NOBODY, netns.NOBODY)
    os.setresuid(netns.NOBODY, netns.NOBODY, netns.NOBODY)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def capabilities():
    """Returns the capability sets of the calling process that are not empty."""
    lines = (line.split() for line in open("/proc/self/status") if line.startswith("Cap"))
    return [name for name, value in lines if int(value, 16)]
