#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Echo server and client with asyncio: echo_asyncio.py server PORT | client HOST PORT TEXT"""

import asyncio
import socket
import sys

IPPROTO_SDP = 257


def sdp_socket(family):
    """Returns a non-blocking socket of IPPROTO_SDP whose object has TCP's protocol number.

    asyncio passes the protocol of the object to getaddrinfo(3), which does not know 257. With
    protocol 6, asyncio also sets TCP_NODELAY, as for any TCP connection.
    """
    descriptor = socket.socket(family, socket.SOCK_STREAM, IPPROTO_SDP).detach()
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=descriptor)
    made.setblocking(False)
    return made


def protocol(writer):
    number = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL)
    return "TCP" if number == socket.IPPROTO_TCP else "SDP"


async def echo(reader, writer):
    print("connection by", protocol(writer), flush=True)
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def server(port):
    listener = sdp_socket(socket.AF_INET6)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("::", port))
    async with await asyncio.start_server(echo, sock=listener) as serving:
        print(f"listening on port {port}", flush=True)
        await serving.serve_forever()


async def client(host, port, text):
    loop = asyncio.get_running_loop()
    family, _, _, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    connection = sdp_socket(family)
    await loop.sock_connect(connection, address)
    reader, writer = await asyncio.open_connection(sock=connection)
    print("connected by", protocol(writer), file=sys.stderr)
    writer.write(text.encode())
    writer.write_eof()
    print((await reader.read()).decode())
    writer.close()


if sys.argv[1] == "server":
    asyncio.run(server(int(sys.argv[2])))
else:
    asyncio.run(client(sys.argv[2], int(sys.argv[3]), sys.argv[4]))
