# SPDX-License-Identifier: GPL-2.0-only
# Memory is to show whether it was written (memory.py).
GUEST = {"append": "init_on_alloc=0 slub_debug=P page_poison=1"}
