# SPDX-License-Identifier: GPL-2.0-only
"""Two machines, one without the module: the programs of the other subjects, started as they would be for SDP, have TCP."""

import hashlib
import os
import pathlib
import subprocess
import tempfile

from lib.programs import put
from lib.registry import case
from lib.without import Without, each_side, mapped

from . import java, nginx, postgresql, redis, ssh, unpreloaded


@each_side()
def redis_benchmark(e, way):
    serving = redis.server(way)
    size = redis.REQUESTS * redis.LENGTH
    with way.carries(sent=size, received=size):
        text = way.client(["redis-benchmark", "-h", way.host, "-p", redis.PORT, "-c", 20, "-n", redis.REQUESTS, "-d", redis.LENGTH, "-t", "set,get", "--csv"])
    e.check('"SET"' in text and '"GET"' in text, f"the benchmark said {text}")
    e.check(serving.running(), "the server has ended")
    serving.end()


@each_side()
def nginx_with_wrk(e, way):
    with nginx.Nginx(e, way) as server:
        for how, port in nginx.PORTS.items():
            with way.carries(sent=100, received=nginx.LARGE):
                said = way.client(["python3", "-c", nginx.FETCH, way.host, port, "small", "large"])
            e.equal(said.splitlines(), [f"200 {server.sums[name]}" for name in ("small", "large")], f"answers with {how}")
        server.load(nginx.PORTS["sendfile"], 50)


@each_side(timeout=240)
def postgresql_with_pgbench(e, way):
    count = postgresql.CLIENTS * postgresql.RECONNECTS
    with postgresql.Postgres(e, way) as server:
        with way.carries(sent=1 << 20, received=1000):
            server.client("pgbench", "-q", "-i", "-s", "1")
            said = server.client("pgbench", "-n", "-C", "-c", postgresql.CLIENTS, "-j", 2, "-t", postgresql.RECONNECTS)
        e.check(f"{count}/{count}" in said, f"pgbench said {said}")
        e.equal(server.ask("select count(*) from pgbench_history"), str(count), "transactions")


@each_side(timeout=240)
def openssh(e, way):
    """A file there and back."""
    way.needs("/usr/sbin/sshd")
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ssh-") as folder:
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"], check=True)
        put(e, f"{folder}/user", pathlib.Path(f"{folder}/user").read_bytes())
        with open(f"{folder}/sshd_config", "w") as file:
            file.write(ssh.SETTINGS.format(port=ssh.PORT, host=way.host, folder=folder))
        size, content = 20 << 20, os.urandom(1 << 20) * 20
        with open(f"{folder}/sent", "wb") as file:
            file.write(content)
        wanted = hashlib.sha256(content).hexdigest()
        serving = way.server(["/usr/sbin/sshd", "-D", "-e", "-f", f"{folder}/sshd_config"], ssh.PORT)
        options = f"-F none -i {folder}/user -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
        with way.carries(sent=size, received=size):
            there, back = f"root@{way.host}:{folder}/sent", f"root@{way.host}:{folder}/back"
            said = way.client(["sh", "-ec", f"""
                chmod 600 {folder}/user
                scp {options} -P {ssh.PORT} {there} {folder}/copy
                sha256sum {folder}/copy
                scp {options} -P {ssh.PORT} {folder}/copy {back}
            """])
        e.equal(said.split()[0], wanted, "the sum of the copy")
        with open(f"{folder}/back", "rb") as file:
            e.equal(hashlib.file_digest(file, "sha256").hexdigest(), wanted, "the sum of what came back")
        serving.end()


@each_side(timeout=240)
def java_under_sdp_run(e, way):
    java.serves(e, way, lambda command: way.server(command, java.PORT), lambda command: way.client(command, patience=20))


def cases():
    """Programs that nothing can be preloaded into, and Java, mapped on both machines."""
    def mapped_static(e, way):
        size = unpreloaded.STATIC_CONNECTIONS * unpreloaded.STATIC_BYTES
        path, sockets = unpreloaded.command(e, "static")[0], ("2", "0")
        server = way.server([path, *sockets, "server", way.host, unpreloaded.PORT, unpreloaded.STATIC_CONNECTIONS], unpreloaded.PORT, mapped=True)
        with way.carries(size, size):
            for _ in range(unpreloaded.STATIC_CONNECTIONS):
                said = way.client([path, *sockets, "client", way.host, unpreloaded.PORT, unpreloaded.STATIC_BYTES], mapped=True)
                e.equal(said, f"{unpreloaded.STATIC_BYTES} came back\n", "what the client said")
        server.output(e.patience * 6)

    def mapped_go(e, way):
        path = unpreloaded.command(e, "transfer")[0]
        content = pathlib.Path(path).read_bytes()       # a file that both machines have
        size, count = len(content), 4
        where = f"{way.host}:{unpreloaded.PORT}"
        server = way.server([path, "server", where, count], unpreloaded.PORT, mapped=True)
        with way.carries(count * size, count * size):
            total, *sums = way.client([path, "client", where, count, path], mapped=True).splitlines()
        server.output(e.patience * 6)
        e.equal(total.split()[0], str(count * size), "bytes that came back")
        e.equal(sums, [hashlib.sha256(content).hexdigest()] * count, "their sums")

    def mapped_java(e, way):
        java.serves(e, way, lambda command: way.server(command, java.PORT, mapped=True), lambda command: way.client(command, patience=20, mapped=True))

    for function, name in ((mapped_static, "static"), (mapped_go, "transfer"), (mapped_java, "java")):
        for side in ("server", "client"):
            def run(e, function=function, name=name, side=side):
                with mapped(e, name), Without(e, side) as way:
                    function(e, way)
            run.__name__, run.__doc__ = f"{function.__name__}_no_module_at_the_{side}", function.__doc__
            case(run, families=("v4",), hosts=(2,), reference=False, timeout=240)


cases()
