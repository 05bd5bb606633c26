//! A server that stands where an owner would, and does as it is told; and a front before it.

use std::convert::Infallible;
use std::pin::Pin;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{Empty, Full, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::http::serve::OnTasks;

/// What a stub answers with.
#[derive(Debug)]
pub(super) enum Deed {
    /// This status and body.
    Answer(u16, &'static str),
    /// The same, and no more over this connection.
    Last(u16),
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
    /// Every connection holds an end of it, and ends at the next word.
    connected: watch::Sender<()>,
    /// Cancelled: nobody is connected to any more.
    deaf: CancellationToken,
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
        let (connected, deaf) = (watch::Sender::new(()), CancellationToken::new());
        let (ends, closed) = (connected.clone(), deaf.clone());
        tasks.spawn(async move {
            let stopping = all.stopping().clone();
            while let Some(Some(Ok((stream, _)))) =
                stopping.run_until_cancelled(closed.run_until_cancelled(listener.accept())).await
            {
                let (saw, script, die) = (saw.clone(), script.clone(), CancellationToken::new());
                let (tasks, stopping, mut hang_up) = (all.clone(), stopping.clone(), ends.subscribe());
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
                        _ = hang_up.changed() => {}
                        () = stopping.cancelled() => {}
                    }
                });
            }
        });
        Self { url, seen, deeds, connected, deaf }
    }

    /// Closes every connection there is, and returns when they are.
    pub(super) async fn hang_up(&self) {
        self.connected.send_replace(());
        tokio::time::timeout(PATIENCE, self.connected.closed()).await.expect("they are closed");
    }

    /// Takes no more connections, and returns when there is nobody to take them.
    pub(super) async fn listen_no_more(&self) {
        self.deaf.cancel();
        let address = self.url.strip_prefix("http://").unwrap();
        let refused = async {
            while net::connect(address, PATIENCE).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, refused).await.expect("it is closed");
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
        Deed::Last(status) => {
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response.headers_mut().insert("connection", HeaderValue::from_static("close"));
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

/// A front before a stub.
pub(super) struct Rig {
    pub(super) node: Node,
    pub(super) front: Front,
    pub(super) stub: Stub,
}

impl Rig {
    pub(super) async fn start(change: impl FnOnce(&mut HttpLimits)) -> Self {
        Self::with(quick(), change).await
    }

    /// A stream `s` is placed at the stub.
    pub(super) async fn with(pool: PoolLimits, change: impl FnOnce(&mut HttpLimits)) -> Self {
        let node = Node::start(|_| {}).await;
        let stub = Stub::start(&node.tasks).await;
        let metadata = node.node.metadata();
        register(metadata, "a-stub", &stub.url, 1000).await;
        let router =
            Router::new(metadata.clone(), own(&node), RoutingMode::Forward, node.tasks.clone(), pool);
        let front = Front::start((node.node.streams(), &node.tasks), router, change).await;
        // Not through the front, whose limits may be shorter than a create takes.
        assert_eq!(node.ask("PUT", "/v1/stream/s", &[TEXT], "").await.status, 201);
        Self { node, front, stub }
    }

    /// Makes a shared connection, without which appends have none of their own.
    pub(super) async fn meet(&mut self) {
        self.stub.then(Deed::Answer(200, ""));
        assert_eq!(self.front.ask("HEAD", "/v1/stream/s", &[], "").await.status, 200);
        drop(self.stub.next().await);
    }

    pub(super) async fn stop(self) {
        self.front.stop.cancel();
        self.node.stop().await;
    }
}
