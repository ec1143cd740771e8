# SPDX-License-Identifier: GPL-2.0-only
# Names of the running system: services, pins of mappings.
_sdpctl_units() {
    local -a names
    names=(${${(f)"$(systemctl list-unit-files --type=service --plain --no-legend 2>/dev/null)"}%% *})
    compadd -a names
}
_sdpctl_mappings() {
    local -a names
    names=(/sys/fs/bpf/sdp/*(N:t))
    names=(${${names//\\x2e/.}//\\x5c/\\})
    compadd -a names
}

