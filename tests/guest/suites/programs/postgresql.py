# SPDX-License-Identifier: GPL-2.0-only
"""PostgreSQL under sdp-run, as the user that it wants: a process for each connection."""

import glob
import os
import re
import shutil
import subprocess
import tempfile

from lib.preload import each_way

PORT = 5432
CLIENTS, TRANSACTIONS = 4, 15
RECONNECTS = 3

SETTINGS = """
listen_addresses = '{host}'
port = {port}
unix_socket_directories = ''
hba_file = '{folder}/hba'
fsync = off
shared_buffers = 16MB
jit = off
autovacuum = off
"""


class Postgres:
    """A running server with a database of its own."""

    def __init__(self, e, way):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        if not found:
            e.skip("PostgreSQL is not there")
        self._e, self._way, self._bin = e, way, found[-1]
        self._files = tempfile.TemporaryDirectory(prefix="postgresql-")
        folder = self._files.name
        # The package has made a database when it was installed, which is much quicker than initdb here.
        made = glob.glob("/var/lib/postgresql/*/main")
        if not made:
            e.skip("the package has made no database")
        shutil.copytree(made[0], f"{folder}/data", symlinks=True)
        with open(f"{folder}/settings", "w") as file:
            file.write(SETTINGS.format(host=way.host, port=PORT, folder=folder))
        with open(f"{folder}/hba", "w") as file:
            file.write("host all all all trust\n")
        subprocess.run(["chown", "-R", "postgres:postgres", folder], check=True)
        os.chmod(f"{folder}/data", 0o700)
        self._user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        self.program = way.server([*self._user, f"{self._bin}/postgres", "-D", f"{folder}/data", "-c", f"config_file={folder}/settings"], PORT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.program.end()
        self._files.cleanup()

    def client(self, name, *words):
        """What pgbench or psql says."""
        return self._way.client([*self._user, f"{self._bin}/{name}", "-h", self._way.host, "-p", PORT, "-U", "postgres", *words, "postgres"], patience=20)

    def ask(self, question):
        return self.client("psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", question).removesuffix("\n")


@each_way(ways=("by_rdma", "locally"), timeout=240)
def pgbench(e, way):
    """Its own tables and transactions, some by connections of their own; then the sums have to agree."""
    with Postgres(e, way) as server:
        with way.carries(sent=1 << 20, received=1000):
            server.client("pgbench", "-q", "-i", "-s", "1")
        with way.carries(sent=CLIENTS * TRANSACTIONS * 100, received=CLIENTS * TRANSACTIONS * 100):
            said = server.client("pgbench", "-n", "-c", CLIENTS, "-j", 2, "-t", TRANSACTIONS)
            again = server.client("pgbench", "-n", "-C", "-c", CLIENTS, "-j", 2, "-t", RECONNECTS)
        for text, count in ((said, TRANSACTIONS), (again, RECONNECTS)):
            e.check(f"{CLIENTS * count}/{CLIENTS * count}" in text and re.search(r"failed transactions: 0 ", text), f"pgbench said {text}")
        e.equal(server.ask("""
            select count(*) || ' ' || (sum(delta) = (select sum(abalance) from pgbench_accounts))
            from pgbench_history"""), f"{CLIENTS * (TRANSACTIONS + RECONNECTS)} true", "transactions, and whether the accounts agree with them")
        e.check(server.program.running(), "the server has ended")


@each_way(timeout=240)
def large_values(e, way):
    """A value of some megabytes and a table by COPY come as they are."""
    with Postgres(e, way) as server:
        with way.carries(sent=100, received=8_000_000):
            e.equal(server.ask("select repeat('0123456789', 500000)"), "0123456789" * 500000, "the value")
            rows = server.ask("copy (select n, repeat('x', n % 100) from generate_series(1, 60000) as n) to stdout").split("\n")
        e.check(rows == [f"{n}\t{'x' * (n % 100)}" for n in range(1, 60001)], "the rows are others")
