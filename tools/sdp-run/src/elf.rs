// SPDX-License-Identifier: GPL-2.0-only

//! Finds out if a library can be preloaded into a program: the program needs a dynamic linker.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    Dynamic,
    Static,
    /// A program for another processor, or of another word size.
    Foreign,
    /// A script, or a file that cannot be read.
    Other,
}

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const PT_INTERP: u32 = 3;

pub fn look(program: &Path) -> Kind {
    let own = File::open("/proc/self/exe").ok().and_then(|f| machine(&f));
    File::open(program)
        .ok()
        .map_or(Kind::Other, |f| kind(&f, own.unwrap_or(0)))
}

fn header(file: &File) -> Option<[u8; HEADER]> {
    let mut head = [0; HEADER];
    file.read_exact_at(&mut head, 0).ok()?;
    head.starts_with(b"\x7fELF").then_some(head)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the machine type of a file.
fn machine(file: &File) -> Option<u16> {
    header(file).map(|h| half(&h, 18))
}

fn kind(file: &File, own: u16) -> Kind {
    let Some(head) = header(file) else {
        return Kind::Other;
    };
    // 64 bits, little-endian
    if head[4] != 2 || head[5] != 1 || half(&head, 18) != own {
        return Kind::Foreign;
    }
    let mut start = [0; 8];
    start.copy_from_slice(&head[32..40]);
    let start = u64::from_le_bytes(start);
    let (size, count) = (half(&head, 54), half(&head, 56));
    for index in 0..u64::from(count) {
        let mut entry = [0; PROGRAM_HEADER];
        let at = start.checked_add(index * u64::from(size));
        let read = at.map(|at| file.read_exact_at(&mut entry, at));
        if !matches!(read, Some(Ok(()))) {
            return Kind::Other;
        }
        if u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) == PT_INTERP {
            return Kind::Dynamic;
        }
    }
    Kind::Static
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn file(name: &str, bytes: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("sdp-run-{name}-{}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        let file = File::open(&path).unwrap();
        fs::remove_file(path).unwrap();
        file
    }

    /// Returns an ELF header with these program headers.
    fn elf(types: &[u32]) -> Vec<u8> {
        let mut all = vec![0u8; HEADER];
        all[..6].copy_from_slice(b"\x7fELF\x02\x01");
        all[18] = 62;
        all[32] = HEADER as u8;
        all[54] = PROGRAM_HEADER as u8;
        all[56] = types.len() as u8;
        for kind in types {
            all.extend(kind.to_le_bytes());
            all.extend([0; PROGRAM_HEADER - 4]);
        }
        all
    }

    #[test]
    fn programs() {
        assert_eq!(kind(&file("dynamic", &elf(&[1, 3])), 62), Kind::Dynamic);
        assert_eq!(kind(&file("static", &elf(&[1, 2])), 62), Kind::Static);
        assert_eq!(kind(&file("foreign", &elf(&[3])), 183), Kind::Foreign);
        assert_eq!(kind(&file("script", b"#!/bin/sh\n"), 62), Kind::Other);
        let mut cut = elf(&[1, 3]);
        cut.truncate(HEADER + 3);
        assert_eq!(kind(&file("cut", &cut), 62), Kind::Other);
        let mut far = elf(&[3]);
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(kind(&file("far", &far), 62), Kind::Other);
        assert_eq!(look(&std::env::current_exe().unwrap()), Kind::Dynamic);
    }
}
