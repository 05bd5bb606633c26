//! The peer listener: lets calls in, reads their bounded bodies, hands them on and sends the answers.
//!
//! Invariant: nothing of a body is read before its sender was let in; connections and calls at work are bounded; a
//! caller that is silent is given up. Spawned by `run`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming as Raw;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::link::{OnTasks, WINDOWS, chain};
use super::{Answer, Call, Handler, Inner, Peers, Refusal, RefusalCode, credentials, refusal};
use crate::net::{TcpListener, TcpStream};

/// Connections at a time: each node makes two.
const CONNECTIONS: usize = 1024;
/// Calls at work at a time, of all nodes.
const AT_WORK: usize = 1024;
/// Calls at a time over one connection.
const PER_CONNECTION: u32 = 512;
/// For a whole body, and for the next piece of one that is read piece by piece.
const BODY_WITHIN: Duration = Duration::from_secs(15);
/// How often a silent caller is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(5);

/// A request's body, read piece by piece.
#[derive(Debug)]
pub struct Incoming {
    body: Raw,
}

impl Incoming {
    /// The next piece; `None` at the end. A caller that sends nothing for a while has failed.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        let broken = |why: String| Refusal::new(RefusalCode::Malformed, format!("the body broke off: {why}"));
        loop {
            let frame = match timeout(BODY_WITHIN, self.body.frame()).await {
                Ok(frame) => frame,
                Err(_late) => return Err(broken(format!("nothing for {BODY_WITHIN:?}"))),
            };
            match frame {
                None => return Ok(None),
                Some(Err(e)) => return Err(broken(chain(&e))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Ok(Some(data)),
                    Err(_trailers) => return Ok(None),
                },
            }
        }
    }
}

/// Answers calls until the node stops.
pub async fn serve(listener: TcpListener, peers: Peers) -> anyhow::Result<()> {
    let inner = peers.inner;
    let stopping = inner.tasks.stopping().clone();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let work = Arc::new(Semaphore::new(AT_WORK));
    loop {
        let place = places.clone().acquire_owned().await?;
        let accepted = tokio::select! {
            () = stopping.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _from)) => {
                inner.tasks.spawn(connection(stream, inner.clone(), work.clone(), place));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a peer's connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, inner: Arc<Inner>, work: Arc<Semaphore>, place: OwnedSemaphorePermit) {
    let mut cut = inner.cut.subscribe();
    if *cut.borrow() || stream.set_nodelay(true).is_err() {
        return;
    }
    let service = {
        let inner = inner.clone();
        service_fn(move |request| {
            let (inner, work) = (inner.clone(), work.clone());
            async move { Ok::<_, Infallible>(answer(&inner, &work, request).await) }
        })
    };
    let serving = http2::Builder::new(OnTasks(inner.tasks.clone()))
        .timer(TokioTimer::new())
        .max_concurrent_streams(PER_CONNECTION)
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        ended = serving => if let Err(error) = ended {
            tracing::debug!(error = chain(&error), "a peer's connection has ended");
        },
        () = inner.tasks.stopping().cancelled() => {}
        _ = cut.wait_for(|cut| *cut) => {}
    }
    drop(place);
}

async fn answer(inner: &Inner, work: &Semaphore, request: Request<Raw>) -> Response<Full<Bytes>> {
    let (status, code, body) = match carry_out(inner, work, request).await {
        Ok(body) => (http::StatusCode::OK, None, body),
        Err(refused) => (refused.code.status(), Some(refused.header()), refused.text.into()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let unknown = status == http::StatusCode::UNAUTHORIZED;
    if let Some(code) = code {
        response.headers_mut().insert(refusal::HEADER, code);
    }
    if !unknown {
        credentials::say(inner, response.headers_mut());
    }
    response
}

async fn carry_out(inner: &Inner, work: &Semaphore, request: Request<Raw>) -> Answer {
    let (head, body) = request.into_parts();
    let path = head.uri.path().strip_prefix("/peer/").unwrap_or_default();
    let found = inner.handlers.read().get(path).cloned();
    // A path that is not known is let in by the strictest rule, so that strangers cannot tell which there are.
    let (call, handler) = match found {
        Some((call, handler)) => (call, Some(handler)),
        None => (Call::new(""), None),
    };
    let from = credentials::admit(inner, &head, &call)?;
    let Some(handler) = handler.filter(|_| head.method == Method::POST) else {
        return Err(Refusal::new(RefusalCode::NoSuchCall, format!("this node does not answer {path:?} now")));
    };
    let busy = |_e| Refusal::new(RefusalCode::Busy, format!("{AT_WORK} calls are at work already"));
    let _at_work = work.try_acquire().map_err(busy)?;
    match handler {
        Handler::Streaming(handler) => handler(from, Incoming { body }).await,
        Handler::Whole(handler) => handler(from, whole(body, call.request_max).await?).await,
    }
}

async fn whole(body: Raw, max: usize) -> Result<Bytes, Refusal> {
    match timeout(BODY_WITHIN, Limited::new(body, max).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(e)) if e.is::<http_body_util::LengthLimitError>() => {
            Err(Refusal::new(RefusalCode::TooLarge, format!("at most {max} bytes")))
        }
        Ok(Err(e)) => Err(Refusal::new(RefusalCode::Malformed, format!("the body broke off: {e}"))),
        Err(_late) => Err(Refusal::new(RefusalCode::Malformed, format!("no whole body in {BODY_WITHIN:?}"))),
    }
}
