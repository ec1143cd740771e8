// SPDX-License-Identifier: GPL-2.0-only

//! Connection requests within a network namespace, and replies to them.

use super::super::phase::{HasPhase, Phase};
use super::cm_link::{CmLink, Inner, RequestData};
use super::endpoint::Endpoint;
use super::pair::{Pair, Side};
use super::{Config, Net, ResolverId, Upcalls, Verdict, REQUEST_DATA};
use crate::sys::address::Address;
use crate::sys::errno::{ECONNABORTED, ECONNREFUSED, ETIMEDOUT};
use crate::sys::net::ip_route::IpRoute;
use crate::sys::time::{jiffies, milliseconds, Jiffies};
use core::cell::Cell;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

/// Milliseconds until a dropped request is repeated for the first time. The time doubles up to the
/// second value.
const FIRST_PAUSE: u32 = 10;
const LONGEST_PAUSE: u32 = 500;
/// Milliseconds for each repetition that [`Config`] allows, as with RoCE.
const TIME_PER_TRY: u32 = 1500;

/// Decides on local connection requests.
pub(crate) trait Acceptor<O: Upcalls>: 'static {
    /// Handles a connection request. Context: process, may sleep. No lock but the requester's
    /// socket lock.
    fn request(request: &Request<O>) -> Verdict;
}

/// Route to a local address.
pub(crate) struct Resolver<O: Upcalls> {
    owner: ARef<O>,
    net: ARef<Net>,
    route: IpRoute,
}

impl<O: Upcalls> Resolver<O> {
    pub(crate) fn new(net: &Net, owner: ARef<O>, route: IpRoute) -> Result<Arc<Self>> {
        let net = net.into();
        Ok(Arc::new(Resolver { owner, net, route }, GFP_KERNEL)?)
    }

    /// Returns the resolver's ID for upcalls to the owner.
    pub(crate) fn id(&self) -> ResolverId {
        ResolverId::of(self)
    }

    /// Reports success at once: the route is given.
    pub(crate) fn start(&self) {
        self.owner.resolved(self.id(), Ok(()));
    }

    /// Returns the source address of the connection, with port 0.
    pub(crate) fn source(&self) -> Address {
        self.route.source
    }

    /// Returns the interface index of the route.
    pub(crate) fn ifindex(&self) -> u32 {
        self.route.ifindex
    }

    /// Creates both halves of a connection, for [`Resolver::connect`]. Receives can be posted.
    pub(crate) fn create(
        &self,
        config: &Config,
        owner: ARef<O>,
    ) -> Result<(Endpoint, Arc<CmLink<O>>)> {
        CmLink::make(Pair::new()?, Side::Active, config, owner)
    }

    /// Sends the request to the acceptor. [`Upcalls::replied`] or [`Upcalls::refused`] reports the
    /// result, before this returns unless the request is repeated.
    pub(crate) fn connect<A: Acceptor<O>>(
        &self,
        link: &CmLink<O>,
        port: u16,
        hello: &[u8; REQUEST_DATA],
    ) -> Result {
        let ask = RequestData {
            net: self.net.clone(),
            ifindex: self.route.ifindex,
            port,
            hello: *hello,
            began: jiffies(),
            pause: FIRST_PAUSE,
            present: present::<O, A>,
        };
        {
            let mut state = link.inner.state.lock();
            if state.phase != Phase::New {
                return Err(EINVAL);
            }
            state.phase = Phase::Requested;
            state.ask = Some(ask);
        }
        link.inner.post_request();
        Ok(())
    }
}

/// Passes a request to the acceptor and acts on its verdict.
fn present<O: Upcalls, A: Acceptor<O>>(requester: Arc<Inner<O>>, ask: RequestData<O>) {
    let request = Request {
        requester,
        ask,
        made: Cell::new(None),
    };
    let verdict = A::request(&request);
    if !matches!(verdict, Verdict::Accepted) {
        request.abort();
    }
    let Request { requester, ask, .. } = request;
    let error = match verdict {
        Verdict::Accepted => return,
        Verdict::Drop if jiffies().wrapping_sub(ask.began) < requester.patience() => {
            return requester.try_later(ask);
        }
        Verdict::Drop => ETIMEDOUT,
        Verdict::Reject | Verdict::Unknown => ECONNREFUSED,
    };
    if let (Phase::Requested, _) = requester.close() {
        requester.notify(|o, id| o.refused(id, error.into()));
    }
}

impl<O: Upcalls> Inner<O> {
    /// Returns the time for which a request is repeated.
    fn patience(&self) -> Jiffies {
        let requests = u32::from(self.tries).saturating_add(1);
        milliseconds(requests.saturating_mul(TIME_PER_TRY))
    }

    /// Schedules a repetition of the request, unless the requester has closed.
    fn try_later(self: &Arc<Self>, mut ask: RequestData<O>) {
        let pause = ask.pause;
        ask.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        {
            let mut state = self.state.lock();
            if state.phase != Phase::Requested {
                drop(state);
                return drop(ask);
            }
            state.ask = Some(ask);
        }
        self.request_later(pause);
    }
}

/// Request during [`Acceptor::request`].
pub(crate) struct Request<O: Upcalls> {
    requester: Arc<Inner<O>>,
    ask: RequestData<O>,
    made: Cell<Option<Arc<Inner<O>>>>,
}

impl<O: Upcalls> Request<O> {
    pub(crate) fn net(&self) -> &Net {
        &self.ask.net
    }

    pub(crate) fn port(&self) -> u16 {
        self.ask.port
    }

    pub(crate) fn ifindex(&self) -> u32 {
        self.ask.ifindex
    }

    /// Returns the peer's Hello.
    pub(crate) fn hello(&self) -> &[u8; REQUEST_DATA] {
        &self.ask.hello
    }

    /// Creates both halves of the connection, once. Receives can be posted.
    ///
    /// `ENODEV`: the requester has closed. `EBUSY`: called twice. `ENOMEM`: out of memory.
    pub(crate) fn create(
        &self,
        config: &Config,
        owner: ARef<O>,
    ) -> Result<(Endpoint, Arc<CmLink<O>>)> {
        let pair = self.requester.pair.clone();
        let (endpoint, link) = CmLink::make(pair, Side::Passive, config, owner)?;
        link.inner.state.lock().peer = Some(self.requester.clone());
        {
            let mut state = self.requester.state.lock();
            if state.phase != Phase::Requested {
                drop(state);
                link.inner.close();
                return Err(ENODEV);
            }
            state.peer = Some(link.inner.clone());
        }
        self.made.set(Some(link.inner.clone()));
        Ok((endpoint, link))
    }

    /// Destroys the created end, so that the request can be decided otherwise, and refuses its
    /// owner. If a reply was sent, disconnects the end instead.
    fn abort(&self) {
        let Some(inner) = self.made.take() else {
            return;
        };
        if inner.advance(Phase::New, Phase::Closed) {
            inner.close();
            let peer = self.requester.state.lock().peer.take();
            drop(peer);
            // The owner gets no event from the other end.
            inner.notify(|o, id| o.refused(id, ECONNABORTED.into()));
        } else {
            inner.disconnect();
        }
    }
}
