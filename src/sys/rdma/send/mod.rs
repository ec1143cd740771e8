// SPDX-License-Identifier: GPL-2.0-only

//! What goes out: the send queue of a QP, a ring of work requests that are under way.
//!
//! * [`queue`]: the ring, from posting to completion;
//! * [`message`]: messages, for the most part;
//! * [`rdma`]: RDMA READs and WRITEs, messages with lent memory, and what gives the peer access to
//!   memory, in one order with them;
//! * [`blocks`]: the memory that these reach.

pub(crate) mod blocks;
pub(crate) mod message;
pub(crate) mod queue;
mod rdma;
