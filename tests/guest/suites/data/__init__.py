# SPDX-License-Identifier: GPL-2.0-only
# One version of IP shows what the other does; between two guests it is the other one.
GUEST = {"only": {"guest": "v4", "wire": "v6"}, "mixed": True}
