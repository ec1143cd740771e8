# SPDX-License-Identifier: GPL-2.0-only
"""Tests how scripts/bench detects SMC's fallback to TCP, the points it measures, and its tables."""

import importlib.machinery
import importlib.util
import sys
import unittest
from pathlib import Path
from unittest import mock

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "scripts" / "lib"), str(PROJECT / "tests" / "bench"), str(PROJECT / "qemu" / "host")]

import asynchronous  # noqa: E402
import figures  # noqa: E402
import inside  # noqa: E402
import rdma  # noqa: E402
import scale  # noqa: E402
import smc_build  # noqa: E402
import smc_kernel  # noqa: E402
import tsc  # noqa: E402
from smc_kernel import attribute, attributes  # noqa: E402

loader = importlib.machinery.SourceFileLoader("bench", str(PROJECT / "scripts" / "bench"))
bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench", loader))
loader.exec_module(bench)


def quad(kind, value):
    return attribute(kind, value.to_bytes(8, "little"))


class Kernel:
    """Replies of SMC's netlink families."""

    def __init__(self):
        self.smcd = self.smcr = self.fallen = 0
        self.asked = []

    def ask(self, command, flags, data=b""):
        self.asked.append((command, {kind: value.rstrip(b"\0") for kind, value in attributes(data).items()}))
        if command == smc_kernel.GET_STATS and flags:
            techs = ((smc_kernel.STATS_SMCD, self.smcd), (smc_kernel.STATS_SMCR, self.smcr))
            stats = b"".join(attribute(0x8000 | kind, quad(smc_kernel.TECH_TX_BYTES, sent)) for kind, sent in techs)
            return [attributes(attribute(0x8000 | smc_kernel.GEN_STATS, stats))]
        if command == smc_kernel.GET_FBACK_STATS and flags and self.fallen:
            reason = attribute(smc_kernel.FBACK_REASON, (0x03030000).to_bytes(4, "little"))
            return [attributes(attribute(0x8000 | smc_kernel.GEN_FBACK_STATS, quad(smc_kernel.FBACK_CLIENT_COUNT, self.fallen) + reason))]
        return []


class Checked(unittest.TestCase):
    def setUp(self):
        self.kernel = Kernel()
        with mock.patch.object(smc_kernel, "Netlink", return_value=self.kernel), mock.patch.object(smc_kernel.subprocess, "run"):
            self.smc = smc_kernel.Smc()
        self.smc.set = mock.Mock()
        self.kernel.asked.clear()

    def take(self, **went):
        def sample():
            for name, value in went.items():
                setattr(self.kernel, name, getattr(self.kernel, name) + value)
            return {"bytes": 1000}

        return sample

    def check(self, system, **went):
        return self.smc.checked(system, self.take(**went), lambda sample: sample["bytes"])

    def test_the_right_way(self):
        self.assertEqual(self.check("smcr", smcr=1001)["sent_by_smc"], 1001)
        self.assertEqual(self.check("smcd", smcd=1000)["sent_by_smc"], 1000)

    def test_large_buffers(self):
        self.check("smcd", smcd=1000)
        self.smc.set.assert_not_called()
        self.check("smcd large", smcd=1000)
        self.check("smcr large", smcr=1000)
        self.assertEqual([call.kwargs["wmem"] for call in self.smc.set.call_args_list], [smc_kernel.LARGE_BUFFERS, smc_kernel.BUFFERS] * 2)
        with self.assertRaises(smc_kernel.FellBack):
            self.check("smcr large", smcd=1000)

    def test_another_way(self):
        for system, other in (("smcr", "smcd"), ("smcd", "smcr")):
            with self.assertRaisesRegex(smc_kernel.FellBack, "of 1000 bytes"):
                self.check(system, **{other: 1000})

    def test_fell_back(self):
        with self.assertRaisesRegex(smc_kernel.FellBack, "1 connections fell back to TCP .*0x03030000"):
            self.check("smcd", fallen=1)
        # one of several connections has fallen back
        with self.assertRaises(smc_kernel.FellBack):
            self.check("smcr", smcr=1000, fallen=1)
        # connections made earlier do not count
        self.check("smcd", smcd=1000)

    def test_smcd_is_out_of_the_way_of_smcr_only(self):
        name = {smc_kernel.PNETID_NAME: smc_kernel.PNETID.encode()}
        device = {smc_kernel.PNETID_IBNAME: b"lo", smc_kernel.PNETID_IBPORT: b"\1"}
        self.check("smcd", smcd=1000)
        self.assertFalse(any(smc_kernel.PNETID_NAME in data for _, data in self.kernel.asked))
        self.kernel.asked.clear()
        with self.assertRaises(smc_kernel.FellBack):
            self.check("smcr")
        self.assertEqual(self.kernel.asked[0], (smc_kernel.PNETID_ADD, name | device))
        self.assertEqual(self.kernel.asked[-1], (smc_kernel.PNETID_DEL, name))


class Netlink(unittest.TestCase):
    def test_a_real_family(self):
        # every kernel has the family that lists the families
        families = smc_kernel.Netlink("nlctrl")
        self.addCleanup(families.socket.close)
        self.assertEqual(families.family, smc_kernel.CTRL)

    def test_an_unknown_family(self):
        with self.assertRaises(FileNotFoundError):
            smc_kernel.Netlink("no such family")


class Changed(unittest.TestCase):
    SYSCTL = ("\t\t.data = &init_net.smc.sysctl_wmem,\n\tif (!net_eq(net, &init_net)) {\n"
              "\ttable[i].data += (void *)net - (void *)&init_net;\n\tnet->smc.limit_smc_hs = 0;\n")
    SOCKET = ("\tif (!tcp_sk(smc->clcsock->sk)->syn_smc)\n\tif (tcp_sk(sk)->syn_smc)\n\ttcp_sk(smc->clcsock->sk)->syn_smc = 1;\n"
              "\t\ttcp_sk(smc->clcsock->sk)->smc_hs_congested = smc_hs_congested;\n\tsmc->limit_smc_hs = sock_net(skb->sk)->smc.limit_smc_hs;\n"
              "\trc = register_pernet_subsys(&smc_net_ops);\n\tunregister_pernet_subsys(&smc_net_ops);\n\tstatic_branch_enable(&tcp_have_smc);\n")

    def changed(self, **more):
        return smc_build.changed({"smc_sysctl.c": self.SYSCTL, "af_smc.c": self.SOCKET} | more)

    def test_changed(self):
        got = self.changed(other="_net->smc.smc_stats lgr->net->smc.x (net)->smc.y")
        self.assertEqual(got["other"], "smc_of(_net)->smc_stats smc_of(lgr->net)->x smc_of((net))->y")
        self.assertEqual(got["smc_sysctl.c"], "\t\t.data = &smc_no_settings.sysctl_wmem,\n\tif (true) {\n"
                         "\ttable[i].data += (void *)smc_of(net) - (void *)&smc_no_settings;\n\tsmc_of(net)->limit_smc_hs = 0;\n")
        self.assertEqual(got["af_smc.c"], "\tif (!true)\n\tif (true)\n\t\t(void)smc_hs_congested;\n"
                         "\tsmc->limit_smc_hs = smc_of(sock_net(skb->sk))->limit_smc_hs;\n"
                         "\trc = smc_settings_init();\n\tif (rc)\n\t\treturn rc;\n\trc = register_pernet_subsys(&smc_net_ops);\n"
                         "\tunregister_pernet_subsys(&smc_net_ops);\n\tsmc_settings_exit();\n\t\n")

    def test_what_it_does_not_know(self):
        with self.assertRaisesRegex(smc_build.Failure, "smc_net_ops"):
            self.changed(**{"af_smc.c": self.SOCKET.replace("smc_net_ops", "other_ops")})
        with self.assertRaisesRegex(smc_build.Failure, "other.c uses"):
            self.changed(**{"other.c": "where(sk)->smc.limit = 1;"})


class Section(unittest.TestCase):
    def lines(self, **options):
        samples = figures.Samples([{"part": "latency", "system": system, "mode": "pong", "size": 64, "connections": 1, "repetition": 1, "median_us": value}
                                   for system, value in (("sdp", 10.0), ("smcd", 20.0), ("tcp", 40.0))])
        names = {"sdp": "SDP", "smcd": "SMC-D", "tcp": "TCP"}
        return list(figures.section(samples, "", "", [("64 B", 64, 1)], "latency", "median_us", 1, tuple(names), names, **options))[1:3]

    def test_to_each_of_the_others(self):
        self.assertEqual([line.split() for line in self.lines()],
                         [["SDP", "SMC-D", "TCP", "SDP/SMC-D", "SDP/TCP"], ["64", "B", "10.0", "20.0", "40.0", "0.50", "0.25"]])

    def test_pairs(self):
        self.assertEqual([line.split()[-1] for line in self.lines(pairs=[("smcd", "tcp"), ("smcd", "unix")])], ["SMC-D/TCP", "0.50"])

    def test_no_pairs(self):
        self.assertEqual(self.lines(pairs=[])[0].split(), ["SDP", "SMC-D", "TCP"])

    def test_names_that_begin_alike(self):
        names = {"read": "by READ", "write": "by WRITE", "copy": "copied"}
        lines = list(figures.section(figures.Samples([]), "", "message", [("64 B", 64, 1)], "throughput", "rate", 1, tuple(names), names, "copy"))
        self.assertIn("copied/by READ  copied/by WRITE", lines[1])

    def test_no_rows(self):
        self.assertEqual(list(figures.grid("title", ["message", "SDP"], [])), [])


class Spread(unittest.TestCase):
    def test_median_and_half_of_the_range(self):
        self.assertEqual([figures.with_spread(values, 10) for values in ([], [1.5], [1, 2, 4])], ["-", "15.0", "20.0 ±75%"])

    def test_a_target_within_the_spread(self):
        goals = [figures.goal("", each, 1.0) for each in ([0.9, 1.1, 1.2], [1.1, 1.2], [0.9, 0.95, 1.1], [0.8])]
        self.assertEqual([line.split("  ")[-1].strip() for line in figures.goals_table(goals)][1:], ["met, within the spread", "met", "MISSED, within the spread", "MISSED"])

    def test_enough_samples(self):
        small, large = {"part": "throughput", "mode": "stream", "size": 64}, {"part": "throughput", "mode": "stream", "size": 65536}
        latency = {"part": "latency", "mode": "pong", "size": 64}
        self.assertEqual([bench.sample_count(point, 1) for point in (small, large, latency)], [5, 3, 5])
        self.assertEqual([bench.sample_count(point, 5) for point in (small, large, latency)], [5, 1, 5])


class WarningsOfRxe(unittest.TestCase):
    RXE = "[  9.1] WARNING: drivers/infiniband/sw/rxe/rxe_task.c:249 at rxe_sched_task+0x4/0x5 [rdma_rxe], CPU#1: kworker/u8:1/9"
    MODULES = "[  9.1] Modules linked in: ib_sdp(OE) rdma_rxe"

    def test_only_those_without_a_function_of_the_module(self):
        trace = "[  9.1]  rxe_receiver+0x1/0x2 [rdma_rxe]"
        self.assertEqual(bench.warnings_of_rxe("\n".join((self.RXE, self.MODULES, trace))), [self.RXE])
        for other in ("[  9.1]  post_send+0x1/0x2 [ib_sdp]", "[  9.2] BUG: kernel NULL pointer dereference, address: 0",
                      "[  9.2] WARNING: net/core/sock.c:1 at sock_free"):
            self.assertIsNone(bench.warnings_of_rxe("\n".join((self.RXE, self.MODULES, other))))

    def test_none(self):
        self.assertIsNone(bench.warnings_of_rxe("[  1.0] ib_sdp: loaded"))


class Clock(unittest.TestCase):
    def test_only_one_with_small_steps(self):
        inside.good_clock("tsc")
        with self.assertRaises(inside.Failed):
            inside.good_clock("refined-jiffies")

    def test_the_guest_gets_the_frequency(self):
        self.assertEqual(tsc.argument("icount"), ["tsc_early_khz=1000000"])
        self.assertEqual(tsc.argument("kvm"), [])
        one, other = (int(tsc.argument("tcg")[0].partition("=")[2]) for _ in range(2))
        self.assertLess(abs(one - other), one / 10000)


class Options:
    quick, counted, repeat, seconds, rdma_core = True, True, 1, 0.5, None


AROUND = {"rdma_core": "56.1", "cpus": 2, "cpu": "a processor", "kernel": "7", "mtu": 9000}


def samples_of(points, **figures_of):
    """Returns one sample for each point, with figures returned by a function of the point."""
    return figures.Samples([{**point, "repetition": 1, **{name: f(point) for name, f in figures_of.items()}} for point in points])


class Watched(unittest.TestCase):
    def setUp(self):
        self.points = [point for point in rdma.plan(Options) if point["part"] in ("latency", "epoll", "edge")]
        cost = {"sdp": 90, "raw": 100, "tcp": 40, "rsockets": 120}
        self.samples = samples_of(self.points, median_us=lambda point: cost[point["system"]] + point["connections"], empty=lambda point: 0,
                                  switches=lambda point: 0 if point["system"] == "raw" and point["part"] == "latency" else 2)

    def test_who_can_be_watched(self):
        watched = {(point["part"], point["system"], point["connections"]) for point in self.points if point["part"] != "latency"}
        self.assertEqual(watched, {("epoll", system, n) for system in ("sdp", "raw", "tcp") for n in (2, 100)} |
                         {("edge", system, n) for system in ("sdp", "tcp") for n in (2, 100)})

    def test_rsockets_of_an_rdma_core_with_epoll(self):
        with mock.patch.object(Options, "rdma_core", Path("librdmacm.so.1.5.65.0")):
            watched = {point["part"] for point in rdma.plan(Options) if point["system"] == "rsockets"}
        self.assertIn("epoll", watched)
        self.assertNotIn("edge", watched)

    def test_table(self):
        text = "\n".join(rdma.table(Options, AROUND, self.samples, self.points, 0, list(rdma.targets(self.samples, []))))
        rows = [line.split() for line in text.splitlines()]
        self.assertIn(["2", "92.0", "102", "42.0", "0.90", "2.19"], rows)
        self.assertIn(["100", "190", "140", "1.36"], rows)
        # a row without events has no ratio of events
        self.assertIn(["100", "0.00", "0.00"], rows)
        # a part that was not measured has no table
        self.assertNotIn("Throughput", text)
        self.assertNotIn("Cross-checks", text)

    def test_targets(self):
        goals = {goal["what"]: goal for goal in rdma.targets(self.samples, [])}
        goal = goals["epoll at 64 B, SDP / raw verbs, 100 connections"]
        self.assertEqual((goal["bound"], goal["ratio"], goal["met"]), (1.0, 0.95, True))


class Calls(unittest.TestCase):
    def test_table(self):
        points = [point for point in rdma.plan(Options) if point["part"] == "calls"]
        cost = {"sdp": 300, "tcp": 400, "rsockets": 500}
        samples = samples_of(points, send_ns=lambda point: cost[point["system"]], recv_ns=lambda point: cost[point["system"]] / 2)
        text = "\n".join(rdma.table(Options, AROUND, samples, points, 0, []))
        rows = [line.split() for line in text.splitlines()]
        self.assertIn(["4", "KiB", "300", "500", "400", "0.60", "0.75"], rows)
        self.assertIn(["64", "B", "150", "250", "200", "0.60", "0.75"], rows)


class Scale(unittest.TestCase):
    def table(self, **more):
        points = scale.plan(Options)
        samples = samples_of(points, count=lambda point: 1050, accept_us_1=lambda point: 10.0, accept_us_1000=lambda point: 12.0,
                             bytes_each_1000=lambda point: 4096, **more)
        return "\n".join(scale.table(Options, AROUND, samples, points, 0, ()))

    def test_levels(self):
        rows = [line.split() for line in self.table().splitlines()]
        self.assertIn(["connections", "made"] + ["1050"] * 5, rows)
        self.assertTrue(any(row[-5:] == ["4.00"] * 5 and "1000" in row for row in rows))
        self.assertFalse(any("10000" in row for row in rows))

    def test_where_it_stopped(self):
        self.assertIn("SDP, RDMA: no more: No buffer space available, after 1050", self.table(stopped=lambda point: "No buffer space available"))


class Difference(unittest.TestCase):
    def of(self, first, second):
        samples = figures.Samples([{"part": "throughput", "system": system, "mode": "stream", "size": 64, "connections": 1, "repetition": turn,
                                    "guest_cpu_per_byte": value}
                                   for system, values in (("read", first), ("ib_read", second)) for turn, value in enumerate(values) if value])
        return figures.difference(samples, "throughput", "read", "ib_read", 64, 1, "guest_cpu_per_byte", 10)

    def test_spread(self):
        self.assertEqual(self.of([3, 5, 4], [1, 1, 1]), "30.0 (20.0 to 40.0)")

    def test_less(self):
        self.assertEqual(self.of([1], [21]), "-200 (-200 to -200)")

    def test_no_pair(self):
        self.assertEqual(self.of([3, None], [None, 1]), "-")


class Asynchronous(unittest.TestCase):
    class Options(Options):
        counted = False

    def setUp(self):
        self.points = asynchronous.plan(self.Options)
        # a computation of half the time costs AZ-SDP 2 %, and the synchronous send a third
        kept = {"async": 0.98, "both": 0.67}
        self.samples = samples_of(self.points, rate=lambda point: 1e8 * (kept.get(point["system"], 0.97) if point.get("level") == 50 else 1),
                                  median_us=lambda point: 10.0)

    def rows(self):
        text = "\n".join(asynchronous.table(self.Options, AROUND, self.samples, self.points, 0, asynchronous.targets(self.samples, [])))
        return [line.split() for line in text.splitlines()]

    def test_levels_are_apart(self):
        rows = self.rows()
        self.assertIn(["0", "%"] + ["100"] * 5 + ["1.00"] * 4, rows)
        self.assertIn(["50", "%", "0.97", "0.67", "0.97", "0.97", "0.98"], rows)
        self.assertIn(["64"] + ["100"] * 5 + ["1.00"] * 4, rows)

    def test_targets(self):
        goals = {goal["what"]: goal for goal in asynchronous.targets(self.samples, [])}
        goal = goals["overlap at 1 MiB, AZ-SDP: kept beside a computation of half the time"]
        self.assertEqual((round(goal["ratio"], 2), goal["met"]), (0.98, True))
        self.assertFalse(goals["throughput at 1 MiB, SEND_ZC / sync. zcopy"]["met"])

    def test_processors_that_take_turns_do_nothing_meanwhile(self):
        points = asynchronous.plan(Options)
        self.assertFalse([point for point in points if point.get("compute")])
        targets = asynchronous.targets(samples_of(points, rate=lambda point: 1e8), [])
        self.assertFalse([goal for goal in targets if "computation" in goal["what"]])

    def test_every_plot_has_its_samples(self):
        for graph in asynchronous.graphs(self.samples, self.points):
            part, name, places = graph[4], graph[5], graph[7]
            for _, size, at in places:
                for system in asynchronous.SYSTEMS:
                    if name in ("rate", "median_us"):
                        self.assertTrue(self.samples.all(part, system, size, at, name), graph[0])


class Ratio(unittest.TestCase):
    def test_of_repetitions(self):
        samples = figures.Samples([{"part": "throughput", "system": system, "mode": "stream", "size": 64, "connections": 1, "repetition": turn, "rate": value}
                                   for system, values in (("sdp", (10, 2, 30)), ("tcp", (5, 1, 60))) for turn, value in enumerate(values)])
        # the machine was slow in the second round; medians are 10 and 5, of ratios 2, 2 and 0.5
        self.assertEqual(samples.ratio("throughput", "sdp", "tcp", 64, 1, "rate"), 2)
        self.assertEqual(figures.goal("", samples.ratios("throughput", "sdp", "tcp", 64, 1, "rate"), 1.5)["lowest"], 0.5)


if __name__ == "__main__":
    unittest.main()
