# SPDX-License-Identifier: GPL-2.0-only
"""The registry of cases. A file under suites/NAME/ adds its cases to suite NAME by the decorator
`case`."""

import importlib
import pathlib
import zlib

SUITES = ("create", "bind", "connect", "data", "close", "poll", "options", "seqpacket", "process", "proc", "kernel", "stress",
          "zcopy", "local", "ipproto", "programs", "heavy", "preload", "map", "pods", "wire", "hostile", "infoleak", "syscall_fuzz", "overload", "lifecycle",
          "adverse", "faults", "without_ipv6", "ways")
_cases = []


class Case:
    def __init__(self, function, families, reference, timeout, hosts, brief=True, messages=False):
        suite, subject = function.__module__.split(".")[-2:]
        self.suite, self.name = suite, f"{suite}.{subject}.{function.__name__}"
        self.function, self.families, self.reference = function, families, reference
        self.timeout, self.hosts, self.brief, self.messages = timeout, hosts, brief, messages

    def family_in_turn(self):
        """Returns one of the case's families, the same in every run: the name decides, so that a
        new case does not affect others."""
        return self.families[zlib.crc32(self.name.encode()) % len(self.families):][:1]


def case(function=None, *, families=("v4", "v6"), reference=True, timeout=30, hosts=(1,), brief=True, messages=False):
    """Marks a function as a test case.

    families: address families it runs with. reference: True to run it on TCP first and compare;
    without, the case's own checks decide. timeout: seconds until it counts as hung. hosts: numbers
    of hosts it can run on; 0 stands for one namespace that is both hosts. brief: True to include it
    in a brief run, such as `make test`; False for one that takes long or needs two processors, and
    whose subject other cases cover too. messages: True for a case about SDP's messages, which local
    connections do not have."""
    def mark(function):
        _cases.append(Case(function, families, reference, timeout, hosts, brief, messages))
        return function
    return mark(function) if function else mark


def load(root, words=()):
    """Imports the suites that `words` name (all without words). Returns the cases in the order of
    suites and files."""
    named = {word.partition(".")[0] for word in words} or SUITES     # what is not needed takes long to compile in emulation
    for suite in SUITES:
        for path in sorted(pathlib.Path(root, suite).glob("*.py")) if suite in named else ():
            if path.stem != "__init__":
                importlib.import_module(f"suites.{suite}.{path.stem}")
    return list(_cases)


def others(names):
    """Returns cases of other suites, by name."""
    for name in names:
        importlib.import_module("suites." + name.rpartition(".")[0])
    return [next(case for case in _cases if case.name == name) for name in names]


def select(cases, words):
    """Returns the cases whose names are, or begin with, one of the words (all without words)."""
    if not words:
        return cases
    chosen = [case for case in cases
              if any(case.name == word or case.name.startswith(word + ".") for word in words)]
    unknown = [word for word in words
               if not any(case.name == word or case.name.startswith(word + ".") for case in cases)]
    if unknown:
        raise SystemExit(f"no such suite or case: {' '.join(unknown)}")
    return chosen
