# SPDX-License-Identifier: GPL-2.0-only
"""Compares the notes of a case on TCP with those on SDP."""

from .env import SAME


def differences(tcp, sdp):
    """Returns a line for each wrong note of SDP; an empty list if all are correct.

    A note is (name, value, SDP's expected value or None, reason)."""
    lines = []
    reference = {name: value for name, value, _, _ in tcp}
    for name, value, expected, because in sdp:
        if expected is not None:
            if value not in expected and not (repr(SAME) in expected and value == reference.get(name)):
                lines.append(f"{name}: SDP {value}, must be {' or '.join(expected)}, because {because}"
                             + (f" (TCP {reference[name]})" if name in reference else ""))
        elif name not in reference:
            lines.append(f"{name}: SDP {value}, not observed on TCP")
        elif reference[name] != value:
            lines.append(f"{name}: SDP {value}, TCP {reference[name]}")
    seen = {name for name, _, _, _ in sdp}
    lines += [f"{name}: TCP {value}, not observed on SDP" for name, value in reference.items() if name not in seen]
    return lines
