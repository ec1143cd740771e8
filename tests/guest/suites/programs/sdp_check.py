# SPDX-License-Identifier: GPL-2.0-only
"""tools/sdp-check between the two hosts: its results without faults, and its messages for each
fault."""

import contextlib
import os
import pathlib
import re
import tempfile

from lib import kmsg, links, module, netns
from lib.preload import BUILT, be_patient
from lib.programs import Program
from lib.registry import case

CHECK = BUILT / "sdp-check"
# Each path that sdp-check tests, by the beginning of its output line.
PATHS = [f"{name}, {way}" for name in ("half close", "copied", "zero copy by RDMA READ", "zero copy by RDMA WRITE", "interrupted sends", "urgent byte")
         for way in ("here to there", "there to here")] + ["many connections", "IPPROTO_SDP", "IPPROTO_SDP to a server of TCP"]


class Server:
    """sdp-check --serve on the other host, until the end of the case."""

    def __init__(self, e, *words, patient=True):
        if not CHECK.exists():
            e.skip("sdp-check is not built (scripts/cargo build --release -p sdp-check)")
        if patient:
            be_patient(e)
        self.program = Program(e, [str(CHECK), "--serve", *words], "peer")
        said = self.program.line()
        e.check("listening" in said, f"the server said {said!r}")


class Client:
    """Runs sdp-check on this host or the other host, and passes on its output."""

    def __init__(self, e, *words):
        folder = tempfile.TemporaryDirectory()
        e.at_end.append(folder.cleanup)
        self._e, self._report = e, pathlib.Path(folder.name) / "report"
        self.program = Program(e, [str(CHECK), "--seconds", "5", "--report", str(self._report), *words, e.there])
        self.lines = []

    def until(self, text):
        """Reads until the program has printed a line that contains this text."""
        while text not in (self.lines or [""])[-1]:
            line = self.program.line()
            self._e.check(line, f"it ended before {text!r}: {self.lines[-5:]}")
            self.lines.append(line.rstrip())

    def end(self, patience=60):
        """Returns the status, output, failed checks and report of sdp-check."""
        status, out, err = self.program.ended(self._e.patience * patience)
        return status, self.lines + out.splitlines(), err, self._report.read_text()


def verdicts(lines):
    """Returns PASS, FAIL or SKIP by the names of the checks."""
    found = (re.match(r"(PASS|FAIL|SKIP)  (.*?): ", line) for line in lines)
    return {match[2]: match[1] for match in found if match}


@case(reference=False, hosts=(2,), timeout=400)
def all_is_well(e):
    """Each path passes in both directions, and the report contains no host name."""
    Server(e)
    status, lines, err, report = Client(e, "--no-perftest").end()
    found = verdicts(lines)
    e.equal({name: verdict for name, verdict in found.items() if verdict == "FAIL"}, {}, f"what failed, of {lines}")
    e.equal({name: found.get(name) for name in PATHS}, dict.fromkeys(PATHS, "PASS"), "the paths")
    e.equal((status, err), (0, ""), "status and complaints")
    e.equal([lines.count(f"PASS  {where}, kernel log: no warning names ib_sdp") for where in ("here", "there")], [1, 1], "looks at the log")
    for name in ("here, module ib_sdp", "there, device rxe0", "here, address", "there, address", "MTU of both hosts", "throughput", "latency",
                 "counters here", "counters there"):
        e.equal(found.get(name), "PASS", name)
    e.check(lines[-2].endswith(" 0 failed, 2 skipped"), f"its sum: {lines[-2]}")     # perftest's two programs
    e.check("\nThe host there\n" in report and "max_sge" in report and "sdp_zcopy_thresh=-1" in report, f"report {report}")
    told = [part.split("\n\n")[1] for part in report.split("The kernel's log of SDP and RDMA ")[1:]]
    e.equal(len(told), 2, "logs in the report")
    for text in told:
        e.check("ib_sdp: device " in text and " a queue pair for " in text, f"no limits of the device in its log: {text[-2000:]}")
    for secret in (e.here, e.there, os.uname().nodename):
        e.check(not re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", report), f"the report has {secret}")


@case(reference=False, families=("v4",), timeout=400)
def log_of_the_module(e):
    """sdp-check enables debug messages while it runs, and disables them afterwards; messages
    enabled earlier stay enabled."""
    def asked():
        with open("/proc/dynamic_debug/control") as control:
            return {word for line in control if "[ib_sdp]" in line for word in line.split() if word.startswith("=")}

    def alone():
        with tempfile.TemporaryDirectory() as folder:
            Program(e, [str(CHECK), "--report", f"{folder}/report"]).ended(e.patience * 60)

    if not CHECK.exists():
        e.skip("sdp-check is not built (scripts/cargo build --release -p sdp-check)")
    with open("/proc/dynamic_debug/control", "w") as control:     # tests/guest/run has enabled debug messages
        control.write("module ib_sdp -p")
    e.at_end.append(kmsg.ask_module)
    e.equal(asked(), {"=_"}, "before")
    server = Server(e)
    e.equal(asked(), {"=p"}, "while the server runs")
    alone()
    e.equal(asked(), {"=p"}, "behind the end of another one")
    server.program.end()
    e.equal(asked(), {"=_"}, "behind its end")
    alone()
    e.equal(asked(), {"=_"}, "behind the end of one that looked at this host alone")


@case(reference=False, timeout=400)
def addresses(e):
    """The report has a line for each address, with its GID: of the network device, a VLAN and a
    bond. An address without a GID uses TCP."""
    if not CHECK.exists():
        e.skip("sdp-check is not built (scripts/cargo build --release -p sdp-check)")
    with contextlib.ExitStack() as until_then:
        tagged = until_then.enter_context(links.interfaces(e, "8021q", "v10", "link add link DEV name v10 type vlan id 10", "link set v10 up"))[0]
        bonded = until_then.enter_context(links.bonds(e, net=80))[0]
        bare = netns.bare(e.six)
        until_then.callback(netns.run, "self", "ip link del bare0")
        folder = until_then.enter_context(tempfile.TemporaryDirectory())
        Program(e, [str(CHECK), "--names", "--report", f"{folder}/report"]).ended(e.patience * 60)
        report = pathlib.Path(folder, "report").read_text()
    for address, link, device in ((e.here, "[a-z0-9]+", "rxe0"), (tagged, "v10", "rxe0"), (bonded, "bond9", "rxeb1")):
        wanted = rf"(?m)^ *{re.escape(address)} on {link}: GID index \d+ of {device} port 1, RoCE v2$"
        e.check(re.search(wanted, report), f"no line for {address} of {device} in {report}")
    e.check(f"{bare} on bare0: no RDMA device, so TCP to other hosts" in report, f"no line for {bare} in {report}")


@case(reference=False, families=("v4",), timeout=600, brief=False)
def beside_raw_verbs(e):
    """The report has perftest's figures next to SDP's; their values do not matter. With --names the
    report of sdp-check has the addresses. With one processor, perftest polls and leaves no
    processor time for rxe."""
    Server(e, "--names")
    _, lines, _, report = Client(e, "--names").end(90)
    text = "\n".join(lines)
    e.check(re.search(r"throughput: SDP [\d.]+ MB/s .*ib_send_bw [\d.]+ MB/s; TCP [\d.]+ MB/s; .*of raw verbs", text), f"throughput in {text}")
    e.check(re.search(r"latency: 64 bytes in [\d.]+ us by SDP; ib_send_lat [\d.]+ us; TCP [\d.]+ us; .*of raw verbs", text), f"latency in {text}")
    e.check(e.here in report and e.there in report and "guid" in report, f"no names in {report}")


@case(reference=False, families=("v4",), timeout=400)
def wrong_bytes(e):
    """sdp-check detects wrong bytes on each path, and fails with a non-zero exit status."""
    Server(e, "--corrupt")
    status, lines, _, _ = Client(e, "--no-perftest", "--corrupt").end()
    found = {line.split(": ")[0] for line in lines if line.startswith("FAIL") and "WRONG DATA" in line}
    e.equal((status, found), (1, {f"FAIL  {name}" for name in PATHS}), f"status, and what has failed, of {lines}")
    e.check(any("do not use SDP on these hosts" in line for line in lines), f"no remedy in {lines}")


@case(reference=False, families=("v4",), timeout=400)
def server_dies(e):
    """The client reports the server's death at once, and in the report; the next server works
    again."""
    server = Server(e)
    client = Client(e, "--no-perftest")
    client.until("PASS  half close")
    server.program.said()
    status, lines, err, report = client.end()
    e.equal(status, 1, "status")
    e.check("the other end" in err and "It ended early" in report, f"complaints {err}, report {report}")
    e.check("PASS  half close" in report, "what was found before is not in the report")


@case(reference=False, families=("v4",), timeout=400)
def client_dies(e):
    """The server continues with the next client after a client has died."""
    Server(e)
    first = Client(e, "--no-perftest")
    first.until("PASS  half close")
    first.program.said()

    def served():
        client = Client(e, "--no-perftest")
        told = client.program.line()
        said = client.program.said()
        e.check(told.startswith("PASS") or "serves another client" in said, f"the next client says {told}{said}")
        return told.startswith("PASS")
    e.until(served, "the next client was not served", patience=e.patience * 30)


@case(reference=False, families=("v4",), hosts=(1, 2), timeout=400)
def no_module(e):
    """sdp-check reports the host without SDP, and tests the remaining path: IPPROTO_SDP at the
    other host.
    """
    one = netns.local()
    with module.unloaded(e, "self" if one else "peer"):
        server = Server(e, patient=False)
        status, lines, _, _ = Client(e, "--no-perftest").end()
        server.program.end()
    found = verdicts(lines)
    e.equal((status, found.get("there, module ib_sdp")), (1, "FAIL"), f"status, and what is there, of {lines}")
    e.check(any("modprobe ib_sdp" in line for line in lines), f"no remedy in {lines}")
    e.equal(found.get("here, module ib_sdp"), "FAIL" if one else "PASS", "what is here")
    e.equal(found.get("copied, here to there"), "SKIP", "a path")
    e.equal(found.get("IPPROTO_SDP to a server of TCP"), "SKIP" if one else "PASS", "fallback")


@case(reference=False, families=("v4",), timeout=400)
def no_way(e):
    """If a firewall drops RoCE, sdp-check names it as the likely cause of silence, and the log
    contains SDP's errors."""
    Server(e)
    with netns.firewall():
        status, lines, _, report = Client(e, "--no-perftest").end()
    found = verdicts(lines)
    e.equal((status, found.get("half close, here to there"), found.get("copied, here to there")), (1, "FAIL", "SKIP"), f"behind a firewall, of {lines}")
    e.check(any("UDP 4791" in line for line in lines), f"no cause in {lines}")
    e.check(re.search(r"ib_sdp: \(hidden\) port \d+, \(hidden\) port \d+: new request, after errno 110", report), f"no line of the log in {report[-3000:]}")
