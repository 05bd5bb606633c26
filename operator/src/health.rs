//! The operator's own listener: `/livez`, `/readyz`, `/metrics`.
//!
//! Invariant: readiness does not depend on leading, or a rolling update would wait for itself. Nothing here is secret and
//! nothing can be changed. Called by `run`.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// Connections at once; more wait.
const CONNECTIONS: usize = 64;

/// Binds the listener. The error says which address.
#[allow(clippy::disallowed_methods, reason = "the operator's only listener")]
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let at = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}"));
    TcpListener::bind(there_are(address, TcpSocket::new_v6)).await.map_err(at)
}

/// All addresses there are, `[::]`, are those of IPv4 where the kernel has no IPv6.
fn there_are(address: SocketAddr, v6: fn() -> io::Result<TcpSocket>) -> SocketAddr {
    let all = address.is_ipv6() && address.ip().is_unspecified();
    if all && v6().is_err() { (Ipv4Addr::UNSPECIFIED, address.port()).into() } else { address }
}

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, metrics: Metrics, stop: CancellationToken) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(_ended) = open.join_next() => {}
            accepted = listener.accept(), if open.len() < CONNECTIONS => {
                let Ok((stream, _from)) = accepted else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let metrics = metrics.clone();
                let serve = service_fn(move |request| {
                    let answer = answer(&request, &metrics);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(Duration::from_secs(10))
                    .serve_connection(TokioIo::new(stream), serve);
                open.spawn(async move {
                    if let Err(error) = tokio::time::timeout(Duration::from_secs(300), connection).await {
                        tracing::debug!(%error, "connection closed");
                    }
                });
            }
        }
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/livez" | "/readyz") => {
            (StatusCode::OK, "text/plain", "ok\n".to_owned())
        }
        (&Method::GET | &Method::HEAD, "/metrics") => {
            (StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", metrics.text())
        }
        _ => (StatusCode::NOT_FOUND, "text/plain", "there are /livez, /readyz and /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_ipv6_all_addresses_are_those_of_ipv4() {
        let none = || Err(io::Error::other("a kernel without"));
        for (wanted, listened) in
            [("[::]:7", "0.0.0.0:7"), ("[::1]:7", "[::1]:7"), ("127.0.0.1:7", "127.0.0.1:7")]
        {
            let wanted = wanted.parse().unwrap();
            assert_eq!(there_are(wanted, none).to_string(), listened);
            assert_eq!(there_are(wanted, TcpSocket::new_v4), wanted, "it has");
        }
    }
}
