// SPDX-License-Identifier: GPL-2.0-only

//! Connections whose two ends live in one network namespace of this kernel. No device has a part in
//! them, so none needs to be there.
//!
//! The two ends share a [`pair`]: what an end posts is put where the other end finds it, and that is
//! told by the same [`Upcalls`] events as completions of a device. What RDMA requests move is copied
//! once, from pages to pages, by whoever posted it, after it has let go of its lock, and if it is much
//! by whoever waits for it at the other end, too ([`super::Endpoint::copy_job`]).
//!
//! * [`connect`]: from an address to a request, which the acceptor looks at; likewise its answer;
//! * [`cm_link`]: the life of a connection and its end;
//! * [`endpoint`]: the messages, as one end sees them;
//! * [`pair`]: the messages, as they are between the ends;
//! * [`pair_end`]: what an end has posted;
//! * [`received`]: the buffers of an end, and the messages in them;
//! * [`ready`]: whom it tells;
//! * [`tally`]: what there is at an end, for a look without the lock;
//! * [`copy_job`]: carrying out READs and WRITEs;
//! * [`loans`] and [`lent`]: memory of a program that is lent to an end;
//! * [`waiting`]: messages that wait for the peer's buffers.
//!
//! **Locks.** The pair has a spinlock, which is taken under that of either connection; no upcall is
//! made under it. A link's state has one under which nothing is called. Nowhere are the locks of two
//! connections taken together: an end only leaves things for the other and wakes it.
//!
//! **Who keeps what.** As with [`super::rdma`]: endpoint and link hold the owner, and can be dropped
//! anywhere because a workqueue does what is left, if the owner does not say that it may be done at once. Two
//! links hold each other until one of them ends.

mod cm_link;
mod connect;
mod copy_job;
mod endpoint;
mod lent;
mod loans;
mod pair;
mod pair_end;
mod ready;
mod received;
mod tally;
mod waiting;

pub(crate) use cm_link::CmLink;
pub(crate) use connect::{Acceptor, Request, Resolver};
pub(crate) use copy_job::CopyJob;
pub(crate) use endpoint::Endpoint;
pub(crate) use ready::OrphanedPeer;

use super::{
    Config, Disconnect, LinkId, Net, ResolverId, Upcalls, Verdict, REPLY_DATA, REQUEST_DATA,
};
