# SPDX-License-Identifier: GPL-2.0-only
"""Two hosts, one of them without the module: programs of the other suites, started as for SDP, use
TCP."""

import hashlib
import pathlib

from lib.registry import case
from lib.without import Without, each_side, mapped, sides

from . import java, nginx, node, postgresql, redis, ssh, unpreloaded


@each_side()
def nginx_with_wrk(e, way):
    with nginx.Nginx(e, way) as server:
        for how, port in nginx.PORTS.items():
            with way.carries(sent=100, received=nginx.LARGE):
                said = way.client(["python3", "-c", nginx.FETCH, way.host, port, "small", "large"])
            e.equal(said.splitlines(), [f"200 {server.sums[name]}" for name in ("small", "large")], f"answers with {how}")
        server.load(nginx.PORTS["sendfile"], 50)


def static(e, way):
    size = unpreloaded.STATIC_CONNECTIONS * unpreloaded.STATIC_BYTES
    path, sockets = unpreloaded.command(e, "static")[0], ("2", "0")
    server = way.server([path, *sockets, "server", way.host, unpreloaded.PORT, unpreloaded.STATIC_CONNECTIONS], unpreloaded.PORT)
    with way.carries(size, size):
        for _ in range(unpreloaded.STATIC_CONNECTIONS):
            said = way.client([path, *sockets, "client", way.host, unpreloaded.PORT, unpreloaded.STATIC_BYTES])
            e.equal(said, f"{unpreloaded.STATIC_BYTES} came back\n", "what the client said")
    server.output(e.patience * 6)


def go(e, way):
    path = unpreloaded.command(e, "transfer")[0]
    content = pathlib.Path(path).read_bytes()       # a file that both machines have
    size, count = len(content), 4
    where = f"{way.host}:{unpreloaded.PORT}"
    server = way.server([path, "server", where, count], unpreloaded.PORT)
    with way.carries(count * size, count * size):
        total, *sums = way.client([path, "client", where, count, path]).splitlines()
    server.output(e.patience * 6)
    e.equal(total.split()[0], str(count * size), "bytes that came back")
    e.equal(sums, [hashlib.sha256(content).hexdigest()] * count, "their sums")


def cases():
    """Programs under sdp-run; Java and programs without preloading, mapped on both hosts."""
    for one in (java.sockets, node.http, postgresql.pgbench, redis.benchmark, ssh.copies):
        one.__module__ = __name__
        each_side(timeout=240, brief=one not in (postgresql.pgbench, ssh.copies))(one)
    for function, name in ((static, "static"), (go, "transfer"), (java.sockets, "java")):
        for side in sides(f"mapped_{function.__name__}"):
            def run(e, function=function, name=name, side=side):
                with mapped(e, name), Without(e, side, mapped=True) as way:
                    function(e, way)
            run.__name__ = f"mapped_{function.__name__}_no_module_at_the_{side}"
            case(run, families=("v4",), hosts=(2,), reference=False, timeout=240)


cases()
