# SPDX-License-Identifier: GPL-2.0-only
"""Memory of a file whose file system must be notified of each write. Pages of a file with write
notification must not stay pinned without a time limit, as an advert of a reader's memory or a
transfer of an adapter would require."""

import contextlib
import mmap
import os
import pathlib
import socket
import struct
import subprocess

from lib import netns, pattern
from lib.registry import case
from suites.zcopy.blocks import Counters, MIB, pipelined, unpinned
from suites.zcopy.elsewhere import Block

SECTORS, IN_CLUSTER, OF_TABLE, ROOT_ENTRIES = 16384, 2, 40, 512


def fat():
    """First sectors of an empty FAT16: boot sector and start of its only table. The other sectors
    are zero."""
    boot = struct.pack("<3s8sHBHBHHBHHHLL", b"\xeb\x3c\x90", b"none", 512, IN_CLUSTER, 1, 1, ROOT_ENTRIES, SECTORS, 0xF8, OF_TABLE, 32, 2, 0, 0)
    return boot.ljust(510, b"\0") + b"\x55\xaa" + b"\xf8\xff\xff\xff"


@contextlib.contextmanager
def on_a_disk(e, size):
    """A shared mapping of a file on a disk, and the file's contents."""
    device = e.keep(Block(e, SECTORS * 512))
    pathlib.Path(device.name).write_bytes(fat())
    where = pathlib.Path("/tmp/zcopy-disk")
    where.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "msdos", device.name, where], capture_output=True, text=True)
    if done.returncode:
        e.skip(f"this file system is not supported: {done.stderr.strip()}")
    try:
        with open(where / "file", "w+b") as file:
            file.truncate(size)
            with mmap.mmap(file.fileno(), size) as mapping, memoryview(mapping) as view:
                yield view, lambda: os.pread(file.fileno(), size, 0)
    finally:
        subprocess.run(["umount", where], check=True)


@case(reference=False, families=("v4",), timeout=90, messages=True)
def received(e):
    """A reader does not advertise memory of the file, and no adapter writes to this memory. The
    file gets the received bytes."""
    near, far = pipelined(e)
    data = pattern.Pattern(5).at(0, MIB)
    with on_a_disk(e, MIB) as (view, content):
        counters = Counters()
        task = e.task(far.recv_into, view, MIB, socket.MSG_WAITALL)
        e.until(lambda: counters.gained("zcopy unpinnable"), "a pin that is refused")
        near.sendall(data)
        e.equal(task.result(), MIB, "bytes")
        e.equal(counters.gained("post_send SDP_MID_SINKAVAIL"), 0, "adverts of such memory")
        if not netns.local():
            e.equal(counters.gained("zcopy rx_bytes"), 0, "bytes not copied")
        e.check(content() == data, "other bytes in the file")
    unpinned(e)
