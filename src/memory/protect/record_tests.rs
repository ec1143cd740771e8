// SPDX-License-Identifier: GPL-2.0-only

//! Blocks that overlap, move and end, beside a model that knows each page.

use super::*;
use std::collections::{HashMap, HashSet};

const PAGE: usize = 4096;
const MOST: usize = 64;

type Tested = Record<Vec<Option<Part>>, Vec<Option<Block<u32>>>>;

fn record() -> Tested {
    let blocks = (0..MOST).map(|_| None).collect();
    Record::new(vec![None; 2 * MOST], blocks)
}

fn range(first: usize, pages: usize) -> Range {
    Range {
        start: first * PAGE,
        end: (first + pages) * PAGE,
    }
}

fn pages(r: Range) -> impl Iterator<Item = usize> {
    r.start / PAGE..r.end / PAGE
}

/// Makes writable what nobody needs, as the worker does.
fn clear(r: &mut Tested) -> Vec<Range> {
    let mut all = Vec::new();
    while let Some(loose) = r.next_loose() {
        all.push(loose);
        r.cleared(true);
    }
    all
}

fn touched(r: &mut Tested, page: usize) -> Vec<u32> {
    let mut all = Vec::new();
    while let Some((_, owner)) = r.next_touched(range(page, 1)) {
        all.push(owner);
    }
    all.sort_unstable();
    all
}

#[test]
fn whole_pages_only() {
    assert_eq!(Range::whole_pages(4096, 8192, PAGE), Some(range(1, 2)));
    assert_eq!(Range::whole_pages(4097, 8192, PAGE), Some(range(2, 1)));
    assert_eq!(Range::whole_pages(4097, 8190, PAGE), None);
    assert_eq!(Range::whole_pages(1, 4095, PAGE), None);
    assert_eq!(Range::whole_pages(usize::MAX - 10, 100, PAGE), None);
    assert_eq!(Range::whole_pages(8192, usize::MAX, PAGE), None);
}

#[test]
fn ends_once() {
    let mut r = record();
    let a = r.begin(range(1, 4), 7).unwrap();
    assert!(!r.is_idle());
    assert_eq!(clear(&mut r), []);
    assert_eq!(r.end(a), Some(7));
    assert_eq!(r.end(a), None);
    assert!(r.is_idle());
    assert_eq!(clear(&mut r), [range(1, 4)]);
    assert_eq!(clear(&mut r), []);
}

#[test]
fn a_page_of_two_blocks_is_free_when_both_have_ended() {
    let mut r = record();
    let a = r.begin(range(1, 4), 1).unwrap();
    let b = r.begin(range(3, 4), 2).unwrap();
    let c = r.begin(range(4, 1), 3).unwrap();
    assert_eq!(r.bytes_in(range(4, 1)), 3 * PAGE);
    // two have page 3, one has it and page 6
    assert_eq!(r.covering(range(3, 1)), 2);
    assert_eq!(r.covering(range(3, 4)), 1);
    assert_eq!(r.covering(range(0, 4)), 0);
    r.end(a);
    assert_eq!(clear(&mut r), [range(1, 2)]);
    r.end(b);
    assert_eq!(clear(&mut r), [range(3, 1), range(5, 2)]);
    r.end(c);
    assert_eq!(clear(&mut r), [range(4, 1)]);
}

#[test]
fn owners_are_told_once() {
    let mut r = record();
    let a = r.begin(range(1, 4), 1).unwrap();
    r.begin(range(3, 4), 2).unwrap();
    assert!(!r.is_told(a));
    assert_eq!(touched(&mut r, 4), [1, 2]);
    assert!(r.is_told(a));
    assert_eq!(touched(&mut r, 4), []);
    assert_eq!(touched(&mut r, 9), []);
    r.end(a);
    assert_eq!(touched(&mut r, 1), []);
}

#[test]
fn a_stray_page_is_nobodys() {
    let mut r = record();
    r.begin(range(1, 4), 1).unwrap();
    assert!(!r.take_stray(range(2, 1)));
    assert!(r.take_stray(range(7, 1)));
    r.cleared(true);
    assert_eq!(clear(&mut r), []);
    assert!(r.take_stray(range(7, 1)));
    r.cleared(false);
    assert_eq!(clear(&mut r), [range(7, 1)]);
}

#[test]
fn none_begins_where_the_worker_is() {
    let mut r = record();
    let a = r.begin(range(1, 4), 1).unwrap();
    r.end(a);
    assert_eq!(r.next_loose(), Some(range(1, 4)));
    assert_eq!(r.next_loose(), None);
    assert!(r.begin(range(4, 4), 2).is_none());
    assert!(r.begin(range(5, 4), 2).is_some());
    r.cleared(true);
    assert!(r.begin(range(1, 4), 3).is_some());
}

#[test]
fn what_could_not_be_cleared_comes_again_where_it_has_moved() {
    let mut r = record();
    let a = r.begin(range(1, 4), 1).unwrap();
    r.end(a);
    assert_eq!(r.next_loose(), Some(range(1, 4)));
    r.cleared(false);
    r.moved(range(1, 4), 100 * PAGE);
    assert_eq!(clear(&mut r), [range(100, 4)]);
}

#[test]
fn a_part_moves() {
    let mut r = record();
    let a = r.begin(range(10, 6), 1).unwrap();
    r.moved(range(12, 2), 50 * PAGE);
    assert_eq!(touched(&mut r, 51), [1]);
    assert_eq!(r.bytes_in(range(12, 2)), 0);
    assert_eq!(r.bytes_in(range(0, 100)), 6 * PAGE);
    r.end(a);
    let mut all = clear(&mut r);
    all.sort_by_key(|r| r.start);
    assert_eq!(all, [range(10, 2), range(14, 2), range(50, 2)]);
}

#[test]
fn no_more_than_there_is_room_for() {
    let mut r = record();
    let ids: Vec<_> = (0..MOST)
        .map(|n| r.begin(range(n * 3, 3), n as u32).unwrap())
        .collect();
    assert!(r.begin(range(0, 1), 0).is_none());
    // torn into more parts than there is room for: what is not known stays protected until all have ended
    for n in 0..MOST {
        r.moved(range(n * 3 + 1, 1), (10_000 + n * 2) * PAGE);
    }
    assert!(!r.take_stray(range(9_000, 1)));
    assert!(r.begin(range(20_000, 1), 0).is_none());
    for id in ids {
        assert!(r.end(id).is_some());
    }
    clear(&mut r);
    assert!(r.take_stray(range(9_000, 1)));
}

/// A page by page model: which blocks cover what, and what is protected.
#[derive(Default)]
struct Model {
    over: HashMap<usize, HashSet<u32>>,
    protected: HashSet<usize>,
}

#[test]
fn as_the_model_has_it() {
    for seed in 1..30u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = move |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % n as u64) as usize
        };
        let (mut r, mut m) = (record(), Model::default());
        let mut ids = Vec::new();
        for step in 0..300u32 {
            match random(5) {
                0 | 1 => {
                    let block = range(random(40), 1 + random(8));
                    if let Some(id) = r.begin(block, step) {
                        ids.push((id, step));
                        for page in pages(block) {
                            m.over.entry(page).or_default().insert(step);
                            m.protected.insert(page);
                        }
                    }
                }
                2 if !ids.is_empty() => {
                    let (id, owner) = ids.swap_remove(random(ids.len()));
                    assert_eq!(r.end(id), Some(owner));
                    m.over.values_mut().for_each(|o| _ = o.remove(&owner));
                }
                3 => {
                    // to pages that are nobody's yet
                    let from = range(random(40), 1 + random(4));
                    let to = 1000 + step as usize * 10;
                    r.moved(from, to * PAGE);
                    for (n, page) in pages(from).enumerate() {
                        let over = m.over.remove(&page).unwrap_or_default();
                        m.over.insert(to + n, over);
                        if m.protected.remove(&page) {
                            m.protected.insert(to + n);
                        }
                    }
                }
                _ => {
                    for loose in clear(&mut r) {
                        for page in pages(loose) {
                            assert!(m.over.get(&page).is_none_or(HashSet::is_empty));
                            m.protected.remove(&page);
                        }
                    }
                    assert!(r.overflown || m.protected.iter().all(|p| !m.over[p].is_empty()));
                }
            }
            if r.overflown {
                break;
            }
            let covered: usize = m.over.values().map(HashSet::len).sum();
            let everything = Range {
                start: 0,
                end: usize::MAX,
            };
            assert_eq!(r.bytes_in(everything), covered * PAGE);
        }
    }
}
