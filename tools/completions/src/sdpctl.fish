# SPDX-License-Identifier: GPL-2.0-only
# Names of the running system: services, pins of mappings.
complete -c sdpctl -n "__fish_sdpctl_using_subcommand enable disable" -f -a "(systemctl list-unit-files --type=service --plain --no-legend 2>/dev/null | string split -f 1 ' ')"
complete -c sdpctl -n "__fish_sdpctl_using_subcommand map; and __fish_seen_subcommand_from remove" -f -a "(command ls /sys/fs/bpf/sdp 2>/dev/null | string replace -a '\x2e' . | string replace -a '\x5c' '\\\\')"
