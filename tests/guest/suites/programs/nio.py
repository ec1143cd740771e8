# SPDX-License-Identifier: GPL-2.0-only
"""Java's NIO: a server of one thread with a selector, and clients that never block, not even in
connect."""

from lib.forms import form
from lib.programs import JAVA, compiled

RUN = (*JAVA, "-cp", "{classes}", "Selectors")


def classes(e):
    return {"classes": compiled(e, "Selectors")}


form(needs=("java",), server=(*RUN, "server", "{host}", "{port}"), client=(*RUN, "client", "{host}", "{port}"), also=classes,
     says="8 came back", sent=4_000_000, received=4_000_000, timeout=240)
