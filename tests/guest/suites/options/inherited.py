# SPDX-License-Identifier: GPL-2.0-only
"""Properties that an accepted socket inherits from its listener, and properties that it does not
inherit."""

import os
import socket
import struct

from lib import calls, consts
from lib.env import SAME, OneOf
from lib.registry import case

SOL, TCP, IP, IPV6 = socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.IPPROTO_IPV6

NUMBERS = [("SO_KEEPALIVE", SOL, socket.SO_KEEPALIVE, 1), ("SO_OOBINLINE", SOL, socket.SO_OOBINLINE, 1),
           ("SO_REUSEADDR", SOL, socket.SO_REUSEADDR, 1), ("SO_REUSEPORT", SOL, consts.SO_REUSEPORT, 1),
           ("SO_SNDBUF", SOL, socket.SO_SNDBUF, 50000), ("SO_RCVBUF", SOL, socket.SO_RCVBUF, 60000),
           ("SO_RCVLOWAT", SOL, socket.SO_RCVLOWAT, 3), ("SO_PRIORITY", SOL, socket.SO_PRIORITY, 4),
           ("SO_MARK", SOL, 36, 9), ("SO_DONTROUTE", SOL, socket.SO_DONTROUTE, 1),
           ("SO_BUSY_POLL", SOL, consts.SO_BUSY_POLL, 20), ("SO_DEBUG", SOL, socket.SO_DEBUG, 1),
           ("TCP_NODELAY", TCP, socket.TCP_NODELAY, 1), ("TCP_KEEPIDLE", TCP, socket.TCP_KEEPIDLE, 77),
           ("TCP_KEEPINTVL", TCP, socket.TCP_KEEPINTVL, 7), ("TCP_KEEPCNT", TCP, socket.TCP_KEEPCNT, 4),
           ("TCP_USER_TIMEOUT", TCP, socket.TCP_USER_TIMEOUT, 5000), ("TCP_SYNCNT", TCP, socket.TCP_SYNCNT, 3),
           ("TCP_LINGER2", TCP, socket.TCP_LINGER2, 9), ("TCP_CORK", TCP, socket.TCP_CORK, 1)]
BY_FAMILY = {False: [("IP_TOS", IP, socket.IP_TOS, 0x10), ("IP_TTL", IP, socket.IP_TTL, 33)],
             True: [("IPV6_TCLASS", IPV6, socket.IPV6_TCLASS, 0x20), ("IPV6_UNICAST_HOPS", IPV6, 16, 44),
                    ("IPV6_V6ONLY", IPV6, socket.IPV6_V6ONLY, 1)]}


@case
def from_listener(e):
    options = NUMBERS + BY_FAMILY[e.six]

    def prepare(sock):
        for _, level, option, value in options:
            sock.set(level, option, value)

    listener = e.listen(prepare=prepare)
    _, far = e.pair(listener)
    for name, level, option, _ in options:
        e.note(name, (listener.get(level, option), far.get(level, option)))


@case
def set_after_listen(e):
    """Accepted sockets inherit options set before the connection, and not options set later."""
    listener = e.listen()
    listener.set(SOL, socket.SO_KEEPALIVE, 1)
    listener.set(TCP, socket.TCP_NODELAY, 1)
    near = e.connect(listener)
    e.wait(listener)
    listener.set(SOL, socket.SO_OOBINLINE, 1)
    listener.set(TCP, socket.TCP_KEEPIDLE, 99)
    far, _ = listener.accept()
    e.note("before", (far.get(SOL, socket.SO_KEEPALIVE), far.get(TCP, socket.TCP_NODELAY)))
    e.note("after", (far.get(SOL, socket.SO_OOBINLINE), far.get(TCP, socket.TCP_KEEPIDLE)))
    near.close()


@case
def structures(e):
    def prepare(sock):
        sock.setsockopt(SOL, socket.SO_LINGER, struct.pack("=ii", 1, 4))
        sock.setsockopt(SOL, socket.SO_RCVTIMEO, struct.pack("=qq", 8, 0))
        sock.setsockopt(SOL, socket.SO_SNDTIMEO, struct.pack("=qq", 9, 0))

    _, far = e.pair(e.listen(prepare=prepare))
    e.note("linger", struct.unpack("=ii", far.getsockopt(SOL, socket.SO_LINGER, 8)))
    e.note("receive time-out", struct.unpack("=qq", far.getsockopt(SOL, socket.SO_RCVTIMEO, 16)))
    e.note("send time-out", struct.unpack("=qq", far.getsockopt(SOL, socket.SO_SNDTIMEO, 16)))


@case
def own(e):
    """Properties that are never inherited: the error, the owner, O_NONBLOCK, the cookie."""
    import fcntl
    listener = e.listen()
    listener.setblocking(False)
    fcntl.fcntl(listener, fcntl.F_SETOWN, os.getpid())
    near = e.connect(listener)
    e.wait(listener)
    far, _ = listener.accept()
    e.note("owner", fcntl.fcntl(far, fcntl.F_GETOWN) == os.getpid())
    e.note("nonblocking", bool(fcntl.fcntl(far, fcntl.F_GETFL) & os.O_NONBLOCK))
    e.note("cookie", calls.getsockopt(far, SOL, consts.SO_COOKIE, 8)[0] != calls.getsockopt(
        listener, SOL, consts.SO_COOKIE, 8)[0])
    e.note("accepting", far.get(SOL, socket.SO_ACCEPTCONN))
    e.note("user", os.fstat(far.fileno()).st_uid == os.fstat(listener.fileno()).st_uid)
    near.close()


@case
def threshold(e):
    """SDP_ZCOPY_THRESH goes from the listener to the accepted socket."""
    listener = e.listen()
    e.note("set", e.error(listener.set, TCP, consts.SDP_ZCOPY_THRESH, 8192), sdp="ok", because="it is SDP's option")
    _, far = e.pair(listener)
    e.note("accepted", e.outcome(far.get, TCP, consts.SDP_ZCOPY_THRESH), sdp=8192, because="options are inherited")


@case
def buffers_of_connection(e):
    """The initial buffer sizes of every kind of socket are reasonable."""
    near, far = e.pair()
    for name, sock in (("connector", near), ("accepted", far), ("listener", e.listen()), ("new", e.socket())):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            size = sock.get(SOL, option)
            e.check(4096 <= size <= 64 << 20, f"{name}: buffer {option} of {size}")
    e.note("set on a connection", (e.error(near.set, SOL, socket.SO_SNDBUF, 30000), near.get(SOL, socket.SO_SNDBUF)),
           sdp=OneOf(SAME), because="the core sets it")
