// SPDX-License-Identifier: GPL-2.0-only

//! Receive calls at every position around the urgent mark, compared with the rules of
//! tcp_recvmsg().

use crate::unread::{Unread, Urgent};

const STREAM: &[u8] = b"ab!cd";
/// Position of the urgent byte.
const MARK: usize = 2;

/// Returns the whole stream, with an urgent byte; `read` bytes were read.
fn unread(read: usize) -> Unread {
    let mut unread = Unread::default();
    unread.received(MARK as u64 + 1, Some(b'!'));
    unread.received((STREAM.len() - MARK) as u64 - 1, None);
    unread.consume(read as u64);
    unread
}

/// Returns the number of bytes of a call that peeks from `from` on into `most` bytes of memory, and
/// its final position. A buffer holds `buffer` bytes.
fn call(unread: &Unread, from: usize, most: usize, buffer: usize, inline: bool) -> (Vec<u8>, u64) {
    let (mut got, mut position) = (Vec::new(), from as u64);
    while got.len() < most {
        let Some(next) = unread.next(position, most - got.len(), !got.is_empty(), inline) else {
            break;
        };
        let at = next.at as usize;
        if at >= STREAM.len() {
            break;
        }
        let there = &STREAM[at..STREAM.len().min(at + buffer)];
        let given = next.of(there);
        got.extend(given);
        position = next.at + (given.len() + next.skip) as u64;
    }
    (got, position)
}

#[test]
fn a_call_ends_at_the_mark_and_steps_over_it_at_its_beginning() {
    for read in 0..=STREAM.len() {
        for from in 0..=STREAM.len() {
            for most in 1..=STREAM.len() {
                for (buffer, inline) in [(1, false), (1, true), (9, false), (9, true)] {
                    // peeks after bytes that were read meanwhile
                    let start = read.max(from);
                    let (mut end, mut first) = (STREAM.len(), start);
                    if start < MARK {
                        end = MARK;
                    } else if start == MARK && !inline {
                        first += 1;
                    }
                    let end = end.min(first + most);
                    let (got, position) = call(&unread(read), from, most, buffer, inline);
                    assert_eq!(
                        got,
                        STREAM[first..end],
                        "{read} {from} {most} {buffer} {inline}"
                    );
                    if !got.is_empty() {
                        assert_eq!(position, end as u64);
                    }
                }
            }
        }
    }
}

#[test]
fn poll_does_not_count_a_byte_for_msg_oob_that_is_next() {
    for read in 0..=STREAM.len() {
        let (unread, left) = (unread(read), STREAM.len() - read);
        for least in 1..=STREAM.len() + 1 {
            assert_eq!(unread.reaches(least, true, || false), left >= least);
            let stream = left - usize::from(read == MARK);
            assert_eq!(unread.reaches(least, false, || false), stream >= least);
            // the call returns all unread bytes if no more can arrive
            assert_eq!(unread.reaches(least, false, || true), stream > 0);
        }
        assert!(!unread.reaches(usize::MAX, false, || false));
    }
    // only the urgent byte has arrived
    let mut alone = Unread::default();
    alone.received(1, Some(b'!'));
    assert!(!alone.reaches(1, false, || true) && alone.reaches(1, true, || false));
}

#[test]
fn the_mark_is_kept_until_the_stream_has_passed_it() {
    for read in 0..=STREAM.len() {
        let mut unread = unread(read);
        assert_eq!(
            (unread.position(), unread.bytes()),
            (read as u64, STREAM.len() - read)
        );
        assert!(
            unread.urgent
                == if read <= MARK {
                    Urgent::Valid(b'!', 2)
                } else {
                    Urgent::None
                }
        );
        assert_eq!(unread.at_mark(), read == MARK);
        let until_mark = if read <= MARK {
            MARK - read
        } else {
            unread.bytes()
        };
        assert_eq!(
            (unread.readable(false), unread.readable(true)),
            (until_mark, unread.bytes())
        );
        // a mark exists after MSG_OOB has read the byte, but not before the byte has arrived
        if read <= MARK {
            unread.urgent = Urgent::Read(MARK as u64);
            assert_eq!(
                (unread.at_mark(), unread.readable(false)),
                (read == MARK, until_mark)
            );
        }
        unread.urgent = Urgent::Pending;
        assert_eq!(
            (unread.at_mark(), unread.readable(false)),
            (false, unread.bytes())
        );
        unread.consume(unread.bytes() as u64);
        assert!(unread.bytes() == 0 && unread.urgent == Urgent::Pending);
    }
}

#[test]
fn a_message_without_bytes_has_no_urgent_one() {
    let mut unread = Unread::default();
    unread.received(0, Some(b'x'));
    assert!(unread.urgent == Urgent::None && unread.bytes() == 0);
}
