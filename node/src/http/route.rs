//! Sends requests for streams of other nodes to them, by redirect or by forwarding.
//!
//! Invariant (I8): nobody is sent to a node that the view does not say is alive; every request sent on carries a hop,
//! so that each node it reaches knows at least as much as the one before, and there are few of them. The view only
//! saves work: what it does not know yet the streams layer finds out from the log, and says with
//! [`StreamError::Elsewhere`]. Called by `http` before and after a verb.

use std::time::Duration;

use http::Response;
use tokio::time::timeout;
use weir_api::SessionId;

use super::body::Body;
use super::error::Reject;
use super::forward::{self, Address, Owner, Pool, PoolLimits, Source};
use super::hop::{Arrived, MAX_HOPS};
use super::owners::Owners;
use super::{App, Received, redirect};
use crate::config::RoutingMode;
use crate::metadata::Metadata;
use crate::routing::{self, Route, Target};
use crate::streams::{StreamError, StreamName};
use crate::tasks::Tasks;

/// How long a request that was sent on waits until this node knows what the sender knew.
const CATCH_UP: Duration = Duration::from_secs(1);

/// How this node finds and reaches the owners of streams. Clones share the connections.
#[derive(Clone)]
pub struct Router {
    metadata: Metadata,
    me: SessionId,
    mode: RoutingMode,
    pool: Pool,
    owners: Owners,
}

impl Router {
    /// For the node whose session is `me`.
    pub fn new(
        metadata: Metadata,
        me: SessionId,
        mode: RoutingMode,
        tasks: Tasks,
        limits: PoolLimits,
    ) -> Self {
        let owners = Owners::new(metadata.clone(), tasks.clone());
        Self { metadata, me, mode, pool: Pool::new(tasks, limits), owners }
    }

    /// Connections that requests are forwarded over.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.pool.connections()
    }

    /// Those of appends alone.
    #[cfg(test)]
    pub(super) fn lanes(&self) -> usize {
        self.pool.lanes()
    }
}

/// Where a request is to go, and the index of the metadata log up to which that was known.
pub(super) struct Onward {
    target: Target,
    index: u64,
}

/// Waits until this node knows what the node knew that sent the request.
pub(super) async fn caught_up(app: &App, arrived: &Arrived) -> Result<(), Reject> {
    let Some(hop) = arrived.hop else { return Ok(()) };
    if hop.hops > MAX_HOPS {
        return Err(too_many(app));
    }
    let Some(router) = &app.router else { return Ok(()) };
    let mut applied = router.metadata.applied();
    let known = timeout(CATCH_UP, applied.wait_for(|applied| *applied >= hop.index)).await;
    if matches!(known, Ok(Ok(_))) {
        return Ok(());
    }
    Err(Reject::Busy("the node that sent the request here knows more of the cluster than this one does yet"))
}

/// Where the view says that a request for the stream has to go, if not here.
pub(super) fn elsewhere(app: &App, name: &StreamName) -> Option<Onward> {
    let router = app.router.as_ref()?;
    if app.streams.has(name) {
        return None;
    }
    let there = |route| match route {
        Route::At(target) => Some(target),
        Route::Local | Route::Wait(_) => None,
    };
    let look = |state: &_| routing::by_name(state, &router.me, name.as_str());
    router.metadata.read(|state| there(look(state)))?;
    // The view may have moved on: target and index are of one look.
    let (state, index) = router.metadata.snapshot();
    Some(Onward { target: there(look(&state))?, index })
}

/// How to reach the session that the streams layer named.
pub(super) fn owner(app: &App, session: &SessionId) -> Result<Onward, Reject> {
    let gone = || StreamError::unavailable(format!("the stream was served by {session}, which is gone"));
    let router = app.router.as_ref().ok_or_else(|| StreamError::Elsewhere { owner: session.clone() })?;
    let (state, index) = router.metadata.snapshot();
    let target = routing::target(&state, session).filter(|target| target.session != router.me);
    Ok(Onward { target: target.ok_or_else(gone)?, index })
}

/// Sends the request on.
pub(super) async fn send(
    r: &Received<'_>,
    onward: Onward,
    source: Source<'_>,
) -> Result<Response<Body>, Reject> {
    let Some(router) = &r.app.router else {
        return Err(StreamError::Elsewhere { owner: onward.target.session }.into());
    };
    let came = r.arrived.hop.unwrap_or_default();
    let Some(hop) = came.onward(onward.index) else { return Err(too_many(r.app)) };
    // A body that its client makes up as it goes cannot be sent twice; one that was not sent yet need not be.
    let forwards =
        router.mode == RoutingMode::Forward || r.arrived.forwarded || (r.unmeasured && !r.headers.expects);
    if forwards && let Some(address) = Address::of(&onward.target.http_url) {
        let to = Owner { address, over: router.owners.over(&onward.target.session) };
        return Box::pin(forward::forward(r, &router.pool, &to, hop, source)).await;
    }
    let response = redirect::answer(&onward.target.http_url, r.uri, hop)?;
    if let Source::Arriving(body) = source
        && !r.headers.expects
    {
        redirect::drop_body(r.app, body).await?;
    }
    r.app.metrics.redirected();
    Ok(response)
}

fn too_many(app: &App) -> Reject {
    app.metrics.hops_exceeded();
    Reject::Busy(
        "the request was sent from node to node too often: the nodes do not agree yet on who serves the stream",
    )
}
