//! The API server in memory, on a socket of loopback, for processes.

use std::net::SocketAddr;

use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::Service as _;

use crate::api::Api;

/// Serves as long as it is there.
pub(crate) struct Socket {
    pub(crate) address: SocketAddr,
    _accepts: JoinSet<()>,
}

impl Socket {
    #[allow(clippy::disallowed_methods, reason = "a test's own server")]
    pub(crate) async fn open(api: &Api) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, api) = (listener.local_addr().unwrap(), api.clone());
        let mut accepts = JoinSet::new();
        accepts.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _from) = listener.accept().await.unwrap();
                connections.spawn(connection(stream, api.clone()));
            }
        });
        Self { address, _accepts: accepts }
    }
}

async fn connection(stream: TcpStream, api: Api) {
    let serve = service_fn(move |request: Request<Incoming>| {
        let mut service = api.service();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
            service.call(Request::from_parts(head, Body::from(body.to_vec()))).await
        }
    });
    // The other end is a process that may be ended at any time.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await);
}
