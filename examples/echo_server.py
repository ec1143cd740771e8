#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Echo server: takes connections by SDP and by TCP on one port: echo_server.py [PORT]"""

import socket
import sys

IPPROTO_SDP = 257

port = int(sys.argv[1]) if len(sys.argv) > 1 else 7777
with socket.socket(socket.AF_INET6, socket.SOCK_STREAM, IPPROTO_SDP) as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("::", port))     # IPv4 connections as well
    listener.listen()
    print(f"listening on port {port}", flush=True)
    while True:
        connection, _ = listener.accept()
        with connection:
            protocol = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL)
            print("connection by", "TCP" if protocol == socket.IPPROTO_TCP else "SDP", flush=True)
            while data := connection.recv(65536):
                connection.sendall(data)
