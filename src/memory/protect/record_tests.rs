// SPDX-License-Identifier: GPL-2.0-only

//! Tests of blocks that overlap and end, compared with a model of each page.

use super::*;
use std::collections::{HashMap, HashSet};

const PAGE: usize = 4096;
const MOST: usize = 64;

type Tested = Record<Vec<Option<Part<u32>>>>;

fn record() -> Tested {
    Record::new((0..MOST + LOOSE_PAGES).map(|_| None).collect())
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

fn begin(r: &mut Tested, range: Range, owner: u32) -> Option<BlockId> {
    r.begin([range].into_iter(), &owner)
}

/// Ends a block. Returns the block's owners, one for each part.
fn end(r: &mut Tested, id: BlockId) -> Vec<u32> {
    std::iter::from_fn(|| r.end(id)).collect()
}

/// Unprotects ranges without a block, as the worker does.
fn clear(r: &mut Tested) -> Vec<Range> {
    let mut all = Vec::new();
    while let Some(loose) = r.next_loose() {
        all.push(loose);
        r.cleared(loose);
    }
    all
}

fn touched(r: &mut Tested, page: usize) -> Vec<u32> {
    let mut all = Vec::new();
    while let Some(owner) = r.next_fault(range(page, 1)) {
        all.push(owner);
    }
    all.sort_unstable();
    all
}

#[test]
fn ranges_for_which_there_is_no_room() {
    let mut r = record();
    let ranges = |n| (0..n).map(|n| range(n * 3, 1));
    assert!(r.begin(ranges(MOST + 1), &1).is_none());
    let a = r.begin(ranges(MOST - 1), &1).unwrap();
    assert!(r.begin(ranges(2), &2).is_none());
    assert!(r.begin(ranges(1), &2).is_some());
    // pages without a block have slots of their own
    for page in 0..LOOSE_PAGES {
        assert!(r.add_loose(range(1_000 + page, 1)));
    }
    assert!(!r.add_loose(range(2_000, 1)));
    assert_eq!(end(&mut r, a), [1; MOST - 1]);
    clear(&mut r);
    assert!(r.begin(ranges(MOST - 1), &1).is_some());
}

#[test]
fn none_begins_where_the_worker_is() {
    let mut r = record();
    let b = begin(&mut r, range(20, 4), 1).unwrap();
    let a = begin(&mut r, range(1, 4), 1).unwrap();
    r.end(a);
    assert_eq!(r.next_loose(), Some(range(1, 4)));
    assert!(begin(&mut r, range(4, 4), 2).is_none());
    assert!(begin(&mut r, range(5, 4), 2).is_some());
    // another block ends before the worker has finished
    r.end(b);
    r.cleared(range(1, 4));
    assert!(begin(&mut r, range(1, 4), 3).is_some());
}

/// Model of all pages: blocks that cover a page, protected pages, pages with a writer that may
/// wait, and blocks whose owners were notified.
#[derive(Default)]
struct Model {
    over: HashMap<usize, HashSet<u32>>,
    protected: HashSet<usize>,
    wanted: HashSet<usize>,
    notified: HashSet<u32>,
}

impl Model {
    fn is_free(&self, page: usize) -> bool {
        self.over.get(&page).is_none_or(HashSet::is_empty)
    }

    fn begun(&mut self, block: impl Iterator<Item = usize>, owner: u32) {
        for page in block {
            assert!(!self.wanted.contains(&page));
            self.over.entry(page).or_default().insert(owner);
            self.protected.insert(page);
        }
    }

    /// Writes to a page. Returns the owners to notify.
    fn touched(&mut self, page: usize) -> Vec<u32> {
        let over = self.over.get(&page).cloned().unwrap_or_default();
        let mut new: Vec<_> = over.difference(&self.notified).copied().collect();
        new.sort_unstable();
        self.notified.extend(&new);
        self.wanted.extend(self.protected.get(&page));
        new
    }

    /// Makes a page writable, or, if `fails`, keeps it for the next attempt.
    fn cleared(&mut self, page: usize, fails: bool) {
        assert!(self.is_free(page));
        for set in [&mut self.protected, &mut self.wanted] {
            match fails {
                true => set.insert(page),
                false => set.remove(&page),
            };
        }
    }
}

#[test]
fn as_the_model_has_it() {
    for seed in 1..200u64 {
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
            match random(6) {
                0 | 1 => {
                    let first = range(random(40), 1 + random(8));
                    let second = range(50 + random(40), 1 + random(8));
                    let block = [first, second].into_iter().take(1 + random(2));
                    if let Some(id) = r.begin(block.clone(), &step) {
                        ids.push((id, step));
                        m.begun(block.flat_map(pages), step);
                    }
                }
                2 if !ids.is_empty() => {
                    let (id, owner) = ids.swap_remove(random(ids.len()));
                    assert_eq!(r.has_fault(id), m.notified.contains(&owner));
                    assert!(matches!(end(&mut r, id).as_slice(), [a, ..] if *a == owner));
                    m.over.values_mut().for_each(|o| _ = o.remove(&owner));
                }
                3 => {
                    let page = random(100);
                    assert_eq!(touched(&mut r, page), m.touched(page));
                }
                4 => {
                    let page = random(100);
                    let known = r.contains_any_of(range(page, 1));
                    assert!(known || !m.protected.contains(&page));
                    if !known {
                        assert!(r.add_loose(range(page, 1)));
                        m.cleared(page, true);
                    }
                }
                _ => {
                    let fails = random(4) == 0;
                    while let Some(loose) = r.next_loose() {
                        pages(loose).for_each(|page| m.cleared(page, fails));
                        if fails {
                            break;
                        }
                        r.cleared(loose);
                    }
                    assert!(fails || !m.protected.iter().any(|p| m.is_free(*p)));
                }
            }
            assert_eq!(r.is_idle(), ids.is_empty());
            let covered: usize = m.over.values().map(HashSet::len).sum();
            assert_eq!(r.live().flat_map(pages).count(), covered);
        }
    }
}
