#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""An echo server and its clients, each in several common styles. None of these programs uses SDP by
name.

    echo.py server threads|forks|started|asyncio|selectors|poll|select HOST PORT CONNECTIONS
    echo.py client blocking|timeout|hurried|asyncio|selectors HOST PORT CONNECTIONS BYTES

The server ends after this many connections. The client sends on each, shuts down, and checks the
echo."""

import os
import random
import select
import selectors
import socket
import socketserver
import sys
import threading

# asyncio and subprocess are imported at their uses: in emulation this takes longer than everything
# else.

PART = 65536
# Seconds within which a hurried client is connected, or fails.
HURRIED = 2


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while part := self.request.recv(PART):
            self.request.sendall(part)


class Server:
    allow_reuse_address = True
    request_queue_size = 64


class Threads(Server, socketserver.ThreadingTCPServer):
    pass


class Forks(Server, socketserver.ForkingTCPServer):
    pass


def by_socketserver(kind, family, address, count):
    kind.address_family = family
    with kind(address, Echo) as server:
        for _ in range(count):
            server.handle_request()


def by_asyncio(address, count):
    import asyncio
    left = count

    async def serve(reader, writer):
        nonlocal left
        while part := await reader.read(PART):
            writer.write(part)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        left -= 1
        if not left:
            done.set()

    async def main():
        nonlocal done
        done = asyncio.Event()
        async with await asyncio.start_server(serve, *address, backlog=64):
            await done.wait()

    done = None
    asyncio.run(main())


def by_selectors(listener, count, selector):
    """One thread with non-blocking sockets; unsent bytes are queued."""
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ)
    waiting, left = {}, count
    while left:
        for key, events in selector.select():
            sock = key.fileobj
            if sock is listener:
                try:
                    new, _ = listener.accept()
                except BlockingIOError:
                    continue
                new.setblocking(False)
                waiting[new] = b""
                selector.register(new, selectors.EVENT_READ)
                continue
            if events & selectors.EVENT_READ:
                part = sock.recv(PART)
                if not part and not waiting[sock]:
                    selector.unregister(sock)
                    del waiting[sock]
                    sock.close()
                    left -= 1
                    continue
                waiting[sock] += part
            if waiting[sock]:
                try:
                    waiting[sock] = waiting[sock][sock.send(waiting[sock]):]
                except BlockingIOError:
                    pass
            # The server reads again once all bytes are sent.
            selector.modify(sock, selectors.EVENT_WRITE if waiting[sock] else selectors.EVENT_READ)


def server(how, host, port, count):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if how in ("threads", "forks"):
        by_socketserver({"threads": Threads, "forks": Forks}[how], family, (host, port), count)
    elif how == "started":
        import subprocess
        with socket.create_server((host, port), family=family, backlog=64) as listener:
            number = str(listener.fileno())
            subprocess.run([sys.executable, __file__, "server", "given", number, number, str(count)], pass_fds=(listener.fileno(),), check=True)
    elif how == "given":
        with socket.socket(fileno=port) as listener:
            for _ in range(count):
                with listener.accept()[0] as sock:
                    while part := sock.recv(PART):
                        sock.sendall(part)
    elif how == "asyncio":
        by_asyncio((host, port), count)
    else:
        kinds = {"selectors": selectors.DefaultSelector, "poll": selectors.PollSelector, "select": selectors.SelectSelector}
        with socket.create_server((host, port), family=family, backlog=64) as listener:
            by_selectors(listener, count, kinds[how]())
    print(f"served {count}")


def pattern(number, size):
    return random.Random(number).randbytes(size)


def exchange(sock, number, size):
    """One thread sends, another receives."""
    data = pattern(number, size)

    def send():
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    back = bytearray()
    while part := sock.recv(PART):
        back += part
    sender.join()
    return back == data


def looks(sock):
    """Returns properties of its socket that a program can see."""
    return (int(sock.family), sock.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN),
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL), sock.getpeername()[:2], len(sock.getsockname()))


async def all_at_once(host, port, count, size):
    import asyncio

    async def one(number):
        reader, writer = await asyncio.open_connection(host, port)
        data = pattern(number, size)

        async def send():
            writer.write(data)
            await writer.drain()
            writer.write_eof()

        sending = asyncio.ensure_future(send())
        back = await reader.read()
        await sending
        writer.close()
        await writer.wait_closed()
        return back == data

    return await asyncio.gather(*(one(number) for number in range(count)))


def non_blocking(host, port, number, size):
    """Adds an unconnected socket to epoll first, like nginx."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock, select.epoll() as epoll:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        epoll.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
        sock.connect_ex((host, port))
        data, sent, back = pattern(number, size), 0, bytearray()
        connected = False
        while True:
            for _, events in epoll.poll():
                if not connected and events & select.EPOLLOUT:
                    error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if error:
                        raise OSError(error, os.strerror(error))
                    connected = True
                try:
                    while connected and sent < len(data):
                        sent += sock.send(data[sent:sent + PART])
                        if sent == len(data):
                            sock.shutdown(socket.SHUT_WR)
                except BlockingIOError:
                    pass
                try:
                    while connected:
                        part = sock.recv(PART)
                        if not part:
                            return bytes(back) == data
                        back += part
                except BlockingIOError:
                    pass


def client(how, host, port, count, size):
    if how == "asyncio":
        import asyncio
        good = asyncio.run(all_at_once(host, port, count, size))
    else:
        good = []
        for number in range(count):
            if how == "selectors":
                good.append(non_blocking(host, port, number, size))
                continue
            limit = {"timeout": 600, "hurried": HURRIED}.get(how)
            with socket.create_connection((host, port), timeout=limit) as sock:
                if how == "hurried":
                    sock.settimeout(None)
                if not number:
                    print(*looks(sock))
                good.append(exchange(sock, number, size))
    print(f"{sum(good)} of {len(good)} came back")


if __name__ == "__main__":
    role, how, host, *numbers = sys.argv[1:]
    {"server": server, "client": client}[role](how, host, *map(int, numbers))
