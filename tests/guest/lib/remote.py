# SPDX-License-Identifier: GPL-2.0-only
"""Sockets of another machine: with two guests, an agent on the peer holds the peer's sockets.

The agent listens on TCP. Each thread of a case has its own connection to the agent, and the agent a
thread for each, so that a blocking call blocks only its caller. The sockets of a case are closed
when its last connection ends."""

import functools
import importlib
import itertools
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
import time

from .sock import Sock

PORT = 7099
_local = threading.local()
_session = []


def _send(sock, item):
    raw = pickle.dumps(item)
    sock.sendall(struct.pack("=I", len(raw)) + raw)


def _exactly(sock, size):
    """Receives `size` bytes. MSG_WAITALL returns fewer bytes after a signal."""
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data), socket.MSG_WAITALL)
        if not part:
            raise EOFError
        data += part
    return data


def _receive(sock):
    size, = struct.unpack("=I", _exactly(sock, 4))
    return pickle.loads(_exactly(sock, size))


# Here

def start(address, seconds):
    """Starts the agent on the other machine, and waits for its reply."""
    script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "agent.py")
    process = subprocess.Popen(["peer", "python3", script, address], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((address, PORT), 5).close()
            return process
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("Bail out! no agent on the peer") from None
            time.sleep(0.1)


def begin(address):
    """Begins a case: its sockets on the other machine form a group."""
    _session[:] = [address, f"{os.getpid()}-{time.monotonic_ns()}"]


def _ask(*request):
    if getattr(_local, "owner", None) != os.getpid():       # a new thread, or a child, which must not share the connection
        _local.control = socket.create_connection((_session[0], PORT))
        _local.owner = os.getpid()
        _send(_local.control, _session[1])
    _send(_local.control, request)
    kind, *rest = _receive(_local.control)
    if kind == "error":
        raise OSError(*rest)
    if kind == "failed":
        raise RuntimeError(f"on the peer: {rest[0]}")
    return _map(rest[0], lambda item: RemoteSock(item.number) if isinstance(item, _Handle) else item)


class _Handle:
    def __init__(self, number):
        self.number = number


def _map(value, change):
    if type(value) in (list, tuple):
        return type(value)(_map(item, change) for item in value)
    return change(value)


class RemoteSock:
    """A Sock of the other machine."""

    def __init__(self, number):
        self._number = number

    @classmethod
    def make(cls, domain, kind, protocol):
        return _ask("make", domain, kind, protocol)

    def call(self, module, name, args, named):
        """Runs a function of a module on the socket's machine, with the socket as its first
        argument."""
        return _ask("function", module, name, self._number, args, named)

    @property
    def port(self):
        return self.getsockname()[1]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **named: _ask("method", self._number, name, args, named)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def anywhere(function):
    """Makes a function run on the machine of the socket that is its first argument."""
    @functools.wraps(function)
    def wrapper(sock, *args, **named):
        if isinstance(sock, RemoteSock):
            return sock.call(function.__module__.rsplit(".", 1)[-1], function.__name__, args, named)
        return function(sock, *args, **named)
    return wrapper


# There

class Agent:
    def __init__(self, address):
        self._socks, self._sessions, self._numbers = {}, {}, itertools.count()
        self._lock = threading.Lock()
        self._listener = socket.create_server((address, PORT), backlog=64)

    def serve(self):
        while True:
            control, _ = self._listener.accept()
            threading.Thread(target=self._talk, args=(control,), daemon=True).start()

    def _talk(self, control):
        try:
            session = _receive(control)
        except EOFError:
            return
        with self._lock:
            state = self._sessions.setdefault(session, [0, []])
            state[0] += 1
        try:
            while True:
                request = _receive(control)
                try:
                    value = _map(getattr(self, "_" + request[0])(*request[1:]),
                                 lambda item: self._handle(item, state) if isinstance(item, socket.socket) else item)
                    answer = ("value", value)
                except OSError as error:
                    answer = ("error", error.errno, error.strerror)
                except Exception as error:
                    answer = ("failed", repr(error))
                _send(control, answer)
        except (EOFError, OSError):
            pass
        finally:
            control.close()
            with self._lock:
                state[0] -= 1
                over = [self._socks.pop(number) for number in state[1]] if not state[0] else []
            for sock in over:
                try:
                    sock.shutdown(socket.SHUT_RDWR)         # wakes a thread that is still in a call
                except OSError:
                    pass
                sock.close()

    def _handle(self, sock, state):
        with self._lock:
            number = next(self._numbers)
            self._socks[number] = sock
            state[1].append(number)
        return _Handle(number)

    def _make(self, domain, kind, protocol):
        return Sock.make(domain, kind, protocol)

    def _method(self, number, name, args, named):
        return getattr(self._socks[number], name)(*args, **named)

    def _function(self, module, name, number, args, named):
        return getattr(importlib.import_module("lib." + module), name)(self._socks[number], *args, **named)
