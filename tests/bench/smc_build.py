# SPDX-License-Identifier: GPL-2.0-only
"""Builds SMC and DIBS as modules for the stock kernel, which was configured without them: from its
own source, with its own configuration and compiler.

SMC is normally built into the kernel, because it needs two changes of the kernel: fields in
`struct net`, which these modules store elsewhere, and a TCP option in the SYN that announces SMC.
The stock kernel's TCP does not send that option, so these modules assume that the other end has
SMC, too. From the handshake after TCP's on, the modules contain the kernel's own SMC, unchanged.
"""

import re
import shutil
from pathlib import Path

import cache
from cache import PROJECT, SCRIPTS, Failure

SOURCES = ("net/smc", "drivers/dibs")
# The interface of BPF programs is not used, and the states of sockets are available by netlink as
# well.
LEFT_OUT = ("smc_hs_bpf.c", "smc_diag.c")
OURS = PROJECT / "tests" / "bench" / "smc_settings"

NET = r"((?:lgr->)?\b_?net|\(net\)|sock_net\([^()]*\))"
# (file or all, old text, new text)
CHANGES = (
    # fields in struct net
    (None, NET + r"->smc\.", r"smc_of(\1)->"),
    ("smc_sysctl.c", r"\binit_net\.smc\.", "smc_no_settings."),
    ("smc_sysctl.c", r"\(void \*\)net - \(void \*\)&init_net", "(void *)smc_of(net) - (void *)&smc_no_settings"),
    ("smc_sysctl.c", r"!net_eq\(net, &init_net\)", "true"),
    ("af_smc.c", r"rc = register_pernet_subsys\(&smc_net_ops\);", r"rc = smc_settings_init();\n\tif (rc)\n\t\treturn rc;\n\t\g<0>"),
    ("af_smc.c", r"unregister_pernet_subsys\(&smc_net_ops\);", r"\g<0>\n\tsmc_settings_exit();"),
    # TCP's part
    ("af_smc.c", r"\n[^\n;]*->syn_smc = 1;", ""),
    ("af_smc.c", r"tcp_sk\((?:[^()]|\([^()]*\))*\)->syn_smc", "true"),
    ("af_smc.c", r"\n[^\n;]*->smc_hs_congested = smc_hs_congested;", "\n\t\t(void)smc_hs_congested;"),
    ("af_smc.c", r"static_branch_(?:en|dis)able\(&tcp_have_smc\);", ""),
)
# Names that must not be left in the sources.
GONE = re.compile(r"->smc\.|init_net\.smc|syn_smc|tcp_have_smc|->smc_hs_congested")


def changed(sources):
    """Returns the files of {name: text}, changed."""
    for file, old, new in CHANGES:
        found = 0
        for name in sources if file is None else (file,):
            sources[name], count = re.subn(old, new, sources[name])
            found += count
        if not found:
            raise Failure(f"this kernel's SMC has no {old!r}: tests/bench/smc_build.py does not know it")
    for name, text in sources.items():
        left = GONE.search(text)
        if left:
            raise Failure(f"this kernel's {name} uses {left[0]} in a way that tests/bench/smc_build.py does not know")
    return sources


def build(out):
    """Builds dibs.ko and smc.ko in the directory `out`, for the cached kernel in use."""
    tree = Path(cache.output([SCRIPTS / "prepare", "--where"]).strip()) / "tree"
    work = PROJECT / "build" / "smc"
    files = [path for part in SOURCES for path in sorted((tree / part).glob("*.[ch]")) if path.name not in LEFT_OUT]
    sources = changed({path.name: path.read_text() for path in files})
    sources |= {path.name: path.read_text() for path in OURS.iterdir()}
    mark = cache.fingerprint(str(tree), sources)
    if not cache.is_complete(work, mark):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        for name, text in sources.items():
            (work / name).write_text(text)
        cache.output([SCRIPTS / "in-toolchain", "--dir", tree, "make", "-s", "-j2", f"M={work}", "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"])
        cache.stamp(work, mark)
    for name in ("dibs.ko", "smc.ko"):
        shutil.copy(work / name, out / name)
