# SPDX-License-Identifier: GPL-2.0-only
"""Zero copy. Cases do not depend on the addresses of a connection; most run with IPv4 only, and one
of each kind with IPv6, too."""
GUEST = {"mixed": True}
