//! A client's connections in the simulated network: HTTP/1.1 that follows redirects, a bounded number of them.
//!
//! Invariant: a failure is *not sent* only if no byte of the request left; a connection is used again only after the
//! answer before was read to its end. Used by `workload`, within a turmoil host.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout, timeout_at};
use turmoil::net::TcpStream;
use weir_tests::client::{Answer, Failure};

/// Redirects that are followed before a client gives up: more than the server ever makes.
pub const HOPS: usize = 8;

/// For a connection to be made: a machine that is down does not answer.
const CONNECT: Duration = Duration::from_millis(1_500);

/// One client.
#[derive(Default)]
pub struct Client {
    kept: BTreeMap<String, SendRequest<Full<Bytes>>>,
}

/// A request, as often as it has to be sent.
#[derive(Debug, Clone)]
pub struct Say {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// The headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Bytes,
}

/// How it went.
#[derive(Debug)]
pub struct Went {
    /// The last answer.
    pub answer: Result<Answer, Failure>,
    /// Who was asked last.
    pub by: String,
    /// Redirects followed.
    pub sent_on: Vec<SentOn>,
}

/// A redirect.
#[derive(Debug, Clone)]
pub struct SentOn {
    /// Whose.
    pub by: String,
    /// To which origin.
    pub to: String,
    /// The entry that its sender's view held.
    pub index: u64,
    /// How many it says that there were.
    pub hops: u32,
}

impl Client {
    /// Asks `host:port`, and then whoever it is sent to.
    pub async fn send(&mut self, address: &str, say: &Say, within: Duration) -> Went {
        let end = Instant::now() + within;
        let (mut by, mut target, mut sent_on) = (address.to_owned(), say.target.clone(), Vec::new());
        loop {
            let answer = match timeout_at(end, self.once(&by, &target, say)).await {
                Ok(answer) => answer,
                Err(_late) => {
                    self.kept.remove(&by);
                    Err(Failure::Late)
                }
            };
            let more = sent_on.len() < HOPS;
            let next = answer.as_ref().ok().filter(|a| a.status == 307 && more).and_then(place);
            let Some((host, path)) = next else { return Went { answer, by, sent_on } };
            let (index, hops) = hop(&path);
            sent_on.push(SentOn { by, to: format!("http://{host}"), index, hops });
            (by, target) = (host, path);
        }
    }

    async fn once(&mut self, address: &str, target: &str, say: &Say) -> Result<Answer, Failure> {
        let request = || {
            let mut request = Request::builder().method(say.method.clone()).uri(target);
            if say.headers.iter().all(|(name, _)| *name != "host") {
                request = request.header("host", address);
            }
            for (name, value) in &say.headers {
                request = request.header(*name, value);
            }
            request.body(Full::new(say.body.clone())).expect("the workload's requests are well formed")
        };
        let mut sender = match self.kept.remove(address).filter(|kept| !kept.is_closed()) {
            Some(kept) => kept,
            None => connect(address).await?,
        };
        let response = match sender.try_send_request(request()).await {
            Ok(response) => response,
            Err(mut e) => {
                return Err(match e.take_message() {
                    Some(_) => Failure::NotSent("the connection had closed".to_owned()),
                    None => Failure::Cut(e.error().to_string()),
                });
            }
        };
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|e| Failure::Cut(e.to_string()))?.to_bytes();
        if sender.ready().await.is_ok() {
            self.kept.insert(address.to_owned(), sender);
        }
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }
}

async fn connect(address: &str) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let not_sent = |e: &dyn std::fmt::Display| Failure::NotSent(e.to_string());
    let connecting = timeout(CONNECT, TcpStream::connect(address)).await;
    let stream = connecting.map_err(|late| not_sent(&late))?.map_err(|e| not_sent(&e))?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| not_sent(&e))?;
    #[allow(clippy::disallowed_methods, reason = "a client is no node")]
    drop(tokio::spawn(async move {
        // Whoever waits for an answer hears of the error.
        drop(connection.await);
    }));
    Ok(sender)
}

/// Where a redirect leads: `host:port`, path and query.
fn place(a: &Answer) -> Option<(String, String)> {
    let uri: Uri = a.header("location")?.parse().ok()?;
    Some((uri.authority()?.to_string(), uri.path_and_query()?.to_string()))
}

/// The hop that a target names; one that names none knows nothing.
fn hop(target: &str) -> (u64, u32) {
    let said = || {
        let query = target.split_once('?')?.1;
        let (index, hops) =
            query.split('&').find_map(|pair| pair.strip_prefix("weir-hop="))?.split_once('.')?;
        Some((index.parse().ok()?, hops.parse().ok()?))
    };
    said().unwrap_or_default()
}
