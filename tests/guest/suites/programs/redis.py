# SPDX-License-Identifier: GPL-2.0-only
"""redis and its own benchmark, under sdp-run."""

import csv
import hashlib
import os
import random
import tempfile

from lib.preload import each_way

PORT = 6379
REQUESTS, LENGTH = 2000, 1000
BLOB = 4 << 20


def server(way):
    way.needs("redis-server", "redis-benchmark", "redis-cli")
    return way.server(["redis-server", "--bind", way.host, "--port", PORT, "--protected-mode", "no", "--save", "", "--dir", "/tmp"], PORT)


@each_way()
def benchmark(e, way):
    """50 connections, one request at a time and 16 of them."""
    serving = server(way)
    for pipeline in (1, 16):
        with way.carries(sent=REQUESTS * LENGTH, received=REQUESTS * LENGTH):
            text = way.client(["redis-benchmark", "-h", way.host, "-p", PORT, "-c", 50, "-n", REQUESTS, "-d", LENGTH, "-P", pipeline, "-t", "set,get", "--csv"])
        rates = {row[0]: float(row[1]) for row in csv.reader(text.splitlines()) if row and row[0] in ("SET", "GET")}
        e.check(len(rates) == 2 and min(rates.values()) > 0, f"the benchmark said {text}")
    e.check(serving.running(), "the server has ended")
    serving.end()


@each_way(ways=("by_rdma", "locally"))
def data(e, way):
    """What is read is what was written: one large value, and many small ones from a pipe."""
    serving = server(way)
    cli = f"redis-cli -h {way.host} -p {PORT}"
    with tempfile.TemporaryDirectory() as folder:
        source, path = random.Random(BLOB), os.path.join(folder, "value")
        blob = source.randbytes(BLOB)
        with open(path, "wb") as file:
            file.write(blob)
        with way.carries(sent=BLOB, received=BLOB):
            e.equal(way.client(["sh", "-c", f"{cli} -x set blob < {path}"]).strip(), "OK", "the answer to SET")
            said = way.client(["sh", "-c", f"{cli} --raw get blob | head -c {BLOB} | sha256sum"]).split()[0]
        e.equal(said, hashlib.sha256(blob).hexdigest(), "the sum of the value")

        values = [source.randbytes(source.randrange(1, 400)).hex() for _ in range(3000)]
        with open(path, "w") as file:
            file.writelines(f"rpush list {value}\r\n" for value in values)
        size = sum(map(len, values))
        with way.carries(sent=size, received=size):
            said = way.client(["sh", "-c", f"{cli} --pipe < {path}"])
            e.check(f"errors: 0, replies: {len(values)}" in said, f"redis-cli said {said}")
            said = way.client(["sh", "-c", f"{cli} --raw lrange list 0 -1 > {path}"])
        with open(path) as file:
            e.check(file.read().split() == values, "the values are others")
    serving.end()
