// SPDX-License-Identifier: GPL-2.0-only

//! Compiles bpf/map.bpf.c, which src/map/program.rs includes.

use std::env;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "bpf/map.bpf.c";

fn run(command: &mut Command) {
    let status = command.status();
    let done = matches!(&status, Ok(status) if status.success());
    assert!(done, "{command:?}: {status:?}");
}

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    let variable = |name: &str| env::var(name).expect("cargo sets it");
    let object = Path::new(&variable("OUT_DIR")).join("map.bpf.o");
    // Debian has asm/ in a directory that only native compilers search.
    let machine = variable("CARGO_CFG_TARGET_ARCH");
    run(Command::new("clang")
        .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror"])
        // libbpf's headers
        .args(["-I", &variable("DEP_BPF_INCLUDE")])
        .args(["-idirafter", &format!("/usr/include/{machine}-linux-gnu")])
        .args(["-c", SOURCE, "-o"])
        .arg(&object));
    // BTF stays, because loading needs it; DWARF is removed, because it is as large as all the
    // rest.
    run(Command::new("llvm-strip").arg("-g").arg(&object));
}
