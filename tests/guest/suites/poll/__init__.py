# SPDX-License-Identifier: GPL-2.0-only
GUEST = {"mixed": True, "named": ("wire",)}
