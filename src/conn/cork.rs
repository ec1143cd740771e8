// SPDX-License-Identifier: GPL-2.0-only

//! Whether less than a message is held back: `TCP_CORK`, `MSG_MORE`, and within one machine what the peer has not
//! taken yet. Needs nothing of the kernel: `tests/host/conn` compiles this file, too.

/// What holds bytes back besides `TCP_CORK`, and what lets them go in spite of it.
pub(crate) struct Cork {
    /// The last call has said that more follows (`MSG_MORE`).
    more: bool,
    /// What is there goes now, once.
    lifted: bool,
}

impl Cork {
    /// Nothing is held back.
    pub(crate) const fn new() -> Self {
        Cork {
            more: false,
            lifted: false,
        }
    }

    /// Whether the last call has said that more follows.
    pub(crate) fn set_more(&mut self, more: bool) {
        self.more = more;
    }

    /// What is there goes now, also under a cork, but nothing that comes later.
    pub(crate) fn lift(&mut self) {
        self.lifted = true;
    }

    /// Whether bytes are held back, with `TCP_CORK` as in `option`.
    pub(crate) fn holds(&self, option: bool) -> bool {
        (option || self.more) && !self.lifted
    }

    /// Whether what is there goes now.
    pub(crate) fn is_lifted(&self) -> bool {
        self.lifted
    }

    /// All has gone that may.
    pub(crate) fn settle(&mut self) {
        self.lifted = false;
    }
}
