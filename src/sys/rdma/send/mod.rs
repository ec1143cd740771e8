// SPDX-License-Identifier: GPL-2.0-only

//! The send queue of a QP: a ring of work requests in flight.
//!
//! * [`queue`]: the ring, from posting to completion;
//! * [`message`]: SENDs, with payload from buffers;
//! * [`rdma`]: RDMA READs and WRITEs, messages from blocks, registrations and invalidations, in
//!   the order of posting;
//! * [`blocks`]: the memory that these access.

pub(crate) mod blocks;
pub(crate) mod message;
pub(crate) mod queue;
mod rdma;
