# SPDX-License-Identifier: GPL-2.0-only
"""Zero copy. The behaviour of a case does not depend on the addresses of a connection. Most cases
run with IPv4 only, and one of each kind runs with IPv6 as well."""
GUEST = {"mixed": True}
