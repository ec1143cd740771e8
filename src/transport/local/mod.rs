// SPDX-License-Identifier: GPL-2.0-only

//! Connections whose two ends live in one network namespace of this kernel. No device has a part in
//! them, so none needs to be there.
//!
//! The two ends share a [`pair`]: what an end posts is put where the other end finds it, and that is
//! told by the same [`Owner`] events as completions of a device. What RDMA requests move is copied
//! once, from pages to pages, by whoever posted it, after it has let go of its lock, and if it is much
//! by whoever waits for it at the other end, too ([`super::Channel::errand`]).
//!
//! * [`connect`]: from an address to a request, which the acceptor looks at; likewise its answer;
//! * [`link`]: the life of a connection and its end;
//! * [`channel`]: the messages, as one end sees them;
//! * [`pair`]: the messages, as they are between the ends;
//! * [`pair_end`]: what an end has posted, and what has come to it;
//! * [`errand`]: carrying out READs and WRITEs;
//! * [`loans`]: memory of a program that is lent to an end.
//!
//! **Locks.** The pair has a spinlock, which is taken under that of either connection; no upcall is
//! made under it. A link's state has one under which nothing is called. Nowhere are the locks of two
//! connections taken together: an end only leaves things for the other and wakes it.
//!
//! **Who keeps what.** As with [`super::rdma`]: channel and link hold the owner, and can be dropped
//! anywhere because a workqueue does what is left. Two links hold each other until one of them ends.

mod channel;
mod connect;
mod errand;
mod link;
mod loans;
mod pair;
mod pair_end;
mod waiting;

pub(crate) use channel::Channel;
pub(crate) use connect::{Acceptor, Request, Resolver};
pub(crate) use errand::Errand;
pub(crate) use link::Link;

use super::{Config, Gone, LinkId, Net, Owner, SearchId, Verdict, REPLY_DATA, REQUEST_DATA};
