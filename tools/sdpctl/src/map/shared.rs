// SPDX-License-Identifier: GPL-2.0-only

//! State that the programs of a mapping and `sdpctl` share: `struct shared` of bpf/map.bpf.c, the
//! value of a map.

use libbpf_rs::{MapCore, MapFlags, MapType};

/// Identifies the layout; maps of other programs and later layouts have another number.
const FORM: u32 = u32::from_le_bytes(*b"sdp1");
pub const THERE: [usize; 2] = [8, 12];
pub const MAPPED: usize = 16;
pub const SELECTOR: usize = 24;
const KEY: [u8; 4] = [0; 4];

/// Current state of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    pub protocol: u32,
    /// 1 if the protocol exists, for IPv4 and for IPv6. Sockets are mapped only while the protocol
    /// exists.
    pub there: [u32; 2],
    /// Number of socket(2) calls that were mapped.
    pub mapped: u64,
    /// Selected programs, as text.
    pub selector: String,
}

impl Shared {
    pub const SIZE: usize = 4096;

    pub fn new(protocol: u16, selector: String) -> Self {
        Shared {
            protocol: protocol.into(),
            there: [0; 2],
            mapped: 0,
            selector,
        }
    }

    /// Returns true if the text fits into the map.
    pub fn fits(&self) -> bool {
        self.selector.len() <= Self::SIZE - SELECTOR
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let [v4, v6] = self.there;
        let words = [FORM, self.protocol, v4, v6].map(u32::to_ne_bytes).concat();
        let mapped = self.mapped.to_ne_bytes();
        let mut all = [&words[..], &mapped, self.selector.as_bytes()].concat();
        all.resize(Self::SIZE, 0);
        all
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        if bytes.len() != Self::SIZE || word(0)? != FORM {
            return None;
        }
        let selector = bytes[SELECTOR..].split(|&b| b == 0).next()?;
        Some(Shared {
            protocol: word(4)?,
            there: [word(THERE[0])?, word(THERE[1])?],
            mapped: u64::from_ne_bytes(*bytes.get(MAPPED..)?.first_chunk()?),
            selector: String::from_utf8_lossy(selector).into_owned(),
        })
    }

    /// Returns the value of a map, if the map has this layout.
    pub fn read(map: &impl MapCore) -> libbpf_rs::Result<Option<Self>> {
        if map.map_type() != MapType::Array {
            return Ok(None);
        }
        let value = map.lookup(&KEY, MapFlags::ANY)?;
        Ok(value.and_then(|bytes| Self::from_bytes(&bytes)))
    }

    pub fn write(&self, map: &impl MapCore) -> libbpf_rs::Result<()> {
        map.update(&KEY, &self.to_bytes(), MapFlags::ANY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let mut shared = Shared::new(257, "program redis-*".into());
        (shared.there, shared.mapped) = ([1, 0], 1 << 40);
        let bytes = shared.to_bytes();
        assert_eq!(Shared::from_bytes(&bytes), Some(shared));
        assert_eq!(Shared::from_bytes(&bytes[1..]), None);
        assert_eq!(Shared::from_bytes(&[0; Shared::SIZE]), None);
    }

    #[test]
    fn long_words() {
        let mut shared = Shared::new(257, "x".repeat(Shared::SIZE - SELECTOR));
        assert!(shared.fits());
        assert_eq!(Shared::from_bytes(&shared.to_bytes()), Some(shared.clone()));
        shared.selector.push('x');
        assert!(!shared.fits());
    }
}
