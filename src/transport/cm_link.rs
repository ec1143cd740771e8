// SPDX-License-Identifier: GPL-2.0-only

//! Connection manager (CM) state of a connection, from setup to disconnect.
//!
//! A [`CmLink`] is the handle of one end of a connection at the CM. The state is an [`Inner`],
//! which outlives the handle until the peer is notified of the end.

use super::registry::{self, RemovalClient};
use super::upcalls::Phase;
use super::{Config, Endpoint, LinkId, Upcalls};
use crate::sys::errno::{ECONNABORTED, ECONNREFUSED, ECONNRESET, EMSGSIZE, ESTALE, ETIMEDOUT};
use crate::sys::random::random_below;
use crate::sys::rdma::cm::{reason, CmEvent, CmEvents, CmId, OwnParameters, OwnedCmId};
use crate::sys::rdma::cq::EndpointEvents;
use crate::sys::rdma::device::DeviceRef;
use crate::sys::rdma::endpoint as verbs;
use crate::sys::rdma::qp::QueuePair;
use crate::sys::work;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{AtomicFlag, Full};
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SetOnce, SpinLock};
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

/// State of a link, protected by [`Inner::state`].
struct LinkState<O: Upcalls> {
    phase: Phase,
    /// Owner to notify; `None` once the handle is dropped.
    owner: Option<ARef<O>>,
    /// Key of the link in the registry.
    client: Option<u64>,
    /// Set if the drop must not wait for the peer.
    given_up: bool,
    /// Set while the acceptor decides on the request, so that the reply may still change.
    undecided: bool,
}

/// State of one end of a connection, with or without a handle.
#[pin_data]
pub(super) struct Inner<O: Upcalls> {
    pub(super) device: DeviceRef,
    pub(super) config: Config,
    /// PSN of the first message that this end sends: random, so that packets are hard to forge.
    pub(super) psn: u32,
    /// Maximum numbers of RDMA READs in flight that this end offers, for each direction.
    pub(super) reads_in: u8,
    pub(super) reads_out: u8,
    pub(super) qp: SetOnce<Arc<QueuePair>>,
    /// CM ID, whose mutex is never taken under `state`, nor held when the ID is dropped.
    #[pin]
    pub(super) id: Mutex<Option<OwnedCmId>>,
    #[pin]
    state: SpinLock<LinkState<O>>,
    // flags that select the deferred work; any context may set them
    message_arrived: AtomicFlag,
    failed: AtomicFlag,
    fatal: AtomicFlag,
    connecting: AtomicFlag,
    #[pin]
    chores: Work<Inner<O>, 0>,
    #[pin]
    end: Work<Inner<O>, 1>,
}

impl_has_work! {
    impl{O: Upcalls} HasWork<Inner<O>, 0> for Inner<O> { self.chores }
    impl{O: Upcalls} HasWork<Inner<O>, 1> for Inner<O> { self.end }
}

/// Handle of one end of a connection at the CM.
///
/// May be dropped in any context, including upcalls. The workqueue then disconnects a connected
/// peer, or rejects a requesting peer.
pub(crate) struct CmLink<O: Upcalls> {
    pub(super) inner: Arc<Inner<O>>,
}

impl<O: Upcalls> Drop for CmLink<O> {
    fn drop(&mut self) {
        work::defer::<Arc<Inner<O>>, 1>(self.inner.clone());
    }
}

impl<O: Upcalls> CmLink<O> {
    /// Creates both halves of a new connection. Receives can be posted once the QP is in INIT.
    pub(super) fn make(
        device: &DeviceRef,
        config: &Config,
        owner: ARef<O>,
        reads_in: u8,
        reads_out: u8,
    ) -> Result<(Endpoint, Arc<CmLink<O>>)> {
        let most = device.max_reads();
        let state = LinkState {
            phase: Phase::New,
            owner: Some(owner.clone()),
            client: None,
            given_up: false,
            undecided: false,
        };
        let inner = Arc::pin_init(
            pin_init!(Inner {
                device: device.clone(),
                config: *config,
                psn: random_below(1 << 24),
                reads_in: reads_in.min(most),
                reads_out: reads_out.min(most),
                qp: SetOnce::new(),
                id <- new_mutex!(None, "ib_sdp_link"),
                state <- new_spinlock!(state, "ib_sdp_link_state"),
                message_arrived: AtomicFlag::new(false),
                failed: AtomicFlag::new(false),
                fatal: AtomicFlag::new(false),
                connecting: AtomicFlag::new(false),
                chores <- new_work!("ib_sdp_link"),
                end <- new_work!("ib_sdp_link_end"),
            }),
            GFP_KERNEL,
        )?;
        let events = Events {
            owner,
            inner: inner.clone(),
        };
        let events = Arc::new(events, GFP_KERNEL)?;
        let endpoint = Endpoint::new(|| {
            let spare = registry::take_queues(device);
            let endpoint = verbs::Endpoint::new(device, config, spare, events)?;
            inner.qp.populate(endpoint.qp().clone());
            Ok(endpoint)
        })?;
        // From here on, the drop of the handle undoes the following steps.
        let link = Arc::new(CmLink { inner }, GFP_KERNEL)?;
        let client: Arc<dyn RemovalClient> = link.inner.clone();
        let key = registry::lock()?.add_client(device, client)?;
        link.inner.state.lock().client = Some(key);
        Ok((endpoint, link))
    }

    /// Handles a message that arrives before [`Upcalls::established`]: the peer is ready, but the
    /// RTU is lost or late. Context: any.
    pub(crate) fn message_arrived(&self) {
        self.inner.deferred_work(&self.inner.message_arrived);
    }

    /// Queues the abort of the connection ([`Inner::abort`]). Context: any.
    pub(crate) fn fail(&self) {
        self.inner.deferred_work(&self.inner.failed);
    }

    /// Disconnects by DREQ. Posted requests may complete until [`Upcalls::disconnected`] follows.
    /// Context: process.
    pub(crate) fn disconnect(&self) {
        self.inner.disconnect();
    }

    /// Allows the drop of the link to complete without the reply to DREQ. The peer's REQ determines
    /// the time between retries of the DREQ. A port may allow only few outstanding DREQs for all
    /// connections of the host.
    pub(crate) fn give_up(&self) {
        self.inner.state.lock().given_up = true;
    }

    pub(crate) fn id(&self) -> LinkId {
        self.inner.link_id()
    }

    pub(crate) fn is_removing(&self) -> bool {
        self.inner.device.is_removing()
    }
}

/// Functions for the phase, and for the owner to notify.
impl<O: Upcalls> Inner<O> {
    pub(super) fn link_id(&self) -> LinkId {
        LinkId::of(self)
    }

    pub(super) fn owner(&self) -> Option<ARef<O>> {
        self.state.lock().owner.clone()
    }

    pub(super) fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Changes the phase `from` to the phase `to`. Returns false if the link is in another phase.
    pub(super) fn advance(&self, from: Phase, to: Phase) -> bool {
        let phase = &mut self.state.lock().phase;
        let right = *phase == from;
        if right {
            *phase = to;
        }
        right
    }

    /// Notifies the owner, unless the handle was dropped.
    fn notify(&self, f: impl FnOnce(&O, LinkId)) {
        if let Some(owner) = self.owner() {
            f(&owner, self.link_id());
        }
    }

    /// Handles the RTU, or a message that arrives instead of the RTU.
    fn ready(&self) {
        if self.advance(Phase::Replied, Phase::Established) {
            self.notify(|o, id| o.established(id));
        }
    }

    pub(super) fn refused(&self, e: Error) {
        self.notify(|o, id| o.refused(id, e));
    }

    fn gone(&self, by_peer: bool) {
        self.notify(|o, id| o.disconnected(id, by_peer));
        self.flush();
    }

    /// Handles a reject by the peer. `error` is the result of this end's REQ.
    fn rejected(&self, was: Phase, error: Error) {
        match was {
            Phase::New | Phase::Replied => self.refused(ECONNRESET.into()),
            Phase::Requested => self.refused(error),
            _ => self.left(was),
        }
    }

    /// Handles a disconnect of the peer.
    fn left(&self, was: Phase) {
        match was {
            Phase::Closed => {}
            Phase::Leaving => self.gone(false),
            _ => self.gone(true),
        }
    }

    /// Flushes posted requests of an ended connection whose owner has kept the endpoint.
    fn flush(&self) {
        if let Ok(qp) = self.qp() {
            qp.flush();
        }
    }

    /// Returns the QP, which is set before `self` is published.
    pub(super) fn qp(&self) -> Result<&Arc<QueuePair>> {
        self.qp.as_ref().ok_or(EINVAL)
    }

    /// Changes to [`Phase::Closed`] and returns the previous phase. Without a handle, destroys the
    /// link, too.
    pub(super) fn close(self: &Arc<Self>) -> Phase {
        let mut state = self.state.lock();
        let was = state.phase;
        state.phase = Phase::Closed;
        let over = state.owner.is_none() && was != Phase::Closed;
        drop(state);
        if over {
            self.finish();
        }
        was
    }

    /// Queues the work that destroys the object if possible.
    fn finish(self: &Arc<Self>) {
        work::defer::<Arc<Self>, 1>(self.clone());
    }

    /// Gives the ID to the request until [`Inner::decided`], even if the handle is dropped:
    /// destroying the ID would reject a request that the peer has to repeat.
    pub(super) fn undecided(&self) {
        self.state.lock().undecided = true;
    }

    /// Ends the request's use of the ID.
    pub(super) fn decided(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.undecided = false;
        let over = state.owner.is_none();
        drop(state);
        if over {
            self.finish();
        }
    }

    fn deferred_work(self: &Arc<Self>, flag: &AtomicFlag) {
        flag.xchg(true, Full);
        work::defer::<Arc<Self>, 0>(self.clone());
    }

    /// Returns the parameters of the connection for REQ or REP.
    pub(super) fn own(&self) -> Result<OwnParameters> {
        Ok(OwnParameters {
            qp: self.qp()?.number(),
            psn: self.psn,
            reads_in: self.reads_in,
            reads_out: self.reads_out,
        })
    }

    fn disconnect(&self) {
        let was = {
            let phase = &mut self.state.lock().phase;
            let to = match *phase {
                Phase::Established => Phase::Leaving,
                Phase::Replied => Phase::Closed,
                other => other,
            };
            core::mem::replace(phase, to)
        };
        let id = self.id.lock();
        let Some(id) = id.as_ref() else { return };
        // If the disconnect or reject fails, the connection manager is about to report the reason.
        let _ = match was {
            Phase::Established => id.disconnect(),
            // The peer may not know yet that the connection is established.
            Phase::Replied => id.reject(reason::CONSUMER),
            // without a connection, no message is needed; else the drop of the link sends one
            _ => Ok(()),
        };
    }

    /// Queues [`Inner::connect`].
    pub(super) fn start_connect(self: &Arc<Self>) {
        self.undecided();
        self.deferred_work(&self.connecting);
    }

    /// Sends an MPA request. Takes the ID out of the mutex during the call, which may take minutes.
    fn connect(self: &Arc<Self>) {
        let Some(mut id) = self.id.lock().take() else {
            return;
        };
        let r = id.connect();
        let mut place = self.id.lock();
        if self.phase() == Phase::Leaving {
            // a concurrent disconnect has found no ID
            let _ = id.disconnect();
        }
        *place = Some(id);
        drop(place);
        if let Err(e) = r {
            self.rejected(self.close(), e);
        }
        self.decided();
    }

    pub(super) fn abort(&self) {
        if let Ok(qp) = self.qp() {
            qp.to_error();
        }
        self.disconnect();
    }
}

impl<O: Upcalls> WorkItem<0> for Inner<O> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.connecting.xchg(false, Full) {
            this.connect();
        }
        if this.message_arrived.xchg(false, Full) {
            if let Some(id) = this.id.lock().as_ref() {
                // The call fails if the RTU has already arrived, which has the same effect.
                let _ = id.message_came();
            }
        }
        if this.fatal.xchg(false, Full) {
            this.flush();
            if let Some(owner) = this.owner() {
                owner.completed(false);
                owner.completed(true);
            }
        }
        if this.failed.xchg(false, Full) {
            this.abort();
        }
    }
}

impl<O: Upcalls> WorkItem<1> for Inner<O> {
    type Pointer = Arc<Self>;

    /// Destroys the ID if possible. Runs after the drop of the handle and later changes of state.
    fn run(this: Arc<Self>) {
        let mut state = this.state.lock();
        let owner = state.owner.take();
        let (was, undecided, given_up) = (state.phase, state.undecided, state.given_up);
        drop(state);
        drop(owner);
        // `decided` will queue this work again.
        if undecided {
            return;
        }

        // A DREQ without a reply is repeated only while the ID exists. So the ID stays until the
        // reply or the end of the wait; then `close` or the removal of the device queues this work
        // again.
        if was == Phase::Established {
            this.disconnect();
        }
        let waits = this.phase() == Phase::Leaving && !given_up;
        if waits && !this.device.removal_is_overdue() {
            return;
        }

        // The drop waits for callbacks, which take locks, so no lock is held.
        let id = this.id.lock().take();
        drop(id);
        let client = this.state.lock().client.take();
        if let Some(key) = client {
            let removed = registry::lock().ok().and_then(|mut r| r.remove_client(key));
            drop(removed);
        }
    }
}

impl<O: Upcalls> RemovalClient for Inner<O> {
    fn device_goes(self: Arc<Self>) {
        match self.owner() {
            Some(owner) => owner.device_removed(self.link_id()),
            None => self.finish(),
        }
    }
}

impl<O: Upcalls> CmEvents for Inner<O> {
    fn event(self: Arc<Self>, connection: &CmId, event: CmEvent<'_>) {
        match event {
            CmEvent::Reply {
                data,
                reads_out,
                reads_in,
            } => {
                self.replied(connection, data, reads_out, reads_in);
            }
            CmEvent::Ready => self.ready(),
            CmEvent::Rejected(why) => self.rejected(self.close(), rejected(why)),
            CmEvent::Unanswered => match self.close() {
                Phase::Closed => (),
                _ => self.refused(ETIMEDOUT.into()),
            },
            CmEvent::DisconnectRequest => {
                // If the reject cannot be sent, the peer repeats the request, and `ib_cm` replies.
                let _ = connection.disconnect_reply();
                self.left(self.close());
            }
            CmEvent::Disconnected => {
                self.close();
                self.gone(false);
            }
        }
    }
}

/// Returns the errno that connect(2) of TCP gives for a reject. The caller retries after `ESTALE`,
/// `EMSGSIZE` (path MTU), `EAGAIN` (full backlog) and `ECONNABORTED` (no reply).
fn rejected(why: u32) -> Error {
    match why {
        reason::STALE => ESTALE.into(),
        reason::PATH_MTU => EMSGSIZE.into(),
        reason::TIMEOUT => ETIMEDOUT.into(),
        reason::BUSY => EAGAIN,
        reason::NO_REPLY => ECONNABORTED.into(),
        _ => ECONNREFUSED.into(),
    }
}

/// Receiver of an endpoint's events, which outlives the link's handle.
struct Events<O: Upcalls> {
    owner: ARef<O>,
    inner: Arc<Inner<O>>,
}

impl<O: Upcalls> EndpointEvents for Events<O> {
    fn ready(&self, sent: bool) {
        self.owner.completed(sent);
    }

    fn message_arrived(&self) {
        self.inner.deferred_work(&self.inner.message_arrived);
    }

    fn failed(&self) {
        self.inner.deferred_work(&self.inner.fatal);
    }
}
