// SPDX-License-Identifier: GPL-2.0-only

//! The socket calls.
//!
//! A [`Socket`](crate::conn::Socket) is the module's part of one `struct sock`
//! ([`SdpSock`](crate::conn::SdpSock)). A socket's state makes it unconnected, a listener, or a
//! connection, made by connect(2) or by a request to a listener.
//!
//! [`ops`] has the tables of calls and of the transport's events, [`timer`] handles the deadlines;
//! [`release`] has the common steps at the end of a connection. A socket of `IPPROTO_SDP` also has
//! a TCP socket, which may take over its descriptor: see [`ipproto`].
//!
//! **References.** The descriptor holds one reference, the namespace's list another until the
//! socket is destroyed, the [`CmLink`](crate::transport::CmLink) of a connection a third until its
//! drop, and each queued work item one more. A closed socket lives on while its link does.
//!
//! **Locks.** The socket lock serialises the socket calls. State that events change is in the
//! [`Connection`](crate::conn::Connection), under a separate spinlock. Events take it without the
//! socket lock, whose holder may sleep in a page fault. docs/locking.md describes the order of all
//! locks, and the lock-free variables.
//!
//! **Waiting.** A caller sleeps by the number of the last event (see
//! [`SockCore::sleep`](crate::sys::net::sock::SockCore::sleep)). A woken caller polls the
//! completion queues itself, as poll(2) does. A worker polls if no task waits or polls. Polling in
//! the caller saves a thread switch for each message. A reader whose bytes usually arrive soon
//! polls without sleeping (`conn/wait.rs`).

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod bind;
mod call;
mod close;
mod connect;
mod establish;
mod ipproto;
mod listen;
mod local;
mod local_receive;
mod local_send;
mod netns;
mod ops;
mod options;
mod poll;
mod receive;
mod receive_call;
mod release;
mod send;
mod seqpacket;
mod splice;
mod timer;

pub(crate) use netns::shed;
