// SPDX-License-Identifier: GPL-2.0-only

//! Decides when partial messages are held back: `TCP_CORK` and `MSG_MORE`. Independent of the
//! kernel: `tests/host/conn` compiles this file, too.

/// State of held-back messages, besides the option `TCP_CORK`.
pub(crate) struct Cork {
    /// The last call had `MSG_MORE`.
    more: bool,
    /// Set if the queued bytes are to be sent once despite the cork.
    lifted: bool,
}

impl Cork {
    pub(crate) const fn new() -> Self {
        Cork {
            more: false,
            lifted: false,
        }
    }

    pub(crate) fn set_more(&mut self, more: bool) {
        self.more = more;
    }

    /// Sends the queued bytes now, even if corked. Later bytes are held back again.
    pub(crate) fn lift(&mut self) {
        self.lifted = true;
    }

    /// Returns true if partial messages are held back. `option`: the value of `TCP_CORK`.
    pub(crate) fn holds(&self, option: bool) -> bool {
        (option || self.more) && !self.lifted
    }

    /// Clears the exception of [`Self::lift`]: all queued bytes are sent.
    pub(crate) fn settle(&mut self) {
        self.lifted = false;
    }
}
