# SPDX-License-Identifier: GPL-2.0-only
GUEST = {"both_versions": True, "mixed": True, "named": ("wire",)}
