//! The client protocol over HTTP/1.1 and HTTP/2: a file per verb.
//!
//! Invariant: a request is parsed and bounded in full before the streams layer hears of it; every response, errors
//! included, carries the CORS and browser security fields; status codes come from `error` and the verbs' own successes.
//! Plain hyper, no router: there is one route of weight, whose tail this module decodes itself, and an append passes no layer
//! that it does not need. `run` builds [`App`] and calls [`serve()`].

mod append;
mod body;
mod create;
mod error;
mod forward;
mod framing;
#[cfg(fuzzing)]
pub mod fuzzing;
mod headers;
mod hop;
mod json;
mod list;
mod live;
mod noop;
mod owners;
mod paths;
mod read;
mod redirect;
mod route;
mod serve;
mod socket;
mod sse;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, request,
};
pub(crate) use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use self::forward::PoolLimits;
pub use self::noop::serve_noop;
pub use self::route::Router;
pub use self::serve::serve;

use self::body::{Body, Budget, Taken};
use self::error::Reject;
use self::forward::Source;
use self::framing::Framing;
use self::headers::RequestHeaders;
use self::hop::Arrived;
use self::paths::Target;
use crate::clock::Clock;
use crate::metrics::{Metrics, Operation};
use crate::streams::{StreamError, StreamName, Streams};

/// What requests may take.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// The largest request body, bytes.
    pub max_body: u64,
    /// All request bodies in memory together, bytes.
    pub max_bodies: u64,
    /// About the largest answer to one read, bytes.
    pub max_read_chunk: usize,
    /// A request's line and fields together, bytes.
    pub max_head: usize,
    /// The request target, bytes.
    pub max_uri: usize,
    /// Connections at a time; more wait in the system's queue.
    pub max_connections: usize,
    /// Live readers at a time: long-polls that wait, and event streams.
    pub max_waiters: usize,
    /// How long a long-poll waits.
    pub long_poll: Duration,
    /// About how long an event stream lasts.
    pub sse_lifetime: Duration,
    /// Silence after which an event stream shows that it is alive.
    pub sse_keep_alive: Duration,
    /// For a request's line and fields to arrive; an idle connection is closed after as long.
    pub head_timeout: Duration,
    /// For a request's body to arrive; a second more for every 64 KiB of it.
    pub body_timeout: Duration,
    /// For the streams layer to answer.
    pub request_timeout: Duration,
    /// For a client that stopped reading to go on.
    pub write_timeout: Duration,
    /// For requests in flight when told to stop.
    pub shutdown_grace: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            max_body: 16 << 20,
            max_bodies: 512 << 20,
            max_read_chunk: 1 << 20,
            max_head: 32 << 10,
            max_uri: 8 << 10,
            max_connections: 20_000,
            max_waiters: 100_000,
            long_poll: Duration::from_secs(30),
            sse_lifetime: Duration::from_secs(60),
            // Proxies give up on silence after 30 or 60 s.
            sse_keep_alive: Duration::from_secs(15),
            head_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

/// What serving clients needs.
pub struct App {
    streams: Streams,
    limits: HttpLimits,
    public_url: Option<String>,
    clock: Clock,
    /// Cancelled when no more requests are to be taken.
    stop: CancellationToken,
    waiters: Arc<Semaphore>,
    shelves: sse::Shelves,
    bodies: Budget,
    metrics: Metrics,
    /// `None`: requests for streams of other nodes are answered that they are elsewhere.
    router: Option<Router>,
}

impl App {
    /// `public_url`: where clients reach the cluster, for `Location`; by default the host they asked for. `stop`: see
    /// [`serve()`].
    pub fn new(
        streams: Streams,
        limits: HttpLimits,
        public_url: Option<String>,
        clock: Clock,
        stop: CancellationToken,
    ) -> Self {
        let waiters = Arc::new(Semaphore::new(limits.max_waiters.min(Semaphore::MAX_PERMITS)));
        let bodies = Budget::new(limits.max_bodies);
        let metrics = Metrics::default();
        Self {
            streams,
            limits,
            public_url,
            clock,
            stop,
            waiters,
            shelves: sse::Shelves::default(),
            bodies,
            metrics,
            router: None,
        }
    }

    /// Counts requests there.
    #[must_use]
    pub fn counting(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// Sends requests for streams of other nodes there.
    #[must_use]
    pub fn routed(self, router: Router) -> Self {
        Self { router: Some(router), ..self }
    }

    /// How large the request's body may be, and how long it may take to arrive.
    fn body_bounds(&self, body: &Incoming) -> (u64, Duration) {
        let max = self.limits.max_body;
        let size = hyper::body::Body::size_hint(body).exact().unwrap_or(max).min(max);
        (max, self.limits.body_timeout + Duration::from_secs(size / SLOWEST_BODY))
    }

    /// The request's whole body.
    async fn take(&self, body: &mut Incoming) -> Result<Taken, Reject> {
        let (max, deadline) = self.body_bounds(body);
        body::take(body, max, deadline, &self.bodies).await
    }

    /// Runs what changes nothing: too late is "try again".
    async fn reading<T>(&self, work: impl Future<Output = Result<T, StreamError>>) -> Result<T, Reject> {
        self.reading_for(Duration::ZERO, work).await
    }

    /// The same for work that takes `longer` by intent.
    async fn reading_for<T>(
        &self,
        longer: Duration,
        work: impl Future<Output = Result<T, StreamError>>,
    ) -> Result<T, Reject> {
        let deadline = self.limits.request_timeout + longer;
        Ok(tokio::time::timeout(deadline, work).await.map_err(|_late| Reject::ReadTimeout)??)
    }

    /// Runs what may change something: too late is "nobody knows".
    async fn changing<T>(&self, work: impl Future<Output = Result<T, StreamError>>) -> Result<T, Reject> {
        let late = |_late| Reject::Stream(StreamError::OutcomeUnknown);
        Ok(tokio::time::timeout(self.limits.request_timeout, work).await.map_err(late)??)
    }
}

/// A request's head, parsed as far as all verbs need it.
struct Received<'a> {
    app: &'a App,
    method: &'a Method,
    /// Without a hop.
    uri: &'a Uri,
    headers: RequestHeaders<'a>,
    header_map: &'a HeaderMap,
    arrived: &'a Arrived,
    /// It has a body whose length it does not say.
    unmeasured: bool,
}

impl Received<'_> {
    /// Its method is one that has a body.
    fn takes_body(&self) -> bool {
        takes_body(self.method)
    }

    /// It asks to wait for what is to come.
    fn live(&self) -> bool {
        live(self.uri)
    }
}

fn takes_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT)
}

fn live(uri: &Uri) -> bool {
    uri.query().is_some_and(|q| q.split('&').any(|p| p.starts_with("live=")))
}

/// Bytes a second below which a large body is given up.
const SLOWEST_BODY: u64 = 64 << 10;

/// How much of a refused request's body is read so that its connection may go on, and for how long.
const DRAIN_BYTES: u64 = 64 << 10;
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Answers one request. `refused`: the connection's watcher found its framing ambiguous.
async fn handle(app: &App, request: Request<Incoming>, refused: Option<Framing>) -> Response<Body> {
    let started = app.clock.monotonic();
    let (head, mut body) = request.into_parts();
    let answered = match refused {
        Some(framing) => Err(Reject::Framing(framing)),
        None => answer(app, &head, &mut body).await,
    };
    let mut response = answered.unwrap_or_else(Reject::into_response);
    if head.version <= Version::HTTP_11 {
        let (status, closes) = (response.status(), response.headers().contains_key(CONNECTION));
        let closing = app.stop.is_cancelled() || !settled(&head, &mut body, status, closes).await;
        if closing {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    } else {
        response.headers_mut().remove(CONNECTION);
    }
    dress(&head.method, &mut response);
    app.metrics.request(operation(&head), response.status().as_u16(), started.elapsed());
    response
}

/// What is counted as what.
fn operation(head: &request::Parts) -> Operation {
    if paths::target(head.uri.path()) == Target::Streams {
        return Operation::List;
    }
    match head.method {
        Method::POST => Operation::Append,
        Method::GET if live(&head.uri) => Operation::ReadLive,
        Method::GET => Operation::Read,
        Method::PUT => Operation::Create,
        Method::HEAD => Operation::Head,
        Method::DELETE => Operation::Delete,
        _ => Operation::Other,
    }
}

/// Whether the connection's next request begins where this one's answer leaves the client. `closes`: the answer says
/// that none follows.
async fn settled(head: &request::Parts, body: &mut Incoming, status: StatusCode, closes: bool) -> bool {
    if hyper::body::Body::is_end_stream(body) || (takes_body(&head.method) && status.is_success()) {
        return true;
    }
    // A client that waits for `100 Continue` may or may not send its body after an error.
    let unsure = closes || head.headers.contains_key(http::header::EXPECT);
    !unsure && body::drain(body, DRAIN_BYTES, DRAIN_TIME).await
}

async fn answer(app: &App, head: &request::Parts, body: &mut Incoming) -> Result<Response<Body>, Reject> {
    let uri = &head.uri;
    let length = uri.path().len() + uri.query().map_or(0, str::len);
    if length > app.limits.max_uri {
        return Err(Reject::UriTooLong { max: app.limits.max_uri });
    }
    let headers = RequestHeaders::parse(&head.headers)?;
    if head.version == Version::HTTP_11 && headers.host.is_none() {
        return Err(Reject::bad("Host", "Host is missing: HTTP/1.1 requires it"));
    }
    if head.method == Method::OPTIONS {
        return Ok(preflight());
    }
    let name = match paths::target(uri.path()) {
        Target::Stream(raw) => StreamName::from_path(raw)?,
        Target::Health if matches!(head.method, Method::GET | Method::HEAD) => return Ok(health()),
        Target::Streams if matches!(head.method, Method::GET | Method::HEAD) => {
            return list::list(app, uri.query()).await;
        }
        Target::Streams => return Err(Reject::ListMethod),
        Target::Health | Target::Unknown => return Err(Reject::NoRoute),
    };
    let arrived = Arrived::read(uri, &head.headers)?;
    route::caught_up(app, &arrived).await?;
    let r = Received {
        app,
        method: &head.method,
        uri: arrived.uri.as_ref().unwrap_or(uri),
        headers,
        header_map: &head.headers,
        arrived: &arrived,
        unmeasured: takes_body(&head.method) && hyper::body::Body::size_hint(body).exact().is_none(),
    };
    let known =
        matches!(head.method, Method::POST | Method::GET | Method::PUT | Method::HEAD | Method::DELETE);
    if known && let Some(onward) = route::elsewhere(app, &name) {
        return route::send(&r, onward, Source::Arriving(body)).await;
    }
    let answered = match head.method {
        Method::POST => append::append(&r, &name, body).await,
        Method::GET => read::get(&r, &name).await,
        Method::PUT => create::create(&r, &name, body).await,
        Method::HEAD => read::head(&r, &name).await,
        Method::DELETE => read::delete(&r, &name).await,
        _ => Err(Reject::Method),
    };
    // What the view did not know the log did.
    match answered {
        Err(Reject::Stream(StreamError::Elsewhere { owner })) => {
            route::send(&r, route::owner(app, &owner)?, Source::Arriving(body)).await
        }
        Err(Reject::Elsewhere { owner, taken }) => {
            route::send(&r, route::owner(app, &owner)?, Source::Taken(taken)).await
        }
        other => other,
    }
}

/// This process answers; whether it can do its work is for `/readyz` to say.
fn health() -> Response<Body> {
    let mut response = Response::new(Body::from_static(b"ok\n"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

const ALLOWED_HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Cache-Control, Content-Type, If-None-Match, Last-Event-ID, Stream-Seq, Stream-TTL, Stream-Expires-At, \
     Stream-Closed, Stream-Forked-From, Stream-Fork-Offset, Stream-Fork-Sub-Offset, Producer-Id, Producer-Epoch, \
     Producer-Seq",
);

const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "Stream-Next-Offset, Stream-Cursor, Stream-Up-To-Date, Stream-Closed, Stream-TTL, Stream-Expires-At, \
     Stream-SSE-Data-Encoding, Producer-Epoch, Producer-Seq, Producer-Expected-Seq, Producer-Received-Seq, ETag, \
     Location, Retry-After, Content-Type, Content-Length",
);

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let out = response.headers_mut();
    out.insert(ALLOW, error::METHODS);
    out.insert(ACCESS_CONTROL_ALLOW_METHODS, error::METHODS);
    out.insert(ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS);
    out.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    response
}

/// What every response carries.
fn dress(method: &Method, response: &mut Response<Body>) {
    if method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    let out = response.headers_mut();
    out.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    out.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    out.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    out.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
    out.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

#[cfg(test)]
pub(crate) mod tests;
