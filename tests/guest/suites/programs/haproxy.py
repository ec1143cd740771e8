# SPDX-License-Identifier: GPL-2.0-only
"""haproxy in front of nginx: each request uses two connections, and neither of them is TCP's."""

from lib.forms import form

NGINX = """
user www-data; pid {folder}/pid; worker_processes 1;
events { }
http { access_log off; server { listen {host}:{next}; root {folder}; } }
"""
HAPROXY = """
defaults
    mode http
    timeout connect 60s
    timeout client 60s
    timeout server 60s
    option splice-auto
frontend all
    bind {host}:{port}
    default_backend nginx
backend nginx
    server one {host}:{next}
"""
# nginx becomes a daemon once it listens
SERVER = """
head -c 3000000 /dev/urandom > {folder}/content
nginx -e stderr -c {folder}/nginx.conf || exit
haproxy -f {folder}/haproxy.cfg &
trap 'kill $! $(cat {folder}/pid)' TERM
wait
"""
CLIENT = """
import concurrent.futures, urllib.request
content = open("{folder}/content", "rb").read()
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    got = pool.map(lambda _: urllib.request.urlopen("http://{host}:{port}/content").read(), range(8))
print(sum(one == content for one in got), "are the file")
"""

form(needs=("haproxy", "nginx"), server=("sh", "{folder}/server"), client=("python3", "{folder}/client.py"), says="8 are the file", sent=800,
     received=24_000_000, files={"nginx.conf": NGINX, "haproxy.cfg": HAPROXY, "server": SERVER, "client.py": CLIENT})
