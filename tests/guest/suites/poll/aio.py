# SPDX-License-Identifier: GPL-2.0-only
"""IOCB_CMD_POLL of the kernel's AIO, as Seastar uses it: such a poller may wait in only one
queue."""

import ctypes
import os
import select
import struct

from lib import calls, consts
from lib.registry import case

CMD_POLL = 5


class Aio:
    """An AIO context (io_setup(2))."""

    def __init__(self):
        self._context, self._kept = ctypes.c_ulong(), []
        self._call("io_setup", 8, ctypes.byref(self._context))

    @staticmethod
    def _call(name, *args):
        done = calls.libc.syscall(consts.system_calls()[name], *args)
        if done < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return done

    def poll(self, sock, events):
        """Begins one poll."""
        control = ctypes.create_string_buffer(struct.pack("=QIIHhIQQqQII", 1, 0, 0, CMD_POLL, 0, sock.fileno(), events, 0, 0, 0, 0, 0), 64)
        self._kept.append(control)
        self._call("io_submit", self._context, 1, ctypes.byref(ctypes.c_void_p(ctypes.addressof(control))))

    def events(self, seconds):
        """Returns the mask of the next completed poll, or None if no poll completes within the time
        limit."""
        event, time = ctypes.create_string_buffer(32), struct.pack("qq", *divmod(int(seconds * 1e9), 10**9))
        if not self._call("io_getevents", self._context, 0 if not seconds else 1, 1, event, time):
            return None
        return struct.unpack("=QQqq", event.raw)[2]


def polled(e, name, sock, events, happen):
    """Checks that an event completes a poll."""
    aio = Aio()
    e.note(f"{name}: begins", e.error(aio.poll, sock, events))
    e.note(f"{name}: at once", aio.events(0))
    happen()
    # the event that woke the poller may include more bits
    e.note(f"{name}: then", aio.events(e.patience) & events)


@case
def states(e):
    listener, socks = e.listen("self"), []
    polled(e, "listener", listener, select.POLLIN, lambda: socks.append(e.connect(listener, "peer")))
    far = socks[0]
    near = e.keep(listener.accept()[0])
    polled(e, "bytes", near, select.POLLIN, lambda: far.send(b"abc"))
    near.recv(3)
    polled(e, "the end", near, select.POLLIN, far.close)
    aio = Aio()
    aio.poll(near, select.POLLOUT)
    e.note("space", aio.events(e.patience))
    aio.poll(e.socket(), select.POLLIN)
    e.note("unconnected", aio.events(e.patience))


@case
def connects(e):
    """Connects without blocking, by SDP or by TCP, and polls until the socket is connected."""
    by_tcp = e.tcp("peer")
    by_tcp.bind(e.address(e.there, 0))
    by_tcp.listen(1)
    for listener in [e.listen()] + [by_tcp] * e.ipproto:
        near = e.socket()
        near.setblocking(False)
        e.equal(e.error(near.connect, e.address(e.there, listener.port)), "EINPROGRESS", "connect()")
        aio = Aio()
        aio.poll(near, select.POLLOUT)
        e.equal(aio.events(e.patience) & select.POLLOUT, select.POLLOUT, "the mask")
