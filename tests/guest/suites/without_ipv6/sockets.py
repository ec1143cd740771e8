# SPDX-License-Identifier: GPL-2.0-only
"""IPv6 sockets and requests on a kernel without IPv6."""

import os
import socket
import subprocess

from lib import consts, raw
from lib.either import SDP, echo
from lib.preload import under
from lib.registry import case
from lib.sock import Sock

# Tries IPv6 first, as many programs do, and prints the protocol of the connection.
PROGRAM = """import socket
try:
    socket.socket(socket.AF_INET6)
except OSError:
    print(socket.socket().getsockopt(socket.SOL_SOCKET, 38))"""


def needs_no_ipv6(e):
    if os.path.exists("/proc/net/if_inet6"):
        e.skip("this kernel has IPv6 (qemu/guest --append ipv6.disable=1)")


@case(families=("v4",))
def of_ipv6(e):
    """IPv6 sockets do not exist."""
    needs_no_ipv6(e)
    domain = consts.AF_INET6_SDP if e.only_sdp else socket.AF_INET6
    e.note("socket", e.error(lambda: Sock.make(domain, protocol=e.protocol).bind(("fd77::1", 0))))


@case(families=("v4",))
def of_ipv4(e):
    """IPv4 sockets work as usual."""
    needs_no_ipv6(e)
    echo(e, *e.pair())


@case(reference=False, families=("v4",))
def requests(e):
    """The module refuses a connection request by IPv6."""
    needs_no_ipv6(e)
    bed = raw.Bed(e)
    near = e.socket()
    bed.private(near, raw.hello(*(socket.inet_pton(socket.AF_INET6, host) for host in ("fd77::1", "fd77::2")), 5000))
    e.equal(e.error(near.connect, e.address(e.there, bed.listener.port)), "ECONNREFUSED", "connect()")
    echo(e, *e.pair())


@case(reference=False, families=("v4",))
def under_sdp_run(e):
    """A program that tries IPv6 first continues with IPv4, by SDP, and the library prints
    nothing."""
    needs_no_ipv6(e)
    done = subprocess.run(under(e, ["python3", "-S", "-c", PROGRAM], log="stderr:9"), capture_output=True, text=True, check=False)
    e.equal((done.stdout.strip(), done.stderr), (str(SDP), ""), "what it has, and what is said")
