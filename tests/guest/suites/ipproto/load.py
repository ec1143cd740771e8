# SPDX-License-Identifier: GPL-2.0-only
"""A busy listener for both protocols, and processes that share the listener: neither protocol waits
for the other.
"""

import array
import collections
import contextlib
import itertools
import select
import shutil
import socket
import tempfile

from lib import consts, either, observe
from lib.either import SDP, TCP
from lib.preload import ECHO, under, wait_for_listener
from lib.programs import Program
from lib.registry import case
from lib.sock import Sock
from suites.connect.listening import times_slept
from suites.lifecycle.states import THOROUGH

PATIENT = {"ipproto_wait": 20000, "ipproto_memory": 0}
# With THOROUGH in the environment, the suite makes as many connections as a busy server gets in a
# minute.
CONNECTIONS = 10000 if THOROUGH else 600
PORT = 7470
XINETD = """
service echoes
{{
    type = UNLISTED
    port = {port}
    bind = {address}
    socket_type = stream
    protocol = tcp
    wait = no
    user = root
    server = /bin/cat
}}
"""
KINDS = {SDP: "SDP", TCP: "TCP"}


def kind(sock):
    return KINDS[either.protocol(sock)]


def queue(e, listener, protocol, count):
    """Makes a number of connections that wait unaccepted in the listener's queue."""
    near = [either.connect(e, listener, protocol) for _ in range(count)]
    e.equal({either.protocol(sock) for sock in near}, {protocol}, "the protocol of those who connect")
    return near


def queued(e, listener, count):
    """Waits until the given number of SDP connections are in the listener's queue. A connection may
    enter the queue later than its connect(2) returns."""
    def are():
        return any(row.local[1] == listener.port and row.state == "LISTEN" and row.receive >= count for row in observe.rows("peer"))

    e.until(are, "they are not queued")


def begin(e, listener, protocol, count):
    """Starts the given number of connects. Connects by SDP have no fallback."""
    for _ in range(count):
        sock = e.socket() if protocol == SDP else either.make(e, TCP)
        sock.setblocking(False)
        e.error(sock.connect, e.address(e.there, listener.port))


def ask(e, listener, protocol, number):
    """Makes one connection, and transfers a request and its reply."""
    with either.make(e, protocol) as sock:
        sock.connect(e.address(e.there, listener.port))
        question = b"question %04d" % number
        sock.sendall(question)
        e.equal(sock.recv_exactly(len(question)), question, "the answer")


def answer(listener, count):
    """Accepts the given number of connections and replies. Returns the protocols of the accepted
    connections."""
    kinds = collections.Counter()
    for _ in range(count):
        with listener.accept()[0] as sock:
            kinds[kind(sock)] += 1
            sock.sendall(sock.recv_exactly(13))
            sock.recv(1)
    return kinds


@case(reference=False, families=("v4",), timeout=2400 if THOROUGH else 240)
def many(e):
    """Hundreds of connections of both protocols, by several clients and several accepting
    processes."""
    with either.parameters(**PATIENT):
        listener = either.listen(e, backlog=64)
        each = CONNECTIONS // 4
        with either.counts(e, "peer", accepted_by_sdp=CONNECTIONS // 2, accepted_by_tcp=CONNECTIONS // 2):
            accepting = [e.task(answer, listener, CONNECTIONS // 2) for _ in range(2)]
            asking = [e.task(lambda first=first: [ask(e, listener, (SDP, TCP)[number % 2], number) for number in range(first, first + each)])
                      for first in range(0, CONNECTIONS, each)]
            for task in asking + accepting:
                task.join(e.patience * CONNECTIONS / 30)
            for task in asking:
                task.result()
            kinds = sum((task.result() for task in accepting), collections.Counter())
        e.equal(dict(kinds), {"SDP": CONNECTIONS // 2, "TCP": CONNECTIONS // 2}, "what was accepted")
        listener.close()
        for where in ("self", "peer"):
            e.until(lambda where=where: not observe.rows(where), "sockets of SDP stay", e.patience * 6)


@case(reference=False, timeout=120)
def full_backlog(e):
    """A backlog full of one protocol's connections leaves space for connections of the other
    protocol."""
    with either.parameters(**PATIENT):
        for full, other in ((SDP, TCP), (TCP, SDP)):
            listener = either.listen(e, backlog=1)
            begin(e, listener, full, 8)
            e.wait(listener)
            near = either.connect(e, listener, other)
            e.equal(either.protocol(near), other, f"connect() beside {KINDS[full]}")
            queued(e, listener, 1)
            # accept() returns connections of both protocols in turn
            for _ in range(2):
                far = either.accept(e, listener)
                if either.protocol(far) == other:
                    break
            e.equal(kind(far), KINDS[other], f"what is accepted beside {KINDS[full]}")
            either.echo(e, near, far)
            listener.close()


@case(reference=False, families=("v4",), timeout=240)
def flood(e):
    """Clients that continuously connect and close by one protocol do not delay a client of the
    other protocol."""
    with either.parameters(**PATIENT):
        for many_of, few_of in ((SDP, TCP), (TCP, SDP)):
            listener = either.listen(e, backlog=4)
            address = e.address(e.there, listener.port)

            def flooding(many_of=many_of, address=address):
                # until the listener is closed
                for count in itertools.count():
                    with Sock.make(e.family, protocol=TCP) if many_of == TCP else Sock.make(e.domain) as sock:
                        try:
                            sock.connect(address)
                        except OSError:
                            return count

            kinds = collections.Counter()

            def serve(listener=listener, kinds=kinds):
                while True:
                    try:
                        sock = listener.accept()[0]
                    except OSError:
                        return
                    with sock, contextlib.suppress(OSError):
                        kinds[kind(sock)] += 1
                        question = sock.recv(13)
                        if question:
                            sock.sendall(question)
                            sock.recv(1)

            serving = e.task(serve)
            children = [e.child(flooding) for _ in range(3)]
            asked, most = 0, e.rounds(40)
            while asked < most // 2 or kinds[KINDS[many_of]] < most:
                ask(e, listener, few_of, asked)
                asked += 1
            listener.shutdown(socket.SHUT_RDWR)
            serving.result()
            connects = sum(child.result() for child in children)
            listener.close()
            e.check(connects >= most, f"no flood: {connects} connects by {KINDS[many_of]}")
            e.equal(kinds[KINDS[few_of]], asked, f"accepted by {KINDS[few_of]} in a flood")


@case(reference=False, timeout=120)
def taken_in_turn(e):
    """Many waiting connections of one protocol do not delay accept() of the other protocol's
    connections."""
    with either.parameters(**PATIENT):
        for many_of, few_of in ((SDP, TCP), (TCP, SDP)):
            listener = either.listen(e, backlog=64)
            queue(e, listener, many_of, 30)
            queue(e, listener, few_of, 4)
            queued(e, listener, 4 if few_of == SDP else 30)
            kinds = collections.Counter(kind(either.accept(e, listener)) for _ in range(8))
            e.equal(dict(kinds), {"SDP": 4, "TCP": 4}, f"the first eight of 30 by {KINDS[many_of]} and 4 by {KINDS[few_of]}")
            listener.close()


@case(reference=False, timeout=120)
def wakes_one(e):
    """A new connection of either protocol wakes only one thread."""
    with either.parameters(**PATIENT):
        listener = either.listen(e)
        left = [e.task(listener.accept).wait_asleep("accept", "accept4") for _ in range(8)]
        woken = 0
        for protocol in (SDP, TCP, TCP, SDP):
            before = {task: times_slept(task) for task in left}
            either.connect(e, listener, protocol)
            e.until(lambda left=left: not all(task.is_alive() for task in left), "a connection")
            done = [task for task in left if not task.is_alive()]
            e.equal([kind(e.keep(task.result()[0])) for task in done], [KINDS[protocol]], "what was accepted")
            left = [task for task in left if task.is_alive()]
            for task in left:
                task.wait_asleep("accept", "accept4")
            woken += sum(times_slept(task) > before[task] for task in left)
        e.equal(woken, 0, "threads that were woken for nothing")
        listener.shutdown(socket.SHUT_RDWR)
        e.equal([e.error(task.result) for task in left], ["EINVAL"] * 4, "accept() of the others")


@case(reference=False, timeout=120)
def forked(e):
    """Servers that fork after listen() share the connections."""
    with either.parameters(**PATIENT):
        listener = either.listen(e, backlog=64)

        def serve():
            # until the listener is shut down
            kinds = collections.Counter()
            while True:
                try:
                    kinds += answer(listener, 1)
                except OSError:
                    return dict(kinds)

        children = [e.child(serve) for _ in range(3)]
        for number in range(24):
            ask(e, listener, (SDP, TCP)[number % 2], number)
        listener.shutdown(socket.SHUT_RDWR)
        kinds = sum((collections.Counter(child.result()) for child in children), collections.Counter())
        e.equal(dict(kinds), {"SDP": 12, "TCP": 12}, "what the children have accepted")


@case(reference=False, timeout=120)
def group(e):
    """Each of two listeners with SO_REUSEPORT gets some connections of both protocols."""
    with either.parameters(**PATIENT):
        listeners = []
        for _ in range(2):
            sock = either.make(e, SDP, "peer")
            sock.set(socket.SOL_SOCKET, consts.SO_REUSEPORT, 1)
            sock.bind(e.address(e.there, listeners[0].port if listeners else 0))
            sock.listen(128)
            sock.setblocking(False)
            listeners.append(sock)
        for protocol in (SDP, TCP):
            queue(e, listeners[0], protocol, 24)
        poller, kinds = select.poll(), [collections.Counter(), collections.Counter()]
        for sock in listeners:
            poller.register(sock.fileno(), select.POLLIN)
        while sum(sum(counter.values()) for counter in kinds) < 48:
            e.check(poller.poll(e.patience * 1000), f"only {kinds} came")
            for counter, sock in zip(kinds, listeners):
                new = e.error_or(sock.accept)
                if new:
                    counter[kind(e.keep(new[0]))] += 1
        # by chance this check fails once in 2^22 runs
        e.check(all(counter["SDP"] and counter["TCP"] for counter in kinds), f"the listeners got {kinds}")
        e.equal(kinds[0] + kinds[1], collections.Counter(SDP=24, TCP=24), "what came")


@case(reference=False)
def passed_on(e):
    """A listener that is passed to another process continues to listen there after the first
    process closes its descriptor."""
    with either.parameters(**PATIENT):
        listener = either.listen(e)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

        def other():
            listener.close()
            _, control, _, _ = theirs.recvmsg(1, 100)
            with Sock.wrap(array.array("i", control[0][2])[0], e.family) as got:
                theirs.sendall(b"x")
                return dict(answer(got, 4))

        child = e.child(other)
        ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener.fileno()]))])
        ours.recv(1)
        address = e.address(e.there, listener.port)
        listener.close()
        for number, protocol in enumerate((SDP, TCP, TCP, SDP)):
            with either.make(e, protocol) as sock:
                sock.connect(address)
                sock.sendall(b"question %04d" % number)
                e.equal(sock.recv_exactly(13), b"question %04d" % number, "the answer")
        e.equal(child.result(), {"SDP": 2, "TCP": 2}, "what was accepted")


def started_by(e, *command):
    """A program under sdp-run on the other host listens for a program without SDP support."""
    if not shutil.which(command[0]):
        e.skip(f"{command[0]} is not installed")
    program = Program(e, under(e, list(map(str, command))), "peer")
    wait_for_listener(e, PORT)
    return program


def echoed(e, protocols):
    """Echoes each connection until the end of its stream."""
    for protocol in protocols:
        with either.make(e, protocol) as sock:
            sock.connect(e.address(e.there, PORT))
            e.equal(kind(sock), KINDS[protocol], "the protocol")
            sock.sendall(b"there and back")
            sock.shutdown(socket.SHUT_WR)
            e.equal(sock.recv_exactly(14), b"there and back", "the echo")
            e.equal(sock.recv(1), b"", "the end")


@case(reference=False, timeout=60)
def given_by_systemd(e):
    """A server that gets its listener as descriptor 3 by socket activation at the first
    connection."""
    host = f"[{e.there}]" if e.six else e.there
    server = started_by(e, "systemd-socket-activate", "-l", f"{host}:{PORT}", *ECHO, "server", "given", 3, 3, 4)
    echoed(e, (SDP, TCP, SDP, TCP))
    e.equal(server.output(e.patience * 6), "served 4\n", "what the server says")


@case(reference=False, timeout=60)
def given_by_inetd(e):
    """A server that gets its connection as standard input and output."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(XINETD.format(port=PORT, address=e.there))
        file.flush()
        server = started_by(e, "xinetd", "-dontfork", "-f", file.name)
        echoed(e, (SDP, TCP, SDP, TCP))
        server.end()
