# SPDX-License-Identifier: GPL-2.0-only
"""Lifetime of a mapping: it exists from `sdpctl map add` until its removal, only while the protocol
exists, and is never partial."""

import json
import os
import pathlib
import signal
import socket
import subprocess

from lib import netns, observe
from lib.mapping import BPF, Mapping, asks, control, mount, needs, protocol_of, rows
from lib.registry import case

TCP = socket.IPPROTO_TCP
REFERENCES = pathlib.Path("/sys/module/ib_sdp/refcnt")


@case(reference=False, families=("v4",))
def ends_with_its_process(e):
    """A mapping ends with its process, however the process ends."""
    for by, wanted in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGHUP, 0), (signal.SIGKILL, -signal.SIGKILL)):
        with Mapping(e, "--all") as mapping:
            e.equal(protocol_of(socket.AF_INET), mapping.protocol, "SO_PROTOCOL")
            e.equal(mapping.end(by), wanted, f"status after {by.name}")
        e.equal(protocol_of(socket.AF_INET), TCP, f"SO_PROTOCOL after {by.name}")
    e.equal(rows(), [], "mappings that are left")


def status(process, field):
    text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return next(line.split()[1] for line in text.splitlines() if line.startswith(f"{field}:"))


@case(reference=False, families=("v4",))
def stays_after_a_hang_up(e):
    """A mapping started by nohup ignores SIGHUP."""
    with Mapping(e, "--all", by=("nohup",)) as mapping:
        # A stopped sdpctl does not handle signals.
        mapping.process.send_signal(signal.SIGSTOP)
        e.until(lambda: status(mapping.process, "State") == "T", "sdpctl does not stop")
        mapping.process.send_signal(signal.SIGHUP)
        pending = int(status(mapping.process, "ShdPnd"), 16)
        mapping.process.send_signal(signal.SIGCONT)
        e.equal(pending & 1 << signal.SIGHUP - 1, 0, "SIGHUP as a pending signal")
        e.equal(protocol_of(socket.AF_INET), mapping.protocol, "SO_PROTOCOL after SIGHUP")
        e.equal(mapping.end(signal.SIGINT), 0, "status after SIGINT")
    e.equal((rows(), protocol_of(socket.AF_INET)), ([], TCP), "mappings that are left, and SO_PROTOCOL")


@case(reference=False, families=("v4",))
def shown(e):
    """Shows each mapping with its holder and its number of mapped sockets."""
    needs(e)
    e.equal(rows(), [], "mappings at first")
    mount(e)
    with Mapping(e, "--program", "counted", "--user", "root") as mapping:
        for _ in range(3):
            asks(e, "counted")
        e.equal(control("add", "--all", "--pin", "everyone"), (0, "", ""), "sdpctl map add --pin")
        first, second = rows()
        e.equal(first[1:], (f"process {mapping.process.pid}", 3, "program counted, user 0"), "the first")
        e.equal((second[1], second[3]), ("pin everyone", "every program"), "the second")
        e.equal(control("remove", first[0]), (0, "", ""), "sdpctl map remove by number")
        mapping.process.communicate()
        e.equal(mapping.process.returncode, 0, "status of its process")
        e.equal([row[1] for row in rows()], ["pin everyone"], "what is left")
    e.equal(control("remove", "everyone"), (0, "", ""), "sdpctl map remove by name")
    e.equal(rows(), [], "mappings at last")


@case(reference=False, families=("v4",))
def pinned(e):
    """A pinned mapping stays after its creator has ended, until it is removed."""
    protocol = needs(e)
    mount(e)
    try:
        e.equal(control("add", "--program", "one", "--pin", "one"), (0, "", ""), "sdpctl map add --pin")
        e.equal((asks(e, "one"), asks(e, "two")), (protocol, TCP), "SO_PROTOCOL")
        status, _, said = control("add", "--all", "--pin", "one")
        e.check(status == 1 and "mapping of that name already" in said, f"a second one of that name: {status} {said}")
        e.equal(asks(e, "two"), TCP, "SO_PROTOCOL after a refusal")
        for name in ("unit-pg@17.a", "unit-pg@a\\x2db"):
            e.equal(control("add", "--program", "x", "--pin", name), (0, "", ""), f"a pin {name}")
            e.equal(rows()[-1][1], f"pin {name}", "the name of its pin")
            row = json.loads(control("list", "--json")[1])[-1]
            e.equal((row["pins"], row["whose"], row["protocol"], row["ipv4"]), ([name], "program x", protocol, True), "its JSON")
            e.equal(control("remove", name), (0, "", ""), f"sdpctl map remove {name}")
        e.equal(control("add", "--program", "two", "--pin", "two"), (0, "", ""), "another one")
        status, _, said = control("remove", "one", "three")
        e.check(status == 1 and said == "sdpctl: there is no mapping three (sdpctl map list)\n", f"{status} {said}")
        e.equal(len(rows()), 2, "mappings after a mistake")
        e.equal(control("remove", "one"), (0, "", ""), "sdpctl map remove")
        e.equal((asks(e, "one"), asks(e, "two")), (TCP, protocol), "SO_PROTOCOL after one is removed")
    finally:
        removed = control("remove", "--all")
    e.equal(removed, (0, "", ""), "sdpctl map remove --all")
    e.equal((asks(e, "two"), rows(), (BPF / "sdp").exists()), (TCP, [], False), "what is left")


@case(reference=False, families=("v4",))
def refused(e):
    """sdpctl refuses wrong mappings with an error message, and without any effect."""
    needs(e)
    mount(e)
    for words, user, complaint in (
            (("--user", "no such user"), None, "there is no user no such user"),
            (("--program", "/usr/bin/redis"), None, "a program is known by its name without a directory"),
            (("--cgroup", "no/such"), None, "cgroup /sys/fs/cgroup/no/such: No such file"),
            (("--cgroup", "/proc"), None, "/proc is no cgroup"),
            (("--all", "--pin", "a/b"), None, "a name is a letter"),
            (("--all",), 65534, "not permitted: it takes root"),
            (("--all", "--program", "x"), None, "cannot be used with"),
            ((), None, "required arguments")):
        status, out, said = control("add", *words, user=user)
        e.check(status in (1, 2) and not out and complaint in said, f"{words}: {status} {out} {said}")
    status, _, said = control("list", user=65534)
    e.check(status == 1 and "not permitted" in said, f"list by nobody: {status} {said}")
    for words in (("no-such",), ("4000000000",)):
        status, _, said = control("remove", *words)
        e.check(status == 1 and "there is no mapping" in said, f"remove {words}: {status} {said}")
    e.equal((rows(), protocol_of(socket.AF_INET)), ([], TCP), "mappings, and SO_PROTOCOL")


BTF = pathlib.Path("/sys/kernel/btf")


@case(reference=False, families=("v4",))
def other_kernels(e):
    """On kernels that lack a feature, sdpctl prints the name of the feature, and no socket is
    mapped. The test simulates kernels without a feature by false replies."""
    needs(e)
    btf = (BTF / "vmlinux").read_bytes()
    hook, function = b"update_socket_protocol", b"inet6_register_protosw"
    e.equal(len(hook), len(function), "lengths of two names of functions")

    def renamed(**names):
        told = btf
        for name, other in names.items():
            e.check(told.count(b"\0%s\0" % name.encode()) == 1, f"{name} is once in BTF")
            told = told.replace(b"\0%s\0" % name.encode(), b"\0%s\0" % other)
        return told

    def run(told):
        os.unshare(os.CLONE_NEWNS)
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", BTF], check=True)
        if told is not None:
            (BTF / "vmlinux").write_bytes(told)
        return control("add", "--program", "one")

    # a function that BPF programs may not modify, named like the function that BPF programs may
    # modify
    other = hook.upper()
    swapped = renamed(update_socket_protocol=other).replace(b"\0%s\0" % function, b"\0%s\0" % hook).replace(b"\0%s\0" % other, b"\0%s\0" % function)
    for told, complaint in (
            (None, "this kernel does not describe itself (CONFIG_DEBUG_INFO_BTF is needed)"),
            (renamed(update_socket_protocol=hook.upper()), "this kernel has no function update_socket_protocol"),
            (renamed(inet_unregister_protosw=b"INET_UNREGISTER_PROTOSW"), "this kernel has no function inet_unregister_protosw"),
            (swapped, "this kernel lets no program change update_socket_protocol (CONFIG_MPTCP is needed)"),
            (renamed(group_leader=b"GROUP_LEADER"), "task_struct.group_leader"),
            (btf[:1000], "/sys/kernel/btf/vmlinux: Invalid argument")):
        status, out, said = e.child(lambda: run(told)).result()
        e.check((status, out) == (1, "") and complaint in said and said.count("\n") == 1, f"wanted {complaint}: {status} {out} {said}")
    e.equal((rows(), protocol_of(socket.AF_INET)), ([], TCP), "mappings, and SO_PROTOCOL")


def insmod(*words):
    done = subprocess.run(["insmod", observe.MODULE, *words], capture_output=True, text=True)
    return done.returncode, done.stderr


@case(reference=False, families=("v4",), timeout=60)
def without_the_module(e):
    """While the module is not loaded, mapped programs use TCP; once the module is loaded again,
    their sockets are mapped again."""
    protocol = needs(e)
    e.until(lambda: REFERENCES.read_text() == "0\n", "the end of all sockets", patience=e.patience * 6)
    try:
        with Mapping(e, "--program", "one"):
            e.equal(asks(e, "one"), protocol, "SO_PROTOCOL at first")
            for _ in range(2):
                done = subprocess.run(["rmmod", "ib_sdp"], capture_output=True, text=True)
                e.equal((done.returncode, done.stderr), (0, ""), "rmmod")
                e.equal(e.child(lambda: talks("one")).result(), b"by TCP", "what came by a socket made without the module")
                e.check(rows()[0][3].endswith(f"(there is no protocol {protocol} now: TCP)"), f"it is shown as {rows()}")
                e.equal(insmod(), (0, ""), "insmod")
                e.equal(asks(e, "one"), protocol, "SO_PROTOCOL with the module again")
            # the same module with the protocol disabled
            subprocess.run(["rmmod", "ib_sdp"], check=True)
            e.equal(insmod("ipproto=0"), (0, ""), "insmod without the protocol")
            e.equal(asks(e, "one"), TCP, "SO_PROTOCOL without the protocol")
            status, _, said = control("add", "--all")
            e.check(status == 1 and "switched off" in said, f"a mapping without the protocol: {status} {said}")
            subprocess.run(["rmmod", "ib_sdp"], check=True)
            status, _, said = control("add", "--all")
            e.equal((status, said), (1, "sdpctl: the module ib_sdp is not loaded (modprobe ib_sdp)\n"), "a mapping without the module")
    finally:
        subprocess.run(["rmmod", "ib_sdp"], capture_output=True)
        insmod()
        netns.local_transport(False)


def talks(name):
    """A program of the given name connects to itself. Returns the bytes that the program has
    received."""
    with open("/proc/self/comm", "w") as file:
        file.write(name)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        with listener.accept()[0] as far:
            near.sendall(b"by TCP")
            return far.recv(10)


@case(reference=False, families=("v4",))
def without_a_bpf_file_system(e):
    """A pin name without a BPF file system: an error message, and no socket is mapped."""
    needs(e)

    def run():
        os.unshare(os.CLONE_NEWNS)
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        while os.path.ismount(BPF):
            subprocess.run(["umount", BPF], check=True)
        return control("add", "--all", "--pin", "one")

    status, out, said = e.child(run).result()
    e.check((status, out) == (1, "") and "there is no BPF file system at /sys/fs/bpf" in said, f"{status} {said}")
    e.equal((rows(), protocol_of(socket.AF_INET)), ([], TCP), "mappings, and SO_PROTOCOL")
