// SPDX-License-Identifier: GPL-2.0-only

//! Zero copy below the sockets, tried on the real path. Only in builds for that (`make selftest`).
//!
//! A program that writes `TEST FD FD SOURCE DESTINATION LENGTH` to `ib_sdp/selftest` of debugfs has
//! the test carried out between the two connected sockets, whose channels are taken away from them:
//! the bytes at SOURCE in its memory are to arrive at DESTINATION, or are not. The write fails, and
//! the kernel's log tells why, if something is not as it must be. What the bytes are is for the
//! program to check, with tests/guest/suites/selftest. Some tests wait, when memory is advertised,
//! until another write says `go`.

use crate::memory::budget::Account;
use crate::memory::pinned::Refusal;
use crate::socket::{SdpSock, Socket};
use crate::sys::net::selftest::{destination, socket_of, source};
use crate::sys::pin::Hold;
use crate::transport::verbs::Channel;
use crate::transport::{
    Access, Completion, Key, Loan, Pinned, Pinning, SendCompletion, Sending, Status, Transfer,
    Transport, Watch,
};
use kernel::debugfs;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{AtomicFlag, Full};
use kernel::sync::{new_spinlock, Arc, SpinLock};
use kernel::time::delay::fsleep;
use kernel::time::{Delta, Instant, Monotonic};
use kernel::uaccess::UserSliceReader;

/// The file, and the directory that it is in.
pub(crate) struct File {
    _file: Pin<KBox<debugfs::File<()>>>,
    _dir: debugfs::Dir,
}

/// Makes the file.
pub(crate) fn file() -> Result<File> {
    let dir = debugfs::Dir::new(c"ib_sdp");
    let file = KBox::pin_init(
        dir.write_callback_file(c"selftest", (), &|(): &(), from: &mut UserSliceReader| {
            let mut text = [0; 160];
            let n = from.len().min(text.len());
            let (text, _) = text.split_at_mut(n);
            from.read_slice(text)?;
            run(core::str::from_utf8(text).map_err(|_| EINVAL)?)
        }),
        GFP_KERNEL,
    )?;
    Ok(File {
        _file: file,
        _dir: dir,
    })
}

/// Fails the test unless something holds.
macro_rules! check {
    ($what:expr) => {
        if !$what {
            pr_info!("selftest: line {}: not {}\n", line!(), stringify!($what));
            return Err(EIO);
        }
    };
}

/// A message that tells the other end that it is its turn.
const TOKEN: [u8; 33] = *b"this message is no message of SDP";
const PATIENCE: i64 = 20_000;

/// One end of the connection, taken away from its socket.
struct End {
    sk: ARef<SdpSock>,
    /// Under a spinlock, as a connection has it.
    channel: Pin<KBox<SpinLock<Option<Channel>>>>,
    account: Arc<Account>,
    pinning: Pinning,
    /// Tokens that have come.
    tokens: u32,
    /// Bytes of transfers that are complete.
    moved: u32,
    /// Ends of access.
    ended: u32,
    /// The first failure.
    failed: Option<Status>,
}

impl End {
    fn of(fd: usize) -> Result<Self> {
        let sk = socket_of::<Socket>(i32::try_from(fd)?)?;
        let account = sk.netns().account(&sk).ok_or(ENODEV)?;
        let channel = sk.data().connection.lock().take_channel().ok_or(ENODEV)?;
        let pinning = channel.pinning().ok_or(ENODEV)?;
        Ok(End {
            sk,
            channel: KBox::pin_init(new_spinlock!(Some(channel)), GFP_KERNEL)?,
            account,
            pinning,
            tokens: 0,
            moved: 0,
            ended: 0,
            failed: None,
        })
    }

    /// Does something with the channel, under the lock.
    fn on<R>(&self, f: impl FnOnce(&mut Channel) -> R) -> Result<R> {
        Option::as_mut(&mut *self.channel.lock())
            .map(f)
            .ok_or(ENODEV)
    }

    fn poll(&mut self) -> Result {
        while let Some(c) = self.on(|c| c.poll_receive()).ok().flatten() {
            match c {
                Completion::Received { buffer, len } => {
                    let whole = buffer.bytes().get(..len as usize);
                    self.tokens += u32::from(whole == Some(&TOKEN[..]));
                    // The queue may be broken by now.
                    let _ = self.on(|c| c.post_receive(buffer))?;
                }
                Completion::Failed { status, .. } => {
                    self.note(status);
                }
            }
        }
        while let Some(c) = self.on(|c| c.poll_send()).ok().flatten() {
            match c {
                SendCompletion::Sent { .. } => {}
                SendCompletion::Moved { len, .. } => self.moved += len,
                SendCompletion::Ended { .. } => self.ended += 1,
                SendCompletion::Failed { status, .. } => {
                    self.note(status);
                }
            }
        }
        let _ = self.on(|c| c.flush());
        Ok(())
    }

    /// Keeps the reason of a failure, which what is flushed does not tell.
    fn note(&mut self, status: Status) {
        if matches!(self.failed, None | Some(Status::Flushed)) {
            self.failed = Some(status);
        }
    }

    /// Whether something was refused. Now and then rxe's NAK does not come, and what is repeated is
    /// not answered by a queue pair that has failed.
    fn is_refused(&self) -> bool {
        matches!(self.failed, Some(Status::Remote | Status::TransportRetry))
    }

    /// Says that it is the other end's turn.
    fn token(&mut self) -> Result {
        let token = Sending {
            header: &TOKEN,
            payload: &[],
            signaled: true,
            solicited: false,
            cookie: 0,
        };
        self.on(|c| c.post_send(&token).and_then(|()| c.flush()))?
    }

    fn room(&mut self, piece: Option<(usize, usize)>) -> Result<Pinned> {
        let piece = piece.ok_or(EFAULT)?;
        match self.on(|c| c.spare_for(piece))? {
            Some(p) => Ok(p),
            None => self.pinning.make(),
        }
    }

    /// Pins `len` bytes to be sent.
    fn pin_source(&mut self, address: usize, len: usize, hold: Hold) -> Result<Pinned> {
        let mut p = self.room(source(address, len, |s| s.piece(len))?)?;
        let r = source(address, len, |s| {
            let r = p.pin_source(s, len, hold, &self.account);
            (r, s.remaining())
        })?;
        check!(r == (Ok(len), len));
        check!(p.len() == len);
        Ok(p)
    }

    /// Pins `len` bytes to be received.
    fn pin_destination(&mut self, address: usize, len: usize, hold: Hold) -> Result<Pinned> {
        let mut p = self.room(destination(address, len, |d| d.piece(len))?)?;
        let r = destination(address, len, |d| {
            let r = p.pin_destination(d, len, hold, &self.account);
            (r, d.room())
        })?;
        check!(r == (Ok(len), len));
        Ok(p)
    }

    fn lend(&mut self, p: Pinned) -> Result<(Loan, Watch)> {
        let watch = p.watch().ok_or(EINVAL)?;
        check!(watch.is_held());
        let loan = self.on(|c| c.lend(p))?.map_err(|_| EINVAL)?;
        Ok((loan, watch))
    }

    /// Lends memory and gives the peer access.
    fn advertise(&mut self, mut p: Pinned, access: Access) -> Result<(Loan, Watch, Key)> {
        p.make_registrable()?;
        let (loan, watch) = self.lend(p)?;
        let key = self.on(|c| c.register(loan, access))??;
        check!(self.on(|c| c.register(loan, access))? == Err(EBUSY));
        check!(self.on(|c| c.reclaim(loan))?.is_err());
        Ok((loan, watch, key))
    }

    /// Takes memory back, and lets go of it.
    fn give_up(&mut self, loan: Loan, watch: &Watch) -> Result {
        let mut p = self.on(|c| c.reclaim(loan))??;
        check!(watch.is_held());
        p.release();
        check!(!watch.is_held());
        check!(self.on(|c| c.reclaim(loan))?.is_err());
        self.on(|c| c.keep(p))?;
        Ok(())
    }

    /// Drops the channel, as the end of a connection does.
    fn end(&mut self) {
        *self.channel.lock() = None;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        *self.channel.lock() = None;
        if let Some(link) = &self.sk.data().connection.lock().link() {
            link.fail();
        }
    }
}

/// Both ends, and what is to be moved.
struct Bed {
    /// Where the bytes are.
    a: End,
    /// Where they are to go.
    b: End,
    source: usize,
    destination: usize,
    len: usize,
    /// Work requests that the last move took.
    requests: u32,
    /// Wait for `go` when the memory is advertised.
    pause: bool,
}

/// The program has written `go`.
static GO: AtomicFlag = AtomicFlag::new(false);

impl Bed {
    /// Waits for the program, if it wants that.
    fn pause(&mut self) -> Result {
        if !self.pause {
            return Ok(());
        }
        pr_info!("selftest: ready\n");
        self.until(|_| Ok(GO.xchg(false, Full)))
    }

    /// Polls both ends until something holds.
    fn until(&mut self, mut what: impl FnMut(&mut Self) -> Result<bool>) -> Result {
        let start = Instant::<Monotonic>::now();
        loop {
            self.a.poll()?;
            self.b.poll()?;
            if what(self)? {
                return Ok(());
            }
            if start.elapsed().as_millis() > PATIENCE {
                let (a, b) = (self.a.failed, self.b.failed);
                pr_info!("selftest: waited in vain, with {:?} and {:?}\n", a, b);
                return Err(ETIMEDOUT);
            }
            fsleep(Delta::from_micros(100));
        }
    }

    /// Moves all bytes, by READs of `b` or WRITEs of `a`.
    fn move_all(&mut self, read: bool, loan: Loan, key: Key) -> Result {
        let len = self.len as u32;
        let mut queued = 0;
        self.requests = 0;
        self.until(|bed| {
            let end = match read {
                true => &mut bed.b,
                false => &mut bed.a,
            };
            if end.is_refused() {
                return Err(EPIPE);
            }
            while queued < len {
                let t = Transfer {
                    read,
                    offset: queued,
                    len: len - queued,
                    address: key.address + u64::from(queued),
                    rkey: key.rkey,
                    cookie: 7,
                };
                match end.on(|c| c.transfer(loan, &t))? {
                    Ok(n) => {
                        queued += n;
                        bed.requests += 1;
                    }
                    Err(e) if e == ENOSPC => break,
                    Err(e) => return Err(e),
                }
            }
            end.on(|c| c.flush())??;
            // A WRITE's report goes behind it, without a wait.
            Ok(queued == len && (!read || end.moved == len))
        })
    }

    /// `b` READs what `a` advertises. Gives the key.
    fn read(&mut self) -> Result<Key> {
        let (tokens_a, tokens_b, ended) = (self.a.tokens, self.b.tokens, self.a.ended);
        let p = self.a.pin_source(self.source, self.len, Hold::Long)?;
        let (loan, watch, key) = self.a.advertise(p, Access::Read)?;
        check!(key.len as usize == self.len);
        check!(key.address as usize % 4096 == self.source % 4096);
        check!(key.address >> 62 == 0);
        self.a.token()?;
        self.until(|bed| Ok(bed.b.tokens == tokens_b + 1))?;
        self.pause()?;

        self.b.moved = 0;
        let p = self
            .b
            .pin_destination(self.destination, self.len, Hold::Briefly)?;
        let (into, watch_b) = self.b.lend(p)?;
        self.move_all(true, into, key)?;
        self.b.give_up(into, &watch_b)?;
        self.b.token()?;
        self.until(|bed| Ok(bed.a.tokens == tokens_a + 1))?;

        self.a.on(|c| c.invalidate(loan, 3))??;
        check!(self.a.on(|c| c.invalidate(loan, 3))?.is_err());
        self.a.on(|c| c.flush())??;
        self.until(|bed| Ok(bed.a.ended == ended + 1))?;
        self.a.give_up(loan, &watch)?;
        Ok(key)
    }

    /// `a` WRITEs to what `b` advertises. Gives the key.
    fn write(&mut self) -> Result<Key> {
        let (tokens_a, tokens_b, ended) = (self.a.tokens, self.b.tokens, self.b.ended);
        let p = self
            .b
            .pin_destination(self.destination, self.len, Hold::Long)?;
        let (loan, watch, key) = self.b.advertise(p, Access::Write)?;
        self.b.token()?;
        self.until(|bed| Ok(bed.a.tokens == tokens_a + 1))?;
        self.pause()?;

        self.a.moved = 0;
        let p = self.a.pin_source(self.source, self.len, Hold::Briefly)?;
        let (from, watch_a) = self.a.lend(p)?;
        self.move_all(false, from, key)?;
        self.a.token()?;
        self.until(|bed| Ok(bed.b.tokens == tokens_b + 1))?;

        self.b.on(|c| c.invalidate(loan, 4))??;
        self.b.on(|c| c.flush())??;
        self.until(|bed| Ok(bed.b.ended == ended + 1))?;
        self.b.give_up(loan, &watch)?;
        let len = self.len as u32;
        self.until(|bed| Ok(bed.a.moved == len))?;
        self.a.give_up(from, &watch_a)?;
        Ok(key)
    }

    /// `b` does what the key does not allow: it and the connection fail, and all memory is let go
    /// of, on either side.
    fn refused(&mut self, access: Access, read: bool, bend: impl FnOnce(Key) -> Key) -> Result {
        let (p, into) = (
            match access {
                Access::Read => self.a.pin_source(self.source, self.len, Hold::Long)?,
                Access::Write => self.a.pin_destination(self.source, self.len, Hold::Long)?,
            },
            match read {
                true => self
                    .b
                    .pin_destination(self.destination, self.len, Hold::Briefly)?,
                false => self
                    .b
                    .pin_source(self.destination, self.len, Hold::Briefly)?,
            },
        );
        let (loan, watch, key) = self.a.advertise(p, access)?;
        self.a.token()?;
        self.until(|bed| Ok(bed.b.tokens == 1))?;
        let (into, watch_b) = self.b.lend(into)?;
        let key = bend(key);
        let t = Transfer {
            read,
            offset: 0,
            len: key.len,
            address: key.address,
            rkey: key.rkey,
            cookie: 1,
        };
        let queued = self.b.on(|c| c.transfer(into, &t))??;
        check!(queued == key.len || key.len > 50001);
        self.b.on(|c| c.flush())??;
        self.until(|bed| Ok(bed.b.is_refused()))?;
        check!(self.b.moved == 0);
        self.b.give_up(into, &watch_b)?;
        check!(self.a.on(|c| c.reclaim(loan))?.is_err());
        check!(watch.is_held());
        self.a.end();
        self.until(|_| Ok(!watch.is_held()))
    }
}

fn run(text: &str) -> Result {
    let mut words = text.split_ascii_whitespace();
    let test = words.next().ok_or(EINVAL)?;
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
        "read" => bed.read().map(|_| ()),
        "write" => bed.write().map(|_| ()),
        "twice" => {
            bed.read()?;
            bed.pause = true;
            bed.pause()?;
            bed.pause = false;
            bed.read().map(|_| ())
        }
        "read_later" => {
            bed.pause = true;
            bed.read().map(|_| ())
        }
        "write_later" => {
            bed.pause = true;
            bed.write().map(|_| ())
        }
        "scattered" => pieces(&mut bed, true),
        "in_one_piece" => pieces(&mut bed, false),
        "again" => again(&mut bed),
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
        "stale" => stale(&mut bed),
        "other" => other(&mut bed, End::of(number()?)?, End::of(number()?)?),
        "in_flight" => in_flight(&mut bed),
        "room" => room(&mut bed),
        "removal" => removal(&mut bed),
        "faults" => faults(&mut bed),
        "budget" => budget(&mut bed),
        "memlock" => memlock(&mut bed),
        "misuse" => misuse(&mut bed),
        _ => Err(EINVAL),
    }
}

/// The memory is in as many pieces as it has pages, or in one.
fn pieces(bed: &mut Bed, many: bool) -> Result {
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
fn again(bed: &mut Bed) -> Result {
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
fn stale(bed: &mut Bed) -> Result {
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
fn other(bed: &mut Bed, c: End, d: End) -> Result {
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
fn in_flight(bed: &mut Bed) -> Result {
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
fn room(bed: &mut Bed) -> Result {
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
    check!(bed.a.on(|c| c.in_flight())? == 0);

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
fn removal(bed: &mut Bed) -> Result {
    let p = bed.a.pin_source(bed.source, bed.len, Hold::Long)?;
    let (_, watch, _) = bed.a.advertise(p, Access::Read)?;
    bed.a.on(|c| c.flush())??;
    pr_info!("selftest: ready for the removal of the device\n");
    bed.until(|bed| Ok(bed.a.pinning.device_goes()))?;
    check!(watch.is_held());
    bed.a.end();
    bed.until(|_| Ok(!watch.is_held()))
}

/// Memory that cannot be pinned is refused, and the call goes on where it was. SOURCE can be read
/// only, DESTINATION not at all.
fn faults(bed: &mut Bed) -> Result {
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
fn budget(bed: &mut Bed) -> Result {
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
fn memlock(bed: &mut Bed) -> Result {
    let mut p = bed.a.pinning.make()?;
    let account = bed.a.account.clone();
    let r = source(bed.source, bed.len, |s| {
        p.pin_source(s, bed.len, Hold::Briefly, &account)
    })?;
    check!(r == Err(Refusal::MemoryLock));
    Ok(())
}

/// Calls that make no sense.
fn misuse(bed: &mut Bed) -> Result {
    // Nothing is pinned.
    let p = bed.a.pinning.make()?;
    check!(bed.a.on(|c| c.lend(p))?.is_err());
    // To be read only.
    let p = bed.a.pin_source(bed.source, bed.len, Hold::Long)?;
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
