// SPDX-License-Identifier: GPL-2.0-only

//! Test pattern: each word encodes its offset in the stream, so that lost, duplicated and exchanged
//! bytes are detected.

/// Returns the word of the pattern at a multiple of eight bytes (the finalizer of splitmix64).
fn word(place: u64) -> u64 {
    let mut z = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the bytes of the pattern from an offset of the stream on.
fn bytes(place: u64) -> impl Iterator<Item = u8> {
    let skipped = (place % 8) as usize;
    (place / 8..)
        .flat_map(|n| word(n).to_le_bytes())
        .skip(skipped)
}

pub fn fill(buffer: &mut [u8], place: u64) {
    if place % 8 != 0 {
        for (to, from) in buffer.iter_mut().zip(bytes(place)) {
            *to = from;
        }
        return;
    }
    for (n, to) in (place / 8..).zip(buffer.chunks_mut(8)) {
        to.copy_from_slice(&word(n).to_le_bytes()[..to.len()]);
    }
}

/// Returns the offset in the stream of the first wrong byte.
pub fn wrong(buffer: &[u8], place: u64) -> Option<u64> {
    let mut good = 0;
    if place % 8 == 0 {
        // compares words, because the comparison takes most of the time
        let same = |(n, part): &(u64, &[u8])| word(*n).to_le_bytes() == **part;
        good = 8
            * (place / 8..)
                .zip(buffer.chunks_exact(8))
                .take_while(same)
                .count();
    }
    let rest = buffer.get(good..).unwrap_or_default();
    let start = place + good as u64;
    rest.iter()
        .zip(bytes(start))
        .position(|(is, should)| *is != should)
        .map(|at| start + at as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_found_right_from_any_place() {
        let mut all = vec![0; 1000];
        fill(&mut all, 0);
        for start in [0, 1, 7, 8, 13, 992, 999] {
            let mut part = vec![0; 1000 - start];
            fill(&mut part, start as u64);
            assert_eq!(part, all[start..], "from {start}");
            assert_eq!(wrong(&part, start as u64), None, "from {start}");
        }
        assert_eq!(wrong(&[], 5), None);
    }

    #[test]
    fn what_is_wrong_is_found() {
        let mut all = vec![0; 1000];
        fill(&mut all, 16);
        for at in [0, 1, 500, 999] {
            let mut one = all.clone();
            one[at] ^= 1;
            assert_eq!(wrong(&one, 16), Some(16 + at as u64));
        }
        assert_eq!(wrong(&all, 24), Some(24), "moved by a word");
        assert_eq!(wrong(&all, 17), Some(17), "moved by a byte");
    }
}
