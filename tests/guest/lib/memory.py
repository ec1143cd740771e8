# SPDX-License-Identifier: GPL-2.0-only
"""Memory whose address is known."""

import ctypes
import mmap
import random

PAGE = mmap.PAGESIZE


class Memory:
    """Anonymous memory with an address."""

    def __init__(self, size, protection=mmap.PROT_READ | mmap.PROT_WRITE):
        self.map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.size = size
        if protection != mmap.PROT_READ | mmap.PROT_WRITE:
            self.protect(protection)

    def protect(self, protection):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self.address), ctypes.c_size_t(self.size), protection):
            raise OSError(ctypes.get_errno(), "mprotect")

    def fill(self, seed):
        self.map[:] = random.Random(seed).randbytes(self.size)
        return self

    def scatter(self):
        """Has the kernel take each page where it likes: neighbours in the memory are none in the machine."""
        self.map.madvise(mmap.MADV_NOHUGEPAGE)
        pages = list(range(0, self.size, PAGE))
        random.Random(5).shuffle(pages)
        for page in pages:
            self.map[page] = 1
        return self
