// SPDX-License-Identifier: GPL-2.0-only

//! What is below the sockets, given to test programs. Only in builds for that (`make selftest`).
//!
//! A program that writes `TEST FD FD SOURCE DESTINATION LENGTH` to `ib_sdp/selftest` of debugfs has
//! the test carried out between the two connected sockets, whose channels are taken away from them:
//! the bytes at SOURCE in its memory are to arrive at DESTINATION, or are not. The write fails, and
//! the kernel's log tells why, if something is not as it must be. What the bytes are is for the
//! program to check, with tests/guest/suites/selftest. Some tests wait, when memory is advertised,
//! until another write says `go`.
//!
//! With `raw COMMAND FD ...` a program itself is one end of a connection; see [`raw`].
//!
//! * [`end`]: one end of a connection, taken away from its socket;
//! * [`bed`]: two of them, and what is moved between them;
//! * [`transfers`], [`memory`]: the tests;
//! * [`raw`]: an end that does what a program says.

/// Fails the test unless something holds.
macro_rules! check {
    ($what:expr) => {
        if !$what {
            pr_info!(
                "selftest: {}:{}: not {}\n",
                file!(),
                line!(),
                stringify!($what)
            );
            return Err(EIO);
        }
    };
}

mod bed;
mod end;
mod memory;
mod raw;
mod transfers;

use crate::transport::{Access, Key};
use bed::{Bed, GO};
use end::End;
use kernel::debugfs;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::uaccess::UserSliceReader;
use raw::Raws;

/// The file, and the directory that it is in.
pub(crate) struct File {
    _file: Pin<KBox<debugfs::File<Raws>>>,
    _dir: debugfs::Dir,
}

/// Makes the file.
pub(crate) fn file() -> Result<File> {
    let dir = debugfs::Dir::new(c"ib_sdp");
    let file = KBox::pin_init(
        dir.write_callback_file(
            c"selftest",
            new_mutex!(KVec::new(), "ib_sdp_selftest"),
            &|raws: &Raws, from: &mut UserSliceReader| {
                let mut text = [0; 160];
                let n = from.len().min(text.len());
                let (text, _) = text.split_at_mut(n);
                from.read_slice(text)?;
                run(raws, core::str::from_utf8(text).map_err(|_| EINVAL)?)
            },
        ),
        GFP_KERNEL,
    )?;
    Ok(File {
        _file: file,
        _dir: dir,
    })
}

fn run(raws: &Raws, text: &str) -> Result {
    let mut words = text.split_ascii_whitespace();
    let test = words.next().ok_or(EINVAL)?;
    if test == "raw" {
        return raw::run(raws, words);
    }
    if test == "go" {
        GO.xchg(true, Full);
        return Ok(());
    }
    let mut number = || -> Result<usize> {
        let word = words.next().ok_or(EINVAL)?;
        word.parse().map_err(|_| EINVAL)
    };
    let mut bed = Bed {
        a: End::of(number()?)?,
        b: End::of(number()?)?,
        source: number()?,
        destination: number()?,
        len: number()?,
        requests: 0,
        pause: false,
    };
    match test {
        "read" | "read_later" | "twice" | "write" | "write_later" => moved(&mut bed, test),
        "scattered" => transfers::pieces(&mut bed, true),
        "in_one_piece" => transfers::pieces(&mut bed, false),
        "again" => transfers::again(&mut bed),
        "stale" => transfers::stale(&mut bed),
        "other" => transfers::other(&mut bed, End::of(number()?)?, End::of(number()?)?),
        "in_flight" => transfers::in_flight(&mut bed),
        "room" => transfers::room(&mut bed),
        "removal" => transfers::removal(&mut bed),
        "faults" => memory::faults(&mut bed),
        "budget" => memory::budget(&mut bed),
        "memlock" => memory::memlock(&mut bed),
        "misuse" => memory::misuse(&mut bed),
        _ => refused(&mut bed, test),
    }
}

/// Memory is moved, now or when the program says so.
fn moved(bed: &mut Bed, test: &str) -> Result {
    if test == "twice" {
        bed.read()?;
        bed.pause = true;
        bed.pause()?;
        bed.pause = false;
    }
    bed.pause |= test.ends_with("_later");
    match test.starts_with("write") {
        true => bed.write().map(|_| ()),
        false => bed.read().map(|_| ()),
    }
}

/// Access that the key does not give.
fn refused(bed: &mut Bed, test: &str) -> Result {
    match test {
        "wrong_key" => bed.refused(Access::Read, true, |k| Key {
            rkey: k.rkey ^ 0x55,
            ..k
        }),
        "beyond" => bed.refused(Access::Read, true, |k| Key {
            address: k.address + u64::from(k.len) - 10,
            len: 11,
            ..k
        }),
        "before" => bed.refused(Access::Read, true, |k| Key {
            address: k.address - 1,
            len: 10,
            ..k
        }),
        // more than a packet
        "beyond_write" => bed.refused(Access::Write, false, |k| Key {
            address: k.address + u64::from(k.len) - 50000,
            len: 50001,
            ..k
        }),
        "not_for_writing" => bed.refused(Access::Read, false, |k| k),
        "not_for_reading" => bed.refused(Access::Write, true, |k| k),
        _ => Err(EINVAL),
    }
}
