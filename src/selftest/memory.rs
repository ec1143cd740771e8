// SPDX-License-Identifier: GPL-2.0-only

//! Memory: what cannot be pinned, budgets, and calls that make no sense.

use super::bed::Bed;
use crate::memory::pinned::Refusal;
use crate::sys::net::selftest::{destination, source};
use crate::sys::pin::Hold;
use crate::transport::{Access, Transfer, Transport};
use kernel::prelude::*;

/// Memory that cannot be pinned is refused, and the call goes on where it was. SOURCE can be read
/// only, DESTINATION not at all.
pub(super) fn faults(bed: &mut Bed) -> Result {
    let mut p = bed.a.pinning.make()?;
    let account = bed.a.account.clone();
    let mut pin = |address, written| match written {
        true => destination(address, bed.len, |d| {
            (
                p.pin_destination(d, bed.len, Hold::Briefly, &account),
                d.room(),
            )
        }),
        false => source(address, bed.len, |s| {
            (
                p.pin_source(s, bed.len, Hold::Briefly, &account),
                s.remaining(),
            )
        }),
    };
    check!(pin(bed.source, false)? == (Ok(bed.len), bed.len));
    check!(pin(bed.source, true)? == (Err(Refusal::Fault), bed.len));
    check!(pin(bed.destination, false)? == (Err(Refusal::Fault), bed.len));
    check!(pin(bed.destination, true)? == (Err(Refusal::Fault), bed.len));
    check!(p.len() == 0);
    // Only as much as was moved is taken.
    let r = source(bed.source, bed.len, |s| {
        let n = p.pin_source(s, bed.len, Hold::Briefly, &account);
        s.advance(n.unwrap_or(0) - 100);
        (
            s.taken(),
            s.remaining(),
            s.take(&mut [0; 99]),
            s.remaining(),
        )
    })?;
    check!(r == (bed.len - 100, 100, 99, 1));
    p.release();
    let r = source(bed.source, 0, |s| {
        p.pin_source(s, bed.len, Hold::Briefly, &account)
    })?;
    check!(r == Err(Refusal::NotUser));
    Ok(())
}

/// With a budget of nothing, one piece in each direction is pinned and no more.
pub(super) fn budget(bed: &mut Bed) -> Result {
    let first = bed.a.pin_source(bed.source, bed.len, Hold::Long)?;
    let other = bed
        .a
        .pin_destination(bed.destination, bed.len, Hold::Long)?;
    let mut second = bed.a.pinning.make()?;
    let account = bed.a.account.clone();
    let mut pin = || {
        source(bed.source, bed.len, |s| {
            second.pin_source(s, bed.len, Hold::Long, &account)
        })
    };
    check!(pin()? == Err(Refusal::Budget));
    drop(other);
    check!(pin()? == Err(Refusal::Budget));
    first.destroy();
    check!(pin()? == Ok(bed.len));
    Ok(())
}

/// The user may not lock memory.
pub(super) fn memlock(bed: &mut Bed) -> Result {
    let mut p = bed.a.pinning.make()?;
    let account = bed.a.account.clone();
    let r = source(bed.source, bed.len, |s| {
        p.pin_source(s, bed.len, Hold::Briefly, &account)
    })?;
    check!(r == Err(Refusal::MemoryLock));
    Ok(())
}

/// Calls that make no sense.
pub(super) fn misuse(bed: &mut Bed) -> Result {
    // Nothing is pinned.
    let p = bed.a.pinning.make()?;
    check!(bed.a.on(|c| c.lend(p))?.is_err());
    // To be read only.
    let p = bed.a.pin_source(bed.source, bed.len, Hold::Briefly)?;
    let (loan, watch) = bed.a.lend(p)?;
    let mut t = Transfer {
        read: true,
        offset: 0,
        len: bed.len as u32,
        address: 4096,
        rkey: 1,
        cookie: 0,
    };
    check!(bed.a.on(|c| c.transfer(loan, &t))? == Err(EINVAL));
    // No region was made.
    check!(bed.a.on(|c| c.register(loan, Access::Read))? == Err(EINVAL));
    check!(bed.a.on(|c| c.invalidate(loan, 0))? == Err(EINVAL));
    t.read = false;
    for (offset, len, address) in [
        (0, 0, 4096),
        (1, bed.len as u32, 4096),
        (u32::MAX, 2, 4096),
        (0, 2, u64::MAX),
    ] {
        (t.offset, t.len, t.address) = (offset, len, address);
        check!(bed.a.on(|c| c.transfer(loan, &t))? == Err(EINVAL));
    }
    bed.a.give_up(loan, &watch)?;
    check!(bed.a.on(|c| c.transfer(loan, &t))? == Err(ENOENT));
    // As many as can be lent, and one more.
    for _ in 0..32 {
        let p = bed.a.pin_source(bed.source, 1, Hold::Briefly)?;
        if let Err(p) = bed.a.on(|c| c.lend(p))? {
            check!(p.len() == 1);
            return Ok(());
        }
    }
    Err(EIO)
}
