# SPDX-License-Identifier: GPL-2.0-only
"""One guest: a QEMU process, its console, and the channel to the agent inside."""

import collections
import os
import socket
import struct
import subprocess
import tempfile

from boot import Archive
from complaints import Complaints

# Frames; inside/guest.h describes them.
HEAD = struct.Struct("<B3xII")
RUN, OUT, ERR, OUT_READ, ERR_READ, EXIT, SIGNAL, HANGUP, UP, FAILED, FINISH, TASKS = b"ROEoeXSHUFDT"

# The last line that the agent prints; all earlier messages of the kernel have arrived with it.
LAST_LINE = "guest: end of the run"

KERNEL_ARGUMENTS = [
    # Only warnings and worse are printed until the first process prints everything: each character
    # on the serial line costs an exit from emulated code.
    "loglevel=5",
    # After a panic or an oops the guest cannot continue: QEMU ends, and the wait ends with QEMU.
    "panic=-1", "oops=panic",
    # Mitigations and crypto tests are useless in emulation, and cost time in every boot or every
    # system call.
    "mitigations=off", "cryptomgr.notests",
    # A busy host may keep a virtual processor waiting for long: that is no fault of the guest.
    "rcupdate.rcu_cpu_stall_timeout=60", "watchdog_thresh=30",
    "printk.devkmsg=on", "random.trust_cpu=on",
]
# Work in each page allocation, each context switch and in ACPI's byte code is avoided, as are
# instructions that the emulator is slow at: PCLMULQDQ, by which the CRC of RoCE is computed, and
# five levels of page tables. Instruction-counted runs do not get the arguments below, so that
# figures stay comparable with earlier figures.
EMULATED_ARGUMENTS = ["init_on_alloc=0", "psi=0", "acpi=off"]
EMULATED_CPU = ",pclmulqdq=off,la57=off"
# By architecture: the emulator, the Debian package of it, its machine and processor, and arguments
# for the guest's kernel.
KINDS = {
    # No ERMS: the emulator executes `rep movsb` byte by byte, some five times slower than the loop
    # of moves that the kernel copies with otherwise. On hardware ERMS is faster.
    "amd64": ("qemu-system-x86_64", "qemu-system-x86", "pc,vmport=off,smm=off", "max,erms=off", ["console=ttyS0", "no_timer_check"]),
    # A simpler algorithm for pointer authentication, because the architecture's is slow to emulate.
    "arm64": ("qemu-system-aarch64", "qemu-system-arm", "virt,gic-version=3", "max,pauth-impdef=on", ["console=ttyAMA0"]),
}


def quoted(value):
    """A value inside one of QEMU's comma-separated options."""
    return str(value).replace(",", ",,")


class Machine:
    def __init__(self, name, log):
        self.name = name
        self.process = None
        self.channel = self.console = None
        self.log = open(log, "wb", buffering=0)
        self.log_path = log
        self.errors = tempfile.TemporaryFile()
        self.tail = collections.deque(maxlen=300)
        self.complaints = Complaints()
        self.up = self.finished = self.last_line_seen = self.watched_for_sending = False
        self._line = b""
        self._in = bytearray()
        self._out = bytearray()

    def start(self, *, architecture, accel, image, initramfs, config, files, memory, cpus, shares, wire, extra):
        """Start QEMU. Starts QEMU. `shares` is (tag, directory, writable); `wire` is this end's
        file descriptor of the wire."""
        self.channel, channel = socket.socketpair()
        self.console, console = socket.socketpair()
        for end in (self.channel, self.console):
            end.setblocking(False)
        # A second archive after the first, with the files of this run alone.
        own = Archive()
        own.file("config", "".join(f"{key}={value}\n" for key, value in config.items()).encode())
        for name, path in files.items():
            own.file(name, path.read_bytes())
        archive = os.memfd_create("initramfs", 0)
        with open(archive, "wb", closefd=False) as file:
            file.write(initramfs.read_bytes())
            file.write(own.bytes())

        passed = [channel.fileno(), console.fileno(), archive]
        program, _, machine, processor, arguments = KINDS[architecture]
        # One socket for each processor: the MP tables, which a kernel without ACPI reads, list only
        # the first processor of each socket.
        command = [
            program, "-name", f"af_sdp-{self.name}", "-nodefaults", "-no-user-config", "-display", "none",
            "-no-reboot", "-M", machine, "-smp", f"{cpus},sockets={cpus}", "-m", str(memory),
            "-kernel", image, "-initrd", f"/proc/self/fd/{archive}",
            "-append", " ".join([*arguments, *KERNEL_ARGUMENTS, *(EMULATED_ARGUMENTS if accel == "tcg" else []), *extra]),
            "-chardev", f"socket,id=console,fd={console.fileno()}", "-serial", "chardev:console",
            "-device", "virtio-serial-pci,max_ports=2",
            "-chardev", f"socket,id=agent,fd={channel.fileno()}", "-device", "virtserialport,chardev=agent,nr=1,name=agent",
        ]
        if accel == "kvm":
            command += ["-accel", "kvm", "-cpu", "host"]
        else:
            command += ["-cpu", processor + (EMULATED_CPU if accel == "tcg" and architecture == "amd64" else "")]
            if accel == "icount":
                # The virtual processors take turns in one thread. The guest's clock skips idle
                # time.
                command += ["-accel", "tcg,thread=single,tb-size=256", "-icount", "shift=1,sleep=off"]
            else:
                command += ["-accel", "tcg,thread=multi,tb-size=256"]
        for tag, directory, writable in shares:
            model = "passthrough" if writable and os.geteuid() == 0 else "none"
            option = f"local,id={tag},path={quoted(directory)},security_model={model},multidevs=remap"
            command += ["-fsdev", option + ("" if writable else ",readonly=on"), "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        if wire is not None:
            # A pair of UNIX sockets. With TCP (listen= and connect=) QEMU leaves Nagle's algorithm
            # on. An RDMA acknowledgement and the message after it are two small writes in a row, so
            # the second would wait for the delayed acknowledgement of the first, and every round
            # trip would take 20 ms.
            passed.append(wire)
            last = 1 if self.name == "self" else 2
            command += ["-netdev", f"socket,id=wire,fd={wire}", "-device", f"virtio-net-pci,netdev=wire,host_mtu=9000,mac=52:54:00:77:00:0{last}"]
        # QEMU must not outlive this process, and the terminal's Ctrl-C must not reach it first.
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *map(str, command)],
            stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors, pass_fds=passed, start_new_session=True,
        )
        for end in (channel, console):
            end.close()
        os.close(archive)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def said(self):
        """Returns the output of QEMU itself."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()

    # --- console ------------------------------------------------------------------------------

    def read_console(self):
        """Reads the console's output; returns False at its end."""
        while True:
            try:
                data = self.console.recv(1 << 16)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            if not data:
                return False
            self.log.write(data)
            lines = (self._line + data).split(b"\n")
            self._line = lines.pop()
            for line in lines:
                self._look_at(line)

    def _look_at(self, line):
        text = line.decode(errors="replace").rstrip("\r")
        self.tail.append(text)
        if text.endswith(LAST_LINE):
            self.last_line_seen = True
        self.complaints.look_at(text)

    # --- channel ------------------------------------------------------------------------------

    def send(self, kind, number=0, data=b""):
        self._out += HEAD.pack(kind, number, len(data)) + data
        self.flush()

    def flush(self):
        while self._out:
            try:
                done = self.channel.send(self._out[:1 << 18])
            except (BlockingIOError, ConnectionError):
                return
            del self._out[:done]

    @property
    def has_to_send(self):
        return bool(self._out)

    def receive(self):
        """Returns the frames that have arrived: (kind, id, data); None at the end of the
        channel."""
        ended = False
        while True:
            try:
                data = self.channel.recv(1 << 18)
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            if not data:
                ended = True
                break
            self._in += data
        frames, start = [], 0
        while len(self._in) - start >= HEAD.size:
            kind, number, length = HEAD.unpack_from(self._in, start)
            if len(self._in) - start - HEAD.size < length:
                break
            start += HEAD.size
            frames.append((kind, number, bytes(self._in[start:start + length])))
            start += length
        del self._in[:start]
        return None if ended and not frames else frames
