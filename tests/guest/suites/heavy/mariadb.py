# SPDX-License-Identifier: GPL-2.0-only
"""MariaDB, with a thread for each connection, and sysbench with four clients at once. The tables of
the database keep their numbers of rows."""

from lib.forms import form

# The package created this database during installation.
SERVER = """
cp -a /var/lib/mysql {folder}/data && chown -R mysql {folder}/data
exec mariadbd --no-defaults --user=mysql --datadir={folder}/data --socket={folder}/data/socket --bind-address={host} --port={port} \
    --skip-grant-tables --skip-name-resolve --skip-ssl
"""
CLIENT = """
ask() { mariadb --no-defaults --skip-ssl -h {host} -P {port} -N -e "$1"; }
bench() {
    sysbench oltp_read_write --db-driver=mysql --mysql-host={host} --mysql-port={port} --mysql-user=root --mysql-db=test \
        --tables=2 --table-size=1000 --threads=4 --events=60 --time=0 "$1"
}
ask 'create database if not exists test'
bench prepare && bench run | grep transactions: | cut -d'(' -f1 && ask 'select count(*) from test.sbtest1 union all select count(*) from test.sbtest2'
ask 'select concat("bytes: ", length(repeat("0123456789", 500000)), " ", sum(length(c)) = 2000 * 119) from (select c from test.sbtest1 union all select c from test.sbtest2) as both_tables'
"""

form(needs=("mariadbd", "mariadb", "sysbench"), server=("sh", "{folder}/server"), client=("sh", "{folder}/client"), timeout=400,
     files={"server": SERVER, "client": CLIENT}, says="bytes: 5000000 1", sent=300_000, received=300_000)
