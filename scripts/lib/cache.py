# SPDX-License-Identifier: GPL-2.0-only
"""The cache outside the checkout, and the functions that fill it.

Everything that the project prepares for itself (a Debian root with the compilers, the stock kernel,
guests) is a *piece*: a directory in the cache that is complete exactly when it holds a stamp with
the fingerprint of what it was made from. A piece is built under a temporary name and renamed. So a
piece under its real name with the right stamp can be used, and all others are built again. One lock
per piece makes parallel runs wait for each other instead of building twice.

Only the Python standard library is used, and only programs that every Debian machine has.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
PROJECT = SCRIPTS.parent
STAMP = ".af_sdp-stamp"
_started = time.monotonic()
# Locks that this thread holds. Steps inherit the locks of their thread, so a step that outlives a
# killed run keeps its lock until it has stopped writing.
_held = threading.local()


class Failure(Exception):
    """An error for the user; the message has the cause or the remedy."""


class NoRoom(Failure):
    """The disk had too little space from the beginning."""


def say(topic, text):
    """Prints one line of progress, with the seconds since the start."""
    print(f"[{time.monotonic() - _started:4.0f} s] {topic}: {text}", file=sys.stderr, flush=True)


def root():
    """Returns the cache directory: $AF_SDP_CACHE, or ~/.cache/af_sdp."""
    path = Path(os.environ.get("AF_SDP_CACHE") or Path.home() / ".cache" / "af_sdp")
    return Path(os.path.abspath(path.expanduser()))


def make_root():
    path = root()
    try:
        (path / "log").mkdir(parents=True, exist_ok=True)
        (path / "lock").mkdir(exist_ok=True)
    except OSError as error:
        raise Failure(f"cannot use {path} as the cache ({error.strerror}); set AF_SDP_CACHE to a directory that can be written") from error
    return path


@contextlib.contextmanager
def locked(name):
    """Holds the lock of one piece; prints a line if it has to wait."""
    with open(make_root() / "lock" / name, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(name, "another run prepares this; waiting for its end")
            fcntl.flock(file, fcntl.LOCK_EX)
        held = _held.__dict__.setdefault("files", [])
        held.append(file.fileno())
        try:
            yield
        finally:
            held.remove(file.fileno())


def fingerprint(*inputs):
    return hashlib.sha256(repr(inputs).encode()).hexdigest()


def is_complete(piece, mark):
    """Returns True if this directory is a complete piece with the fingerprint `mark`."""
    try:
        return (piece / STAMP).read_text().strip() == mark
    except OSError:
        return False


def stamp(piece, mark):
    """Marks the piece as complete. The rename makes sure that no half-written stamp is ever read.
    """
    new = piece / (STAMP + ".new")
    new.write_text(mark + "\n")
    new.rename(piece / STAMP)


def remove(path):
    """Deletes a directory of the cache; never follows it into another file system."""
    if path.exists() or path.is_symlink():
        result = subprocess.run(["rm", "-rf", "--one-file-system", "--", str(path)], capture_output=True, text=True)
        if result.returncode:
            raise Failure(f"cannot delete {path}: {result.stderr.strip().splitlines()[-1]}")


@contextlib.contextmanager
def building(piece):
    """Makes a new temporary directory beside the piece. Removes leftovers of a killed run first.

    The caller holds the piece's lock, so no other process uses the leftovers of a killed run.
    """
    piece.parent.mkdir(parents=True, exist_ok=True)
    for left in piece.parent.glob(f".{piece.name}.*"):
        remove(left)
    new = piece.parent / f".{piece.name}.new"
    new.mkdir()
    try:
        yield new
    finally:
        remove(new)


def put_in_place(new, piece, mark=None):
    """Gives a finished directory its real name, and removes its predecessor."""
    if mark:
        stamp(new, mark)
    if piece.exists():
        old = piece.parent / f".{piece.name}.old"
        piece.rename(old)
        new.rename(piece)
        remove(old)
    else:
        new.rename(piece)


def need_space(topic, megabytes):
    free = shutil.disk_usage(make_root()).free >> 20
    if free < megabytes:
        raise NoRoom(
            f"{topic} needs {megabytes} MB of disk space and {root()} has {free} MB free; make room, or set AF_SDP_CACHE to a directory on a larger disk"
        )


_running = set()


def end_all():
    """Ends every step that is still running, when a run is interrupted."""
    for process in list(_running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _full(text):
    free = shutil.disk_usage(root()).free
    return free < 64 << 20 or re.search(r"No space left on device|enough free space", text)


def run(topic, what, command, log, **options):
    """Runs a long step. The step's output goes to a log; the user sees a progress line now and
    then.

    The step is killed together with this process, even by SIGKILL. Children of the step that still
    write keep the lock, see `_held`.
    """
    say(topic, what)
    start = time.monotonic()
    tail = deque(maxlen=15)
    done = threading.Event()

    def life():
        while not done.wait(20):
            last = tail[-1][:90] if tail else "..."
            say(topic, f"{what}, {time.monotonic() - start:.0f} s so far: {last}")

    try:
        with open(log, "a") as file:
            print(f"--- {what}: {' '.join(map(str, command))}", file=file, flush=True)
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *map(str, command)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                pass_fds=_held.__dict__.get("files", ()), start_new_session=True, **options,
            )
            _running.add(process)
            threading.Thread(target=life, daemon=True).start()
            try:
                for line in process.stdout:
                    if line.strip():
                        tail.append(line.strip())
                    file.write(line)
                status = process.wait()
            finally:
                done.set()
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    # Reads up to the end of the output: then no process of the group writes any
                    # more.
                    process.stdout.read()
                    process.wait()
                _running.discard(process)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        status = "no space"
    if status:
        text = "\n  ".join(tail)
        if status == "no space" or _full(text):
            raise Failure(f"{what}: the disk that holds {root()} is full ({shutil.disk_usage(root()).free >> 20} MB free)")
        raise Failure(f"{what} failed (status {status}). The last lines of {log}:\n  {text}")
    say(topic, f"{what}: done in {time.monotonic() - start:.0f} s")


def output(command, **options):
    """Returns the standard output of a short command; raises a Failure with its error output if it
    fails."""
    result = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", **options)
    if result.returncode:
        raise Failure(f"{' '.join(map(str, command))}:\n  " + (result.stderr or result.stdout).strip().replace("\n", "\n  "))
    return result.stdout


def require(program, package):
    """Makes sure that a program is installed: as root installs it, else raises an error that names
    the package."""
    if shutil.which(program):
        return
    install = f"apt-get install {package}"
    if os.geteuid() != 0:
        raise Failure(f"{program} is missing; as root: {install}")
    if not shutil.which("apt-get"):
        raise Failure(f"{program} is missing; install the package {package}")
    log = make_root() / "log" / "install.log"
    with locked("install"):
        if shutil.which(program):
            return
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends", package]
        try:
            run("install", install, command, log, env=environment)
        except Failure:
            run("install", "apt-get update", ["apt-get", "update"], log, env=environment)
            run("install", install, command, log, env=environment)


# --- Debian packages ---------------------------------------------------------------------------

SUITE = "trixie"
APT = Path("/etc/apt")
_DEBIAN_SUITE = re.compile(
    r"^(?:(?:old)*stable|testing|unstable|sid|buster|bullseye|bookworm|trixie|forky|duke)(?P<pocket>-security|-updates|-backports|/updates)?$"
)


def _apt_entries():
    """Returns every (URI, suite, options) that the machine's apt is configured with."""
    files = [APT / "sources.list", *sorted((APT / "sources.list.d").glob("*"))]
    for file in files:
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue
        if file.suffix == ".list":
            for line in text.splitlines():
                match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.*)", line.split("#")[0])
                if match and "main" in match[4].split():
                    options = dict(option.partition("=")[::2] for option in (match[1] or "").split())
                    yield match[2], match[3], options
        elif file.suffix == ".sources":
            for paragraph in re.split(r"\n\s*\n", text):
                lines = "\n".join(line for line in paragraph.splitlines() if not line.startswith("#"))
                field = {name.lower(): value.strip() for name, value in re.findall(r"(?m)^([\w-]+):((?:.*\n?)(?:[ \t].*\n?)*)", lines)}
                if "deb" not in field.get("types", "").split() or "main" not in field.get("components", "").split():
                    continue
                if field.get("enabled", "yes").lower() in ("no", "false"):
                    continue
                options = {key: field[key].lower() for key in ("trusted",) if key in field}
                if field.get("signed-by", "").startswith("/"):
                    options["signed-by"] = field["signed-by"]
                for uri in field.get("uris", "").split():
                    for suite in field.get("suites", "").split():
                        yield uri, suite, options


def mirrors():
    """Returns the sources of Debian on this machine: ((URI, options) of the archive, the same of
    the security archive or None).

    AF_SDP_MIRROR names the archive on a machine whose apt has no Debian sources.
    """
    archive = security = None
    for uri, suite, options in _apt_entries():
        match = _DEBIAN_SUITE.match(suite)
        if not match:
            continue
        if match["pocket"] in ("-security", "/updates"):
            security = security or (uri, options)
        else:
            archive = archive or (uri, options)
    if os.environ.get("AF_SDP_MIRROR"):
        archive, security = (os.environ["AF_SDP_MIRROR"], {}), None
    if not archive:
        raise Failure("no Debian archive is configured in /etc/apt; set AF_SDP_MIRROR to the URI of one")
    return archive, security


def source(suite, where=None):
    """Returns the one-line apt source of a suite, at this machine's mirror."""
    uri, options = where or mirrors()[0]
    keep = {key: options[key] for key in ("signed-by", "trusted") if options.get(key)}
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if not keep and keyring.exists():
        keep["signed-by"] = keyring
    text = " ".join(f"{key}={value}" for key, value in keep.items())
    return f"deb [{text}] {uri} {suite} main" if text else f"deb {uri} {suite} main"


def sources():
    """Returns the apt sources of the suites that the project builds from."""
    lines = [source(suite) for suite in (SUITE, f"{SUITE}-updates", f"{SUITE}-backports")]
    security = mirrors()[1]
    if security:
        lines.append(source(f"{SUITE}-security", security))
    return lines


def _fetch_options():
    """Returns the options, such as proxies, by which the machine's apt reaches its mirror."""
    if not shutil.which("apt-config"):
        raise Failure("apt is missing: the project takes Debian's packages through the machine's own apt")
    kept = []
    for line in output(["apt-config", "dump"]).splitlines():
        if re.match(r'Acquire::(http|https|ftp)\b.* "[^"]+";$|Acquire::(Retries|ForceIPv[46]|Check-Valid-Until|Check-Date) ', line):
            kept.append(line)
    return kept


class Apt:
    """Runs the machine's apt with the suites of the project in place of its own. Needs no
    privilege, and does not change the machine's apt."""

    def __init__(self, directory, suites, architecture="amd64"):
        for part in ("lists/partial", "cache/archives/partial", "debs"):
            (directory / part).mkdir(parents=True, exist_ok=True)
        (directory / "status").touch()
        (directory / "sources.list").write_text("\n".join(suites) + "\n")
        (directory / "apt.conf").write_text("".join(
            f'{key} "{value}";\n' for key, value in {
                "Dir::Etc::sourcelist": directory / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
                "Dir::Etc::preferences": "/dev/null", "Dir::Etc::preferencesparts": "/dev/null",
                "Dir::State::lists": directory / "lists", "Dir::State::status": directory / "status",
                "Dir::Cache": directory / "cache", "APT::Architecture": architecture, "APT::Architectures": architecture,
                "APT::Sandbox::User": "root", "Acquire::Languages": "none", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            }.items()) + '#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n')
        self.directory = directory
        self.environment = dict(os.environ, APT_CONFIG=str(directory / "apt.conf"), LC_ALL="C.UTF-8")

    def update(self, topic, log):
        try:
            run(topic, "querying the mirror", ["apt-get", "update", "--error-on=any"], log, env=self.environment)
        except NoRoom:
            raise
        except Failure as failure:
            said = [line.strip() for line in str(failure).splitlines() if line.strip().startswith(("E:", "Err:"))] or [str(failure).splitlines()[0]]
            raise Failure(f"cannot get Debian's packages from the mirror that /etc/apt (or AF_SDP_MIRROR) names: {said[0]} (more in {log})") from failure

    def versions(self, prefixes):
        """Returns {package: set of versions} of all offered packages whose name begins with one of
        the prefixes."""
        names = [name for prefix in prefixes for name in output(["apt-cache", "pkgnames", prefix], env=self.environment).split()]
        offered = {}
        for line in output(["apt-cache", "madison", *names], env=self.environment).splitlines() if names else ():
            fields = [field.strip() for field in line.split("|")]
            if len(fields) == 3 and "Packages" in fields[2]:
                offered.setdefault(fields[0], set()).add(fields[1])
        return offered

    def download(self, topic, what, packages, log):
        """Fetches packages (each NAME=VERSION); returns {NAME: file}."""
        debs = self.directory / "debs"
        run(topic, what, ["apt-get", "download", *packages], log, env=self.environment, cwd=debs)
        return {name: next(debs.glob(f"{name}_*.deb")) for name in (package.split("=")[0] for package in packages)}


# Programs of another architecture do not run on this machine, so its packages are unpacked and not
# configured. The hooks write the files of users and groups in place of base-passwd.
UNPACKED = ["--variant=extract", "--skip=check/qemu", "--include=?essential", *(
    f'--customize-hook=cp "$1/usr/share/base-passwd/{name}.master" "$1/etc/{name}"' for name in ("passwd", "group"))]


def debian_root(topic, destination, packages, log, extra=(), suite=SUITE, architecture="amd64"):
    """Makes a minimal Debian root with these packages in the (empty, existing) directory
    `destination`."""
    lines = sources() if suite == SUITE else [source(suite)]
    require("mmdebstrap", "mmdebstrap")
    options = ["--variant=minbase"] if architecture == "amd64" else [*UNPACKED]
    # A name may end in another architecture, as in libelf-dev:arm64.
    others = sorted({name.partition(":")[2] for name in packages} - {"", architecture})
    options += [f"--architectures={','.join([architecture, *others])}", f"--include={','.join(packages)}"]
    options += [f"--aptopt={option}" for option in ("Acquire::Languages \"none\"", "APT::Install-Recommends \"false\"", *_fetch_options())]
    options += ["--dpkgopt=force-unsafe-io", *extra]
    what = f"installing Debian {suite} with {len(packages)} chosen packages"
    if os.geteuid() == 0:
        run(topic, what, ["unshare", "--mount", "--pid", "--fork", "--kill-child", "mmdebstrap", "--mode=root", "--format=directory", *options, suite, destination, *lines], log)
        return
    require("newuidmap", "uidmap")
    # An unprivileged user owns all files of an unpacked root, can build in it, and can delete it.
    script = 'set -o pipefail; dest=$1; shift; mmdebstrap --mode=unshare --format=tar "$@" | tar -x --no-same-owner --exclude="./dev/*" -C "$dest"'
    # mmdebstrap takes the suite and the target before the mirrors.
    run(topic, what, ["bash", "-c", script, "bash", destination, *options, suite, "-", *lines], log)
