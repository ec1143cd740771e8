// SPDX-License-Identifier: GPL-2.0-only

//! The life of a connection and its end.
//!
//! A [`CmLink`] is one end of a connection as its owner holds it, an [`Inner`] what the other end
//! knows of it. Each leaves events for the other. Whoever leaves one delivers it, and what is left there
//! meanwhile, unless somebody does so already, who goes on then: so one event at a time is delivered to
//! each end, none gets lost, and none waits for a worker but where the caller may not sleep.

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

/// What a connection is asked for with.
pub(super) struct RequestData<O: Upcalls> {
    pub(super) net: ARef<Net>,
    pub(super) ifindex: u32,
    pub(super) port: u16,
    pub(super) hello: [u8; REQUEST_DATA],
    pub(super) began: Jiffies,
    /// When to try again, in milliseconds.
    pub(super) pause: u32,
    /// Has the acceptor look at it.
    pub(super) present: fn(Arc<Inner<O>>, RequestData<O>),
}

/// What an end is told, by the other one or by itself.
#[derive(Clone, Copy, Default)]
struct CmEvents {
    /// Have the acceptor look at the request.
    ask: bool,
    /// The peer accepts, with what is in [`State::reply`].
    replied: bool,
    /// The peer has taken the reply.
    ready: bool,
    /// There is no connection (any more).
    rejected: bool,
    /// The peer ends the connection.
    left: bool,
    /// The peer knows that we have.
    answered: bool,
    /// End the connection.
    fail: bool,
}

/// What changes in the life of a link; under [`Inner::state`].
pub(super) struct State<O: Upcalls> {
    pub(super) phase: Phase,
    /// Whom to tell; nobody once the handle is dropped.
    owner: Option<ARef<O>>,
    /// The other end, from the request until either end closes.
    pub(super) peer: Option<Arc<Inner<O>>>,
    /// What is asked for, until that is answered.
    pub(super) ask: Option<RequestData<O>>,
    events: Option<CmEvents>,
    /// What the peer has accepted with.
    reply: Option<[u8; REPLY_DATA]>,
    /// Somebody delivers events.
    delivering: bool,
}

/// One end of a connection, whether or not somebody holds a handle.
#[pin_data]
pub(super) struct Inner<O: Upcalls> {
    pub(super) pair: Arc<Pair>,
    /// How often a request may be repeated.
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

/// One end of a connection. May be dropped in any context; a peer that is connected is told that
/// this is the end, and one that asked is rejected.
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
    /// Both halves of one end of a connection; receives can be posted.
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

    /// Ends the connection, soon. May be called in any context.
    pub(crate) fn fail(&self) {
        let events = &mut self.inner.state.lock().events;
        events.get_or_insert_default().fail = true;
        work::defer::<Arc<Inner<O>>, 0>(self.inner.clone());
    }

    /// Does what the drop has the workqueue do. Process context.
    pub(crate) fn destroy(&self) {
        self.inner.end();
    }

    /// Ends the connection; [`Upcalls::disconnected`] follows. Process context.
    pub(crate) fn disconnect(&self) {
        self.inner.disconnect();
    }

    /// Which link this is, in upcalls to the owner.
    pub(crate) fn id(&self) -> LinkId {
        self.inner.link_id()
    }

    /// Accepts the connection. What comes of it is told by [`Upcalls::established`] or
    /// [`Upcalls::refused`]. Process context.
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
    /// Leaves an event, and has it delivered. Process context, without locks but the requester's socket lock.
    fn post(self: &Arc<Self>, write: impl FnOnce(&mut CmEvents)) {
        write(self.state.lock().events.get_or_insert_default());
        self.deliver();
    }

    /// Delivers what is left here, unless somebody does.
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
                // under the same hold: what comes then finds nobody
                state.delivering = state.events.is_some();
                state.events.take()
            };
            match events {
                Some(events) => self.take(&events),
                None => return,
            }
        }
    }

    /// Does what events ask for.
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

    /// The handle is dropped, or about to be.
    fn end(&self) {
        let owner = self.state.lock().owner.take();
        drop(owner);
        let (was, peer) = self.close();
        let Some(peer) = peer else { return };
        match was {
            Phase::Established => peer.post(|m| m.left = true),
            Phase::Requested | Phase::Replied => peer.post(|m| m.rejected = true),
            // The acceptor says what becomes of the request.
            Phase::New => {}
            Phase::Leaving | Phase::Closed => {}
        }
    }

    /// Has the acceptor look at the request, unless it is not wanted any more.
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

    /// Has the acceptor asked.
    pub(super) fn post_request(self: &Arc<Self>) {
        self.post(|m| m.ask = true);
    }

    /// Has the acceptor asked once more, after some time.
    pub(super) fn request_later(self: &Arc<Self>, ms: u32) {
        work::defer_by::<Arc<Self>, 2>(self.clone(), ms);
    }

    /// Goes to [`Phase::Closed`] and tells where it came from, and from whom it parts.
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
            // It may not know yet that it is connected.
            Phase::Replied => peer.post(|m| m.rejected = true),
            // Nobody is connected, or the drop of the link does what has to be done.
            _ => {}
        }
    }

    /// The peer accepts.
    fn replied(self: &Arc<Self>) {
        // Without an owner this end is about to be destroyed, which rejects.
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

    /// There is no connection.
    fn rejected(&self) {
        self.ended(self.close().0.rejected(ECONNREFUSED.into()));
    }

    /// The peer has ended the connection.
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

    /// Something was left where it could not be delivered.
    fn run(this: Arc<Self>) {
        this.deliver();
    }
}

impl<O: Upcalls> WorkItem<1> for Inner<O> {
    type Pointer = Arc<Self>;

    /// Runs when the handle was dropped.
    fn run(this: Arc<Self>) {
        this.end();
    }
}

impl<O: Upcalls> WorkItem<2> for Inner<O> {
    type Pointer = Arc<Self>;

    /// It is time to ask again.
    fn run(this: Arc<Self>) {
        this.post_request();
    }
}
