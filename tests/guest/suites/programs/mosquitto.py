# SPDX-License-Identifier: GPL-2.0-only
"""mosquitto: a retained message, from a publisher to a subscriber."""

from lib.forms import form

SETTINGS = """
listener {port} {host}
allow_anonymous true
"""
CLIENT = """
cd {folder} && head -c 300000 /dev/urandom | base64 > sent
mosquitto_pub -h {host} -p {port} -t a/b -q 2 -r -f sent && mosquitto_sub -h {host} -p {port} -t a/b -q 2 -C 1 -N > got && cmp sent got && echo the same
"""

form(needs=("mosquitto", "mosquitto_pub"), server=("mosquitto", "-c", "{folder}/mosquitto.conf"), client=("sh", "{folder}/client"),
     files={"mosquitto.conf": SETTINGS, "client": CLIENT}, says="the same", sent=400_000, received=400_000)
