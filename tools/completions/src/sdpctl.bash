# SPDX-License-Identifier: GPL-2.0-only
# Names of the running system: services, pins of mappings, users.
_sdpctl_names() {
    local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} all="${COMP_WORDS[*]}" names=
    case $previous in
        --root) ;;
        -u|--user) names=$(compgen -u) ;;
        *) case $all in
            'sdpctl enable '*|'sdpctl disable '*)
                names=$(systemctl list-unit-files --type=service --plain --no-legend 2>/dev/null)
                names=$(cut -d ' ' -f 1 <<<"$names") ;;
            'sdpctl map remove '*)
                names=$(cd /sys/fs/bpf/sdp 2>/dev/null && printf '%s\n' *)
                names=${names//\\x2e/.} names=${names//\\x5c/\\} ;;
        esac ;;
    esac
    if [[ $cur != -* && -n $names ]]; then
        local IFS=$'\n' name
        COMPREPLY=()
        for name in $names; do
            [[ $name == "$cur"* ]] && COMPREPLY+=("$name")
        done
    else
        _sdpctl "$@"
    fi
}
complete -F _sdpctl_names -o bashdefault -o default sdpctl
