// SPDX-License-Identifier: GPL-2.0-only

//! Asking for a connection, and answering.

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

/// Milliseconds until a request is repeated that nobody has taken for now, at first; then twice as
/// many each time, up to the second value.
const FIRST_PAUSE: u32 = 10;
const LONGEST_PAUSE: u32 = 500;
/// Milliseconds for each of the repetitions that [`Config`] allows: as long as they take with RoCE.
const TIME_PER_TRY: u32 = 1500;

/// Who decides on requests from this kernel.
pub(crate) trait Acceptor<O: Upcalls>: 'static {
    /// A connection is asked for. Called in process context, with no lock but the requester's socket lock; may
    /// sleep.
    fn request(request: &Request<O>) -> Verdict;
}

/// The way to an address of this machine.
pub(crate) struct Resolver<O: Upcalls> {
    owner: ARef<O>,
    net: ARef<Net>,
    route: IpRoute,
}

impl<O: Upcalls> Resolver<O> {
    /// A resolver that has not begun.
    pub(crate) fn new(net: &Net, owner: ARef<O>, route: IpRoute) -> Result<Arc<Self>> {
        let net = net.into();
        Ok(Arc::new(Resolver { owner, net, route }, GFP_KERNEL)?)
    }

    /// Which one this is, in upcalls to the owner.
    pub(crate) fn id(&self) -> ResolverId {
        ResolverId::of(self)
    }

    /// Begins, and ends: the way is known.
    pub(crate) fn start(&self) {
        self.owner.resolved(self.id(), Ok(()));
    }

    /// The address that the connection comes from, with port 0.
    pub(crate) fn source(&self) -> Address {
        self.route.source
    }

    /// The interface by which the peer is reached.
    pub(crate) fn ifindex(&self) -> u32 {
        self.route.ifindex
    }

    /// Makes the two halves of a connection that can be asked for. Receives can be posted.
    pub(crate) fn create(
        &self,
        config: &Config,
        owner: ARef<O>,
    ) -> Result<(Endpoint, Arc<CmLink<O>>)> {
        CmLink::make(Pair::new()?, Side::Active, config, owner)
    }

    /// Asks for the connection, and has the acceptor answer. Its answer comes by [`Upcalls::replied`] or
    /// [`Upcalls::refused`], before this returns if it is not asked again later.
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

/// Has the acceptor look at the request.
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
    /// How long a request is repeated.
    fn patience(&self) -> Jiffies {
        milliseconds((u32::from(self.tries) + 1) * TIME_PER_TRY)
    }

    /// Has the request repeated, unless it is not wanted any more.
    fn try_later(self: &Arc<Self>, mut ask: RequestData<O>) {
        let pause = ask.pause;
        ask.pause = (pause * 2).min(LONGEST_PAUSE);
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

/// A request, while the acceptor looks at it.
pub(crate) struct Request<O: Upcalls> {
    requester: Arc<Inner<O>>,
    ask: RequestData<O>,
    made: Cell<Option<Arc<Inner<O>>>>,
}

impl<O: Upcalls> Request<O> {
    /// The network namespace that it is for.
    pub(crate) fn net(&self) -> &Net {
        &self.ask.net
    }

    /// The port that it is for.
    pub(crate) fn port(&self) -> u16 {
        self.ask.port
    }

    /// The interface that it came in by.
    pub(crate) fn ifindex(&self) -> u32 {
        self.ask.ifindex
    }

    /// What the peer says.
    pub(crate) fn hello(&self) -> &[u8; REQUEST_DATA] {
        &self.ask.hello
    }

    /// Makes both halves of the connection, once. Receives can be posted.
    ///
    /// Errors: `ENODEV` when the requester has given up, `EBUSY` the second time, `ENOMEM`.
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

    /// Takes back what was made, so that the request can be answered otherwise, and tells its owner
    /// that it is over. Not possible once there was a reply; then the link is what there is, and it
    /// ends.
    fn abort(&self) {
        let Some(inner) = self.made.take() else {
            return;
        };
        if inner.advance(Phase::New, Phase::Closed) {
            inner.close();
            let peer = self.requester.state.lock().peer.take();
            drop(peer);
            // Nothing else will: with nobody at the other end.
            inner.notify(|o, id| o.refused(id, ECONNABORTED.into()));
        } else {
            inner.disconnect();
        }
    }
}
