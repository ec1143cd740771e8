# SPDX-License-Identifier: GPL-2.0-only
"""bind(2): ports, the privilege for low ports, and sharing of ports."""

import contextlib
import itertools
import os
import select
import socket
import struct

from lib import calls, consts, netns
from lib.hooks import POST_BIND, hook
from lib.registry import case
from lib.sock import Sock

SOL = socket.SOL_SOCKET


@contextlib.contextmanager
def knob(path, value):
    """Sets a sysctl of this namespace temporarily."""
    before = netns.sysctl(path, value)
    try:
        yield
    finally:
        netns.sysctl(path, before or "\n")


def second_address(e):
    """Adds another address to the test device."""
    host = "fd77::11" if e.six else "10.77.0.11"
    netns.run("self", f"ip addr replace {host}/{64 if e.six else 24} dev {netns.device()}" + (" nodad" if e.six else ""))
    return host


@case
def ephemeral(e):
    low, high = map(int, netns.sysctl("ipv4/ip_local_port_range").split())
    ports = [e.bound("self").port for _ in range(50)]
    e.note("in range", all(low <= port <= high for port in ports))
    e.note("distinct", len(set(ports)))
    e.note("sequence", sorted(ports) == ports)      # a guessable one


@case
def ephemeral_range(e):
    """The sysctl of the namespace sets the range of ephemeral ports, including the last port of the
    range."""
    with knob("ipv4/ip_local_port_range", "40000 40003"):
        ports = [e.bound("self").port for _ in range(4)]
        e.note("ports", sorted(ports))
        e.note("fifth", e.error(e.bound, "self"))
        e.note("of any address", e.error(e.bound, "self", host=e.any))
        e.note("elsewhere", e.error(e.bound, "peer"))
    with knob("ipv4/ip_local_port_range", "40010 40013"), knob("ipv4/ip_local_reserved_ports", "40011-40012"):
        ports = [e.bound("self").port for _ in range(2)]
        e.note("unreserved", sorted(ports))
        e.note("third", e.error(e.bound, "self"))
        e.note("reserved by number", e.error(e.bound, "self", 40011))


@case
def range_of_a_socket(e):
    """IP_LOCAL_PORT_RANGE narrows the range of ephemeral ports for one socket."""
    ports = set()
    value = struct.pack("=I", 45003 << 16 | 45000)
    for turn in range(4):
        sock = e.socket()
        e.note(f"set {turn}", e.error(sock.set, socket.IPPROTO_IP, consts.IP_LOCAL_PORT_RANGE, value))
        sock.bind(e.address(e.here, 0))
        ports.add(sock.port)
    e.note("ports", sorted(ports))


@case
def autobind_of_listen(e):
    sock = e.socket()
    e.note("listen", e.error(sock.listen, 1))
    low, high = map(int, netns.sysctl("ipv4/ip_local_port_range").split())
    e.note("host", sock.getsockname()[0])
    e.note("in range", low <= sock.port <= high)


@case
def twice(e):
    sock = e.bound("self")
    e.note("again", e.error(sock.bind, e.address(e.here, 0)))
    e.note("any", e.error(sock.bind, e.address(e.any, 0)))
    sock.listen(1)
    e.note("listening", e.error(sock.bind, e.address(e.here, 0)))
    near, far = e.pair()
    e.note("connected", e.error(near.bind, e.address(e.here, 0)))
    e.note("accepted", e.error(far.bind, e.address(e.there, 0)))


@case
def after_failure(e):
    """A failed bind(2) does not change the socket."""
    taken = e.bound("self")
    sock = e.socket()
    e.note("taken", e.error(sock.bind, e.address(e.here, taken.port)))
    e.note("name", sock.getsockname()[:2])
    e.note("other port", e.error(sock.bind, e.address(e.here, 0)))


@case
def refused_afterwards(e):
    """A BPF program of the cgroup runs after bind(2) has taken a port, and refuses the port: the
    socket then has no port and cannot listen on the refused port."""
    sock, port = e.socket(), e.refused_port("self")
    if e.ipproto:
        # by SDP alone, without TCP
        sock.set(socket.IPPROTO_TCP, consts.SDP_ROUTE, consts.SDP_ROUTE_SDP)
    with hook(e, POST_BIND, port):
        e.note("refused", e.error(sock.bind, e.address(e.here, port)))
    e.note("name", sock.getsockname()[:2])
    e.note("another socket", e.error(e.socket().bind, e.address(e.here, port)))
    e.note("listens", e.error(sock.listen, 1))
    e.note("there", sock.port == port)


def conflict(e, hosts, first, second):
    """Binds two sockets to one port. Each socket is described by (address, reuse, listening).
    Returns the result of the second bind."""
    def make(address, reuse, listening, port):
        sock = e.socket()
        if reuse:
            sock.set(SOL, socket.SO_REUSEADDR, 1)
        sock.bind(e.address(hosts[address], port))
        if listening:
            sock.listen(1)
        return sock

    one = make(*first, 0)
    try:
        result = e.error(lambda: make(*second, one.port))
    finally:
        for sock in list(e._keep):
            sock.close()
        e._keep.clear()
    return result


@case(timeout=60)
def sharing(e):
    """Sharing of a port: addresses, SO_REUSEADDR and listening, in every combination."""
    hosts = {"any": e.any, "own": e.here, "second": second_address(e)}
    kinds = list(itertools.product(("any", "own", "second"), (False, True), (False, True)))
    for first, second in itertools.product(kinds, kinds):
        text = ["{} {}{}".format(address, "reuse" if reuse else "plain", " listening" if listening else "")
                for address, reuse, listening in (first, second)]
        e.note(" / ".join(text), conflict(e, hosts, first, second))


@case
def late_listen(e):
    """Two sockets share a port by SO_REUSEADDR: only one of the two may listen."""
    one, two = e.socket(), e.socket()
    for sock in (one, two):
        sock.set(SOL, socket.SO_REUSEADDR, 1)
    one.bind(e.address(e.here, 0))
    two.bind(e.address(e.here, one.port))
    e.note("first", e.error(one.listen, 1))
    e.note("second", e.error(two.listen, 1))
    one.close()
    e.note("second again", e.error(two.listen, 1))


@case
def reuseport(e):
    def make(port, user=None):
        sock = e.socket()
        sock.set(SOL, consts.SO_REUSEPORT, 1)
        if user:
            os.setresuid(user, user, user)
        sock.bind(e.address(e.here, port))
        sock.listen(4)
        return sock

    one = make(0)
    e.note("second", e.error(make, one.port))
    plain = e.socket()
    e.note("without the option", e.error(plain.bind, e.address(e.here, one.port)))
    e.note("another user", e.as_user(make, one.port))
    e.note("value", one.get(SOL, consts.SO_REUSEPORT))


@case
def reuseport_shares(e):
    """Each connection reaches exactly one listener of a SO_REUSEPORT group, and each listener gets
    some connections."""
    total = 32
    listeners = [e.listen(backlog=total, prepare=_reusable)]
    listeners.append(e.listen(backlog=total, port=listeners[0].port, prepare=_reusable))
    for _ in range(total):
        e.connect(listeners[0])
    poller = select.poll()
    for sock in listeners:
        poller.register(sock.fileno(), select.POLLIN)
        sock.setblocking(False)
    accepted = [0, 0]
    while sum(accepted) < total:
        e.check(poller.poll(e.patience * 1000), f"only {accepted} of {total} came")
        for number, sock in enumerate(listeners):
            with contextlib.suppress(BlockingIOError):
                while True:
                    e.keep(sock.accept()[0])
                    accepted[number] += 1
    e.note("accepted", sum(accepted))
    # by chance this check fails once in 2^31 runs
    e.check(all(accepted), f"of {total} connections the listeners got {accepted}")


@case
def halves_of_the_range(e):
    """connect(2) takes ports from one half of the range, bind(2) from the other, while any port of
    that half is free."""
    listener = e.listen()
    connected = {e.connect(listener).port % 2 for _ in range(6)}
    e.note("for connect", connected)
    e.note("for bind", {e.bound("self").port % 2 for _ in range(6)})


@case
def shared_among_destinations(e):
    """A port chosen by connect(2) is used for one connection to each destination, and for no other
    socket.
    """
    listeners = [e.listen() for _ in range(5)]
    accepted = []
    with knob("ipv4/ip_local_port_range", "41000 41000"):
        first, *others = [e.connect(listener) for listener in listeners[:4]]
        e.note("ports", [sock.port for sock in (first, *others)])
        e.note("the same destination", e.error(e.connect, listeners[0]))
        for number, (near, listener) in enumerate(zip((first, *others), listeners)):
            far, address = listener.accept()
            accepted.append(e.keep(far))
            e.equal(address[1], 41000, "the peer's port")
            near.sendall(b"%d" % number)
            e.note(f"by connection {number}", far.recv_exactly(1))
        e.note("bind", e.error(e.bound, "self", 41000, e.any))
        e.note("bind with SO_REUSEADDR", e.error(_bound_again, e))
        _closed_by_the_peer(e, first, accepted[0])
        e.note("bind after the first", e.error(e.bound, "self", 41000, e.any))
        last = e.connect(listeners[4])
        e.note("another destination", last.port)
        accepted[0] = e.keep(listeners[4].accept()[0])
        for near, far in zip((last, *others), accepted):
            _closed_by_the_peer(e, near, far)
        e.until(lambda: e.error(e.bound, "self", 41000, e.any) == "ok", "the port stays taken")


def _closed_by_the_peer(e, near, far):
    """Lets the peer close first, so that TCP leaves no TIME_WAIT on this host."""
    far.close()
    e.equal(near.recv(1), b"", "the end")
    near.close()


def _bound_again(e):
    sock = e.socket()
    sock.set(SOL, socket.SO_REUSEADDR, 1)
    sock.bind(e.address(e.any, 41000))


def _reusable(sock):
    sock.set(SOL, socket.SO_REUSEADDR, 1)
    sock.set(SOL, consts.SO_REUSEPORT, 1)


@case
def held_by_accepted(e):
    """Accepted connections hold their listener's port until the last connection is closed. A
    disconnected socket may itself listen."""
    listener = e.listen("self", host=e.here)
    port, pairs = listener.port, []
    for number in range(4):
        near = e.socket("self")
        near.connect(e.address(e.here, port))
        pairs.append((near, e.keep(listener.accept()[0])))
    listener.close()

    def taken(prepare=lambda sock: None):
        with e.socket() as sock:
            prepare(sock)
            return e.error(sock.bind, e.address(e.here, port))

    def free():
        with e.socket() as sock:
            return sock.set(SOL, socket.SO_REUSEADDR, 1) and e.error(sock.bind, e.address(e.here, port)) == "ok"
    for number, (near, far) in enumerate(pairs[:3]):
        e.note(f"bind beside {4 - number}", taken())
        e.note(f"with SO_REUSEPORT beside {4 - number}", taken(_reusable))
        near.close()
        e.equal(far.recv(1), b"", "the end")
        far.close()
    near, last = pairs[3]
    e.note("disconnect", e.error(calls.connect, last, struct.pack("=H14x", 0)))
    e.note("bind of it", e.error(last.bind, e.address(e.here, 0)))
    e.note("listen of it", e.error(last.listen, 1))
    again = e.socket()
    e.note("connect to it", e.error(again.connect, e.address(e.here, last.port)))
    near.close()
    e.until(free, "the port stays taken")


@case
def privileged(e):
    e.note("root", e.error(e.bound, "self", 80))
    for port in (1, 79, 1023):
        e.note(f"nobody {port}", e.as_user(lambda: e.bound("self", port) and None))
    e.note("nobody 1024", e.as_user(lambda: e.bound("self", 1024) and None))
    with knob("ipv4/ip_unprivileged_port_start", 79):
        e.note("allowed", e.as_user(lambda: e.bound("self", 79) and None))
        e.note("below", e.as_user(lambda: e.bound("self", 78) and None))
    with knob("ipv4/ip_unprivileged_port_start", 2000):
        e.note("raised", e.as_user(lambda: e.bound("self", 1999) and None))


@case
def root_of_a_user_namespace(e):
    """Privilege counts only in the user namespace that owns the network namespace."""
    def attempts():
        sock = e.socket()
        return {
            "port": e.error(e.bound, "self", 80, e.any),
            "mark": e.error(sock.set, SOL, socket.SO_MARK, 1),
            "priority": e.error(sock.set, SOL, socket.SO_PRIORITY, 7),
            "buffer": e.error(sock.set, SOL, consts.SO_RCVBUFFORCE, 1 << 20),
            "transparent": e.error(sock.set, socket.IPPROTO_IP, consts.IP_TRANSPARENT, 1),
        }

    for where, new_net in (("its own network", True), ("the machine's network", False)):
        e.note(where, e.child(netns.root_elsewhere, new_net, attempts).result())


@case
def release(e):
    """A port is free as soon as its socket is closed."""
    for listening in (False, True):
        sock = e.bound("self")
        if listening:
            sock.listen(1)
        port = sock.port
        sock.close()
        e.note(f"listening {listening}", e.error(e.bound, "self", port))


@case
def release_by_shutdown(e):
    """shutdown(2) of a listener frees a port chosen by the kernel, and keeps a port chosen by the
    program."""
    for chosen in (0, 34567):
        sock = e.listen("self", port=chosen)
        port = sock.port
        sock.shutdown(socket.SHUT_RD)
        e.note(f"{chosen}: name", (sock.getsockname()[0], sock.port == port))
        e.note(f"{chosen}: other", e.error(e.bound, "self", port))
        e.note(f"{chosen}: listen again", e.error(sock.listen, 1))
        e.note(f"{chosen}: same port", sock.port == port)


@case
def held_by_connection(e):
    """An accepted connection holds its listener's port unless both sockets allow sharing."""
    for reuse in (0, 1):
        listener = e.listen(prepare=lambda sock: sock.set(SOL, socket.SO_REUSEADDR, reuse))
        near, far = e.pair(listener)
        port = listener.port
        listener.close()
        e.note(f"plain, was {reuse}", e.error(e.bound, "peer", port))
        again = e.socket("peer")
        again.set(SOL, socket.SO_REUSEADDR, 1)
        e.note(f"reuse, was {reuse}", e.error(again.bind, e.address(e.there, port)))
        e.note(f"listen, was {reuse}", e.error(again.listen, 1) if reuse else "-")
        near.close()
        far.close()


@case
def restart_of_a_server(e):
    """The server closes first; when restarted with SO_REUSEADDR, the server can bind its port at
    once."""
    port = 0
    for round_ in range(3):
        server = e.socket("peer")
        server.set(SOL, socket.SO_REUSEADDR, 1)
        e.note(f"bind {round_}", e.error(server.bind, e.address(e.there, port)))
        server.listen(4)
        port = server.port
        near, far = e.pair(server)
        far.close()
        e.equal(near.recv(1), b"", "end of stream")
        near.close()
        server.close()


@case
def own_space(e):
    """SDP's ports are independent of TCP's."""
    sock = e.listen("self")
    tcp = e.tcp()
    e.note("TCP on the same port", e.error(tcp.bind, e.address(e.here, sock.port)), sdp="ok",
           because="SDP has a port space of its own, as libsdp's `both` needs")
    if e.only_sdp:
        tcp.listen(1)
        first = e.keep(e.tcp())
        first.bind(e.address(e.here, 0))
        first.listen(1)
        e.equal(e.error(e.bound, "self", first.port), "ok", "a port that TCP has")


@case(families=("v6",))
def both_families(e):
    """Families 27 and 28 share one port space, as TCP's two families do."""
    def four(port, host="0.0.0.0"):
        sock = e.keep(Sock.make(consts.AF_INET_SDP if e.sdp else socket.AF_INET))
        sock.bind((host, port))
        return sock

    for only in (0, 1):
        sock = e.socket()
        sock.set(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
        sock.bind(("::", 0, 0, 0))
        sock.listen(1)
        e.note(f"any after v6only {only}", e.error(four, sock.port))
        e.note(f"own after v6only {only}", e.error(four, sock.port, "10.77.0.1"))
    first = four(0)
    first.listen(1)
    e.note("any after IPv4", e.error(e.bound, "self", first.port, "::"))
    e.note("own after IPv4", e.error(e.bound, "self", first.port, "fd77::1"))
    sock = e.socket()
    sock.set(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    e.note("v6only after IPv4", e.error(sock.bind, ("::", first.port, 0, 0)))
    specific = four(0, "10.77.0.1")
    e.note("own after specific IPv4", e.error(e.bound, "self", specific.port, "fd77::1"))
    e.note("mapped after specific IPv4", e.error(e.bound, "self", specific.port, "::ffff:10.77.0.1"))


@case
def late_port(e):
    """IP_BIND_ADDRESS_NO_PORT leaves the port to connect()."""
    listener = e.listen()
    sock = e.socket()
    e.note("set", e.error(sock.set, socket.IPPROTO_IP, consts.IP_BIND_ADDRESS_NO_PORT, 1))
    e.note("get", sock.get(socket.IPPROTO_IP, consts.IP_BIND_ADDRESS_NO_PORT))
    sock.bind(e.address(e.here, 0))
    e.note("port", sock.port)
    e.note("again", e.error(sock.bind, e.address(e.here, 0)))
    sock.connect(e.address(e.there, listener.port))
    e.note("connected", (sock.getsockname()[0], sock.port > 0))


@case
def to_device(e):
    """SO_BINDTODEVICE."""
    name = netns.device().encode()
    sock = e.socket()
    e.note("none", calls.getsockopt(sock, SOL, consts.SO_BINDTODEVICE, 16))
    e.note("unknown", e.error(sock.set, SOL, consts.SO_BINDTODEVICE, b"nosuch0\0"))
    e.note("set", e.error(sock.set, SOL, consts.SO_BINDTODEVICE, name + b"\0"))
    raw, length = calls.getsockopt(sock, SOL, consts.SO_BINDTODEVICE, 16)
    e.note("get", (raw[:length] == name + b"\0"))
    e.note("short room", e.error(calls.getsockopt, sock, SOL, consts.SO_BINDTODEVICE, 4))
    index = socket.if_nametoindex(name.decode())
    e.note("index", sock.get(SOL, consts.SO_BINDTOIFINDEX) == index)
    e.note("bind", e.error(sock.bind, e.address(e.here, 0)))
    other = e.socket()
    other.set(SOL, consts.SO_BINDTODEVICE, b"lo\0")
    e.note("same port, other device", e.error(other.bind, e.address(e.any, sock.port)))
    third = e.socket()
    third.set(SOL, consts.SO_BINDTODEVICE, name + b"\0")
    e.note("same port, same device", e.error(third.bind, e.address(e.any, sock.port)))
    e.note("remove", e.error(sock.set, SOL, consts.SO_BINDTODEVICE, b"\0"))

    def unprivileged():
        sock = e.socket()
        sock.set(SOL, consts.SO_BINDTODEVICE, name + b"\0")
        sock.set(SOL, consts.SO_BINDTODEVICE, b"lo\0")
    e.note("change without privilege", e.as_user(unprivileged))


@case
def to_device_connects(e):
    """With SO_BINDTODEVICE a connection uses only the bound device."""
    listener = e.listen()
    good = e.socket()
    good.set(SOL, consts.SO_BINDTODEVICE, netns.device().encode() + b"\0")
    e.note("right device", e.error(good.connect, e.address(e.there, listener.port)))
    bad = e.socket()
    bad.set(SOL, consts.SO_BINDTODEVICE, b"lo\0")
    if e.only_sdp:       # TCP over IPv4 sends into lo for ever
        result = e.error(bad.connect, e.address(e.there, listener.port))
        e.check(result in ("ENETUNREACH", "EHOSTUNREACH", "ENODEV"), f"by lo: {result}")


@case
def device_of_listener(e):
    """A listener bound to a device gets only connections that arrive on that device."""
    name = netns.device("peer").encode()
    listener = e.socket("peer")
    listener.set(SOL, consts.SO_BINDTODEVICE, name + b"\0")
    listener.bind(e.address(e.any, 0))
    listener.listen(2)
    e.note("right device", e.error(e.connect, listener))
    far, _ = listener.accept()
    e.note("inherited", calls.getsockopt(far, SOL, consts.SO_BINDTODEVICE, 16)[0] == name + b"\0")
    deaf = e.socket("peer")
    deaf.set(SOL, consts.SO_BINDTODEVICE, b"lo\0")
    deaf.bind(e.address(e.any, 0))
    deaf.listen(2)
    e.note("other device", e.error(e.connect, deaf))


@case
def per_namespace(e):
    """Each namespace has its own ports."""
    here = e.listen("self", port=0, host=e.any)
    e.note("same port there", e.error(e.listen, "peer", 1, here.port, e.any))
