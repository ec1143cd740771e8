# SPDX-License-Identifier: GPL-2.0-only
GUEST = {"debug_only": True}
