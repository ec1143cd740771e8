# SPDX-License-Identifier: GPL-2.0-only
"""Selects the stock kernel to build for and to boot.

A kernel is selected by its series (7.2) or its version (7.2.12+deb13-amd64). The default is the
newest of the series in scripts/series of which the mirror offers all packages. A flavour
(arm64-16k), alone or after a series (7.2-arm64-16k), selects another architecture. `next` is the
newest kernel outside the series of scripts/series. A link in CACHE/kernel stores the version found
for a series, or for all of them, so that a second run need not query the mirror.
"""

import functools
import os
import re
import subprocess

import cache
from cache import Failure, say

SERIES = tuple(line.strip() for line in (cache.SCRIPTS / "series").read_text().splitlines() if line.strip() and not line.startswith("#"))

# Kernels of Debian's other flavours, such as cloud and rt, are left out.
FLAVOURS = ("amd64", "arm64", "arm64-16k")
_KERNEL = re.compile(rf"^linux-binary-(\d+(?:\.\d+)+(?:-rc\d+)?(?:\+deb\d+)?-(?:{'|'.join(FLAVOURS)}))$")


NEXT = ("next",)


class NotOffered(Failure):
    """The mirror does not have this kernel."""


def series_of(version):
    """Returns 7.2 for 7.2.12+deb13-amd64."""
    match = re.match(r"\d+\.\d+(?![\d])", version)
    if not match:
        raise Failure(f"{version} is no kernel: give a series such as {SERIES[0]}, or a version such as {SERIES[0]}.4+deb13-amd64")
    return match[0]


def flavour_of(name):
    """Returns arm64-16k for 7.2-arm64-16k, and amd64 for a series alone."""
    return next((flavour for flavour in FLAVOURS if f"-{name}".endswith(f"-{flavour}")), FLAVOURS[0])


def architecture_of(wish):
    return flavour_of(wish if isinstance(wish, str) else wish[0]).partition("-")[0]


def kind_of(version):
    """Returns 7.2 for 7.2.12+deb13-amd64 and 7.2-arm64 for 7.2.12+deb13-arm64."""
    flavour = flavour_of(version)
    return series_of(version) + (f"-{flavour}" if flavour != FLAVOURS[0] else "")


def is_supported(version):
    return series_of(version) in SERIES


def supported():
    """Returns the list of supported series, for messages."""
    return " and ".join(SERIES)


def wanted(text):
    """Returns the series, or the one version, that `text` (AF_SDP_KERNEL, --kernel) selects."""
    if not text:
        return SERIES
    if text == "next":
        return NEXT
    if text in FLAVOURS[1:]:
        return tuple(f"{series}-{text}" for series in SERIES)
    return (text,) if text == kind_of(text) else text


# --- kernels that the mirror offers -------------------------------------------------------------

def natural(version):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", version)]


@functools.cmp_to_key
def by_package(first, second):
    """Orders kernels, as `complete` returns them, by the versions of their packages: 7.3~rc7 comes
    before 7.3."""
    versions = [packages[0].partition("=")[2] for _, packages in (first, second)]
    return next(
        sign for word, sign in (("lt", -1), ("gt", 1), ("eq", 0))
        if not subprocess.run(["dpkg", "--compare-versions", versions[0], word, versions[1]], check=False).returncode
    )


def is_ours(packages):
    """Returns True if these packages are of the suite that the project builds from. Kernels of
    other suites are built with other compilers."""
    return packages[0].rpartition("~")[2].startswith("bpo")


def complete(offered):
    """Returns the kernels of which all packages are offered: (VERSION, packages), each package
    NAME=VERSION.

    The packages of one kernel appear on the mirror and vanish at different times, so each is
    checked.
    """
    for package in offered:
        match = _KERNEL.match(package)
        if not match:
            continue
        version = match[1]
        names = [package, f"linux-modules-{version}", f"linux-headers-{version}", f"linux-source-{series_of(version)}"]
        for build in offered[package]:
            if all(build in offered.get(name, ()) for name in names):
                yield version, [f"{name}={build}" for name in names]


def choose(offered, wish=None):
    """Returns the newest of the selected kernels (see `wanted`), in the form of `complete`."""
    wish = wish or SERIES
    found = [entry for entry in complete(offered) if isinstance(wish, str) or flavour_of(entry[0]) == flavour_of(wish[0])]
    if wish == NEXT:
        ours = [entry for entry in found if is_supported(entry[0]) and is_ours(entry[1])]
        found = [entry for entry in found if entry not in ours]
        if not found:
            raise NotOffered("Debian has no kernel besides those that make takes by itself")
        found, newest = max(found, key=by_package), max(ours, key=by_package, default=None)
        if newest is None or by_package(newest) < by_package(found):
            say("kernel", f"{found[0]} is newer than each kernel that make takes by itself")
        else:
            say("kernel", f"Debian has none that is newer than {newest[0]}: taking {found[0]}, for its compilers")
        return found
    if isinstance(wish, str):
        found = [entry for entry in found if entry[0] == wish]
        if not found:
            raise NotOffered(f"the mirror does not offer image, modules, headers and source of kernel {wish}")
    else:
        ours = [entry for entry in found if kind_of(entry[0]) in wish]
        if not ours and len(wish) < len(SERIES):
            raise NotOffered(f"the mirror does not offer image, modules, headers and source of a kernel {' or '.join(wish)}")
        if not found:
            raise NotOffered("the mirror offers no kernel of which image, modules, headers and source are all there")
        found = ours or found
    version, packages = max(found, key=lambda entry: natural(entry[0]))
    if not is_supported(version):
        say("kernel", f"{version} is none that the module is written for ({supported()}); trying it all the same")
    return version, packages


# --- stored results ----------------------------------------------------------------------------

def _link(wish):
    return cache.root() / "kernel" / f"newest-of-{'-'.join(wish)}"


def remembered(wish):
    """Returns the VERSION that was found for this selection before, or None."""
    if isinstance(wish, str):
        return wish
    try:
        return os.readlink(_link(wish))
    except OSError:
        return None


def remember(wish, version):
    if isinstance(wish, str) or remembered(wish) == version:
        return
    link = _link(wish)
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(version)
    new.rename(link)
