// SPDX-License-Identifier: GPL-2.0-only

//! Tests of blocks that overlap, move and end, compared with a model of each page.

use super::*;
use std::collections::{HashMap, HashSet};

const PAGE: usize = 4096;
const MOST: usize = 64;

type Tested = Record<Vec<Option<Part>>, Vec<Option<ProtectedBlock<u32>>>>;

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

/// Begins a block of one range.
fn begin(r: &mut Tested, range: Range, owner: u32) -> Option<BlockId> {
    r.begin([range].into_iter(), owner)
}

/// Returns the number of pages of blocks in a range; a page of several blocks counts for each.
fn pages_in(r: &Tested, range: Range) -> usize {
    let common = r.live().filter_map(|l| l.common(range));
    common.map(|c| (c.end - c.start) / PAGE).sum()
}

/// Unprotects ranges without a block, as the worker does.
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
    for (start, len) in [
        (4096, 0),
        (4097, 8191),
        (4096, 8191),
        (1, 4096),
        (8192, usize::MAX),
        (usize::MAX - 4095, 4096),
    ] {
        assert_eq!(Range::whole_pages(start, len, PAGE), None);
    }
}

#[test]
fn none_begins_where_somebody_waits() {
    let mut r = record();
    let a = begin(&mut r, range(1, 4), 1).unwrap();
    assert_eq!(touched(&mut r, 2), [1]);
    // else the waiting thread would stay blocked: its owner gets no event
    assert!(begin(&mut r, range(2, 1), 2).is_none());
    assert!(begin(&mut r, range(4, 4), 2).is_none());
    assert!(begin(&mut r, range(5, 4), 2).is_some());
    r.end(a);
    assert!(begin(&mut r, range(2, 1), 2).is_none());
    // nor if it could not be made writable at once, or was moved
    assert_eq!(r.next_loose(), Some(range(1, 4)));
    r.cleared(false);
    assert!(begin(&mut r, range(2, 1), 2).is_none());
    r.moved(range(1, 4), 100 * PAGE);
    assert!(begin(&mut r, range(101, 1), 2).is_none());
    assert_eq!(clear(&mut r), [range(100, 4)]);
    assert!(begin(&mut r, range(101, 1), 2).is_some());
}

#[test]
fn who_waits_for_what_ended_before_waits_for_nobody_else() {
    let mut r = record();
    let a = begin(&mut r, range(1, 4), 1).unwrap();
    r.end(a);
    // written to before the worker has made it writable
    assert_eq!(touched(&mut r, 2), []);
    assert!(begin(&mut r, range(2, 1), 2).is_none());
    assert_eq!(clear(&mut r), [range(1, 4)]);
    assert!(begin(&mut r, range(2, 1), 2).is_some());
}

#[test]
fn ranges_for_which_there_is_no_room() {
    let mut r = record();
    let ranges = |n| (0..n).map(|n| range(n * 3, 1));
    assert!(r.begin(ranges(MOST + 1), 1).is_none());
    let a = r.begin(ranges(MOST - 1), 1).unwrap();
    assert!(r.begin(ranges(2), 2).is_none());
    assert!(r.begin(ranges(1), 2).is_some());
    assert_eq!(r.end(a), Some(1));
    clear(&mut r);
    assert!(r.begin(ranges(MOST - 1), 1).is_some());
}

#[test]
fn none_begins_where_the_worker_is() {
    let mut r = record();
    let a = begin(&mut r, range(1, 4), 1).unwrap();
    r.end(a);
    assert_eq!(r.next_loose(), Some(range(1, 4)));
    assert_eq!(r.next_loose(), None);
    assert!(begin(&mut r, range(4, 4), 2).is_none());
    assert!(begin(&mut r, range(5, 4), 2).is_some());
    r.cleared(true);
    assert!(begin(&mut r, range(1, 4), 3).is_some());
}

#[test]
fn a_block_that_begins_while_a_move_is_read_is_not_settled() {
    let mut r = record();
    let a = begin(&mut r, range(1, 4), 1).unwrap();
    assert_eq!(r.is_settled(a), Some(true));
    // mremap(2) returns once its event is read; the program then maps and sends other memory there
    r.reading = true;
    let b = begin(&mut r, range(1, 4), 2).unwrap();
    assert_eq!(r.is_settled(b), None);
    r.moved(range(1, 4), 100 * PAGE);
    assert_eq!(r.is_settled(b), None);
    r.reading = false;
    assert_eq!(r.is_settled(b), Some(false));
    r.end(b);
    let c = begin(&mut r, range(1, 4), 3).unwrap();
    assert_eq!(r.is_settled(c), Some(true));
    assert_eq!(touched(&mut r, 2), [3]);
    assert_eq!(touched(&mut r, 101), [1]);
}

#[test]
fn no_more_than_there_is_room_for() {
    let mut r = record();
    let ids: Vec<_> = (0..MOST)
        .map(|n| begin(&mut r, range(n * 3, 3), n as u32).unwrap())
        .collect();
    assert!(begin(&mut r, range(0, 1), 0).is_none());
    // split into more parts than the record can contain: unrecorded ones stay protected until all
    // blocks end
    for n in 0..MOST {
        r.moved(range(n * 3 + 1, 1), (10_000 + n * 2) * PAGE);
    }
    assert!(r.overflown);
    assert!(!r.take_stray(range(9_000, 1)));
    assert!(begin(&mut r, range(20_000, 1), 0).is_none());
    for id in ids {
        assert!(r.end(id).is_some());
    }
    clear(&mut r);
    assert!(r.take_stray(range(9_000, 1)));
}

/// Model of each page: the blocks that cover it, its protection, and whether a writer may wait; and
/// the blocks whose owners were notified.
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

    fn moved(&mut self, from: Range, to: usize) {
        for (page, to) in pages(from).zip(to..) {
            let over = self.over.remove(&page).unwrap_or_default();
            self.over.insert(to, over);
            for set in [&mut self.protected, &mut self.wanted] {
                if set.remove(&page) {
                    set.insert(to);
                }
            }
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

    /// Makes a page writable, or keeps it for the next attempt.
    fn cleared(&mut self, page: usize, done: bool) {
        assert!(self.is_free(page));
        for set in [&mut self.protected, &mut self.wanted] {
            match done {
                true => set.remove(&page),
                false => set.insert(page),
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
            match random(7) {
                0 | 1 => {
                    let first = range(random(40), 1 + random(8));
                    let second = range(50 + random(40), 1 + random(8));
                    let block = [first, second].into_iter().take(1 + random(2));
                    if let Some(id) = r.begin(block.clone(), step) {
                        ids.push((id, step));
                        m.begun(block.flat_map(pages), step);
                    }
                }
                2 if !ids.is_empty() => {
                    let (id, owner) = ids.swap_remove(random(ids.len()));
                    assert_eq!(r.has_fault(id), m.notified.contains(&owner));
                    assert_eq!((r.end(id), r.end(id)), (Some(owner), None));
                    m.over.values_mut().for_each(|o| _ = o.remove(&owner));
                }
                3 => {
                    // to addresses without a mapping
                    let from = range(random(40), 1 + random(4));
                    let to = 1000 + step as usize * 10;
                    r.moved(from, to * PAGE);
                    m.moved(from, to);
                }
                4 => {
                    let page = random(100);
                    assert_eq!(touched(&mut r, page), m.touched(page));
                }
                5 => {
                    let (page, done) = (random(100), random(2) == 0);
                    assert_eq!(r.take_stray(range(page, 1)), m.is_free(page));
                    if m.is_free(page) {
                        r.cleared(done);
                        m.cleared(page, done);
                    }
                }
                _ => {
                    let fails = random(4) == 0;
                    while let Some(loose) = r.next_loose() {
                        r.cleared(!fails);
                        pages(loose).for_each(|page| m.cleared(page, !fails));
                        if fails {
                            break;
                        }
                    }
                    assert!(r.overflown || fails || !m.protected.iter().any(|p| m.is_free(*p)));
                }
            }
            if r.overflown {
                break;
            }
            assert_eq!(r.is_idle(), ids.is_empty());
            let covered: usize = m.over.values().map(HashSet::len).sum();
            assert_eq!(pages_in(&r, range(0, usize::MAX / PAGE)), covered);
        }
    }
}
