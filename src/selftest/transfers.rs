// SPDX-License-Identifier: GPL-2.0-only

//! Transfers: how they are carried out, and what ends or refuses them.

use super::bed::Bed;
use super::end::End;
use crate::sys::pin::Hold;
use crate::transport::{Access, Transfer, Transport};
use kernel::prelude::*;

/// The memory is in as many pieces as it has pages, or in one.
pub(super) fn pieces(bed: &mut Bed, many: bool) -> Result {
    let limits = bed.b.on(|c| c.limits())?;
    let pages = u32::from(limits.pinned_pages);
    let least = pages.div_ceil(u32::from(limits.gather.max(1)));
    // a few neighbours may have met by chance
    let wanted = match many {
        true => least * 3 / 4..least * 2,
        false => 1..2,
    };
    check!(wanted.end > 1 && bed.len == pages as usize * 4096);
    bed.read()?;
    check!(wanted.contains(&bed.requests));
    bed.write()?;
    check!(wanted.contains(&bed.requests));
    Ok(())
}

/// Many transfers one after another: each with another key, and with memory that is used again.
pub(super) fn again(bed: &mut Bed) -> Result {
    let mut last = None;
    for _ in 0..20 {
        let key = bed.read()?;
        check!(last != Some(key.rkey));
        last = Some(key.rkey);
        bed.write()?;
    }
    let mut spare = 0;
    while let Some(p) = bed.a.on(|c| c.spare())? {
        check!(p.len() == 0);
        spare += 1;
    }
    check!(spare == 1);
    Ok(())
}

/// A key is of no use when access has ended.
pub(super) fn stale(bed: &mut Bed) -> Result {
    let key = bed.read()?;
    let p = bed
        .b
        .pin_destination(bed.destination, bed.len, Hold::Briefly)?;
    let (loan, watch) = bed.b.lend(p)?;
    bed.b.moved = 0;
    let r = bed.move_all(true, loan, key);
    check!(r == Err(EPIPE));
    // All of its READs have to come back before it does.
    bed.until(|bed| match bed.b.on(|c| c.reclaim(loan))? {
        Ok(p) => {
            p.destroy();
            Ok(true)
        }
        Err(_) => Ok(false),
    })?;
    check!(!watch.is_held());
    Ok(())
}

/// A key is of no use on another connection; the first one does not notice.
pub(super) fn other(bed: &mut Bed, c: End, d: End) -> Result {
    let p = bed.a.pin_source(bed.source, bed.len, Hold::Long)?;
    let (loan, watch, key) = bed.a.advertise(p, Access::Read)?;
    bed.a.token()?;
    bed.until(|bed| Ok(bed.b.tokens == 1))?;

    let mut thief = Bed {
        a: c,
        b: d,
        source: bed.source,
        destination: bed.destination,
        len: bed.len,
        requests: 0,
        pause: false,
    };
    let p = thief
        .b
        .pin_destination(bed.destination, bed.len, Hold::Briefly)?;
    // Nor is memory.
    let p = match bed.b.on(|c| c.lend(p))? {
        Err(p) => p,
        Ok(_) => return Err(EIO),
    };
    let (stolen, _) = thief.b.lend(p)?;
    check!(thief.move_all(true, stolen, key) == Err(EPIPE));
    drop(thief);

    let p = bed
        .b
        .pin_destination(bed.destination, bed.len, Hold::Briefly)?;
    let (into, watch_b) = bed.b.lend(p)?;
    bed.move_all(true, into, key)?;
    bed.b.give_up(into, &watch_b)?;
    bed.a.on(|c| c.invalidate(loan, 3))??;
    bed.a.on(|c| c.flush())??;
    bed.until(|bed| Ok(bed.a.ended == 1))?;
    bed.a.give_up(loan, &watch)
}

/// Both channels are dropped with everything under way.
pub(super) fn in_flight(bed: &mut Bed) -> Result {
    let p = bed.a.pin_source(bed.source, bed.len, Hold::Long)?;
    let (_, watch, key) = bed.a.advertise(p, Access::Read)?;
    let p = bed
        .b
        .pin_destination(bed.destination, bed.len, Hold::Briefly)?;
    let (into, watch_b) = bed.b.lend(p)?;
    bed.a.token()?;
    bed.until(|bed| Ok(bed.b.tokens == 1))?;
    let t = Transfer {
        read: true,
        offset: 0,
        len: bed.len as u32,
        address: key.address,
        rkey: key.rkey,
        cookie: 1,
    };
    bed.b.on(|c| c.transfer(into, &t))??;
    bed.b.on(|c| c.flush())??;
    check!(bed.b.on(|c| c.reclaim(into))?.is_err());
    check!(watch.is_held() && watch_b.is_held());
    bed.b.end();
    bed.a.end();
    bed.until(|_| Ok(!watch.is_held() && !watch_b.is_held()))
}

/// Messages find room when transfers have taken all that they can.
pub(super) fn room(bed: &mut Bed) -> Result {
    let p = bed
        .b
        .pin_destination(bed.destination, bed.len, Hold::Long)?;
    let (loan, watch, key) = bed.b.advertise(p, Access::Write)?;
    bed.b.token()?;
    bed.until(|bed| Ok(bed.a.tokens == 1))?;
    let p = bed.a.pin_source(bed.source, bed.len, Hold::Briefly)?;
    let (from, watch_a) = bed.a.lend(p)?;
    let slots = bed.a.on(|c| c.limits())?.send_slots;
    let mut t = Transfer {
        read: false,
        offset: 0,
        len: 100,
        address: key.address,
        rkey: key.rkey,
        cookie: 1,
    };
    let mut queued = 0;
    loop {
        match bed.a.on(|c| c.transfer(from, &t))? {
            Ok(n) => queued += n,
            Err(e) => {
                check!(e == ENOSPC);
                break;
            }
        }
    }
    check!(bed.a.on(|c| c.direct_room())? == 0);
    check!(bed.a.on(|c| c.send_room())? >= slots / 4);
    check!(queued >= 100 * u32::from(slots / 2));
    check!(bed.a.on(|c| c.in_flight())? == 0);
    bed.a.token()?;
    check!(bed.a.on(|c| c.in_flight())? == 1);
    bed.until(|bed| Ok(bed.b.tokens == 1))?;
    bed.until(|bed| Ok(bed.a.moved == queued))?;
    // that it has arrived there is known here a little later
    bed.until(|bed| Ok(bed.a.on(|c| c.in_flight())? == 0))?;

    // READs are limited by themselves.
    bed.b.on(|c| c.invalidate(loan, 1))??;
    bed.b.on(|c| c.flush())??;
    bed.until(|bed| Ok(bed.b.ended == 1))?;
    bed.a.give_up(from, &watch_a)?;
    bed.b.give_up(loan, &watch)?;
    let p = bed.b.pin_source(bed.destination, bed.len, Hold::Long)?;
    let (loan, watch, key) = bed.b.advertise(p, Access::Read)?;
    bed.b.token()?;
    bed.until(|bed| Ok(bed.a.tokens == 2))?;
    let p = bed.a.pin_destination(bed.source, bed.len, Hold::Briefly)?;
    let (into, watch_a) = bed.a.lend(p)?;
    (t.read, t.address, t.rkey) = (true, key.address, key.rkey);
    (bed.a.moved, queued) = (0, 0);
    while bed.a.on(|c| c.transfer(into, &t))?.is_ok() {
        queued += 1;
    }
    check!(queued == u32::from(bed.a.on(|c| c.limits())?.reads));
    check!(queued > 0);
    check!(bed.a.on(|c| c.read_room())? == 0);
    check!(bed.a.on(|c| c.direct_room())? > 0);
    bed.a.on(|c| c.flush())??;
    bed.until(|bed| Ok(bed.a.moved == queued * 100))?;
    bed.a.give_up(into, &watch_a)?;
    bed.b.on(|c| c.invalidate(loan, 1))??;
    bed.b.on(|c| c.flush())??;
    bed.until(|bed| Ok(bed.b.ended == 2))?;
    bed.b.give_up(loan, &watch)
}

/// The device goes while memory is advertised; that waits for us.
pub(super) fn removal(bed: &mut Bed) -> Result {
    let p = bed.a.pin_source(bed.source, bed.len, Hold::Long)?;
    let (_, watch, _) = bed.a.advertise(p, Access::Read)?;
    bed.a.on(|c| c.flush())??;
    pr_info!("selftest: ready for the removal of the device\n");
    bed.until(|bed| Ok(bed.a.pinning.device_goes()))?;
    check!(watch.is_held());
    bed.a.end();
    bed.until(|_| Ok(!watch.is_held()))
}
