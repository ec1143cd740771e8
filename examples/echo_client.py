#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Echo client: uses SDP if the server has it, else TCP: echo_client.py HOST PORT TEXT"""

import socket
import sys

IPPROTO_SDP = 257

host, port, text = sys.argv[1:]
# getaddrinfo(3) does not support IPPROTO_SDP, so the call leaves the protocol out.
family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
with socket.socket(family, socket.SOCK_STREAM, IPPROTO_SDP) as connection:
    connection.connect(address)
    protocol = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL)
    print("connected by", "TCP" if protocol == socket.IPPROTO_TCP else "SDP", file=sys.stderr)
    connection.sendall(text.encode())
    connection.shutdown(socket.SHUT_WR)
    echo = b""
    while data := connection.recv(65536):
        echo += data
print(echo.decode())
