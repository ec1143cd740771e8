# SPDX-License-Identifier: GPL-2.0-only
"""haproxy in front of nginx: each request uses two connections, and neither connection uses TCP."""

import os
import tempfile

from lib import netns, observe
from lib.forms import form
from lib.preload import Way, wait_for_listener
from lib.programs import Program, put
from lib.registry import case

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

PORT, SIZE, TIMES = 7470, 3_000_000, 4
FETCH = f"""
import urllib.request
content = open("{{folder}}/content", "rb").read()
print(sum(urllib.request.urlopen("http://{{here}}:{{port}}/content").read() == content for _ in range({TIMES})), "are the file")
"""


@case(families=("v4",), reference=False, timeout=120)
def passes_pages(e):
    """haproxy on this host, nginx and the client on the other host: haproxy copies few bytes."""
    with Way(e, "by_rdma") as way, tempfile.TemporaryDirectory(prefix="haproxy-") as folder:
        way.needs("haproxy", "nginx")
        os.chmod(folder, 0o755)

        def write(name, text, host):
            for word, meaning in (("folder", folder), ("here", e.here), ("host", host), ("port", PORT), ("next", PORT + 1)):
                text = text.replace("{%s}" % word, str(meaning))
            with open(f"{folder}/{name}", "w") as file:
                file.write(text)
            if not netns.local():
                put(e, f"{folder}/{name}", text.encode())

        write("nginx.conf", "daemon off;" + NGINX.replace("root", "sendfile on; root"), e.there)
        write("haproxy.cfg", HAPROXY.replace("bind {host}", "bind {here}"), e.there)
        write("client.py", FETCH, e.there)
        Program(e, ["sh", "-c", f"head -c {SIZE} /dev/urandom > {folder}/content"], "peer").output(e.patience * 6)
        nginx = way.server(["nginx", "-e", "stderr", "-c", f"{folder}/nginx.conf"], PORT + 1)
        proxy = Program(e, way.started(["haproxy", "-f", f"{folder}/haproxy.cfg"]))
        wait_for_listener(e, PORT, "self", sdp=True)
        before = observe.stats()
        client = Program(e, way.started(["python3", f"{folder}/client.py"]), "peer")
        e.equal(client.output(e.patience * 20), f"{TIMES} are the file\n", "what the client says")
        gained = {name: count - before[name] for name, count in observe.stats().items()}
        given, passed = gained["zcopy spliced"], gained["zcopy in messages"] + gained["zcopy tx_bytes"]
        print(f"# of {SIZE * TIMES} bytes {given} were given to pipes, {passed} sent from pages")
        e.check(min(given, passed) > SIZE * TIMES // 2, f"of {SIZE * TIMES} bytes {given} were given to pipes, {passed} sent from pages")
        proxy.end()
        nginx.end()
