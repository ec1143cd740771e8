# SPDX-License-Identifier: GPL-2.0-only
"""BIND, which uses libuv as well, and dig: transfers a zone of 3000 names."""

from lib.forms import form

SETTINGS = """
options {
    directory "{folder}"; pid-file none; session-keyfile none; recursion no; dnssec-validation no; allow-transfer { any; };
    listen-on port {port} { {host}; }; listen-on-v6 { none; };
};
controls { };
zone "example" { type primary; file "zone"; };
"""
ZONE = """$TTL 60
@ SOA ns root 1 3600 600 86400 60
@ NS ns
ns A 192.0.2.1
$GENERATE 1-3000 host$ A 192.0.2.2
"""

form(needs=("named", "dig"), server=("named", "-g", "-c", "{folder}/named.conf"),
     client=("sh", "-c", "dig @{host} -p {port} +tcp +noall +answer AXFR example | grep -c '^host[0-9]*.example.'"),
     files={"named.conf": SETTINGS, "zone": ZONE}, says="3000", sent=20, received=40_000)
