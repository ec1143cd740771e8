# SPDX-License-Identifier: GPL-2.0-only
"""Prints results as KTAP: one level of subtests, one for each suite."""


class Report:
    def __init__(self, out, suites):
        self.out, self.suites = out, suites
        self.passed = self.failed = self.skipped = 0
        self._suite = 0
        self._say("KTAP version 1")
        self._say(f"1..{suites}")

    def _say(self, text, indent=""):
        for line in text.split("\n"):
            print(indent + line.replace("\0", "\\0"), file=self.out, flush=True)

    def suite(self, name, tests):
        self._suite += 1
        self._name, self._number, self._suite_failed = name, 0, False
        self._say(f"KTAP version 1\n# Subtest: {name}\n1..{tests}", "  ")

    def result(self, name, status, text=""):
        """status: ok, skip, fail or hang. The text precedes the result, as KTAP requires."""
        self._number += 1
        if status == "skip":
            self.skipped += 1
            self._say(f"ok {self._number} {name} # SKIP {text}", "  ")
            return
        good = status == "ok"
        if text:
            self._say("\n".join("# " + line for line in text.split("\n")), "  ")
        if good:
            self.passed += 1
        else:
            self.failed += 1
            self._suite_failed = True
        self._say(f"{'ok' if good else 'not ok'} {self._number} {name}{' # TIMEOUT' if status == 'hang' else ''}", "  ")

    def suite_end(self):
        self._say(f"{'not ok' if self._suite_failed else 'ok'} {self._suite} {self._name}")

    def end(self):
        self._say(f"# Totals: pass:{self.passed} fail:{self.failed} skip:{self.skipped}")
        return 1 if self.failed or not (self.passed or self.skipped) else 0
