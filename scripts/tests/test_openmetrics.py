# SPDX-License-Identifier: GPL-2.0-only
"""Tests that Prometheus's own client parses the output of sdpstat --prometheus.

A test of tools/sdpstat compares the output with sample.openmetrics."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

import cache  # noqa: E402

SAMPLE = (cache.PROJECT / "tools/sdpstat/src/sample.openmetrics").read_text()
TEXT = (cache.PROJECT / "tools/sdpstat/src/sample.prometheus").read_text()
PARSE = """
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
json.dump([[f.name, f.type, f.unit, f.documentation, [[s.name, s.labels, s.value] for s in f.samples]]
           for f in text_string_to_metric_families(sys.stdin.read())], sys.stdout)
"""


class OpenMetrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run([cache.SCRIPTS / "prepare", "checkers"], check=True)

    def parse(self, text, parser=PARSE):
        command = [cache.SCRIPTS / "in-toolchain", "--root", cache.root() / "checkers", "--", "python3", "-c", parser]
        return subprocess.run(command, input=text, capture_output=True, text=True)

    def test_the_sample(self):
        done = self.parse(SAMPLE)
        self.assertEqual(done.returncode, 0, done.stderr)
        families = {name: rest for name, *rest in json.loads(done.stdout)}
        self.assertEqual(families["sdp_sent_bytes"], ["counter", "bytes", "Bytes of streams sent.", [["sdp_sent_bytes_total", {}, 83916800]]])
        self.assertEqual(families["sdp_sockets"][0], "gauge")
        self.assertIn(["sdp_sockets", {"state": "LISTEN"}, 1], families["sdp_sockets"][3])
        self.assertIn(["sdp_sent_messages_total", {"message": "SDP_MID_DATA"}, 2562], families["sdp_sent_messages"][3])
        self.assertIn(["sdp_refused_and_lost_total", {"reason": "aborted sequence"}, 3], families["sdp_refused_and_lost"][3])
        self.assertTrue(all(documentation for _, _, documentation, _ in families.values()))

    def test_the_older_format(self):
        """Version 0.0.4, which node_exporter reads, has the same families and kinds."""
        done = self.parse(TEXT, PARSE.replace("openmetrics.parser", "parser"))
        self.assertEqual(done.returncode, 0, done.stderr)
        kinds = {name: kind for name, kind, *_ in json.loads(done.stdout)}
        self.assertEqual(kinds, {name: kind for name, kind, *_ in json.loads(self.parse(SAMPLE).stdout)})
        self.assertEqual(set(kinds.values()), {"counter", "gauge"})

    def test_the_parser_objects_to_what_is_none(self):
        for wrong in (SAMPLE.replace("# EOF\n", ""), SAMPLE.replace("sdp_sent_bytes_total", "sdp_sent_bytes")):
            self.assertNotEqual(self.parse(wrong).returncode, 0)


if __name__ == "__main__":
    unittest.main()
