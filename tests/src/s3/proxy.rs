//! Stands in front of a real S3 server and is the bad network: slow, busy, in conflict, cut, and replies that get lost.
//!
//! Invariant: a request that it passes on, it passes on whole and unchanged, so that what the server stores is what the
//! client sent; what it breaks follows from its seed and [`Faults`].

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header, request};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::faults::{Fate, Faults, Outage};
use crate::rng::Rng;

/// How long the server behind may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running proxy; it goes away with this handle.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// How many requests met which fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Met {
    /// Passed on and answered.
    pub fine: u64,
    /// Refused, or cut before they reached the server.
    pub refused: u64,
    /// Passed on, and their reply lost, cut in the middle or replaced.
    pub lost: u64,
    /// Refused, and passed on a while later.
    pub late: u64,
    /// Answered 409.
    pub conflict: u64,
}

#[derive(Debug)]
struct Shared {
    to: SocketAddr,
    pool: Client<HttpConnector, Full<Bytes>>,
    faults: Mutex<Faults>,
    rng: Mutex<Rng>,
    late: Mutex<JoinSet<()>>,
    met: Mutex<Met>,
    journal: Mutex<Vec<String>>,
    since: Instant,
}

/// What comes back: a whole body, or its first half and then a cut.
struct Reply {
    part: Option<Bytes>,
    cut: bool,
}

type Answer = Result<Response<Reply>, io::Error>;

impl FaultProxy {
    /// In front of the server at `to`, without faults.
    pub async fn start(to: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            to,
            pool: Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build_http(),
            faults: Mutex::default(),
            rng: Mutex::new(Rng::new(seed)),
            late: Mutex::default(),
            met: Mutex::default(),
            journal: Mutex::default(),
            since: Instant::now(),
        });
        let server = tokio::spawn(serve(listener, shared.clone()));
        Self { address, shared, server }
    }

    /// Its door.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on these faults.
    pub fn set(&self, faults: Faults) {
        *self.shared.faults.lock().unwrap() = faults;
    }

    /// What requests have met so far.
    pub fn met(&self) -> Met {
        *self.shared.met.lock().unwrap()
    }

    /// Waits until every late request has reached the server.
    pub async fn land_late(&self) {
        let mut late = std::mem::take(&mut *self.shared.late.lock().unwrap());
        while late.join_next().await.is_some() {}
    }

    /// Every request so far and its fate, a line each.
    pub fn journal(&self) -> String {
        self.shared.journal.lock().unwrap().join("\n")
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Dropping the set with this task closes every connection.
    let mut connections = JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let shared = shared.clone();
        connections.spawn(async move {
            let service = service_fn(|request| shared.clone().answer(request));
            // A cut connection is the client's affair, or a fault of ours.
            drop(http1::Builder::new().serve_connection(TokioIo::new(socket), service).await);
        });
        while connections.try_join_next().is_some() {}
    }
}

impl Shared {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let faults = self.faults.lock().unwrap().clone();
        match faults.outage {
            Some(Outage::Errors) => return error(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
            Some(Outage::Cuts) => return Err(cut()),
            Some(Outage::Hangs) => std::future::pending().await,
            None => {}
        }
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_e| cut())?.to_bytes();
        let (pause, fate, half) = {
            let mut rng = self.rng.lock().unwrap();
            let pause = faults.pause(&mut rng);
            let fate = if head.method == Method::PUT { faults.fate(&mut rng) } else { faults.read(&mut rng) };
            (pause, fate, rng.one_in(2))
        };
        if let Some(pause) = pause {
            sleep(pause).await;
        }
        self.note(&head, fate);
        match fate {
            Fate::Fine => self.pass(head, body).await,
            Fate::Failed if half => Err(cut()),
            Fate::Failed => error(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
            Fate::Conflict => error(StatusCode::CONFLICT, "ConditionalRequestConflict"),
            Fate::Late(after) => {
                let this = self.clone();
                let later = async move {
                    sleep(after).await;
                    // Nobody waits for its reply.
                    drop(this.pass(head, body).await);
                };
                self.late.lock().unwrap().spawn(later);
                error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
            }
            Fate::Ambiguous { cut: whole } => {
                let mut response = self.pass(head, body).await?;
                match response.body_mut() {
                    // A reply with a body can break off within it.
                    reply if reply.part.as_ref().is_some_and(|b| b.len() > 1) && half => {
                        reply.part = reply.part.take().map(|b| b.slice(..b.len() / 2));
                        reply.cut = true;
                        Ok(response)
                    }
                    _ if whole => Err(cut()),
                    _ => error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
                }
            }
        }
    }

    /// Sends a request to the server as it came: its signature covers the host that the client sees.
    async fn pass(&self, head: request::Parts, body: Bytes) -> Answer {
        let target = head.uri.path_and_query().map_or("/", |t| t.as_str());
        let uri: Uri = format!("http://{}{target}", self.to).parse().map_err(|_e| cut())?;
        let mut request = Request::builder().method(head.method).uri(uri);
        if let Some(headers) = request.headers_mut() {
            *headers = head.headers;
            end_to_end(headers);
        }
        let request = request.body(Full::new(body)).map_err(|_e| cut())?;
        let exchange = async {
            let response = self.pool.request(request).await.map_err(|_e| cut())?;
            let (mut head, body) = response.into_parts();
            let body = body.collect().await.map_err(|_e| cut())?.to_bytes();
            end_to_end(&mut head.headers);
            Ok(Response::from_parts(head, Reply { part: Some(body), cut: false }))
        };
        timeout(DEADLINE, exchange).await.map_err(|_late| cut())?
    }

    fn note(&self, head: &request::Parts, fate: Fate) {
        let met = &mut *self.met.lock().unwrap();
        *match fate {
            Fate::Fine => &mut met.fine,
            Fate::Failed => &mut met.refused,
            Fate::Ambiguous { .. } => &mut met.lost,
            Fate::Late(_) => &mut met.late,
            Fate::Conflict => &mut met.conflict,
        } += 1;
        let line =
            format!("{:9.3} {} {}: {fate:?}", self.since.elapsed().as_secs_f64(), head.method, head.uri);
        self.journal.lock().unwrap().push(line);
    }
}

/// Without what concerns one connection only.
fn end_to_end(headers: &mut HeaderMap) {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(match self.part.take() {
            Some(part) => Some(Ok(Frame::data(part))),
            None if self.cut => Some(Err(cut())),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        !self.cut && self.part.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.part {
            Some(part) if !self.cut => SizeHint::with_exact(part.len() as u64),
            _ => SizeHint::default(),
        }
    }
}

fn error(status: StatusCode, code: &str) -> Answer {
    let xml = format!("<Error><Code>{code}</Code><Message>a test's fault</Message></Error>");
    let reply = Reply { part: Some(xml.into()), cut: false };
    let builder = Response::builder().status(status).header(header::CONTENT_TYPE, "application/xml");
    Ok(builder.body(reply).expect("well formed"))
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "cut on purpose")
}
