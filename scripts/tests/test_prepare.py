# SPDX-License-Identifier: GPL-2.0-only
"""Tests the choice of the kernel, the reading of apt's configuration, and the search for
`unsafe`."""

import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SCRIPTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SCRIPTS / "lib"))

import cache  # noqa: E402
import kernels  # noqa: E402


def script(name):
    """Loads a script without .py as a module."""
    loader = importlib.machinery.SourceFileLoader(f"script_{name}", str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


prepare, check = script("prepare"), script("check")


def offer(*those, without=()):
    offered = {}
    for version, build in those:
        series = kernels.series_of(version)
        for name in (f"linux-binary-{version}", f"linux-modules-{version}", f"linux-headers-{version}", f"linux-source-{series}"):
            if name not in without:
                offered.setdefault(name, set()).add(build)
    return offered


class Choice(unittest.TestCase):
    def setUp(self):
        said = mock.patch.object(kernels, "say")
        self.said = said.start()
        self.addCleanup(said.stop)
        series = mock.patch.object(kernels, "SERIES", ("7.3", "7.2"))
        series.start()
        self.addCleanup(series.stop)

    def test_newest_by_number(self):
        offered = offer(("7.2.9+deb13-amd64", "7.2.9-1"), ("7.2.12+deb13-amd64", "7.2.12-1"))
        self.assertEqual(kernels.choose(offered)[0], "7.2.12+deb13-amd64")

    def test_incomplete_kernels_do_not_count(self):
        both = ("7.2.9+deb13-amd64", "7.2.9-1"), ("7.2.12+deb13-amd64", "7.2.12-1")
        for part in ("linux-binary-7.2.12+deb13-amd64", "linux-headers-7.2.12+deb13-amd64", "linux-modules-7.2.12+deb13-amd64"):
            self.assertEqual(kernels.choose(offer(*both, without=[part]))[0], "7.2.9+deb13-amd64")

    def test_source_has_to_be_of_the_same_build(self):
        offered = offer(("7.2.9+deb13-amd64", "7.2.9-1"), ("7.2.12+deb13-amd64", "7.2.12-1"))
        offered["linux-source-7.2"] = {"7.2.9-1"}
        version, packages = kernels.choose(offered)
        self.assertEqual(version, "7.2.9+deb13-amd64")
        self.assertIn("linux-source-7.2=7.2.9-1", packages)

    def test_other_series_only_when_ours_are_gone(self):
        newer, ours = ("7.4.1+deb13-amd64", "7.4.1-1"), [("7.2.6+deb13-amd64", "7.2.6-1"), ("7.3.4+deb13-amd64", "7.3.4-1")]
        self.assertEqual(kernels.choose(offer(newer, *ours))[0], "7.3.4+deb13-amd64")
        self.assertEqual(kernels.choose(offer(newer, ours[0]))[0], "7.2.6+deb13-amd64")
        self.said.assert_not_called()
        self.assertEqual(kernels.choose(offer(newer, ("7.1.9+deb13-amd64", "7.1.9-1")))[0], "7.4.1+deb13-amd64")
        self.assertIn("7.4.1+deb13-amd64 is none that the module is written for (7.3 and 7.2)", self.said.call_args[0][1])

    def test_a_series(self):
        offered = offer(("7.2.9+deb13-amd64", "7.2.9-1"), ("7.2.12+deb13-amd64", "7.2.12-1"), ("7.3.4+deb13-amd64", "7.3.4-1"))
        self.assertEqual(kernels.choose(offered, kernels.wanted("7.2"))[0], "7.2.12+deb13-amd64")
        with self.assertRaisesRegex(kernels.NotOffered, "of a kernel 7.1$"):
            kernels.choose(offered, kernels.wanted("7.1"))

    def test_what_may_be_asked_for(self):
        self.assertEqual([kernels.wanted(text) for text in (None, "", "7.2", "7.3.4+deb13-amd64")], [("7.3", "7.2")] * 2 + [("7.2",), "7.3.4+deb13-amd64"])
        for text in ("newest", "7", "v7.2", "-7.2"):
            with self.assertRaisesRegex(cache.Failure, "is no kernel"):
                kernels.wanted(text)

    def test_other_flavours_are_not_taken(self):
        with self.assertRaises(cache.Failure):
            kernels.choose(offer(("7.2.12+deb13-cloud-amd64", "7.2.12-1"), ("7.2.12+deb13-rt-amd64", "7.2.12-1")))

    def test_wanted(self):
        offered = offer(("7.2.9+deb13-amd64", "7.2.9-1"), ("7.2.12+deb13-amd64", "7.2.12-1"))
        self.assertEqual(kernels.choose(offered, "7.2.9+deb13-amd64")[0], "7.2.9+deb13-amd64")
        with self.assertRaises(cache.Failure):
            kernels.choose(offered, "7.2.1+deb13-amd64")

    def test_flavours(self):
        offered = offer(("7.3.4+deb13-arm64", "7.3.4-1"), ("7.2.12+deb13-arm64", "7.2.12-1"), ("7.3.4+deb13-arm64-16k", "7.3.4-1"))
        for text, version in (("arm64", "7.3.4+deb13-arm64"), ("7.2-arm64", "7.2.12+deb13-arm64"), ("arm64-16k", "7.3.4+deb13-arm64-16k"),
                              ("7.3-arm64-16k", "7.3.4+deb13-arm64-16k"), ("7.3.4+deb13-arm64", "7.3.4+deb13-arm64")):
            wish = kernels.wanted(text)
            self.assertEqual((kernels.choose(offered, wish)[0], kernels.architecture_of(wish)), (version, "arm64"))
        for text in (None, "7.3", "7.2-arm64-16k"):
            with self.assertRaises(kernels.NotOffered):
                kernels.choose(offered, kernels.wanted(text))
        self.assertEqual([kernels.architecture_of(kernels.wanted(text)) for text in (None, "7.2", "next", "7.3.4+deb13-amd64")], ["amd64"] * 4)


class Next(unittest.TestCase):
    """Tests the selection of the kernel for make next, and the report whether that kernel is
    newer."""

    def choose(self, *others):
        ours = ("7.3.4+deb13-amd64", "7.3.4-1~bpo13+1"), ("7.2.12+deb13-amd64", "7.2.12-1~bpo13+1")
        with mock.patch.object(kernels, "SERIES", ("7.3", "7.2")), mock.patch.object(kernels, "say") as said:
            version = kernels.choose(offer(*ours, *others), kernels.NEXT)[0]
        return version, " ".join(call.args[1] for call in said.call_args_list)

    def test_a_newer_one(self):
        version, said = self.choose(("7.3-rc7-amd64", "7.3~rc7-1~exp1"), ("7.4-rc2-amd64", "7.4~rc2-1~exp1"))
        self.assertEqual((version, said), ("7.4-rc2-amd64", "7.4-rc2-amd64 is newer than each kernel that make takes by itself"))

    def test_none(self):
        version, said = self.choose(("7.2.9-amd64", "7.2.9-1"), ("7.3-rc7-amd64", "7.3~rc7-1~exp1"))
        self.assertEqual((version, said), ("7.3-rc7-amd64", "Debian has none that is newer than 7.3.4+deb13-amd64: taking 7.3-rc7-amd64, for its compilers"))

    def test_nothing_else(self):
        with self.assertRaises(kernels.NotOffered):
            self.choose()


class Download(unittest.TestCase):
    """Tests the cache when a download fails or differs from its checksum."""

    class Mirror:
        def __init__(self, *offers):
            self.offers, self.asked = offers, 0

        def update(self, topic, log):
            self.asked += 1

        def versions(self, prefixes):
            return offer(*self.offers[self.asked - 1])

        def download(self, topic, what, packages, log):
            if "linux-binary-7.3.4+deb13-amd64=7.3.4-1" in packages:
                raise cache.Failure("404\n not found")
            return {"the": "packages"}

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        for patch in (mock.patch.dict(os.environ, AF_SDP_CACHE=directory.name), mock.patch.object(prepare, "say"),
                      mock.patch.object(cache, "need_space")):
            patch.start()
            self.addCleanup(patch.stop)
        self.root = cache.make_root()

    def test_a_package_that_left_after_the_index(self):
        old, new = ("7.3.4+deb13-amd64", "7.3.4-1"), ("7.3.5+deb13-amd64", "7.3.5-1")
        mirror = self.Mirror([old], [new])
        self.assertEqual(prepare.fetch(("7.3",), mirror, "log")[::2], (new[0], {"the": "packages"}))

    def test_a_package_that_does_not_come(self):
        old = [("7.3.4+deb13-amd64", "7.3.4-1")]
        mirror = self.Mirror(old, old)
        with mock.patch.object(cache, "Apt", lambda *_: mirror), mock.patch.object(cache, "sources", list):
            with self.assertRaisesRegex(cache.Failure, r"^the mirror lists kernel 7\.3\.4\+deb13-amd64 and does not deliver .*AF_SDP_KERNEL$"):
                prepare.source(("7.3",))
        self.assertEqual(mirror.asked, 2)
        self.assertEqual(list((self.root / "kernel").iterdir()), [])


class Mirrors(unittest.TestCase):
    def mirrors(self, files):
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "sources.list.d").mkdir()
            for name, text in files.items():
                (Path(directory) / name).write_text(text)
            with mock.patch.object(cache, "APT", Path(directory)), mock.patch.dict(os.environ):
                os.environ.pop("AF_SDP_MIRROR", None)
                return cache.mirrors()

    def test_one_line(self):
        text = "# deb http://old/debian buster main\ndeb [arch=amd64 signed-by=/k.gpg] http://m/debian bookworm main contrib # here\n"
        text += "deb-src http://m/debian bookworm main\ndeb http://m/debian-security bookworm-security main\n"
        archive, security = self.mirrors({"sources.list": text})
        self.assertEqual((archive[0], archive[1]["signed-by"], security[0]), ("http://m/debian", "/k.gpg", "http://m/debian-security"))

    def test_deb822(self):
        text = "Types: deb deb-src\n# a comment\nURIs: http://m/debian\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: /k.gpg\n\n"
        text += "Types: deb\nURIs: http://s/sec\nSuites: bookworm-security\nComponents: main\n"
        archive, security = self.mirrors({"sources.list.d/debian.sources": text})
        self.assertEqual((archive, security), (("http://m/debian", {"signed-by": "/k.gpg"}), ("http://s/sec", {})))

    def test_others_and_disabled_are_passed_over(self):
        text = "Types: deb\nURIs: http://x/node\nSuites: nodistro\nComponents: main\n\n"
        text += "Types: deb\nEnabled: no\nURIs: http://off/debian\nSuites: trixie\nComponents: main\n\n"
        text += "Types: deb\nURIs: http://on/debian\nSuites: trixie\nComponents: main\n"
        self.assertEqual(self.mirrors({"sources.list.d/a.sources": text})[0][0], "http://on/debian")

    def test_no_debian(self):
        with self.assertRaises(cache.Failure):
            self.mirrors({"sources.list": "deb http://u/ubuntu noble main\n"})


class Unsafe(unittest.TestCase):
    def test_code_and_what_only_looks_like_it(self):
        text = """// unsafe here
        /* unsafe /* nested unsafe */ still unsafe */
        let a = "unsafe \\" unsafe"; let b = r#"unsafe " unsafe"#; let c = '"'; let d = '\\''; fn f<'a>() {}
        unsafe_code(); not_unsafe();
        unsafe { g() }
        """
        self.assertEqual(list(check.unsafe_lines(text)), [5])


if __name__ == "__main__":
    unittest.main()
