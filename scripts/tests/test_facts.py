# SPDX-License-Identifier: GPL-2.0-only
"""Tests that make check finds places that state a fact differently."""

import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import facts  # noqa: E402

COPIED = ["README.md", "docs", "CONTRIBUTING.md", "include", "src", "tools/man", "tools/etc", "tools/sdpstat/src", "tests/guest/lib/consts.py", "tests/guest/suites", "debian/control"]


class TestFacts(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        for name in COPIED:
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (facts.PROJECT / name).is_dir() else shutil.copy)(facts.PROJECT / name, target)

    def after(self, name, old, new, check):
        """Returns the complaints after replacing `old` by `new` in a file; without the change there
        are none.
        """
        self.assertEqual(list(check(self.root)), [])
        path = self.root / name
        self.assertIn(old, path.read_text())
        path.write_text(path.read_text().replace(old, new, 1))
        return "\n".join(check(self.root))

    def test_a_default_of_a_parameter(self):
        self.assertIn("docs/parameters.md: sdp_rx_size is 32, 8, 63 there, and 31, 8, 63",
                      self.after("docs/parameters.md", "`sdp_rx_size` | 31", "`sdp_rx_size` | 32", facts.parameters))

    def test_what_is_supported(self):
        page = "docs/install.md"
        self.assertIn("amd64 is supported with Debian's 7.3, ", self.after(page, "Debian's 7.3, 7.2 | 4 KiB |", "Debian's 7.3, 7.1 | 4 KiB |", facts.supported))

    def test_a_suite_that_is_not_there(self):
        self.assertIn("arm65:short, which shows that arm64 works, is no suite", self.after("docs/install.md", "`arm64:short`", "`arm65:short`", facts.supported))

    def test_packages_of_another_architecture(self):
        self.assertIn("packages are for amd64", self.after("debian/control", "Architecture: amd64", "Architecture: riscv64", facts.supported))

    def test_a_page_size_that_is_forgotten(self):
        self.assertIn("the flavour arm64-16k is missing", self.after("docs/install.md", "4 KiB, 16 KiB", "4 KiB", facts.supported))

    def test_cases_of_interfaces(self):
        said = self.after("docs/install.md", "`bridge` |", "`bridges` |", facts.interfaces)
        self.assertIn("connect.interfaces.bridges, which shows an interface, is no case", said)
        self.assertIn("the table of interfaces lacks connect.interfaces.bridge", said)

    def test_a_parameter_that_one_page_forgets(self):
        self.assertIn("tools/man/sdp.7: the parameter zcopy_ways is not there", self.after("tools/man/sdp.7", ".It Ar zcopy_ways No (3)\n", "", facts.parameters))

    def test_bounds_of_an_option(self):
        self.assertIn("TCP_KEEPCNT is `1 to 99` there, and 1 to 127", self.after("docs/parameters.md", "`TCP_KEEPCNT` | 1 to 127 |", "`TCP_KEEPCNT` | 1 to 99 |", facts.options))

    def test_an_option_that_the_page_lacks(self):
        self.assertIn("the option TCP_INQ is in only one", self.after("docs/parameters.md", "| `TCP_INQ` |", "| TCP_INQ |", facts.options))

    def test_an_option_that_cannot_be_set(self):
        self.assertIn("SDP_INFO cannot be set", self.after("docs/parameters.md", "`SDP_INFO` (82) | read only", "`SDP_INFO` (82) | 0, 1", facts.options))

    def test_a_number_of_an_option(self):
        self.assertIn("SDP_ROUTE is not in sdp(7)", self.after("include/uapi/sdp.h", "#define SDP_ROUTE\t\t83", "#define SDP_ROUTE\t\t84", facts.options))

    def test_bounds_of_an_option_of_sdp(self):
        said = self.after("src/socket/options.rs", "async_send = within(0, 1)", "async_send = within(0, 2)", facts.options)
        self.assertIn("SDP_ASYNC_SEND is `0 to 1` there, and 0 to 2", said)

    def test_an_option_that_the_tests_number_otherwise(self):
        self.assertIn("consts.py does not have SDP_ROUTE", self.after("tests/guest/lib/consts.py", "SDP_ROUTE = 83", "SDP_ROUTE = 85", facts.options))

    def test_an_option_that_tcp_is_asked_for(self):
        self.assertIn("SDP_INFO is not in is_sdp()", self.after("src/socket/ipproto/options.rs", "c::SDP_INFO,", "", facts.options))

    def test_an_option_without_a_case(self):
        for path in (self.root / "tests/guest/suites").rglob("*.py"):
            path.write_text(path.read_text().replace("TCP_WINDOW_CLAMP", "TCP_WINDOW"))
        self.assertEqual(list(facts.options(self.root)), ["no case in tests/guest/suites is about the option TCP_WINDOW_CLAMP"])

    def test_a_reason(self):
        self.assertIn("`no answer` for TCP", self.after("tools/man/sdp.7", "no answer, ", "", facts.reasons))

    def test_a_counter(self):
        self.assertIn("only one", self.after("tools/sdpstat/src/openmetrics.rs", '"zcopy refused"', '"zcopy unwanted"', facts.counters))

    def test_a_series(self):
        self.assertIn("README.md does not say", self.after("README.md", "Linux 7.", "Linux 8.", facts.series))


class TestPages(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        for page in facts.PAGES_OF_CODE + facts.PAGES_OF_FILES:
            self.put(page, "")
        self.put("src/a/mod.rs", "struct Wire { is_open: bool }\n")

    def put(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def named(self, text):
        self.put("docs/architecture.md", text)
        tracked = [str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()]
        return list(facts.named(self.root, tracked))

    def test_what_is_there(self):
        self.assertEqual(self.named("`Wire`, `Wire::is_open`, `a/mod.rs`, `src/a/`, `src/{a,a}/mod.rs`, `make test`, `AF_INET`\n"), [])

    def test_what_is_not(self):
        self.assertEqual(self.named("see\n`Wires`\n"), ["docs/architecture.md:2: `Wires` is nowhere in the sources"])
        self.assertEqual(self.named("`Wire::is_shut`\n"), ["docs/architecture.md:1: `Wire::is_shut` is nowhere in the sources"])
        self.assertEqual(self.named("`a/{mod,b}.rs`\n"), ["docs/architecture.md:1: there is no a/b.rs"])
        self.assertEqual(self.named("`src/b/`\n"), ["docs/architecture.md:1: there is no src/b/"])

    def test_purposes(self):
        self.put("docs/x.md", "<!-- a -->\n# One\n\nThis page answers which.\n")
        self.put("docs/y.md", "# Two\n\nYou find here what.\n")
        found = [text for text in facts.purposes(self.root) if "docs/x.md" in text or "docs/y.md" in text]
        self.assertEqual(found, ["docs/y.md: the first sentence is not `This page answers ...`"])
        self.assertEqual(list(facts.purposes()), [])

    def test_links(self):
        self.put("docs/x.md", "# One, two: `three`\n[a](y.md) [b](#one-two-three) [c](x.md#one) https://x.y/z\n")
        self.assertEqual(list(facts.links(self.root, ["docs/x.md"])), ["docs/x.md points to y.md, which is not there", "docs/x.md points to x.md#one, and there is no such heading"])


if __name__ == "__main__":
    unittest.main()
