# SPDX-License-Identifier: GPL-2.0-only
"""The page with the arguments of userfaultfd's ioctls is in the program's memory (SDP_ASYNC_SEND).
A program gains nothing by writing to the page."""

import ctypes
import mmap
import os
import signal
import struct
import threading

from lib import memory
from lib.registry import case

from .protected import MIB, PAGE, Counters, pair, view

# Writes a word to the page by process_vm_writev(2) until the page is mapped, and then by 2,000,000
# stores or until the page is unmapped. Returns 0 if the page was never mapped. Assembled from:
# 1: process_vm_writev(edi, rsi, 1, rdx, 1, 0) > 0 or r9--, 1b; ecx = 2000000; 2: *rcx = r8; ecx--, 2b
WRITER = bytes.fromhex("535541544155415641574889cb4c89c54d89cc4989fd4989f64989d7b8370100004c89ef4c89f6ba010000004d89fa41b8010000004531c90f05"
                       "4885c07f0749ffcc75d8eb0cb980841e0048892bffc975f94c89e0415f415e415d415c5d5bc3")
# Handler of SIGSEGV: continues after the loop of stores. Assembled from: ucontext(rdx)->rip += 7;
# ret
UNMAPPED = bytes.fromhex("488382a800000007c3")
SA_SIGINFO = 4
LOOKS = 200_000
FEATURES_AT, EVENT_FORK, EVENT_REMAP, FLAG_WP = 8, 2, 4, 1
# Arguments of the first call.
SLOT, MODE_AT, MISSING_AND_WP = 64, 16, 3


def some(address, length):
    return (ctypes.c_char * length).from_address(address)


def writer(value, offset, begun):
    """Writes to the lowest free address, at which the kernel will map its page. Returns true if the
    page was mapped."""
    code = mmap.mmap(-1, PAGE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(WRITER + UNMAPPED)
    start = ctypes.addressof(ctypes.c_char.from_buffer(code))
    function = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.c_ulong, ctypes.c_ulong)(start)
    word = ctypes.c_ulong(value)
    local, remote = ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)
    hole = memory.Raw(PAGE)
    hole.unmap()
    at = hole.address + offset
    local.raw, remote.raw = struct.pack("=QQ", ctypes.addressof(word), 8), struct.pack("=QQ", at, 8)
    # struct sigaction of libc: handler, mask, flags, restorer
    handler, before = struct.pack("=Q128xi12x", start + len(WRITER), SA_SIGINFO), ctypes.create_string_buffer(152)
    ctypes.CDLL(None).sigaction(signal.SIGSEGV, handler, before)
    begun.set()
    try:
        return function(os.getpid(), ctypes.addressof(local), ctypes.addressof(remote), at, value, LOOKS) > 0
    finally:
        ctypes.CDLL(None).sigaction(signal.SIGSEGV, before, None)


def of_kernel_threads():
    """Returns the number of descriptors of the kernel's threads."""
    return len(os.listdir("/proc/2/fd"))


def was_there(e, met):
    """Skips the case if the program has not found the kernel's page: another mapping may take the
    address of the page, as on the debug kernel."""
    if not met:
        e.skip("the page was not at the expected address")


@case(reference=False, families=("v4",), timeout=120)
def asks_for_events(e):
    """A program changes the features so that each fork would install a descriptor in the module's
    worker. The module's worker is privileged to receive fork events."""
    near, far = pair(e)
    before, met = of_kernel_threads(), 0

    def attempt():
        m, begun, came = memory.Raw(MIB).fill(1), threading.Event(), []
        thread = threading.Thread(target=lambda: came.append(writer(EVENT_FORK | EVENT_REMAP | FLAG_WP, FEATURES_AT, begun)))
        thread.start()
        begun.wait()
        near.sendall(view(m))
        thread.join()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
        return came[0]

    for _ in range(10):
        child = e.child(attempt)
        e.equal(len(far.recv_exactly(MIB)), MIB, "bytes")
        met += child.result()
    was_there(e, met)
    e.equal(of_kernel_threads(), before, "descriptors of the kernel's threads")


@case(reference=False, families=("v4",), timeout=120)
def registers_for_more(e):
    """A program changes the mode so that missing pages fault, too, which could block kernel calls
    while a block is in flight. The module then closes its userfaultfd."""
    near, far = pair(e)
    other, reader = pair(e)
    counters, held = Counters(), 0

    def attempt():
        m, begun, (out, into) = memory.Raw(2 * MIB), threading.Event(), os.pipe()
        ctypes.memset(m.address, 1, MIB)
        thread = threading.Thread(target=writer, args=(MISSING_AND_WP, SLOT + MODE_AT, begun))
        thread.start()
        begun.wait()
        near.sendall(some(m.address, MIB))
        thread.join()
        # keeps the present page in use until the peer reads the block at the end
        other.sendall(view(memory.Raw(65536).fill(2)))
        # no page is mapped yet
        write = threading.Thread(target=os.write, args=(into, some(m.address + MIB + MIB // 2, PAGE)), daemon=True)
        write.start()
        write.join(5)
        return write.is_alive(), out

    for _ in range(10):
        child = e.child(attempt)
        e.equal(len(far.recv_exactly(MIB)), MIB, "bytes")
        held += child.result()[0]
        reader.recv_exactly(65536)
    e.equal(held, 0, "calls that were held up")
    was_there(e, counters.gained("async unprotected unsupported"))
