# SPDX-License-Identifier: GPL-2.0-only
"""Two of the kernel's own selftests, unmodified: io_uring_zerocopy_tx (SEND_ZC from a registered
buffer) and msg_zerocopy. Both selftests fail unless each send has one notification. Both selftests
send the alphabet repeatedly. io_uring makes the requests one by one, because a ring sends the rest
of a request only after the next request has begun. Memory is in use until its notification, so many
sends are in flight."""

from lib.forms import form

FOLDER = "/src/build/programs"
# The length is no multiple of 26, so that an alphabet continues into the next send.
LENGTH = 65000
SERVER = """
import os, socket
letters = bytes(range(ord("a"), ord("z") + 1)) * 50000
listener = socket.create_server(("{host}", {port}))
sock, at, right = listener.accept()[0], 0, True
while data := sock.recv(1 << 20):
    right &= letters[at % 26:at % 26 + len(data)] == data
    at += len(data)
with open("{folder}/verdict.new", "w") as file:
    print("all bytes are right" if right and not at % 65000 else f"wrong among {at}", file=file)
os.rename("{folder}/verdict.new", "{folder}/verdict")
"""
CLIENT = """
%s -4 -D {host} -p {port} -s %d -t 1 %s tcp || exit
until [ -e {folder}/verdict ]; do sleep 0.1; done
cat {folder}/verdict
"""

for name, words in (("io_uring_zerocopy_tx", "-n 1 -m 2"), ("msg_zerocopy", "-z")):
    form(name=name, needs=("python3",), says="all bytes are right", sent=10 * LENGTH, received=0,
         files={"server.py": SERVER, "client.sh": CLIENT % (f"{FOLDER}/{name}", LENGTH, words)},
         server=("python3", "{folder}/server.py"), client=("sh", "{folder}/client.sh"))
