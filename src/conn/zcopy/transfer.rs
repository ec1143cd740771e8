// SPDX-License-Identifier: GPL-2.0-only

//! Memory of a receive call that READs the peer's adverts.
//!
//! A transfer may span several adverts, and end within one. When the peer's adverts are used up,
//! the transfer is *cut*: it then ends with the posted bytes.

#[derive(Debug)]
pub(crate) struct Transfer<M> {
    pub(crate) memory: M,
    /// Number of bytes to read, reduced by a cut.
    pub(crate) len: u32,
    /// Number of posted bytes.
    started: u32,
    /// Number of arrived bytes.
    pub(crate) done: u32,
    /// Distinguishes the transfer from all other transfers of the connection.
    pub(crate) cookie: u64,
    /// Set when the connection is lost: the transport owns the memory.
    pub(crate) lost: bool,
}

impl<M> Transfer<M> {
    pub(crate) fn new(memory: M, len: u32, cookie: u64) -> Self {
        Transfer {
            memory,
            len,
            started: 0,
            done: 0,
            cookie,
            lost: false,
        }
    }

    /// Returns the offset and number of the bytes to post, if any are left.
    pub(crate) fn next(&self) -> Option<(u32, u32)> {
        let left = self.len.saturating_sub(self.started);
        (left > 0 && !self.lost).then_some((self.started, left))
    }

    pub(crate) fn posted(&mut self, bytes: u32) {
        self.started = self.started.saturating_add(bytes).min(self.len);
    }

    /// Ends the transfer with the posted bytes. Returns true if all posted bytes have arrived.
    pub(crate) fn cut(&mut self) -> bool {
        self.len = self.started;
        self.is_complete()
    }

    /// Records arrived bytes. Returns true if the last byte has arrived.
    pub(crate) fn moved(&mut self, cookie: u64, bytes: u32) -> bool {
        if self.cookie != cookie {
            return false;
        }
        self.done = self.done.saturating_add(bytes).min(self.len);
        self.is_complete()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.done == self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Posts up to `bytes` bytes. Returns the offset and number of the posted bytes.
    fn post(t: &mut Transfer<()>, bytes: u32) -> Option<(u32, u32)> {
        let (at, len) = t.next()?;
        t.posted(bytes.min(len));
        Some((at, bytes.min(len)))
    }

    /// The call is notified once all posted bytes are complete, perhaps already at the cut.
    #[test]
    fn a_cut_ends_with_the_posted_bytes() {
        let mut t = Transfer::new((), 100, 1);
        post(&mut t, 30);
        assert!(!t.moved(1, 30));
        assert!(t.cut() && t.next().is_none());
        let mut t = Transfer::new((), 100, 1);
        post(&mut t, 30);
        assert!(!t.cut());
        assert!(t.moved(1, 30));
        assert_eq!((t.done, t.len), (30, 30));
        assert!(Transfer::new((), 100, 1).cut());
    }

    #[test]
    fn another_one_or_a_lost_connection() {
        let mut t = Transfer::new((), 10, 2);
        post(&mut t, 5);
        assert!(!t.moved(1, 5) && t.done == 0);
        t.lost = true;
        assert_eq!(t.next(), None);
    }
}
