// SPDX-License-Identifier: GPL-2.0-only

//! Notification of the owners of local ends.

use kernel::sync::Arc;

/// Owner of an end.
pub(super) trait Ready: Send + Sync {
    /// Reports received messages. Called without the lock of the pair.
    fn received(&self);

    /// Reports received messages, under the lock of the sender's connection. Returns true if the
    /// sender has to call [`drain`](Ready::drain) after releasing it.
    fn received_by_task(&self) -> bool;

    /// Receives pending messages in the sender's task. Context: process, no locks.
    fn drain(&self);

    /// The other end has received all messages, and this one has more to send. Context: process,
    /// no locks.
    fn taken(&self);

    /// Reports a send completion, or the release of blocks. Called without the lock of the pair.
    fn sent(&self);

    /// Returns true if a program polls, so that every message is reported, whatever was armed.
    /// Called with the lock of the pair.
    fn is_watched(&self) -> bool;

    /// Wakes a waiting task to help with a copy. Called without the lock of the pair.
    fn help(&self);
}

/// Notification of an owner.
pub(super) enum News {
    Received(Arc<dyn Ready>),
    Sent(Arc<dyn Ready>),
}

impl News {
    /// Sends it, without the lock of the pair.
    pub(super) fn notify(self) {
        match self {
            News::Received(owner) => owner.received(),
            News::Sent(owner) => owner.sent(),
        }
    }
}

/// Owner whose messages the other end's task handles. The drop notifies the owner as usual instead.
pub(crate) struct OrphanedPeer {
    owner: Option<Arc<dyn Ready>>,
    /// True if the owner waits for its messages to be received; false if no program has it any
    /// more and it has messages to receive.
    is_sender: bool,
}

impl OrphanedPeer {
    pub(super) fn new(owner: Arc<dyn Ready>, is_sender: bool) -> Self {
        OrphanedPeer {
            owner: Some(owner),
            is_sender,
        }
    }

    /// Handles the owner's messages. Context: process, no locks.
    pub(crate) fn drain(mut self) {
        match self.owner.take() {
            Some(owner) if self.is_sender => owner.taken(),
            Some(owner) => owner.drain(),
            None => {}
        }
    }
}

impl Drop for OrphanedPeer {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            owner.received();
        }
    }
}

/// Sends notifications. Called without the lock of the pair.
pub(super) fn call<const N: usize>(tell: [Option<News>; N]) {
    tell.into_iter().flatten().for_each(News::notify);
}
