//! Forwarding: a request and its answer pass through this node to the owner and back, as a stream both ways.
//!
//! Invariant (I9): a request is sent again only if no byte of it had left. If it had and no answer came,
//! nobody knows what became of it: a change is answered 504 and never with a status that invites a blind repetition; a
//! read may be asked for again (503). Nobody is waited for whose session is over. A body in one piece that is small is
//! taken in first; a large one, or one whose length nobody knows, is passed on as it comes, under the limits that hold for
//! bodies here. Called by `route`.

mod fields;
mod lanes;
mod outgoing;
mod pool;
mod through;

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, Uri};
use hyper::body::Body as _;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

pub use self::pool::PoolLimits;

use self::outgoing::{Inlet, Outgoing};
pub(crate) use self::pool::Pool;
use self::pool::{NoPlace, NotAlone, Place};
use self::through::End;
pub(crate) use self::through::Through;
use super::body::{self, Body, Taken};
use super::error::Reject;
use super::hop::Hop;
use super::{Incoming, Received, paths};
use crate::metrics::{Forwarded, Metrics};
use crate::streams::StreamError;

/// Up to this a body is taken in whole.
const SMALL: u64 = 64 << 10;
/// Up to so many fields a request is sure to pass over HTTP/1.1, where 100 are taken.
const FEW: usize = 64;
/// How long an answer that is on its way may take, when the session of who gave it is over.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// The longest silence within an event stream, which shows every so often that it is alive.
const SILENCE: Duration = Duration::from_secs(60);

/// A request's body.
pub(super) enum Source<'a> {
    /// Still with the client, as far as it was not read.
    Arriving(&'a mut Incoming),
    /// Here.
    Taken(Taken),
}

/// Who is to answer.
pub(super) struct Owner {
    pub(super) address: Address,
    /// Cancelled once its session is over: it may hang, and never will answer.
    pub(super) over: CancellationToken,
}

/// Where an owner is reached without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    authority: Authority,
    /// `host:port`.
    connect: String,
}

impl Address {
    /// Of an advertised URL; `None` if this node cannot speak to it itself.
    pub(super) fn of(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let authority = uri.authority().filter(|_| uri.scheme() == Some(&Scheme::HTTP))?.clone();
        let port = authority.port_u16().unwrap_or(80);
        let connect = format!("{}:{port}", authority.host());
        Some(Self { authority, connect })
    }
}

/// Why there is no answer.
#[derive(Debug)]
enum Failed {
    /// Nothing was sent.
    NoPlace(NoPlace),
    /// It may have arrived.
    Unknown(String),
    /// This node stops; the answer was not there yet.
    Stopping,
}

/// Sends the request to the owner and answers with what it says.
pub(super) async fn forward(
    r: &Received<'_>,
    pool: &Pool,
    to: &Owner,
    hop: Hop,
    source: Source<'_>,
) -> Result<Response<Body>, Reject> {
    let mut counted = Counted { metrics: &r.app.metrics, outcome: Forwarded::Abandoned };
    let answered = attempt(r, pool, to, hop, source).await;
    counted.outcome = match &answered {
        Ok(_) => Forwarded::Answered,
        Err(Either::Failed(Failed::NoPlace(NoPlace::Busy))) => Forwarded::Busy,
        Err(Either::Failed(Failed::NoPlace(NoPlace::Unreachable(_)))) => Forwarded::Unreachable,
        Err(Either::Failed(Failed::Unknown(_))) => Forwarded::Unknown,
        Err(Either::Failed(Failed::Stopping)) => Forwarded::Abandoned,
        Err(Either::Refused(_)) => Forwarded::BadBody,
    };
    match answered {
        Ok(Answered::Coming(response, place)) => Ok(answer(r, to, response, place)),
        Ok(Answered::Whole(response)) => Ok(whole(response)),
        Err(Either::Refused(reject)) => Err(reject),
        Err(Either::Failed(failed)) => Err(no_answer(r, to, failed)),
    }
}

/// What the owner says.
enum Answered {
    /// Its body is yet to come.
    Coming(Response<Incoming>, Place),
    Whole(Response<Bytes>),
}

enum Either {
    /// By the owner, or on the way.
    Failed(Failed),
    /// By this node, because of the client's body.
    Refused(Reject),
}

impl From<Failed> for Either {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl From<Reject> for Either {
    fn from(reject: Reject) -> Self {
        Self::Refused(reject)
    }
}

async fn attempt(
    r: &Received<'_>,
    pool: &Pool,
    to: &Owner,
    hop: Hop,
    source: Source<'_>,
) -> Result<Answered, Either> {
    let longer = r.app.limits.request_timeout * 2 + pool.slack();
    match source {
        // Kept while it is on its way: it holds its part of the memory for bodies.
        Source::Taken(taken) => in_one_piece(r, pool, to, hop, taken.owned(), longer).await,
        Source::Arriving(_) if !r.takes_body() => in_one_piece(r, pool, to, hop, Bytes::new(), longer).await,
        Source::Arriving(body) => match body.size_hint().exact() {
            Some(length) if length <= SMALL.min(r.app.limits.max_body) => {
                let taken = r.app.take(body).await?;
                in_one_piece(r, pool, to, hop, taken.owned(), longer).await
            }
            length => {
                let (max, within) = r.app.body_bounds(body);
                if body.size_hint().lower() > max {
                    return Err(Reject::TooLarge { max }.into());
                }
                let (inlet, outgoing) = Outgoing::piped(length);
                let request = request(r, to, hop, outgoing)?;
                // Before the client is asked for its body.
                let place = pool.place(&to.address.connect).await.map_err(Failed::NoPlace)?;
                let sending = exchange(r, pool, to, request, Some(place), within + longer);
                tokio::pin!(sending);
                let pumping = timeout(within, pump(body, inlet, max));
                tokio::select! {
                    biased;
                    answered = &mut sending => return Ok(answered?),
                    pumped = pumping => pumped.unwrap_or(Err(Reject::BodyTimeout))?,
                }
                Ok(sending.await?)
            }
        },
    }
}

/// Sends a request whose body is here: an append over a connection of its own, if it may have one.
async fn in_one_piece(
    r: &Received<'_>,
    pool: &Pool,
    to: &Owner,
    hop: Hop,
    bytes: Bytes,
    within: Duration,
) -> Result<Answered, Either> {
    let short = bytes.len() as u64 <= SMALL && r.header_map.len() <= FEW;
    if *r.method == Method::POST && short {
        let request = request(r, to, hop, Outgoing::whole(bytes.clone()))?;
        let request = lanes::as_http1(request)
            .map_err(|_e| Reject::bad("Host", "the request has no host to pass on"))?;
        let sent = tokio::select! {
            sent = pool.alone(&to.address.connect, request, within) => sent,
            () = last_words(&to.over) => return Err(Failed::Unknown("its session is over".to_owned()).into()),
        };
        match sent {
            Ok(response) => return Ok(Answered::Whole(response)),
            Err(NotAlone::Unknown(why)) => return Err(Failed::Unknown(why).into()),
            Err(NotAlone::NoLane) => {}
        }
    }
    let request = request(r, to, hop, Outgoing::whole(bytes))?;
    Ok(exchange(r, pool, to, request, None, within).await?)
}

/// Passes the client's body on, at the owner's pace. Ends early, without an error, if the owner wants no more of it.
async fn pump(body: &mut Incoming, inlet: Inlet, max: u64) -> Result<(), Reject> {
    let mut seen = 0;
    while let Some(part) = body::next_data(body).await? {
        seen += part.len() as u64;
        if seen > max {
            return Err(Reject::TooLarge { max });
        }
        if inlet.send(Some(part)).await.is_err() {
            return Ok(());
        }
    }
    // If nobody listens any more, there is an answer.
    inlet.send(None).await.ok();
    Ok(())
}

fn request(r: &Received<'_>, to: &Owner, hop: Hop, body: Outgoing) -> Result<Request<Outgoing>, Reject> {
    // The owner's `Location` is at the host that the client asked for.
    let authority = match paths::authority(r.uri, r.headers.host) {
        Ok(authority) => authority,
        Err(bad) if *r.method == Method::PUT && r.app.public_url.is_none() => return Err(bad),
        Err(_unused) => to.address.authority.clone(),
    };
    let path = r.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    let uri = Uri::builder().scheme(Scheme::HTTP).authority(authority).path_and_query(path).build();
    let length = if r.takes_body() { body.length() } else { None };
    let mut request = Request::new(body);
    *request.method_mut() = r.method.clone();
    *request.uri_mut() =
        uri.map_err(|_e| Reject::bad("request target", "the request target is not a path"))?;
    *request.headers_mut() = fields::of_request(r.header_map, hop, length);
    Ok(request)
}

/// One answer, from the second connection if nothing had left over the first.
async fn exchange(
    r: &Received<'_>,
    pool: &Pool,
    to: &Owner,
    mut request: Request<Outgoing>,
    mut place: Option<Place>,
    within: Duration,
) -> Result<Answered, Failed> {
    let live = *r.method == Method::GET && r.live();
    let within = if live { within + r.app.limits.long_poll } else { within };
    let mut again = true;
    loop {
        let mut at = match place.take() {
            Some(place) => place,
            None => pool.place(&to.address.connect).await.map_err(Failed::NoPlace)?,
        };
        let sending = timeout(within, at.sender.try_send_request(request));
        let sent = tokio::select! {
            sent = sending => sent.map_err(|_late| Failed::Unknown(format!("no answer in {within:?}")))?,
            () = r.app.stop.cancelled(), if live => return Err(Failed::Stopping),
            () = last_words(&to.over) => return Err(Failed::Unknown("its session is over".to_owned())),
        };
        let mut failed = match sent {
            Ok(response) => return Ok(Answered::Coming(response, at)),
            Err(failed) => failed,
        };
        match failed.take_message() {
            Some(unsent) if again => {
                again = false;
                request = unsent;
            }
            Some(_unsent) => {
                let why = failed.into_error().to_string();
                return Err(Failed::NoPlace(NoPlace::Unreachable(why)));
            }
            None => return Err(Failed::Unknown(failed.into_error().to_string())),
        }
    }
}

/// Resolves once the session is over and what it still said would be here.
async fn last_words(over: &CancellationToken) {
    over.cancelled().await;
    sleep(LAST_WORDS).await;
}

fn answer(r: &Received<'_>, to: &Owner, from: Response<Incoming>, place: Place) -> Response<Body> {
    let (head, body) = from.into_parts();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    fields::strip(response.headers_mut());
    if body.is_end_stream() {
        return response;
    }
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], |v| v.as_bytes());
    let events = kind.starts_with(b"text/event-stream");
    let patience = if events { SILENCE } else { r.app.limits.request_timeout };
    let (stop, over) = (r.app.stop.clone(), to.over.clone());
    let end = async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = last_words(&over) => {}
        }
    };
    let stop = events.then(|| Box::pin(end) as End);
    *response.body_mut() = Body::through(Through::new(body, place, r.app.metrics.clone(), patience, stop));
    response
}

fn whole(from: Response<Bytes>) -> Response<Body> {
    let (head, body) = from.into_parts();
    let mut response =
        Response::new(if body.is_empty() { Body::empty() } else { Body::parts([body].into()) });
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    fields::strip(response.headers_mut());
    response
}

fn no_answer(r: &Received<'_>, to: &Owner, failed: Failed) -> Reject {
    let (owner, reads) = (&to.address.connect, matches!(*r.method, Method::GET | Method::HEAD));
    match failed {
        Failed::NoPlace(NoPlace::Busy) => Reject::Busy(
            "as many requests are forwarded to the node that serves the stream as this node allows; nothing was done",
        ),
        Failed::NoPlace(why) => {
            tracing::debug!(owner, %why, "not forwarded");
            Reject::Stream(StreamError::unavailable(format!("{why}; nothing was done")))
        }
        Failed::Stopping => Reject::Busy("this node is stopping: ask another, or again"),
        Failed::Unknown(why) => {
            tracing::warn!(owner, why, "a forwarded request was not answered");
            if reads {
                Reject::Stream(StreamError::unavailable("the node that serves the stream did not answer"))
            } else {
                Reject::Stream(StreamError::OutcomeUnknown)
            }
        }
    }
}

/// Counts how a forward went, also when the client goes away meanwhile.
struct Counted<'a> {
    metrics: &'a Metrics,
    outcome: Forwarded,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.metrics.forwarded(self.outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_plain_http_with_a_port() {
        let connect = |url| Address::of(url).map(|a| a.connect);
        assert_eq!(connect("http://b.example:4437"), Some("b.example:4437".to_owned()));
        assert_eq!(connect("http://b.example"), Some("b.example:80".to_owned()));
        assert_eq!(connect("http://[::1]:4437"), Some("[::1]:4437".to_owned()));
        for none in ["https://b.example", "", "b.example:1", "/path"] {
            assert_eq!(connect(none), None, "{none:?}");
        }
    }
}
