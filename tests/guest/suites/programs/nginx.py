# SPDX-License-Identifier: GPL-2.0-only
"""nginx under sdp-run, with unprivileged workers, with wrk and Python's http.client."""

import hashlib
import os
import pathlib
import random
import re
import signal
import tempfile

from lib import observe
from lib.forms import EVERY
from lib.preload import each_way

# One port of nginx uses sendfile, the other does not.
PORTS = {"sendfile": 8080, "no sendfile": 8081}
SMALL, LARGE = 1000, 6 << 20
# The suite overload of `make test` tests larger numbers.
CONNECTIONS = {"by_rdma": 1000, "locally": 3000, "by_tcp": 1000} if EVERY else {"by_rdma": 60}

SETTINGS = """
daemon off; user www-data; worker_processes 2; worker_rlimit_nofile 16384; pid {folder}/pid;
events {{ worker_connections 8000; }}
http {{
    access_log off; keepalive_requests 1000000; keepalive_timeout 300; root {folder}; default_type application/octet-stream;
    server {{ listen {host}:8080 backlog=4000; sendfile on; tcp_nopush on; }}
    server {{ listen {host}:8081 backlog=4000; sendfile off; }}
}}
"""

# Sends all requests on one connection; prints the checksum of each reply.
FETCH = """
import hashlib, http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]))
for path in sys.argv[3:]:
    connection.request("GET", "/" + path)
    answer = connection.getresponse()
    socket = connection.sock
    print(answer.status, hashlib.sha256(answer.read()).hexdigest())
    assert connection.sock is socket, "it was closed"
"""


class Nginx:
    """A running server with two files."""

    def __init__(self, e, way):
        way.needs("nginx", "wrk")
        self._e, self._way = e, way
        self._files = tempfile.TemporaryDirectory(prefix="nginx-")
        self.folder = self._files.name
        os.chmod(self.folder, 0o755)
        self.sums = {}
        for name, size in (("small", SMALL), ("large", LARGE)):
            content = random.Random(size).randbytes(size)
            self.sums[name] = hashlib.sha256(content).hexdigest()
            with open(f"{self.folder}/{name}", "wb") as file:
                file.write(content)
        with open(f"{self.folder}/nginx.conf", "w") as file:
            file.write(SETTINGS.format(folder=self.folder, host=way.host))
        self.program = way.server(["nginx", "-e", "stderr", "-c", f"{self.folder}/nginx.conf"], PORTS["no sendfile"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.program.end()
        self._files.cleanup()

    def load(self, port, connections, *options):
        """Sends wrk's requests on the given number of connections, until as many replies have
        arrived: no request may fail."""
        url = f"http://{self._way.host}:{port}/small"
        # wrk has only a duration, which includes connecting; a slow machine may spend all of it on
        # connecting.
        with self._way.carries(sent=10, received=SMALL):
            for seconds in (2 + connections // 500, 30, 60):
                text = self._way.client(["wrk", "-t", 2, "-c", connections, "-d", f"{seconds}s", "--timeout", "100s", *options, url], patience=20)
                requests = re.search(r"(\d+) requests in", text)
                self._e.check(requests and "Socket errors" not in text and "Non-2xx" not in text, f"wrk said {text}")
                if int(requests[1]) >= connections:
                    return
        self._e.check(False, f"{requests[1]} answers by {connections} connections in {seconds} s")


@each_way(ways=("by_rdma", "locally") if EVERY else ("by_rdma",))
def files(e, way):
    """Fetches a small and a large file repeatedly on one connection, with and without sendfile."""
    names = ["small", "large", "small", "large", "small"]
    size = sum(LARGE if name == "large" else SMALL for name in names)
    with Nginx(e, way) as server:
        for how, port in PORTS.items():
            before = observe.stats(way.where)["zcopy tx_bytes"]
            with way.carries(sent=100, received=size):
                said = way.client(["python3", "-c", FETCH, way.host, port, *names])
            e.equal(said.splitlines(), [f"200 {server.sums[name]}" for name in names], f"answers with {how}")
            direct = observe.stats(way.where)["zcopy tx_bytes"] - before
            if how == "sendfile" and way.sdp:
                # the client may be too late for some of the file
                e.check(direct >= 1 << 20, f"of {size} bytes {direct} were read from the file's own pages")


@each_way(ways=("by_rdma", "locally") if EVERY else ("locally",))
def load(e, way):
    """wrk uses persistent connections, and then a new connection for each request."""
    with Nginx(e, way) as server:
        for port in PORTS.values():
            server.load(port, 50)
        server.load(PORTS["sendfile"], 10, "-H", "Connection: close")


@each_way(ways=tuple(CONNECTIONS), timeout=240)
def many_connections(e, way):
    """CONNECTIONS connections at once."""
    with Nginx(e, way) as server:
        server.load(PORTS["sendfile"], CONNECTIONS[way.name])
        e.check(server.program.running(), "the server has ended")


@each_way(ways=("by_rdma",))
def new_settings(e, way):
    """SIGHUP: new workers take over the listeners of the old workers."""
    with Nginx(e, way) as server:
        told = pathlib.Path(server.folder, "pid")
        # nginx listens before it writes its pid
        e.until(lambda: told.exists() and told.read_text(), "the master's number")
        master = int(told.read_text())

        def workers():
            with open(f"/proc/{master}/task/{master}/children") as file:
                return set(file.read().split())

        before = workers()
        os.kill(master, signal.SIGHUP)
        e.until(lambda: workers() and not workers() & before, "the old workers stay", patience=e.patience * 3)
        server.load(PORTS["sendfile"], 20)
