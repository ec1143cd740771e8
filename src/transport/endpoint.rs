// SPDX-License-Identifier: GPL-2.0-only

//! Destruction of endpoints. [`verbs::Endpoint`] is the part of an endpoint at the device.

use super::registry;
use crate::memory::pinned::{Charged, Pinning};
use crate::memory::spares::BlockPool;
use crate::sys::deferred::{Destroy, DropInWorker};
use crate::sys::rdma::endpoint as verbs;
use core::ops::{Deref, DerefMut};
use kernel::prelude::*;

/// Delay before the first retry to destroy a QP that the driver has refused to destroy (ms). Each
/// further retry doubles the delay.
const PAUSE: u32 = 20;
/// Number of times that [`PAUSE`] doubles, to at most 1.28 s.
const DOUBLINGS: u32 = 6;
/// Delay before the destruction of a QP expedites its RCU grace period (ms), which usually takes a
/// few ticks.
const GRACE: u32 = 20;
/// Number of refusals, within about 2.5 s, after which the failure counts as permanent.
const MANY: u32 = 8;

/// QP with its posted buffers and blocks, which are destroyed together.
struct Resources {
    endpoint: verbs::Endpoint<Charged>,
    /// Number of times the driver has refused to destroy the QP.
    refused: u32,
}

impl Destroy for Resources {
    /// Destroys the QP and releases all blocks. If the driver refuses, the owner, the device and
    /// all memory that the device may access remain. The owner keeps the module loaded.
    fn destroy(mut self) -> Result<(), (Self, u32)> {
        if self.endpoint.close() {
            return Err((self, GRACE));
        }
        let refused = self.refused;
        let lender = self.endpoint.lender();
        match self.endpoint.into_queues() {
            Ok(queues) => queues.map_or((), registry::keep_queues),
            Err(endpoint) => {
                // in the error state the QP accepts no more messages from the peer
                endpoint.qp().to_error();
                let pause = PAUSE << refused.min(DOUBLINGS);
                let refused = refused.saturating_add(1);
                if refused == MANY {
                    endpoint.qp().warn_of_refusal();
                }
                return Err((Resources { endpoint, refused }, pause));
            }
        }
        if let Some(lender) = lender {
            lender.ready(true);
        }
        Ok(())
    }
}

/// One end of a connection for sending and receiving. May be dropped in any context.
pub(crate) struct Endpoint {
    resources: DropInWorker<Resources>,
    /// Unused blocks for pinned memory.
    spares: BlockPool,
}

impl Endpoint {
    pub(super) fn new(make: impl FnOnce() -> Result<verbs::Endpoint<Charged>>) -> Result<Self> {
        let resources = DropInWorker::new(|| {
            Ok(Resources {
                endpoint: make()?,
                refused: 0,
            })
        })?;
        let spares = BlockPool::new(Pinning::new(Some(resources.endpoint.mapper().clone())));
        Ok(Endpoint { resources, spares })
    }

    pub(crate) fn spares(&mut self) -> &mut BlockPool {
        &mut self.spares
    }
}

impl Deref for Endpoint {
    type Target = verbs::Endpoint<Charged>;

    fn deref(&self) -> &Self::Target {
        &self.resources.endpoint
    }
}

impl DerefMut for Endpoint {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.resources.endpoint
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.qp().give_up();
    }
}
