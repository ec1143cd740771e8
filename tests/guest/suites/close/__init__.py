# SPDX-License-Identifier: GPL-2.0-only
# The behaviour does not depend on the version of IP: one guest tests IPv4, two guests test IPv6.
GUEST = {"only": {"guest": "v4", "wire": "v6"}, "mixed": True}
