// SPDX-License-Identifier: GPL-2.0-only

//! One task writes bytes to a local connection and another reads them. Neither task accesses a byte
//! that the other uses, all bytes arrive in order, and neither sleeps while it could continue.
//!
//! `byte_queue` and `flow` are the module's own files.

use super::byte_queue::{ByteQueue, Found, Reader, Writer};
use super::queue_stubs::{Arc, GFP_KERNEL};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

/// Bytes of each segment.
const SIZE: usize = 2;

/// Block of bytes whose values count up.
#[derive(Clone, Copy)]
struct Block {
    first: u8,
    /// Set once the reader has read a byte of the block.
    begun: bool,
}

type Queue = Arc<ByteQueue<Block>>;

fn queue() -> (Queue, Writer<Block>, Reader<Block>) {
    ByteQueue::new().unwrap()
}

/// Writes a byte, into another segment if the last one is full. Returns true if the reader is to be
/// notified.
fn write(writer: &mut Writer<Block>, byte: u8) -> bool {
    if writer.space().is_empty() {
        writer.extend(SIZE, GFP_KERNEL).unwrap();
    }
    writer.space()[0] = byte;
    writer.publish(1)
}

/// Adds a block of one byte.
fn push(writer: &mut Writer<Block>, first: u8) {
    let begun = false;
    assert!(writer.push(Block { first, begun }, 1).is_ok());
}

/// Reads all available bytes, up to a dropped block.
fn read(queue: &Queue, reader: &mut Reader<Block>) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match reader.at(0) {
            Found::Bytes(bytes) => {
                all.extend(bytes);
                let n = bytes.len();
                let _ = reader.consume(n);
            }
            Found::Block { start, offset, len } => {
                let begin = |b: &mut Block, at| {
                    b.begun |= at == start;
                    (at == start).then_some(b.first)
                };
                let Some(first) = queue.blocks(begin) else {
                    return all;
                };
                all.extend((offset..offset + len).map(|n| first + n as u8));
                let _ = reader.consume(len);
            }
            Found::Nothing => return all,
        }
    }
}

/// Runs `write` beside a reader, which finally reads all bytes that it has to.
fn arrive(write: fn(&mut Writer<Block>, &Queue), expected: &'static [u8]) {
    loom::model(move || {
        let (queue, mut writer, mut reader) = queue();
        let of_writer = queue.clone();
        let task = thread::spawn(move || {
            write(&mut writer, &of_writer);
            writer
        });
        let mut all = read(&queue, &mut reader);
        let _writer = task.join().unwrap();
        all.extend(read(&queue, &mut reader));
        assert_eq!(all, expected);
    });
}

#[test]
fn bytes_arrive_in_order_from_several_segments() {
    let write_three = |w: &mut Writer<Block>, _: &Queue| {
        for byte in 1..=3 {
            write(w, byte);
        }
    };
    arrive(write_three, &[1, 2, 3]);
}

/// The first segment is closed before it is full, and the block is the last entry for a while.
#[test]
fn blocks_arrive_between_bytes() {
    let mixed = |w: &mut Writer<Block>, _: &Queue| {
        write(w, 1);
        push(w, 2);
        write(w, 3);
    };
    arrive(mixed, &[1, 2, 3]);
}

#[test]
fn a_block_grows_until_it_is_read() {
    let growing = |w: &mut Writer<Block>, _: &Queue| {
        push(w, 1);
        if w.grow(|b| usize::from(!b.begun)).0 == 0 {
            write(w, 2);
        }
    };
    arrive(growing, &[1, 2]);
}

/// A reset drops a block that nobody has begun to read, and all bytes behind it. The writer
/// continues in memory that nobody reads.
#[test]
fn a_reset_drops_the_end_of_the_stream() {
    loom::model(|| {
        let (queue, mut writer, mut reader) = queue();
        write(&mut writer, 1);
        let of_writer = queue.clone();
        let task = thread::spawn(move || {
            push(&mut writer, 2);
            write(&mut writer, 3);
            of_writer.cut(|b| !b.begun);
            write(&mut writer, 4);
        });
        let mut all = read(&queue, &mut reader);
        task.join().unwrap();
        all.extend(read(&queue, &mut reader));
        assert!([1, 2, 3, 4].starts_with(&all), "{all:?}");
    });
}

#[test]
fn bytes_held_back_arrive_before_others() {
    let holding = |w: &mut Writer<Block>, queue: &Queue| {
        w.extend(SIZE, GFP_KERNEL).unwrap();
        w.space()[0] = 1;
        w.hold(1);
        let _ = queue.publish_held();
        write(w, 2);
    };
    arrive(holding, &[1, 2]);
}

/// A message that fills several segments arrives whole. A removed message leaves no bytes.
#[test]
fn messages_arrive_whole_or_not_at_all() {
    loom::model(|| {
        let (queue, mut writer, mut reader) = queue();
        write(&mut writer, 1);
        let task = thread::spawn(move || {
            for goes_on in [false, true] {
                for byte in 2..=4 {
                    if writer.space().is_empty() {
                        writer.extend(SIZE, GFP_KERNEL).unwrap();
                    }
                    writer.space()[0] = byte;
                    writer.fill(1);
                }
                match goes_on {
                    false => writer.rewind(),
                    true => drop(writer.publish(0)),
                }
            }
            writer
        });
        let mut all = read(&queue, &mut reader);
        assert!(
            all.is_empty() || all == [1] || all == [1, 2, 3, 4],
            "{all:?}"
        );
        let _writer = task.join().unwrap();
        all.extend(read(&queue, &mut reader));
        assert_eq!(all, [1, 2, 3, 4]);
    });
}

/// The timer publishes bytes held back while the writer adds others.
#[test]
fn a_timer_publishes_beside_the_writer() {
    loom::model(|| {
        let (queue, mut writer, mut reader) = queue();
        writer.extend(SIZE, GFP_KERNEL).unwrap();
        writer.space()[0] = 1;
        writer.hold(1);
        let of_timer = queue.clone();
        let task = thread::spawn(move || of_timer.publish_held());
        write(&mut writer, 2);
        task.join().unwrap();
        assert_eq!(read(&queue, &mut reader), [1, 2]);
    });
}

/// A segment that was read is used again.
#[test]
fn a_segment_is_filled_again_only_after_it_was_read() {
    loom::model(|| {
        let (queue, mut writer, mut reader) = queue();
        for byte in 1..=3 {
            write(&mut writer, byte);
        }
        let task = thread::spawn(move || {
            write(&mut writer, 4);
            write(&mut writer, 5);
            writer
        });
        let mut all = read(&queue, &mut reader);
        let _writer = task.join().unwrap();
        all.extend(read(&queue, &mut reader));
        assert_eq!(all, [1, 2, 3, 4, 5]);
    });
}

/// Registers for bytes, if `registers`, and checks again.
fn a_reader_sleeps_only_without_bytes(registers: bool) {
    loom::model(move || {
        let (queue, mut writer, mut reader) = queue();
        let notified = loom::sync::Arc::new(AtomicBool::new(false));
        let event = notified.clone();
        let task = thread::spawn(move || {
            let waits = write(&mut writer, 1);
            event.store(waits, Ordering::SeqCst);
            writer
        });
        let mut found = read(&queue, &mut reader);
        if found.is_empty() && registers {
            queue.flow().await_bytes();
            found = read(&queue, &mut reader);
        }
        let _writer = task.join().unwrap();
        let sleeps_on = found.is_empty() && !notified.load(Ordering::SeqCst);
        assert!(!sleeps_on, "the reader sleeps on");
    });
}

#[test]
fn a_registered_reader_is_notified() {
    a_reader_sleeps_only_without_bytes(true);
}

#[test]
#[should_panic(expected = "sleeps on")]
fn a_reader_that_does_not_register_is_not() {
    a_reader_sleeps_only_without_bytes(false);
}

#[test]
fn a_registered_writer_is_notified_of_space() {
    loom::model(|| {
        let (queue, mut writer, mut reader) = queue();
        write(&mut writer, 1);
        write(&mut writer, 2);
        let task = thread::spawn(move || {
            let n = match reader.at(0) {
                Found::Bytes(bytes) => bytes.len(),
                _ => 0,
            };
            assert_eq!(n, 2);
            reader.consume(n)
        });
        let mut found = queue.flow().unread() <= 1;
        if !found {
            queue.flow().await_space(1);
            found = queue.flow().unread() <= 1;
        }
        let notified = task.join().unwrap();
        assert!(found || notified, "the writer sleeps on");
    });
}
