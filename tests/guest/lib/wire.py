# SPDX-License-Identifier: GPL-2.0-only
"""Captures packets to the peer, and dissects them by tshark."""

import os
import shutil
import socket
import subprocess
import tempfile

from . import netns
from .env import CaseFailure

# Selects only RoCE frames that begin a message. The later packets of a message, RDMA payload, and
# the zeros in RTU, DREQ and DREP are not SDP, although the dissector decodes them as SDP.
MESSAGES = ("infiniband_sdp && ((infiniband.bth.opcode == 4 || infiniband.bth.opcode == 0) || "
            "infiniband.mad.attributeid == 0x0010 || infiniband.mad.attributeid == 0x0013)")
MARKER = 4790                   # nobody listens there
BSDH, HELLO = "infiniband_sdp.bsdh.", "infiniband_sdp.hh."
NAMES = {0x00: "Hello", 0x01: "HelloAck", 0x02: "DisConn", 0x03: "AbortConn", 0x04: "SendSm", 0x05: "RdmaWrCompl",
         0x06: "RdmaRdCompl", 0x07: "ModeChange", 0x08: "SrcAvailCancel", 0x09: "SinkAvailCancel", 0x0A: "SinkCancelAck",
         0x0B: "ChRcvBuf", 0x0C: "ChRcvBufAck", 0x0D: "SuspComm", 0x0E: "SuspCommAck", 0xFD: "SinkAvail",
         0xFE: "SrcAvail", 0xFF: "Data"}


class Capture:
    """tcpdump on the test device, within a `with`; then `messages`."""

    def __init__(self, e):
        for tool in ("tcpdump", "tshark"):
            if not shutil.which(tool):
                e.skip(f"{tool} is not installed")
        self._e, self.folder, self._once = e, tempfile.mkdtemp(), None
        self.path = os.path.join(self.folder, "capture.pcap")

    def __enter__(self):
        self._process = subprocess.Popen(["tcpdump", "-i", netns.device(), "-w", self.path, "-U", "-s", "0", "-Z", "root",
                                          "--immediate-mode", "-B", "32768", f"udp port 4791 or udp port {MARKER}"], stdin=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, text=True)
        line = self._process.stderr.readline()
        if "listening on" not in line:
            raise CaseFailure(f"tcpdump: {line.strip()}")
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self._mark()
        self._process.terminate()
        _, said = self._process.communicate()
        if kind is None and "\n0 packets dropped by kernel" not in said:
            raise CaseFailure(f"tcpdump lost frames: {said.strip()}")

    def _mark(self):
        """Sends a datagram that ends the capture: once it is in the file, so are all earlier
        packets."""
        word = os.urandom(16)
        family = socket.AF_INET6 if self._e.six else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.sendto(word, (self._e.there, MARKER))
        self._e.until(lambda: word in open(self.path, "rb").read(), "the capture's last frame")

    def _tshark(self, display, *words):
        done = subprocess.run(["tshark", "-2", "-n", "-r", self.path, "-Y", display, *words], capture_output=True, text=True)
        if done.returncode:
            raise CaseFailure(f"tshark: {done.stderr.strip()}")
        return done.stdout

    def _rows(self, display, fields):
        words = [word for field in fields for word in ("-e", field)]
        return [line.split("|") for line in self._tshark(display, "-T", "fields", "-E", "separator=|", *words).splitlines()]

    def _but_once(self, display):
        """Returns the filter without repeated frames: device and connection manager retransmit when
        a reply is late, which depends on the machine's speed."""
        if self._once is None:
            seen, repeated = set(), []
            for number, opcode, attribute, transaction, packet, *ends in self._rows("infiniband.bth", (
                    "frame.number", "infiniband.bth.opcode", "infiniband.mad.attributeid", "infiniband.mad.transactionid",
                    "infiniband.bth.psn", "infiniband.bth.destqp", "ip.src", "ipv6.src")):
                # datagrams have a new packet number each time
                said = (opcode, attribute, transaction or packet, *ends)
                if said in seen:
                    repeated.append(f" && frame.number != {number}")
                seen.add(said)
            self._once = "".join(repeated)
        return f"({display}){self._once}"

    def dissect(self, display, *fields):
        """Returns one row for each frame that passes the filter: the wanted fields as text."""
        return self._rows(self._but_once(display), fields)

    def text(self, display):
        """Returns the whole dissection of the SDP layer, as tshark prints it."""
        return self._tshark(self._but_once(display), "-O", "infiniband_sdp")
