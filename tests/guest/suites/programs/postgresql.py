# SPDX-License-Identifier: GPL-2.0-only
"""PostgreSQL, run by its own user, with a process for each connection: pgbench's own transactions,
some on new connections, whose sums must agree; then a value of some megabytes, and a table by
COPY."""

import hashlib

from lib.forms import form

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
# The package created a database during installation, which is much faster than initdb here.
SERVER = """
cp -a /var/lib/postgresql/*/main {folder}/data && chmod 700 {folder}/data && chown -R postgres {folder}/data || exit
cd / && exec setpriv --reuid=postgres --regid=postgres --clear-groups /usr/lib/postgresql/*/bin/postgres -D {folder}/data -c config_file={folder}/settings
"""
CLIENT = """
set -e
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
export PGHOST={host} PGPORT={port} PGUSER=postgres
pgbench -q -i -I dtgp -s 1
pgbench -n -c 4 -j 2 -t 15
pgbench -n -C -c 4 -j 2 -t 3
ask() { psql -XAt -v ON_ERROR_STOP=1 -c "$1"; }
ask "select repeat('0123456789', 500000)" | md5sum
ask "copy (select n, repeat('x', n % 100) from generate_series(1, 60000) as n) to stdout" | md5sum
ask "select count(*) || ' ' || (sum(delta) = (select sum(abalance) from pgbench_accounts)) from pgbench_history"
"""

VALUE = "0123456789" * 500000 + "\n"
TABLE = "".join(f"{n}\t{'x' * (n % 100)}\n" for n in range(1, 60001))
SUMS = [hashlib.md5(text.encode()).hexdigest() for text in (VALUE, TABLE)]

pgbench = form(needs=("psql",), server=("sh", "{folder}/server"), client=("sh", "-c", "sh {folder}/client | tail -n 3 | sed 's/ *-$//' | paste -sd,"),
               files={"settings": SETTINGS, "hba": "host all all all trust\n", "server": SERVER, "client": CLIENT}, timeout=240,
               says=",".join([*SUMS, "72 true"]), sent=1_000_000, received=8_000_000)
