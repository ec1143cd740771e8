# SPDX-License-Identifier: GPL-2.0-only
"""Memory with a known address."""

import ctypes
import fcntl
import mmap
import os
import random
import select
import struct

from . import consts
from .remote import anywhere

PAGE = mmap.PAGESIZE
MAP_FIXED, MAP_HUGETLB = 0x10, 0x40000
LIBC = ctypes.CDLL(None, use_errno=True)
FAILED = ctypes.c_void_p(-1).value
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Memory:
    """Anonymous memory with an address."""

    def __init__(self, size, protection=mmap.PROT_READ | mmap.PROT_WRITE):
        self.map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.size = size
        if protection != mmap.PROT_READ | mmap.PROT_WRITE:
            self.protect(protection)

    def protect(self, protection):
        if LIBC.mprotect(self.address, self.size, protection):
            raise OSError(ctypes.get_errno(), "mprotect")

    def fill(self, seed):
        self.map[:] = random.Random(seed).randbytes(self.size)
        return self

    def scatter(self):
        """Makes the kernel allocate each page separately: pages adjacent in the address space are
        not adjacent in physical memory."""
        self.map.madvise(mmap.MADV_NOHUGEPAGE)
        pages = list(range(0, self.size, PAGE))
        random.Random(5).shuffle(pages)
        for page in pages:
            self.map[page] = 1
        return self


class Raw:
    """Memory that can be unmapped while in use."""

    def __init__(self, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, fd=-1):
        self.size = size
        self.address = self._map(None, flags, fd)

    def _map(self, address, flags, fd=-1):
        found = LIBC.mmap(address, self.size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
        if found == FAILED:
            raise OSError(ctypes.get_errno(), "mmap")
        return found

    @classmethod
    def at(cls, address, size):
        """Wraps existing memory."""
        self = cls.__new__(cls)
        self.address, self.size = address, size
        return self

    def fill(self, seed):
        self.bytes = random.Random(seed).randbytes(self.size)
        return self

    @property
    def bytes(self):
        return ctypes.string_at(self.address, self.size)

    @bytes.setter
    def bytes(self, content):
        ctypes.memmove(self.address, content, self.size)

    def discard(self):
        """The program's next access finds new pages."""
        LIBC.madvise(self.address, self.size, mmap.MADV_DONTNEED)

    def protect(self, protection):
        LIBC.mprotect(self.address, self.size, protection)

    def replace(self):
        """Maps other memory at the same address."""
        self._map(self.address, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED)

    def unmap(self):
        LIBC.munmap(self.address, self.size)


@anywhere
def hold(sock, size):
    """Creates memory that lasts as long as the socket; returns its address."""
    memory = Memory(size)
    vars(sock).setdefault("held", []).append(memory)
    return memory.address


@anywhere
def write(sock, address, content):
    ctypes.memmove(address, content, len(content))


@anywhere
def read(sock, address, size):
    return ctypes.string_at(address, size)


class Held:
    """Memory on the machine of a socket."""

    def __init__(self, sock, size):
        self._sock, self.size, self.address = sock, size, hold(sock, size)

    def fill(self, seed):
        write(self._sock, self.address, random.Random(seed).randbytes(self.size))
        return self

    @property
    def map(self):
        return read(self._sock, self.address, self.size)


def of_a_device(e):
    """Returns memory without pages to be pinned: a PC's read-only memory, also if emulated.
    """
    try:
        with open("/dev/mem", "rb") as file:
            return mmap.mmap(file.fileno(), 0x10000, mmap.MAP_SHARED, mmap.PROT_READ, offset=0xF0000)
    except OSError as error:
        e.skip(f"no memory of a device available: {error}")


class Absent(Memory):
    """Memory that is missing, except for `present` bytes at its beginning, until the case provides
    it. Earlier accesses wait, also by system calls."""

    API, REGISTER, COPY, MISSING = 0xC018AA3F, 0xC020AA00, 0xC028AA03, 1    # of userfaultfd(2)

    def __init__(self, size, present=0):
        super().__init__(size)
        self.present = present
        self.map[:present] = bytes(present)
        self._descriptor = LIBC.syscall(consts.system_calls()["userfaultfd"], os.O_CLOEXEC | os.O_NONBLOCK)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "userfaultfd")
        fcntl.ioctl(self._descriptor, self.API, struct.pack("=QQQ", 0xAA, 0, 0))
        fcntl.ioctl(self._descriptor, self.REGISTER, struct.pack("=QQQQ", self.address + present, size - present, self.MISSING, 0))

    def at(self, address):
        """Same as `at`, for an unmapped page at that address."""
        found = LIBC.mmap(address, PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED, -1, 0)
        if found != address:
            raise OSError(ctypes.get_errno(), "mmap")
        fcntl.ioctl(self._descriptor, self.REGISTER, struct.pack("=QQQQ", address, PAGE, self.MISSING, 0))

    def touched(self):
        """Returns true if an access waits for the memory."""
        return bool(select.select([self._descriptor], [], [], 0)[0])

    def give(self, content):
        source = Memory(self.size)
        source.map[:] = content
        done = self.present
        while done < self.size:
            request = bytearray(struct.pack("=QQQQq", self.address + done, source.address + done, self.size - done, 0, 0))
            try:
                fcntl.ioctl(self._descriptor, self.COPY, request)
            except BlockingIOError:
                pass        # the mappings changed during the call, which reports its progress
            done += max(0, struct.unpack("=QQQQq", request)[4])

    def close(self):
        """Completes waiting accesses with zeros."""
        os.close(self._descriptor)
