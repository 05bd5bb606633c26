//! A server that stands where an owner would, and does as it is told.

use std::convert::Infallible;
use std::pin::Pin;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{Empty, Full, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tokio::sync::mpsc;

use super::*;
use crate::http::serve::OnTasks;

/// What a stub answers with.
#[derive(Debug)]
pub(super) enum Deed {
    /// This status and body.
    Answer(u16, &'static str),
    /// Nothing, ever, after the body was read.
    Hold,
    /// Nothing; the connection goes.
    Die,
    /// What comes, as the type that is named.
    Stream(&'static str, mpsc::Receiver<Result<Bytes, std::io::Error>>),
}

/// A request as the stub saw it. `body` is `None` if it broke off.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) fields: HeaderMap,
    pub(super) body: Option<Bytes>,
}

pub(super) struct Stub {
    pub(super) url: String,
    pub(super) seen: mpsc::UnboundedReceiver<Seen>,
    deeds: mpsc::UnboundedSender<Deed>,
    /// Whoever is connected hangs up at the next word.
    hang_up: tokio::sync::watch::Sender<u32>,
}

type Out = BoxBody<Bytes, std::io::Error>;

impl Stub {
    pub(super) async fn start(tasks: &Tasks) -> Self {
        let listener = net::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (saw, seen) = mpsc::unbounded_channel();
        let (deeds, script) = mpsc::unbounded_channel();
        let script = Arc::new(tokio::sync::Mutex::new(script));
        let all = tasks.clone();
        let (hang_up, hung_up) = tokio::sync::watch::channel(0);
        tasks.spawn(async move {
            let stopping = all.stopping().clone();
            while let Some(Ok((stream, _))) = stopping.run_until_cancelled(listener.accept()).await {
                let (saw, script, die) = (saw.clone(), script.clone(), CancellationToken::new());
                let (tasks, stopping, mut hung_up) = (all.clone(), stopping.clone(), hung_up.clone());
                hung_up.mark_unchanged();
                all.spawn(async move {
                    let dying = die.clone();
                    let service = service_fn(move |request| {
                        let (saw, script, die) = (saw.clone(), script.clone(), dying.clone());
                        async move { act(request, &saw, &script, &die).await }
                    });
                    let http = auto::Builder::new(OnTasks(tasks));
                    let connection = http.serve_connection(TokioIo::new(stream), service);
                    tokio::select! {
                        ended = connection => drop(ended),
                        () = die.cancelled() => {}
                        _ = hung_up.changed() => {}
                        () = stopping.cancelled() => {}
                    }
                });
            }
        });
        Self { url, seen, deeds, hang_up }
    }

    /// Closes every connection there is.
    pub(super) fn hang_up(&self) {
        self.hang_up.send_modify(|times| *times += 1);
    }

    /// What to do with the next request that nothing was said of.
    pub(super) fn then(&self, deed: Deed) {
        self.deeds.send(deed).expect("the stub runs");
    }

    pub(super) async fn next(&mut self) -> Seen {
        tokio::time::timeout(PATIENCE, self.seen.recv()).await.expect("a request").expect("the stub runs")
    }
}

async fn act(
    request: Request<Incoming>,
    saw: &mpsc::UnboundedSender<Seen>,
    script: &tokio::sync::Mutex<mpsc::UnboundedReceiver<Deed>>,
    die: &CancellationToken,
) -> Result<Response<Out>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.ok().map(|b| b.to_bytes());
    let whole = body.is_some();
    drop(saw.send(Seen { method: head.method, uri: head.uri, fields: head.headers, body }));
    if !whole {
        return std::future::pending().await;
    }
    let deed = script.lock().await.recv().await.expect("a deed for each request");
    let mut response = Response::new(Empty::new().map_err(|e| match e {}).boxed());
    match deed {
        Deed::Answer(status, body) => {
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response.headers_mut().insert("connection-id", HeaderValue::from_static("kept"));
            *response.body_mut() = Full::from(body).map_err(|e| match e {}).boxed();
        }
        Deed::Hold => return std::future::pending().await,
        Deed::Die => {
            die.cancel();
            return std::future::pending().await;
        }
        Deed::Stream(kind, mut parts) => {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            let parts = futures::stream::poll_fn(move |cx| {
                parts.poll_recv(cx).map(|p| p.map(|r| r.map(Frame::data)))
            });
            let parts: Pin<Box<dyn futures::Stream<Item = _> + Send + Sync>> = Box::pin(parts);
            *response.body_mut() = BoxBody::new(StreamBody::new(parts));
        }
    }
    Ok(response)
}
