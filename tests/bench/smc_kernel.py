# SPDX-License-Identifier: GPL-2.0-only
"""Controls SMC in the guest: its modules, its settings, and its counters by generic netlink, which
prove that a sample did not fall back to TCP.

SMC-R between the two namespaces needs version 2 (rxe has RoCE v2 only), and version 2 needs a user
EID known to both ends. Both ends are in one kernel, so SMC-D's loopback device would be preferred:
for SMC-R it gets a PNETID that no network device has.
"""

import contextlib
import os
import socket
import struct
import subprocess

EID = "IBSDP.BENCH".ljust(32)
PNETID = "NOWHERE"
LOOPBACK = "lo"                         # SMC-D's device, not the network's
BUFFERS, LARGE_BUFFERS = 65536, 1 << 20  # the default, and the most for SMC-D (SMC-R takes half of it)

NETLINK_GENERIC, NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 16, 1, 4, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2
# include/uapi/linux/smc.h
GET_STATS, GET_FBACK_STATS, ADD_UEID = 7, 8, 10
EID_TABLE_ENTRY = 1
PNETID_ADD, PNETID_DEL = 2, 3
PNETID_NAME, PNETID_IBNAME, PNETID_IBPORT = 1, 3, 4
GEN_STATS, GEN_FBACK_STATS = 7, 8
STATS_SMCD, STATS_SMCR = 1, 2
TECH_TX_BYTES = 17
FBACK_CLIENT_COUNT, FBACK_REASON = 3, 4


class FellBack(Exception):
    """A sample whose bytes did not use the measured transport."""


class Netlink:
    """A generic netlink family."""

    def __init__(self, name):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        self.family = CTRL
        try:
            (found,) = self.ask(CTRL_CMD_GETFAMILY, 0, attribute(CTRL_ATTR_FAMILY_NAME, name.encode() + b"\0"))
        except OSError:
            self.socket.close()
            raise
        self.family = int.from_bytes(found[CTRL_ATTR_FAMILY_ID], "little")

    def ask(self, command, flags, data=b""):
        """Returns the attributes of each message of the reply."""
        body = struct.pack("=BBH", command, 1, 0) + data
        self.socket.send(struct.pack("=IHHII", 16 + len(body), self.family, NLM_F_REQUEST | (flags or NLM_F_ACK), 1, 0) + body)
        answers = []
        while True:
            got = self.socket.recv(1 << 16)
            while got:
                length, kind = struct.unpack_from("=IH", got)
                if kind == NLMSG_ERROR:
                    error = -struct.unpack_from("=i", got, 16)[0]
                    if error:
                        raise OSError(error, os.strerror(error))
                    return answers
                if kind == NLMSG_DONE:
                    return answers
                answers.append(attributes(got[20:length]))
                got = got[(length + 3) & ~3:]


def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def attributes(data):
    found = {}
    while data:
        length, kind = struct.unpack_from("=HH", data)
        found[kind & 0x3fff] = data[4:length]
        data = data[(length + 3) & ~3:]
    return found


def number(data):
    return int.from_bytes(data, "little")


class Smc:
    def __init__(self):
        for module in ("dibs", "smc"):
            subprocess.run(["insmod", f"/share/{module}.ko"], check=True)
        self.general, self.pnet = Netlink("SMC_GEN_NETLINK"), Netlink("SMC_PNETID")
        self.general.ask(ADD_UEID, 0, attribute(EID_TABLE_ENTRY, EID.encode() + b"\0"))
        # One device at each end: the other end's device is in the same kernel and would be used as
        # a second path.
        self.set(smcr_max_links_per_lgr=1)

    @staticmethod
    def set(**values):
        """Sets options of both namespaces."""
        script = "; ".join(f"echo {value} >/proc/sys/net/smc/{name}" for name, value in values.items())
        for where in ([], ["peer"]):
            subprocess.run([*where, "sh", "-ec", script], check=True)

    def sent(self):
        """Returns the bytes that this namespace has sent by SMC-D and by SMC-R."""
        (answer,) = self.general.ask(GET_STATS, NLM_F_DUMP)
        found = attributes(answer[GEN_STATS])
        return {name: number(attributes(found[kind])[TECH_TX_BYTES]) for name, kind in (("smcd", STATS_SMCD), ("smcr", STATS_SMCR))}

    def fallbacks(self):
        """Returns the number of connections of this namespace that fell back to TCP, and the
        reasons of all fallbacks so far."""
        found = [attributes(answer[GEN_FBACK_STATS]) for answer in self.general.ask(GET_FBACK_STATS, NLM_F_DUMP)]
        return sum(number(one.get(FBACK_CLIENT_COUNT, b"")) for one in found), sorted({number(one[FBACK_REASON]) for one in found})

    @contextlib.contextmanager
    def only(self, system):
        """SMC-R remains when SMC-D's loopback device is removed. Systems named "... large" have
        larger buffers."""
        way, _, large = system.partition(" ")
        name = attribute(PNETID_NAME, PNETID.encode() + b"\0")
        if large:
            self.set(wmem=LARGE_BUFFERS, rmem=LARGE_BUFFERS)
        if way == "smcr":
            self.pnet.ask(PNETID_ADD, 0, name + attribute(PNETID_IBNAME, LOOPBACK.encode() + b"\0") + attribute(PNETID_IBPORT, b"\1"))
        try:
            yield
        finally:
            if way == "smcr":
                self.pnet.ask(PNETID_DEL, 0, name)
            if large:
                self.set(wmem=BUFFERS, rmem=BUFFERS)

    def checked(self, system, take, least):
        """Returns the sample of take(), if at least least(sample) bytes used the expected transport
        meanwhile, and no connection fell back."""
        with self.only(system):
            before, (fallen, _) = self.sent(), self.fallbacks()
            sample = take()
            after, (fallen_now, reasons) = self.sent(), self.fallbacks()
        went = {name: after[name] - before[name] for name in after}
        way = system.split()[0]
        if fallen_now != fallen or went[way] < least(sample):
            raise FellBack(f"of {least(sample)} bytes {went['smcr']} went by SMC-R and {went['smcd']} by SMC-D; {fallen_now - fallen} connections"
                           f" fell back to TCP (reasons so far: {', '.join(f'{reason:#010x}' for reason in reasons) or 'none'})")
        return sample | {"sent_by_smc": went[way]}
