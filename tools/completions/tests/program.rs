// SPDX-License-Identifier: GPL-2.0-only

//! Runs the completions in bash.

use std::fs;
use std::process::Command;

#[test]
fn in_bash() {
    let dir = std::env::temp_dir().join(format!("sdp-completions-{}", std::process::id()));
    let written = Command::new(env!("CARGO_BIN_EXE_sdp-completions"))
        .arg(&dir)
        .status();
    assert!(written.unwrap().success());
    // takes the words of a command line, and returns what bash offers for the last word
    let offered = |tool: &str, words: &str| {
        let script = format!(
            "systemctl() {{ printf '%s enabled\\n' nginx.service pg@.service; }}\n\
             . '{}'/bash/{tool}\n\
             COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) COMPREPLY=()\n\
             set -- $(complete -p {tool}) && while [[ $1 != -F ]]; do shift; done\n\
             $2 {tool} \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            dir.display()
        );
        let done = Command::new("bash").args(["-c", &script]).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        text.lines().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(offered("sdpctl", "sdpctl enable n"), ["nginx.service"]);
    assert_eq!(offered("sdpctl", "sdpctl disable ''").len(), 2);
    assert_eq!(offered("sdpctl", "sdpctl map add -u roo"), ["root"]);
    assert_eq!(offered("sdpctl", "sdpctl map rem"), ["remove"]);
    assert_eq!(offered("sdpctl", "sdpctl enable --ro"), ["--root"]);
    assert!(offered("sdp-check", "sdp-check --").contains(&"--json".into()));
    // the test machine has no zsh and no fish
    let text = |file: &str| fs::read_to_string(dir.join(file)).unwrap();
    let zsh = text("zsh/_sdpctl");
    assert!(zsh.starts_with("#compdef sdpctl\n"));
    assert_eq!(zsh.matches(":_sdpctl_units'").count(), 2);
    assert_eq!(zsh.matches(":_sdpctl_mappings'").count(), 1);
    assert!(text("fish/sdpctl.fish").contains("using_subcommand enable disable"));
    for shell in ["bash/sdp-check", "zsh/_sdp-check", "fish/sdp-check.fish"] {
        let text = fs::read_to_string(dir.join(shell)).unwrap();
        assert!(!text.contains("corrupt"), "{shell} offers a hidden option");
    }
    fs::remove_dir_all(dir).unwrap();
}
