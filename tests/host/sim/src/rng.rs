// SPDX-License-Identifier: GPL-2.0-only

//! Random numbers that depend on the seed only, on every machine.

/// SplitMix64: small, fast, and good enough to choose between events.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Returns the sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// Returns the next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, which is not 0.
    pub fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u32
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn range(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// Returns true once in `n` times.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }
}
