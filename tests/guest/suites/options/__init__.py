# SPDX-License-Identifier: GPL-2.0-only
GUEST = {"both_versions": True, "named": ("wire",)}
