# SPDX-License-Identifier: GPL-2.0-only
"""The module's data in the kernel."""

import os
import pathlib
import re
import subprocess

from lib import calls, kmsg, observe, pattern
from lib.registry import case
from suites.data.splicing import drain, pipe
from suites.zcopy.blocks import Counters


def refcount():
    with open("/sys/module/ib_sdp/refcnt") as file:
        return int(file.read())


@case(reference=False, families=("v4",))
def protocols(e):
    """/proc/net/protocols lists the protocol and its module."""
    with open("/proc/net/protocols") as file:
        rows = [line.split() for line in file if line.startswith("SDP")]
    e.check(rows, "no line begins with SDP")
    e.check(all("ib_sdp" in row for row in rows), f"rows {rows}")


@case(reference=False, families=("v4",))
def in_use(e):
    """rmmod is refused while a socket exists."""
    sock = e.socket()
    e.check(refcount() > 0, "no reference")
    done = subprocess.run(["rmmod", "ib_sdp"], capture_output=True, text=True)
    e.check(done.returncode != 0 and "in use" in done.stderr, f"rmmod: {done.returncode} {done.stderr.strip()}")
    near, far = e.pair()
    near.send(b"unharmed")
    e.equal(far.recv(10), b"unharmed", "data")
    sock.close()


@case(reference=False, families=("v4", "v6"), timeout=120)
def references_return(e):
    """Every module reference is released."""
    e.until(lambda: not observe.rows("self") and not observe.rows("peer"), "no sockets of earlier cases",
            patience=e.patience * 6)
    e.until(lambda: refcount() == 0, lambda: f"{refcount()} references at first", patience=e.patience * 6)
    listener = e.listen()
    near, far = e.pair(listener)
    near.send(b"x")
    refused = e.socket()
    e.error(refused.connect, e.address(e.there, e.refused_port()))
    for sock in (near, far, listener, refused):
        sock.close()
    e._keep.clear()
    e.until(lambda: refcount() == 0, lambda: f"{refcount()} references stay", patience=e.patience * 6)


@case(reference=False, families=("v4",))
def aliases(e):
    """modprobe finds the module by the families' numbers."""
    text = subprocess.run(["modinfo", "-F", "alias", observe.MODULE], capture_output=True, text=True).stdout.split()
    e.check({"net-pf-27", "net-pf-28"} <= set(text), f"aliases {text}")
    licence = subprocess.run(["modinfo", "-F", "license", observe.MODULE], capture_output=True, text=True).stdout.strip()
    e.check(licence.startswith("GPL"), f"licence {licence}")


@case(reference=False, families=("v4",))
def parameters(e):
    """ib_sdp's parameters exist, and only root can write them."""
    folder = "/sys/module/ib_sdp/parameters"
    e.check(os.path.isdir(folder), "no parameters")
    names = set(os.listdir(folder))
    wanted = {"recv_poll", "sdp_zcopy_thresh", "rcvbuf_initial_size", "sdp_keepalive_time"}
    e.check(wanted <= names, f"missing: {sorted(wanted - names)}")
    for name in sorted(wanted):
        e.equal(os.stat(f"{folder}/{name}").st_mode & 0o777, 0o644, f"mode of {name}")


@case(reference=False, families=("v4",))
def bounds(e):
    """Each parameter has the default of params.def, accepts its minimum and maximum, and refuses
    words and values out of bounds."""
    table = (pathlib.Path(__file__).parents[4] / "src/sys/params.def").read_text()
    rows = re.findall(r"^P\((\w+), (-?\d+), (-?\d+), (-?\w+), (0\d+),", table, re.M)
    folder = pathlib.Path("/sys/module/ib_sdp/parameters")
    e.equal({row[0] for row in rows}, set(os.listdir(folder)), "parameters")
    for name, default, least, most, mode in rows:
        file = folder / name
        e.equal(file.stat().st_mode & 0o777, int(mode, 8), f"mode of {name}")
        if mode == "0444":
            continue
        before, largest = file.read_text(), "2147483647" if most == "INT_MAX" else most
        try:
            for value in (least, largest, default):
                file.write_text(value)
                e.equal(file.read_text(), value + "\n", f"{name} when {value} has been written")
            for value in (str(int(least) - 1), str(int(largest) + 1), "many"):
                said = e.error(file.write_text, value)
                e.check(said in ("EINVAL", "ERANGE"), f"{value} was written to {name}: {said}")
                e.equal(file.read_text(), default + "\n", f"{name} when {value} has been refused")
        finally:
            file.write_text(before)


@case(reference=False, families=("v4",))
def bounds_when_loaded(e):
    """The module clamps a value out of bounds with a warning. The words `many` and the value
    ipproto=300 are refused."""
    e.until(lambda: refcount() == 0, lambda: f"{refcount()} references stay", patience=e.patience * 6)
    subprocess.run(["rmmod", "ib_sdp"], check=True)
    try:
        for refused in ("recv_poll=many", "ipproto=300"):
            done = subprocess.run(["insmod", observe.MODULE, refused], capture_output=True, text=True)
            e.check(done.returncode, f"the module was loaded with {refused}")
        log = kmsg.Log()
        given = {"recv_poll": ("5000", "1000"), "sdp_rx_size": ("1", "8"), "ipproto_wait": ("99999999999", "2147483647"), "spare_queues": ("3", "3")}
        done = subprocess.run(["insmod", observe.MODULE, *(f"{name}={value}" for name, (value, _) in given.items())], capture_output=True, text=True)
        e.equal((done.returncode, done.stderr), (0, ""), "insmod")
        lines = log.lines()
        for name, (value, used) in given.items():
            e.equal(pathlib.Path(f"/sys/module/ib_sdp/parameters/{name}").read_text(), used + "\n", name)
            said = sum(f"ib_sdp: {name}={value} is out of bounds, using {used}" in line for line in lines)
            e.equal(said, value != used, f"warnings of {name} in {lines}")
    finally:
        subprocess.run(["rmmod", "ib_sdp"])
        subprocess.run(["insmod", observe.MODULE], check=True)


@case(reference=False, families=("v4",))
def reload(e):
    """The module can be unloaded and loaded again; its files in /proc disappear and reappear."""
    e.until(lambda: refcount() == 0, lambda: f"{refcount()} references stay", patience=e.patience * 6)
    for _ in range(3):
        done = subprocess.run(["rmmod", "ib_sdp"], capture_output=True, text=True)
        e.equal((done.returncode, done.stderr), (0, ""), "rmmod")
        e.check(not os.path.exists(observe.ROWS), "/proc/net/sdp without the module")
        e.check(not os.path.exists("/proc/sys/net/sdp"), "net.sdp without the module")
        e.equal(e.error(e.socket), "EAFNOSUPPORT", "socket() without the module")
        done = subprocess.run(["insmod", observe.MODULE], capture_output=True, text=True)
        e.equal((done.returncode, done.stderr), (0, ""), "insmod")
    near, far = e.pair()
    near.send(b"again")
    e.equal(far.recv(10), b"again", "data")


@case(reference=False, families=("v4",), timeout=90)
def pages_in_a_pipe(e):
    """The pages of receive buffers stay in a pipe after close(2) and rmmod."""
    listener = e.listen()
    near, far = e.pair(listener)
    reader, writer = pipe(e)
    counters = Counters()
    task = e.task(pattern.send, near, 77, 800000, [800000])
    count = 0
    while count < 800000:
        count += calls.splice(far, writer, 800000 - count)
    task.result()
    e.check(counters.gained("zcopy spliced"), "no page was given")
    for sock in (near, far, listener):
        sock.close()
    e.until(lambda: refcount() == 0, lambda: f"{refcount()} references stay", patience=e.patience * 6)
    subprocess.run(["rmmod", "ib_sdp"], check=True)
    try:
        drain(reader, pattern.Checker(77), 800000)
    finally:
        subprocess.run(["insmod", observe.MODULE], check=True)
