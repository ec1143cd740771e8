#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Sends a file from one host to another through socket(27, SOCK_STREAM, 0), or TCP for comparison.

    transfer.py receive ADDRESS PORT FILE [--tcp]
    transfer.py send    ADDRESS PORT FILE [--tcp]

Both ends print `BYTES SHA-256 SECONDS`. The receiver sends its SHA-256 to the sender, which
compares it: the sender's status is 0 only if both are equal. The sender waits up to a minute for
the receiver to listen."""

import argparse
import hashlib
import os
import socket
import struct
import sys
import time

AF_INET_SDP, AF_INET6_SDP = 27, 28


def make(address, tcp):
    """Python decodes addresses by the family of the socket object, and does not support SDP's: the
    descriptor is an SDP socket, the object has AF_INET."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if tcp:
        return socket.socket(family, socket.SOCK_STREAM)
    domain = AF_INET6_SDP if family == socket.AF_INET6 else AF_INET_SDP
    descriptor = socket.socket(domain, socket.SOCK_STREAM, 0).detach()
    return socket.socket(family, socket.SOCK_STREAM, 0, descriptor)


def exactly(sock, count):
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise SystemExit("the other end closed too early")
        data += part
    return data


def report(size, digest, start):
    print(size, digest.hex(), f"{time.monotonic() - start:.3f}", flush=True)


def receive(options):
    listener = make(options.address, options.tcp)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((options.address, options.port))
    listener.listen(1)
    descriptor, _ = listener._accept()
    sock = socket.socket(listener.family, socket.SOCK_STREAM, 0, descriptor)
    size = struct.unpack(">Q", exactly(sock, 8))[0]
    start, digest, left = time.monotonic(), hashlib.sha256(), size
    with open(options.file, "wb") as file:
        while left:
            data = sock.recv(min(left, 1 << 20))
            if not data:
                raise SystemExit(f"{left} bytes are missing")
            digest.update(data)
            file.write(data)
            left -= len(data)
    sock.sendall(digest.digest())
    if sock.recv(1):
        raise SystemExit("more bytes arrived than were announced")
    report(size, digest.digest(), start)
    return 0


def send(options):
    deadline = time.monotonic() + 60
    while True:
        sock = make(options.address, options.tcp)
        try:
            sock.connect((options.address, options.port))
            break
        except ConnectionRefusedError:
            sock.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    size = os.stat(options.file).st_size
    start, digest = time.monotonic(), hashlib.sha256()
    sock.sendall(struct.pack(">Q", size))
    with open(options.file, "rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
            sock.sendall(data)
    theirs = exactly(sock, 32)
    report(size, digest.digest(), start)
    return 0 if theirs == digest.digest() else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("receive", "send"))
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("file")
    parser.add_argument("--tcp", action="store_true")
    options = parser.parse_args()
    return {"receive": receive, "send": send}[options.what](options)


if __name__ == "__main__":
    sys.exit(main())
