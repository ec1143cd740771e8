# SPDX-License-Identifier: GPL-2.0-only
"""One session as tshark shows it: every message by its name, Hello's addresses and ports."""

import difflib
import os
import pathlib
import re
import socket

from lib import observe, pattern
from lib.registry import case
from lib.wire import BSDH, HELLO, MESSAGES, NAMES, Capture

# The first line of a golden text.
LICENCE = "# SPDX-License-Identifier: GPL-2.0-only\n"
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden"
TCP = socket.IPPROTO_TCP


def over(e, *socks):
    """Waits until neither host has a row of the connection: the capture then contains its
    teardown."""
    ports = {sock.getsockname()[1] for sock in socks}
    for sock in socks:
        sock.close()
    e.until(lambda: not [row for where in ("self", "peer") for row in observe.rows(where)
                         if row.local[1] in ports and row.state != "LISTEN"],
            "the end of the connection", patience=e.patience * 6)


def talk(e):
    """Waits for each message before the next one is sent, so that the order is always the same. The
    session has too few messages for a credit update, whose timing would vary."""
    listener = e.listen()
    near, far = e.pair(listener)
    near.set(TCP, socket.TCP_NODELAY, 1)
    for source, target, words in ((near, far, b"hello"), (far, near, b"and hello" + b"x" * 1000)):
        source.sendall(words)
        e.equal(target.recv_exactly(len(words)), words, "words")
    near.send(b"!", socket.MSG_OOB)
    e.wait_mask(far, "PRI")
    e.equal(far.recv(1, socket.MSG_OOB), b"!", "the urgent byte")
    near.shutdown(socket.SHUT_WR)
    e.equal(far.recv(1), b"", "end")
    far.sendall(b"last words")
    far.shutdown(socket.SHUT_WR)
    e.equal(near.drain(), b"last words", "the answer")
    ports = near.port, listener.port
    listener.close()
    over(e, near, far)
    return ports


def masked(text, ports):
    """Returns the dissection without frame numbers, hardware addresses and variable fields."""
    lines = []
    for line in text.splitlines():
        if line.startswith(("Frame", "Ethernet", "User Datagram")):
            continue
        if line.startswith("Internet Protocol"):
            source, target = re.search(r"Src: (\S+), Dst: (\S+)", line).groups()
            lines.append(f"{source} > {target}")
            continue
        line = re.sub(r"(Local Port: )%d\b" % ports[0], r"\1(connector's)", line)
        line = re.sub(r"(Buffers|DesRemRcvSz|LocalRcvSz|Maximum Advertisements): .*", r"\1: (any)", line)
        lines.append(line.rstrip())
    return "\n".join(lines).strip() + "\n"


@case(reference=False, timeout=120)
def golden(e):
    """Compares the whole dissection with the stored dissection."""
    capture = Capture(e)
    with capture:
        ports = talk(e)
    name = f"session-{'v6' if e.six else 'v4'}.txt"
    text = LICENCE + masked(capture.text(MESSAGES), ports)
    if os.environ.get("WRITE_GOLDEN"):
        pathlib.Path(os.environ["WRITE_GOLDEN"], name).write_text(text)
    wanted = (GOLDEN / name).read_text()
    difference = list(difflib.unified_diff(wanted.splitlines(), text.splitlines(), "kept", "seen", lineterm="", n=2))
    e.check(not difference, "another session than the one kept:\n" + "\n".join(difference[:60]))


@case(reference=False, timeout=120)
def names_and_addresses(e):
    """Checks fields: message identifiers in order, Hello's version, addresses and port, and the
    service ID."""
    capture = Capture(e)
    with capture:
        ports = talk(e)
    seen = capture.dissect(MESSAGES, BSDH + "mid")
    e.equal([NAMES.get(int(row[0], 16)) for row in seen],
            ["Hello", "HelloAck", "Data", "Data", "Data", "DisConn", "Data", "DisConn"], "messages")
    rows = capture.dissect("infiniband.mad.attributeid == 0x0010", *(HELLO + name for name in (
        "majv", "minv", "ipv", "localport", "src_ip", "dst_ip", "maxadverts")), "infiniband.cm.req.serviceid",
        BSDH + "len")
    e.equal(len(rows), 1, "connection requests")
    major, minor, version, port, source, target, adverts, service, length = rows[0]
    e.equal((int(major, 0), int(minor, 0)), (2, 2), "version")
    e.equal(int(version, 0), 6 if e.six else 4, "IP version")
    e.equal(int(port, 0), ports[0], "port of the connector")
    prefix = "" if e.six else "::"
    e.equal((source, target), (prefix + e.here, prefix + e.there), "addresses")
    e.check(int(adverts, 0) > 1, f"MaxAdverts {adverts}")
    e.equal(int(service, 16), 0x10000 | ports[1], "service ID")
    e.equal(int(length, 0), 92, "length of a Hello")


@case(reference=False, timeout=240)
def numbers(e):
    """Checks a long exchange in both directions: lengths, sequence numbers and acknowledgements."""
    capture = Capture(e)
    with capture:
        near, far = e.pair()
        total = 300000
        tasks = [e.task(pattern.send, near, 1, total, [20000, 10]), e.task(pattern.send, far, 2, total, [777, 9000]),
                 e.task(pattern.receive, near, 2, total, [5000]), e.task(pattern.receive, far, 1, total, [6000])]
        e.equal([task.result() for task in tasks], [total] * 4, "bytes")
        near.shutdown(socket.SHUT_WR)
        far.shutdown(socket.SHUT_WR)
        over(e, near, far)
    source = "ipv6.src" if e.six else "ip.src"
    rows = capture.dissect(MESSAGES, source, BSDH + "mid", BSDH + "len", BSDH + "mseq", BSDH + "mseqack",
                           "infiniband.bth.opcode", "udp.length")
    last, told, carried = {e.here: -1, e.there: -1}, {e.here: 0, e.there: 0}, {e.here: 0, e.there: 0}
    for host, mid, length, sequence, acknowledged, opcode, frame in rows:
        mid, length, sequence, acknowledged = int(mid, 16), int(length), int(sequence, 16), int(acknowledged, 16)
        other = e.there if host == e.here else e.here
        e.check(mid in NAMES, f"message {mid:#x}")
        e.equal(sequence, last[host] + 1, f"sequence number of {NAMES[mid]} from {host}")
        last[host] = sequence
        e.check(acknowledged <= max(last[other], 0), f"{host} acknowledges {acknowledged}, {other} sent {last[other]}")
        e.check(acknowledged >= told[host], f"{host} acknowledges {acknowledged} after {told[host]}")
        told[host] = acknowledged
        if NAMES[mid] == "Data":
            carried[host] += length - 16
        if opcode == "4":               # alone in its frame: BTH 12, ICRC 4, padding up to 3
            room = int(frame) - 8 - 12 - 4
            e.check(length <= room < length + 4, f"{NAMES[mid]} of {length} bytes in {room}")
    e.equal(carried, {e.here: total, e.there: total}, "bytes in Data messages")


@case(reference=False, timeout=120)
def refused(e):
    """The connection manager rejects a connection to a port without a listener."""
    capture = Capture(e)
    with capture:
        e.equal(e.error(e.socket().connect, e.address(e.there, e.refused_port())), "ECONNREFUSED", "connect")
    rows = capture.dissect("infiniband.mad.attributeid == 0x0012", "ipv6.src" if e.six else "ip.src")
    e.equal(rows, [[e.there]], "rejections")
