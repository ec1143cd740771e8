# SPDX-License-Identifier: GPL-2.0-only
"""Tests the check of the resulting configuration, and the choice of kernels that are kept."""

import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import cache  # noqa: E402
import debug_kernel  # noqa: E402


class Lost(unittest.TestCase):
    def lost(self, got):
        return list(debug_kernel.lost('# a comment\n\nCONFIG_A=y\nCONFIG_B="x"\n# CONFIG_C is not set\n', got))

    def test_kept(self):
        self.assertEqual(self.lost('CONFIG_A=y\nCONFIG_AB=y\nCONFIG_B="x"\n# CONFIG_C is not set\n'), [])
        self.assertEqual(self.lost('CONFIG_A=y\nCONFIG_B="x"\n'), [])

    def test_lost(self):
        self.assertEqual(self.lost('CONFIG_A=m\nCONFIG_C=y\n'), ["CONFIG_A=y", 'CONFIG_B="x"', "# CONFIG_C is not set"])


class Kernels(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        environment = mock.patch.dict(os.environ, AF_SDP_CACHE=directory.name)
        environment.start()
        self.addCleanup(environment.stop)
        self.kernels = cache.make_root() / "kernel"
        self.kernels.mkdir()

    def build(self, version):
        def compile_all(version, piece, mark):
            with cache.building(piece) as new:
                (new / "of").write_text(version)
                cache.put_in_place(new, piece, mark)

        with mock.patch.object(debug_kernel, "compile_all", side_effect=compile_all) as compiled:
            self.piece = debug_kernel.build(version, ["clang 1"])
        self.assertEqual((self.piece / "of").read_text(), version)
        return compiled.called

    def test_made_once_each(self):
        self.assertTrue(self.build("1"))
        self.assertFalse(self.build("1"))
        self.assertTrue(self.build("2"))
        self.assertFalse(self.build("1"))

    def test_only_the_last_used_are_kept(self):
        (self.kernels / ".debug-0123.new").mkdir()
        self.build("1")
        first = self.piece.name
        self.build("2")
        os.utime(self.kernels / first, (1, 1))
        self.build("3")
        names = {path.name for path in self.kernels.iterdir()}
        self.assertEqual(len(names), debug_kernel.KEPT)
        self.assertNotIn(first, names)


if __name__ == "__main__":
    unittest.main()
