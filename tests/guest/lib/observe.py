# SPDX-License-Identifier: GPL-2.0-only
"""Reads /proc/net/sdp and /proc/net/sdpstats of either namespace."""

import contextlib
import os
import pathlib
import socket
import struct

from . import calls, consts, netns
from .consts import TCP_STATES

MODULE = "/run/guest/ib_sdp.ko"
ROWS, STATS = "/proc/thread-self/net/sdp", "/proc/thread-self/net/sdpstats"


def read(path, where="self"):
    if where == "peer" and not netns.local():
        return netns.run("peer", f"cat {path}")
    with netns.inside(where), open(path) as file:
        return file.read()


def _address(text):
    """Returns (address, port) from the hexadecimal words of a row."""
    words, port = text.split(":")
    raw = b"".join(struct.pack("=I", int(words[place:place + 8], 16)) for place in range(0, len(words), 8))
    family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, raw), int(port, 16)


class Row:
    def __init__(self, line):
        fields = line.split()
        slot, local, remote, self.uid, self.inode, queues, state = fields
        self.slot = int(slot.rstrip(":"))
        self.local, self.remote = _address(local), _address(remote)
        self.uid, self.inode = int(self.uid), int(self.inode)
        self.receive, self.send = (int(part, 16) for part in queues.split(":"))
        self.state = TCP_STATES[int(state, 16)]


def rows(where="self"):
    return [Row(line) for line in read(ROWS, where).splitlines()[1:]]


def row_of(sock, where="self"):
    """Returns the row of a socket, by its inode, or None."""
    inode = os.fstat(sock.fileno()).st_ino
    return next((row for row in rows(where) if row.inode == inode), None)


def choices(where="self"):
    """Returns the protocol of each IPPROTO_SDP socket, by its inode."""
    heading, *lines = read(f"{ROWS}_ipproto", where).splitlines()
    rows = [line.split(" ", 2) for line in lines]
    return {int(inode): choice for inode, _, choice in rows}


def stats(where="self"):
    """Returns the counters by name."""
    counters = {}
    for line in read(STATS, where).splitlines():
        name, colon, value = line.rpartition(":")
        if colon and value.strip().isdigit():
            counters[name.strip()] = int(value)
    return counters


def unanswered(where="self"):
    """Counts connections that ended without a reply: by the device, or by `ack_time`."""
    counters = stats(where)
    return counters["- timed out"] + counters["- transport error"]


def pinned(where="self"):
    """Returns the number of pinned pages, after releasing those kept for the next transfer, as when
    memory is short."""
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("2")     # caches that can be shrunk
    told = stats(where)
    return told["pinned pages send"] + told["pinned pages recv"]


def losses():
    """Returns the counts of both hosts under "Refused and lost" and "IPPROTO_SDP", and the devices'
    counts of lost packets. A failed case may leave the host without the module or a device."""
    counted = {}
    with contextlib.suppress(OSError, RuntimeError):
        counted |= lost_packets()
        for where in netns.hosts():
            counted |= {f"{where} {name.lstrip('- ')}": count for name, count in stats(where).items() if name.startswith("- ") and count}
    return counted


def lost_packets():
    """Returns the devices' non-zero counts of lost or repeated packets."""
    found = {}
    for name in ("completer_retry_err", "retry_exceeded_err", "out_of_seq_request", "duplicate_request", "retry_rnr_exceeded_err", "rcvd_rnr_err"):
        for path in pathlib.Path("/sys/class/infiniband").glob(f"*/ports/1/hw_counters/{name}"):
            if count := int(path.read_text()):
                found[f"{path.parts[4]} {name}"] = count
    return found


# Fields of struct sdp_info (include/uapi/sdp.h), each a __u64.
INFO = ("transport", "tx_bytes", "tx_read", "tx_written", "rx_bytes", "rx_read", "rx_written", "src_avail_sent", "src_avail_returned",
        "src_avail_received", "src_avail_refused", "sink_avail_sent", "sink_avail_received", "crossed", "unpinnable", "credit_stalls", "ipproto",
        "route")


def info(sock):
    """Returns SDP_INFO of a socket."""
    raw, _ = calls.getsockopt(sock, socket.IPPROTO_TCP, consts.SDP_INFO, 8 * len(INFO))
    return dict(zip(INFO, struct.unpack(f"={len(INFO)}Q", raw)))
