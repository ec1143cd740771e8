// SPDX-License-Identifier: GPL-2.0-only

//! What the programs of a mapping and `sdpctl` share: the value of a map.

/// Of the words that tell whether there is such a protocol, for IPv4 and IPv6.
pub const THERE: [i16; 2] = [8, 12];
/// Of the number of calls that were mapped.
pub const MAPPED: i16 = 16;

/// Which form this is; another program's map, or a later form, has another number.
const FORM: u32 = u32::from_le_bytes(*b"sdp1");
const WHOSE: usize = 24;

/// A mapping as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub protocol: u32,
    /// Whether there is such a protocol, for IPv4 and IPv6; it is mapped to only then.
    pub there: [u32; 2],
    /// How many calls of socket(2) were mapped.
    pub mapped: u64,
    /// Whose sockets, in words.
    pub whose: String,
}

impl State {
    pub const SIZE: usize = 4096;

    pub fn new(protocol: u16, whose: String) -> Self {
        State {
            protocol: protocol.into(),
            there: [0; 2],
            mapped: 0,
            whose,
        }
    }

    /// Whether the words fit.
    pub fn fits(&self) -> bool {
        self.whose.len() <= Self::SIZE - WHOSE
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let [v4, v6] = self.there;
        let words = [FORM, self.protocol, v4, v6].map(u32::to_ne_bytes).concat();
        let mapped = self.mapped.to_ne_bytes();
        let mut all = [&words[..], &mapped, self.whose.as_bytes()].concat();
        all.resize(Self::SIZE, 0);
        all
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        if bytes.len() != Self::SIZE || word(0)? != FORM {
            return None;
        }
        let whose = bytes[WHOSE..].split(|&b| b == 0).next()?;
        Some(State {
            protocol: word(4)?,
            there: [word(THERE[0] as usize)?, word(THERE[1] as usize)?],
            mapped: u64::from_ne_bytes(*bytes.get(MAPPED as usize..)?.first_chunk()?),
            whose: String::from_utf8_lossy(whose).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let mut state = State::new(257, "program redis-*".into());
        (state.there, state.mapped) = ([1, 0], 1 << 40);
        let bytes = state.to_bytes();
        assert_eq!(State::from_bytes(&bytes), Some(state));
        assert_eq!(State::from_bytes(&bytes[1..]), None);
        assert_eq!(State::from_bytes(&[0; State::SIZE]), None);
    }

    #[test]
    fn long_words() {
        let mut state = State::new(257, "x".repeat(State::SIZE - WHOSE));
        assert!(state.fits());
        assert_eq!(State::from_bytes(&state.to_bytes()), Some(state.clone()));
        state.whose.push('x');
        assert!(!state.fits());
    }
}
