# SPDX-License-Identifier: GPL-2.0-only
"""Java's HttpClient and AsynchronousSocketChannel, which hang when Java itself selects SDP
(com.sun.sdp.conf)."""

from lib.forms import form
from lib.programs import JAVA, compiled

RUN = (*JAVA, "-cp", "{classes}", "Clients")


def classes(e):
    return {"classes": compiled(e, "Clients")}


form(needs=("java",), server=(*RUN, "server", "{host}", "{port}", "{next}"), client=(*RUN, "client", "{host}", "{port}", "{next}"), also=classes,
     says="8 came back", sent=8_000_000, received=8_000_000, timeout=240)
