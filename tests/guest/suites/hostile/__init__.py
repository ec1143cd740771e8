# SPDX-License-Identifier: GPL-2.0-only Raw ends are in the module's self-test.
GUEST = {"selftest": True, "named": ("wire",)}
