# SPDX-License-Identifier: GPL-2.0-only
# The kernel poisons memory, so that unwritten bytes show (memory.py).
GUEST = {"append": "init_on_alloc=0 slub_debug=P page_poison=1"}
