# SPDX-License-Identifier: GPL-2.0-only
"""redis: its own benchmark with 50 connections, one request or 16 at a time; a large value, and
many from a pipe."""

from lib.forms import form

CLIENT = """
cd /tmp && folder=$(mktemp -d form-client-XXXXXX) && cd $folder || exit
cli="redis-cli -h {host} -p {port}"
for many in 1 16; do
    redis-benchmark -h {host} -p {port} -c 50 -n 2000 -d 1000 -P $many -t set,get --csv || exit
done
head -c 4194304 /dev/urandom > value && $cli -x set blob < value
$cli --raw get blob | head -c 4194304 | cmp - value && echo one large
seq 1000000 1003000 | sed 's/.*/&-&-&-&-&-&-&-&/' > values && sed 's/.*/rpush list &\\r/' values | $cli --pipe
$cli --raw lrange list 0 -1 | cmp - values && echo many small
rm -r /tmp/$folder
"""

# the benchmark also runs against a server that only has TCP
benchmark = form(needs=("redis-server", "redis-benchmark", "redis-cli"), client=("sh", "{folder}/client"), files={"client": CLIENT},
                 server=("redis-server", "--bind", "{host}", "--port", "{port}", "--protected-mode", "no", "--save", "", "--dir", "/tmp"),
                 also_by={("sdp_run", "by_tcp")}, says="many small", sent=8_000_000, received=8_000_000)
