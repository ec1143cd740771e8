// SPDX-License-Identifier: GPL-2.0-only

//! Whose an end of a local connection is, and what it is told.

use kernel::sync::Arc;

/// Whose end it is.
pub(super) trait Ready: Send + Sync {
    /// Messages have come. Called without the lock of the pair.
    fn received(&self);

    /// The same, with the lock of the sender's connection. Whether the sender is to [attend](Ready::drain) to it
    /// once it has let go of that.
    fn received_by_task(&self) -> bool;

    /// Takes what has come. Process context, without locks.
    fn drain(&self);

    /// The other end's owner has taken all messages, for which this one waits with others. Process context, without
    /// locks.
    fn taken(&self);

    /// Something was carried out, or lent memory was let go of. Called without the lock of the pair.
    fn sent(&self);

    /// Whether somebody watches for messages, so that they are to be told of whatever was asked for. Called
    /// with the lock of the pair.
    fn is_watched(&self) -> bool;

    /// There is something to carry out that is done sooner if whoever waits lends a hand. Called
    /// without the lock of the pair.
    fn help(&self);
}

/// What an owner is to be told.
pub(super) enum News {
    Received(Arc<dyn Ready>),
    Sent(Arc<dyn Ready>),
}

impl News {
    /// Tells it, without the lock of the pair.
    pub(super) fn notify(self) {
        match self {
            News::Received(owner) => owner.received(),
            News::Sent(owner) => owner.sent(),
        }
    }
}

/// An owner that somebody at the other end is to attend to; it is told as usual if this is dropped.
pub(crate) struct OrphanedPeer {
    owner: Option<Arc<dyn Ready>>,
    /// It has sent what was taken; else no program has it any more, and something was sent to it.
    is_sender: bool,
}

impl OrphanedPeer {
    /// An owner that no program has any more, to whom something was sent.
    pub(super) fn orphan(owner: Arc<dyn Ready>) -> Self {
        OrphanedPeer {
            owner: Some(owner),
            is_sender: false,
        }
    }

    /// An owner that waits until what it has sent is taken, which it is.
    pub(super) fn sender(owner: Arc<dyn Ready>) -> Self {
        OrphanedPeer {
            owner: Some(owner),
            is_sender: true,
        }
    }

    /// Does so. Process context, without locks.
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

/// Tells whom there is to tell, without the lock.
pub(super) fn call<const N: usize>(tell: [Option<News>; N]) {
    tell.into_iter().flatten().for_each(News::notify);
}
