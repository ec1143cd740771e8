# SPDX-License-Identifier: GPL-2.0-only
"""A kernel without IPv6 (ipv6.disable=1), whose IPv6 parts were never initialised."""
GUEST = {"append": "ipv6.disable=1", "selftest": True}
