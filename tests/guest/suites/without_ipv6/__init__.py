# SPDX-License-Identifier: GPL-2.0-only
"""A kernel without IPv6 (ipv6.disable=1), which has never initialised its IPv6 parts."""
GUEST = {"append": "ipv6.disable=1", "selftest": True}
