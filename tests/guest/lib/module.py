# SPDX-License-Identifier: GPL-2.0-only
"""Unloads the module on a host for a while."""

import contextlib

from . import netns, observe


@contextlib.contextmanager
def unloaded(e, where):
    """The module is not loaded within the block."""
    def unload():
        try:
            netns.run(where, "rmmod ib_sdp")
        except RuntimeError as error:
            if "in use" not in str(error):
                raise
            return False
        return True

    before = netns.local_transport(False) if where == "self" else None
    e.until(unload, f"the module of {where} stays in use", patience=e.patience * 6)
    try:
        yield
    finally:
        netns.run(where, f"insmod {observe.MODULE}")
        if where == "self":
            netns.local_transport(before)
