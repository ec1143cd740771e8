// SPDX-License-Identifier: GPL-2.0-only

//! Finds the likely cause if the kernel has not loaded the module, from files that every user may
//! read.

use crate::sys;
use std::ffi::CStr;
use std::fmt::{self, Write};

const FILE: &[u8] = b"ib_sdp.ko";
const LOCKDOWN: &CStr = c"/sys/kernel/security/lockdown";
const ENFORCED: &CStr = c"/sys/module/module/parameters/sig_enforce";

/// Reason why the module is not loaded.
#[derive(Clone, Copy)]
pub enum Cause {
    /// modprobe has no such module for this kernel.
    NotInstalled(Text),
    /// The kernel loads signed modules only.
    Signature,
    Unknown,
}

impl Cause {
    pub fn find() -> Self {
        let Some(release) = release() else {
            return Self::Unknown;
        };
        let mut path = Text::default();
        let _ = write!(path, "/lib/modules/{release}/modules.dep\0");
        match path.c_str().and_then(|path| holds(path, FILE)) {
            None => Self::Unknown,
            Some(false) => Self::NotInstalled(release),
            Some(true) if signed_only(LOCKDOWN, ENFORCED) => Self::Signature,
            Some(true) => Self::Unknown,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInstalled(release) => write!(f, "it is not installed for kernel {release}"),
            Self::Signature => f.write_str(
                "the kernel takes signed modules only, as Secure Boot asks for; \
                 modprobe ib_sdp shows whether that is why",
            ),
            Self::Unknown => f.write_str("run modprobe ib_sdp as root to see why"),
        }
    }
}

/// Text of a bounded size, since the library allocates nothing here.
#[derive(Clone, Copy)]
pub struct Text {
    bytes: [u8; 128],
    length: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self {
            bytes: [0; 128],
            length: 0,
        }
    }
}

impl Text {
    fn c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_with_nul(&self.bytes[..self.length]).ok()
    }
}

impl Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let to = self
            .bytes
            .get_mut(self.length..)
            .and_then(|rest| rest.get_mut(..s.len()))
            .ok_or(fmt::Error)?;
        to.copy_from_slice(s.as_bytes());
        self.length += s.len();
        Ok(())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.bytes[..self.length]).unwrap_or("?"))
    }
}

/// Release of the running kernel, as `uname -r` prints it.
fn release() -> Option<Text> {
    // SAFETY: the structure contains integers alone, for which zeros are valid.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is local; a direct system call does not re-enter this library.
    if unsafe { libc::uname(&mut names) } != 0 {
        return None;
    }
    let mut release = Text::default();
    for c in names.release.iter().take_while(|c| **c != 0) {
        // The release of the kernel may become part of a path.
        let c = char::from(*c as u8);
        release.write_char(if c == '/' { '_' } else { c }).ok()?;
    }
    Some(release)
}

/// Returns true if the file contains the word, `None` if the file cannot be read.
fn holds(path: &CStr, word: &[u8]) -> Option<bool> {
    let fd = sys::open(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0).ok()?;
    let mut part = [0; 4096];
    // Keeps the end of the previous read, because the word may begin in it.
    let mut kept = 0;
    let found = loop {
        let n = match sys::read(fd, &mut part[kept..]) {
            Ok(0) => break Some(false),
            Ok(n) => n,
            Err(_) => break None,
        };
        let all = kept + n;
        if part[..all].windows(word.len()).any(|w| w == word) {
            break Some(true);
        }
        kept = all.min(word.len() - 1);
        part.copy_within(all - kept..all, 0);
    };
    sys::close(fd);
    found
}

/// Returns true if the kernel loads signed modules only.
fn signed_only(lockdown: &CStr, enforced: &CStr) -> bool {
    let says = |path, word| holds(path, word) == Some(true);
    says(enforced, b"Y") || says(lockdown, b"[integrity]") || says(lockdown, b"[confidentiality]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    /// Makes a file that contains `text`, for as long as `with` runs.
    fn file<T>(name: &str, text: &str, with: impl FnOnce(&CStr) -> T) -> T {
        let path = std::env::temp_dir().join(format!("absent-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let given = with(&CString::new(path.to_str().unwrap()).unwrap());
        std::fs::remove_file(path).unwrap();
        given
    }

    #[test]
    fn a_word_anywhere_in_a_file() {
        for before in [0, 1, 4080, 4087, 4090, 4095, 4096, 9000] {
            let text = format!("{}ib_sdp.ko.xz: kernel/x\n", "a".repeat(before));
            assert_eq!(
                file("word", &text, |p| holds(p, FILE)),
                Some(true),
                "{before}"
            );
        }
        let other = "kernel/ib_sdq.ko:\n".repeat(1000);
        assert_eq!(file("other", &other, |p| holds(p, FILE)), Some(false));
        assert_eq!(holds(c"/nonexistent", FILE), None);
    }

    #[test]
    fn kernels_that_take_signed_modules_only() {
        for (lockdown, enforced, signed) in [
            ("[none] integrity confidentiality\n", "N\n", false),
            ("none [integrity] confidentiality\n", "N\n", true),
            ("none integrity [confidentiality]\n", "N\n", true),
            ("[none] integrity confidentiality\n", "Y\n", true),
        ] {
            let found = file("lockdown", lockdown, |l| {
                file("enforced", enforced, |e| signed_only(l, e))
            });
            assert_eq!(found, signed, "{lockdown}{enforced}");
        }
        assert!(!signed_only(c"/nonexistent", c"/nonexistent"));
    }

    #[test]
    fn this_kernel() {
        let own = release().unwrap().to_string();
        let uname = std::process::Command::new("uname").arg("-r").output();
        assert_eq!(own.as_bytes(), uname.unwrap().stdout.trim_ascii_end());
    }
}
