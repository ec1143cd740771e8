# SPDX-License-Identifier: GPL-2.0-only
"""QEMU migrates a machine with a 32 MiB file in memory: by one connection, by several connections,
and with zero-copy-send, which sets SO_ZEROCOPY on connected sockets. The migrated machine runs no
program."""

from lib.forms import form

MACHINE = ("qemu-system-x86_64", "-accel", "tcg", "-M", "q35", "-m", "64", "-nodefaults", "-display", "none", "-S")
SIZE = 32 << 20
CLIENT = """
import json, os, socket, subprocess, sys, time

def monitor(read, write):
    def ask(command, **arguments):
        write.write(json.dumps({"execute": command, "arguments": arguments}) + "\\n")
        write.flush()
        while "event" in (answer := json.loads(read.readline())):
            pass
        return answer["return"]
    read.readline()     # its greeting
    ask("qmp_capabilities")
    return ask

memory = os.urandom(%d)
open("{folder}/memory", "wb").write(memory)
machine = [*%r, "-device", "loader,file={folder}/memory,addr=0x1000000,force-raw=on", "-qmp", "stdio"]
source = subprocess.Popen(machine, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
ask = monitor(source.stdout, source.stdin)
ask("migrate-set-capabilities", capabilities=[{"capability": name, "state": True} for name in sys.argv[1:]])
ask("migrate", uri="tcp:{host}:{port}")
while (state := ask("query-migrate"))["status"] not in ("completed", "failed"):
    time.sleep(0.1)
with socket.socket(socket.AF_UNIX) as there:
    there.connect("{folder}/monitor")
    monitor(there.makefile("r"), there.makefile("w"))("pmemsave", val=0x1000000, size=len(memory), filename="{folder}/there")
ask("quit")
same = open("{folder}/there", "rb").read() == memory
print(state["status"], "and the same" if same else "and another", state.get("error-desc", ""))
""" % (SIZE, MACHINE)

for name, settings, capabilities in (("plain", (), ()), ("multifd", ("x-multifd",), ("multifd",)),
                                     ("zero_copy_send", ("x-multifd",), ("multifd", "zero-copy-send"))):
    options = [word for setting in settings for word in ("-global", f"migration.{setting}=on")]
    form(name=name, needs=MACHINE[:1], says="completed and the same ", sent=SIZE, received=0, timeout=240, files={"client.py": CLIENT},
         server=(*MACHINE, *options, "-qmp", "unix:{folder}/monitor,server=on,wait=off", "-incoming", "tcp:{host}:{port}"),
         client=("python3", "{folder}/client.py", *capabilities))
