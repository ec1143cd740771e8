// SPDX-License-Identifier: GPL-2.0-only

//! The pattern that a program's name is compared with.

use std::fmt;

/// A pattern with `*`, `?`, `[a-z]`, `[!a-z]` and `\`, which makes the next character literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Vec<u8>);

/// Set of bytes that one element of a pattern matches.
enum Step {
    /// The byte matches; the pattern continues this number of bytes later.
    Yes(usize),
    No,
}

impl Glob {
    pub fn new(pattern: &[u8]) -> Self {
        Glob(pattern.to_vec())
    }

    /// Returns the pattern that all names match.
    pub fn any() -> Self {
        Glob(b"*".to_vec())
    }

    pub fn is_any(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|&c| c == b'*')
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if the whole name matches. Takes time proportional to the product of both
    /// lengths at most.
    pub fn matches(&self, name: &[u8]) -> bool {
        let pattern = &self.0;
        let (mut p, mut n) = (0, 0);
        // Place to continue from if the rest does not match: after the last star, with one byte
        // more for the star.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            if pattern.get(p) == Some(&b'*') {
                p += 1;
                retry = Some((p, n));
                continue;
            }
            match name.get(n) {
                None if p == pattern.len() => return true,
                // One more byte for the star leaves even fewer bytes for the rest of the pattern.
                None => return false,
                Some(&byte) => {
                    if let Step::Yes(length) = step(&pattern[p..], byte) {
                        p += length;
                        n += 1;
                        continue;
                    }
                }
            }
            match retry {
                Some((after, taken)) => {
                    p = after;
                    n = taken + 1;
                    retry = Some((after, n));
                }
                None => return false,
            }
        }
    }
}

/// Returns true if a byte matches the first element of a pattern that does not begin with a star.
fn step(pattern: &[u8], byte: u8) -> Step {
    match pattern {
        [] => Step::No,
        [b'?', ..] => Step::Yes(1),
        [b'[', rest @ ..] => match set(rest, byte) {
            Some((true, length)) => Step::Yes(length + 1),
            Some((false, _)) => Step::No,
            // a bracket that is never closed is a literal bracket
            None if byte == b'[' => Step::Yes(1),
            None => Step::No,
        },
        [b'\\', literal, ..] if *literal == byte => Step::Yes(2),
        [b'\\', _, ..] => Step::No,
        [literal, ..] if *literal == byte => Step::Yes(1),
        _ => Step::No,
    }
}

/// Returns true if a byte is in the set that begins after a `[`, and the set's length with its `]`.
fn set(rest: &[u8], byte: u8) -> Option<(bool, usize)> {
    let mut at = 0;
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    if negated {
        at = 1;
    }
    let (first, mut found) = (at, false);
    let element = |at: &mut usize| {
        let mut c = *rest.get(*at)?;
        if c == b'\\' {
            *at += 1;
            c = *rest.get(*at)?;
        }
        *at += 1;
        Some(c)
    };
    loop {
        if rest.get(at) == Some(&b']') && at != first {
            return Some((found != negated, at + 1));
        }
        let low = element(&mut at)?;
        let mut high = low;
        if rest.get(at) == Some(&b'-') && rest.get(at + 1).is_some_and(|&c| c != b']') {
            at += 1;
            high = element(&mut at)?;
        }
        found |= (low..=high).contains(&byte);
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, good, bad) in [
            ("*", &["", "x", "*"][..], &[][..]),
            ("ssh", &["ssh"], &["sshd", "ss", "", "SSH"]),
            ("ssh*", &["ssh", "sshd"], &["xssh"]),
            ("*d", &["d", "sshd", "dd"], &["", "dx"]),
            ("a*b*c", &["abc", "aXbYbZc"], &["ab", "acb"]),
            ("?", &["x"], &["", "xy"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "x"]),
            ("[!a-c]", &["d", "-"], &["a", ""]),
            ("[]x]", &["]", "x"], &["[", "]x"]),
            ("[a-]", &["a", "-"], &["b"]),
            ("\\*", &["*"], &["x", "\\*"]),
            ("[x", &["[x"], &["x"]),
            ("python3.[0-9]*", &["python3.13"], &["python3", "python3."]),
        ] {
            let glob = Glob::new(pattern.as_bytes());
            for name in good {
                assert!(glob.matches(name.as_bytes()), "{pattern} {name}");
            }
            for name in bad {
                assert!(!glob.matches(name.as_bytes()), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let glob = Glob::new(&b"*a".repeat(500));
        assert!(!glob.matches(&[b'a'; 499]));
        assert!(glob.matches(&[b'a'; 5000]));
        assert!(!glob.matches(&[b"a".repeat(5000), b"b".to_vec()].concat()));
    }
}
