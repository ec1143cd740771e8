# SPDX-License-Identifier: GPL-2.0-only
"""Netty: an echo server and its clients, on its own event loops and pooled buffers."""

from lib.forms import form
from lib.programs import JAVA, compiled

PATH = "/usr/share/java/*"
RUN = (*JAVA, "-cp", "{classes}:" + PATH, "Netty")


def classes(e):
    return {"classes": compiled(e, "Netty", PATH)}


form(needs=("java",), server=(*RUN, "server", "{host}", "{port}"), client=(*RUN, "client", "{host}", "{port}"), also=classes,
     says="8 came back", sent=4_000_000, received=4_000_000, timeout=240)
