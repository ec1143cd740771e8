// SPDX-License-Identifier: GPL-2.0-only

//! Connection states of a local end, and its end.
//!
//! A [`CmLink`] is the owner's handle of one end; an [`Inner`] is the part that the other end
//! refers to. Each end leaves events for the other. The task that leaves an event delivers it,
//! unless another task is delivering already: that task then takes the new event too. So the
//! events of an end are delivered one at a time. A worker delivers only where the caller must not
//! sleep.

use super::super::phase::{HasPhase, Phase};
use super::endpoint::Endpoint;
use super::pair::{Pair, Side};
use super::{Config, Disconnect, LinkId, Net, Upcalls, REPLY_DATA, REQUEST_DATA};
use crate::sys::errno::ECONNREFUSED;
use crate::sys::time::Jiffies;
use crate::sys::work::{self, ModuleRef};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{new_spinlock, Arc, SpinLock};
use kernel::workqueue::{
    impl_has_delayed_work, impl_has_work, new_delayed_work, new_work, DelayedWork, Work, WorkItem,
};

/// Connection request.
pub(super) struct RequestData<O: Upcalls> {
    pub(super) net: ARef<Net>,
    pub(super) ifindex: u32,
    pub(super) port: u16,
    pub(super) hello: [u8; REQUEST_DATA],
    pub(super) began: Jiffies,
    /// Time until the next attempt, in milliseconds.
    pub(super) pause: u32,
    /// Passes the request to the acceptor.
    pub(super) present: fn(Arc<Inner<O>>, RequestData<O>),
}

/// Pending events of an end, set by the other end or by itself.
#[derive(Clone, Copy, Default)]
struct CmEvents {
    /// Pass the request to the acceptor.
    ask: bool,
    /// The peer accepts; [`State::reply`] has its reply.
    replied: bool,
    /// The peer has taken the reply.
    ready: bool,
    /// There is no connection, or it was refused.
    rejected: bool,
    /// The peer has disconnected.
    left: bool,
    /// The peer has handled the disconnect.
    answered: bool,
    fail: bool,
}

/// State of a link; under [`Inner::state`].
pub(super) struct State<O: Upcalls> {
    pub(super) phase: Phase,
    /// Receiver of the upcalls; `None` once the handle is dropped.
    owner: Option<ARef<O>>,
    /// The other end, from the request until either end closes.
    pub(super) peer: Option<Arc<Inner<O>>>,
    /// Request, until the acceptor has decided.
    pub(super) ask: Option<RequestData<O>>,
    events: Option<CmEvents>,
    /// HelloAck of the peer.
    reply: Option<[u8; REPLY_DATA]>,
    /// Set while a task delivers events.
    delivering: bool,
}

/// One end of a connection, with or without a handle.
#[pin_data]
pub(super) struct Inner<O: Upcalls> {
    pub(super) pair: Arc<Pair>,
    /// Number of repetitions of a request.
    pub(super) tries: u8,
    _module: ModuleRef,
    #[pin]
    pub(super) state: SpinLock<State<O>>,
    #[pin]
    deliver: Work<Inner<O>, 0>,
    #[pin]
    end: Work<Inner<O>, 1>,
    #[pin]
    again: DelayedWork<Inner<O>, 2>,
}

impl_has_work! {
    impl{O: Upcalls} HasWork<Inner<O>, 0> for Inner<O> { self.deliver }
    impl{O: Upcalls} HasWork<Inner<O>, 1> for Inner<O> { self.end }
}

impl_has_delayed_work! {
    impl{O: Upcalls} HasDelayedWork<Inner<O>, 2> for Inner<O> { self.again }
}

/// Handle of one end of a connection. May be dropped in any context: a connected peer is
/// disconnected, a requesting one is rejected.
pub(crate) struct CmLink<O: Upcalls> {
    pub(super) inner: Arc<Inner<O>>,
}

impl<O: Upcalls> Drop for CmLink<O> {
    fn drop(&mut self) {
        if self.inner.state.lock().owner.is_some() {
            work::defer::<Arc<Inner<O>>, 1>(self.inner.clone());
        }
    }
}

impl<O: Upcalls> CmLink<O> {
    /// Creates both halves of one end of a connection. Receives can be posted.
    pub(super) fn make(
        pair: Arc<Pair>,
        side: Side,
        config: &Config,
        owner: ARef<O>,
    ) -> Result<(Endpoint, Arc<CmLink<O>>)> {
        let endpoint = Endpoint::new(&pair, side, config, &owner)?;
        let state = State {
            phase: Phase::New,
            owner: Some(owner),
            peer: None,
            ask: None,
            events: None,
            reply: None,
            delivering: false,
        };
        let inner = Arc::pin_init(
            pin_init!(Inner {
                pair,
                tries: config.cm_retries,
                _module: ModuleRef::new(),
                state <- new_spinlock!(state, "ib_sdp_local_link"),
                deliver <- new_work!("ib_sdp_local_link"),
                end <- new_work!("ib_sdp_local_link_end"),
                again <- new_delayed_work!("ib_sdp_local_link_again"),
            }),
            GFP_KERNEL,
        )?;
        let link = Arc::new(CmLink { inner }, GFP_KERNEL)?;
        Ok((endpoint, link))
    }

    /// Schedules the end of the connection. Context: any.
    pub(crate) fn fail(&self) {
        let events = &mut self.inner.state.lock().events;
        events.get_or_insert_default().fail = true;
        work::defer::<Arc<Inner<O>>, 0>(self.inner.clone());
    }

    /// Does the work of the drop at once. Context: process.
    pub(crate) fn destroy(&self) {
        self.inner.end();
    }

    /// Ends the connection; [`Upcalls::disconnected`] follows. Context: process.
    pub(crate) fn disconnect(&self) {
        self.inner.disconnect();
    }

    /// Returns the link's ID for upcalls to the owner.
    pub(crate) fn id(&self) -> LinkId {
        self.inner.link_id()
    }

    /// Accepts the connection. [`Upcalls::established`] or [`Upcalls::refused`] reports the
    /// result. Context: process.
    pub(crate) fn reply(&self, data: &[u8; REPLY_DATA]) -> Result {
        let peer = {
            let mut state = self.inner.state.lock();
            let peer = state.peer.clone().ok_or(EINVAL)?;
            if state.phase != Phase::New {
                return Err(EINVAL);
            }
            state.phase = Phase::Replied;
            peer
        };
        peer.state.lock().reply = Some(*data);
        peer.post(|m| m.replied = true);
        Ok(())
    }
}

impl<O: Upcalls> HasPhase<O> for Inner<O> {
    fn with_phase<R>(&self, f: impl FnOnce(&mut Phase, &Option<ARef<O>>) -> R) -> R {
        let state = &mut *self.state.lock();
        f(&mut state.phase, &state.owner)
    }
}

impl<O: Upcalls> Inner<O> {
    /// Adds an event and delivers it. Context: process, no locks except the requester's socket
    /// lock.
    fn post(self: &Arc<Self>, write: impl FnOnce(&mut CmEvents)) {
        write(self.state.lock().events.get_or_insert_default());
        self.deliver();
    }

    /// Delivers pending events, unless another task does.
    fn deliver(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            if core::mem::replace(&mut state.delivering, true) {
                return;
            }
        }
        loop {
            let events = {
                let mut state = self.state.lock();
                // under the same lock, so that no later event is missed
                state.delivering = state.events.is_some();
                state.events.take()
            };
            match events {
                Some(events) => self.take(&events),
                None => return,
            }
        }
    }

    /// Handles the events.
    fn take(self: &Arc<Self>, events: &CmEvents) {
        if events.ask {
            self.ask();
        }
        if events.replied {
            self.replied();
        }
        if events.ready {
            self.ready();
        }
        if events.rejected {
            self.rejected();
        }
        if events.left {
            self.left();
        }
        if events.answered && self.close().0 != Phase::Closed {
            self.gone(Disconnect::Acked);
        }
        if events.fail {
            self.disconnect();
        }
    }

    /// Ends this end of the connection when its handle is dropped.
    fn end(&self) {
        let owner = self.state.lock().owner.take();
        drop(owner);
        let (was, peer) = self.close();
        let Some(peer) = peer else { return };
        match was {
            Phase::Established => peer.post(|m| m.left = true),
            Phase::Requested | Phase::Replied => peer.post(|m| m.rejected = true),
            // The acceptor decides on the request.
            Phase::New => {}
            Phase::Leaving | Phase::Closed => {}
        }
    }

    /// Passes the request to the acceptor, unless the requester has closed.
    fn ask(self: &Arc<Self>) {
        let ask = {
            let mut state = self.state.lock();
            match state.phase {
                Phase::Requested => state.ask.take(),
                _ => None,
            }
        };
        if let Some(ask) = ask {
            (ask.present)(self.clone(), ask);
        }
    }

    pub(super) fn post_request(self: &Arc<Self>) {
        self.post(|m| m.ask = true);
    }

    /// Repeats the request after `ms` milliseconds.
    pub(super) fn request_later(self: &Arc<Self>, ms: u32) {
        work::defer_by::<Arc<Self>, 2>(self.clone(), ms);
    }

    /// Enters [`Phase::Closed`]. Returns the phase before it and the peer.
    pub(super) fn close(&self) -> (Phase, Option<Arc<Self>>) {
        let mut state = self.state.lock();
        let was = core::mem::replace(&mut state.phase, Phase::Closed);
        let ask = state.ask.take();
        let peer = state.peer.take();
        drop(state);
        drop(ask);
        (was, peer)
    }

    pub(super) fn disconnect(self: &Arc<Self>) {
        let (was, peer) = {
            let mut state = self.state.lock();
            (state.phase.disconnect(), state.peer.clone())
        };
        let Some(peer) = peer else { return };
        match was {
            Phase::Established => peer.post(|m| m.left = true),
            // The peer may not be connected yet.
            Phase::Replied => peer.post(|m| m.rejected = true),
            // There is no connection, or the drop of the link ends it.
            _ => {}
        }
    }

    /// Handles the peer's reply.
    fn replied(self: &Arc<Self>) {
        // Without an owner, this end is about to be destroyed, which rejects the peer.
        let Some(owner) = self.owner() else { return };
        let reply = {
            let mut state = self.state.lock();
            state.ask = None;
            let asked = state.phase == Phase::Requested;
            state.reply.take().filter(|_| asked)
        };
        let Some(data) = reply else {
            return;
        };
        if owner.replied(self.link_id(), &data).is_err() {
            let (_, peer) = self.close();
            if let Some(peer) = peer {
                peer.post(|m| m.rejected = true);
            }
        } else if self.advance(Phase::Requested, Phase::Established) {
            let peer = self.state.lock().peer.clone();
            if let Some(peer) = peer {
                peer.post(|m| m.ready = true);
            }
            owner.established(self.link_id());
        }
    }

    fn rejected(&self) {
        self.ended(self.close().0.rejected(ECONNREFUSED.into()));
    }

    fn left(&self) {
        let (was, peer) = self.close();
        if let Some(peer) = peer {
            peer.post(|m| m.answered = true);
        }
        self.ended(was.left());
    }
}

impl<O: Upcalls> WorkItem<0> for Inner<O> {
    type Pointer = Arc<Self>;

    /// Delivers events that were left in atomic context.
    fn run(this: Arc<Self>) {
        this.deliver();
    }
}

impl<O: Upcalls> WorkItem<1> for Inner<O> {
    type Pointer = Arc<Self>;

    /// Ends a link whose handle was dropped.
    fn run(this: Arc<Self>) {
        this.end();
    }
}

impl<O: Upcalls> WorkItem<2> for Inner<O> {
    type Pointer = Arc<Self>;

    /// Repeats the request.
    fn run(this: Arc<Self>) {
        this.post_request();
    }
}
