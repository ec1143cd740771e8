# SPDX-License-Identifier: GPL-2.0-only
"""A socket of any family with Python's methods."""

import select
import socket

from . import consts

MASKS = (("IN", select.POLLIN), ("PRI", select.POLLPRI), ("OUT", select.POLLOUT), ("ERR", select.POLLERR),
         ("HUP", select.POLLHUP), ("NVAL", select.POLLNVAL), ("RDHUP", consts.POLLRDHUP))
EVERY = select.POLLIN | select.POLLPRI | select.POLLOUT | consts.POLLRDHUP


def mask_text(mask):
    return "|".join(name for name, bit in MASKS if mask & bit) or "-"


class Sock(socket.socket):
    """Python encodes and decodes addresses by the family of the socket object, and supports neither
    27 nor 28.

    The descriptor is therefore created with the real family and wrapped as AF_INET or AF_INET6,
    whose addresses these sockets use. SO_DOMAIN returns the real family."""

    @classmethod
    def make(cls, domain, kind=socket.SOCK_STREAM, protocol=0):
        raw = socket.socket(domain, kind, protocol)
        return cls.wrap(raw.detach(), domain)

    @classmethod
    def wrap(cls, descriptor, domain):
        six = domain in (socket.AF_INET6, consts.AF_INET6_SDP)
        return cls(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)

    def accept(self):
        descriptor, address = self._accept()
        return Sock(self.family, socket.SOCK_STREAM, 0, descriptor), address

    def set(self, level, option, value):
        self.setsockopt(level, option, value)
        return self

    def get(self, level, option):
        return self.getsockopt(level, option)

    @property
    def port(self):
        return self.getsockname()[1]

    def mask(self, events=EVERY):
        """Returns the current result of poll() as text."""
        poller = select.poll()
        poller.register(self.fileno(), events)
        ready = poller.poll(0)
        return mask_text(ready[0][1] if ready else 0)

    def mask_when(self, events, patience):
        """Sleeps in poll() until one of the events. Returns the mask as text, empty after a
        time-out."""
        poller = select.poll()
        poller.register(self.fileno(), events)
        ready = poller.poll(patience * 1000)
        return mask_text(ready[0][1]) if ready else ""

    def recv_exactly(self, count):
        """Returns `count` bytes, or fewer at the end of the stream."""
        parts = []
        while count:
            part = self.recv(min(count, 1 << 20))
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def drain(self):
        """Returns all bytes up to the end of the stream."""
        parts = []
        while part := self.recv(1 << 20):
            parts.append(part)
        return b"".join(parts)
