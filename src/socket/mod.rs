// SPDX-License-Identifier: GPL-2.0-only

//! The sockets: what each socket call does.
//!
//! A [`Socket`](crate::conn::Socket) is the module's part of one `struct sock`
//! ([`SdpSock`](crate::conn::SdpSock)). It is of one of three kinds, as its state tells: not connected, a
//! listener, or a connection, made by connect(2) or by a request that came to a listener.
//!
//! [`ops`] is the table of calls, [`upcalls`] what transports tell, [`timer`] what comes with time; what
//! they do alike when a connection is over is in [`release`]. A socket of `IPPROTO_SDP` is one of these with a
//! TCP socket beside it, which may take its descriptor over: see [`ipproto`].
//!
//! **References.** The descriptor holds one reference, the namespace's list another until nothing
//! is left of the socket, the [`CmLink`](crate::transport::CmLink) of a connection a third until
//! it is dropped, and each queued work item one more. A closed socket lives on while its link does.
//!
//! **Locks.** The socket lock serialises the socket calls. Everything that events change is in the
//! [`Connection`](crate::conn::Connection) under a spinlock of its own, which events take without the socket
//! lock, because a caller may sleep in a page fault while it holds that. All locks with their order are in
//! docs/locking.md, and what goes without one.
//!
//! **Waiting.** A caller who has to wait sleeps by the number of the last event (see
//! [`SockCore::sleep`](crate::sys::net::sock::SockCore::sleep)) and polls the completion queues itself when
//! it is woken, and so does poll(2); a worker does so when nobody waits or polls. That spares a change of threads for each message. A
//! reader whose bytes tend to come soon does not even sleep (`conn/wait.rs`).

mod bind;
mod call;
mod close;
mod connect;
mod info;
mod ipproto;
mod listen;
mod netns;
mod ops;
mod options;
mod poll;
mod receive;
mod release;
mod send;
mod send_step;
mod timer;
mod upcalls;
