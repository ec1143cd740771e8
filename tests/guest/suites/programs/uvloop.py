# SPDX-License-Identifier: GPL-2.0-only
"""asyncio on uvloop, which uses libuv, and its clients on Python's own loop."""

from lib.forms import form
from lib.preload import ECHO

SERVER = """
import os, sys, uvloop
sys.path.insert(0, os.path.dirname("%s"))
import echo
uvloop.install()
echo.server("asyncio", "{host}", {port}, 6)
""" % ECHO[-1]

form(needs=("python3",), server=("python3", "{folder}/server.py"), client=(*ECHO, "client", "asyncio", "{host}", "{port}", 6, 300000),
     files={"server.py": SERVER}, says="6 of 6 came back", sent=1_800_000, received=1_800_000)
