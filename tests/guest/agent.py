#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The peer's end of the guest tests on two machines: agent.py ADDRESS. tests/guest/run starts the
agent."""

import sys

sys.dont_write_bytecode = True
from lib import remote      # noqa: E402

remote.Agent(sys.argv[1]).serve()
