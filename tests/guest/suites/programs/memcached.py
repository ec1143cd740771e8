# SPDX-License-Identifier: GPL-2.0-only
"""memcached, whose four threads get the connections of one listener, and a client of many values at
once."""

from lib.forms import form

# memcached's own text protocol
CLIENT = """
import random, socket
values = {f"key{n}": random.Random(n).randbytes(100000) for n in range(20)}
ends = [socket.create_connection(("{host}", {port})) for _ in range(4)]
for n, (key, value) in enumerate(values.items()):
    ends[n % 4].sendall(b"set %s 0 0 %d\\r\\n%s\\r\\n" % (key.encode(), len(value), value))
replies = [end.makefile("rb") for end in ends]
stored = [replies[n % 4].readline() for n in range(20)]
good = 0
for n, (key, value) in enumerate(values.items()):
    ends[-n % 4].sendall(b"get %s\\r\\n" % key.encode())
    size = int(replies[-n % 4].readline().split()[3])
    good += replies[-n % 4].read(size + 2 + 5)[:size] == value
print(stored.count(b"STORED\\r\\n"), "stored,", good, "read")
"""

form(needs=("memcached",), server=("memcached", "-u", "nobody", "-U", 0, "-l", "{host}", "-p", "{port}"),
     client=("python3", "{folder}/client.py"), files={"client.py": CLIENT}, says="20 stored, 20 read", sent=2_000_000, received=2_000_000)
