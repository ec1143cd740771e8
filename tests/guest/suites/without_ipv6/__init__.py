# SPDX-License-Identifier: GPL-2.0-only
"""A kernel that was told to have no IPv6 (ipv6.disable=1): what it has of it then was never set up."""
GUEST = {"append": "ipv6.disable=1", "selftest": True}
