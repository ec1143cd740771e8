// SPDX-License-Identifier: GPL-2.0-only

//! Decides by `TCP_CORK` and `MSG_MORE` when partial messages are held back. The code does not
//! depend on the kernel; `tests/host/conn` compiles this file, too.

/// State that holds messages back, in addition to the option `TCP_CORK`.
pub(crate) struct Cork {
    /// Set if the last send call had `MSG_MORE`.
    more: bool,
    /// Set if the bytes queued now are to be sent despite the cork.
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

    /// Sends the queued bytes now, even if corked. The cork holds later bytes back again.
    pub(crate) fn lift(&mut self) {
        self.lifted = true;
    }

    /// Returns true if partial messages are held back. `option` is the value of `TCP_CORK`.
    pub(crate) fn holds(&self, option: bool) -> bool {
        (option || self.more) && !self.lifted
    }

    /// Ends the exception made by [`Self::lift`], once all queued bytes are sent.
    pub(crate) fn settle(&mut self) {
        self.lifted = false;
    }
}
