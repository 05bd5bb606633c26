//! Connections of the admin listener: HTTP/1.1, few, with deadlines.
//!
//! Invariant: a client that sends nothing, or reads nothing, holds one of [`CONNECTIONS_MAX`] places for a bounded time.
//! Started by `super::serve`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Admin;
use crate::net::{TcpListener, TcpStream};
use crate::tasks::Tasks;

const CONNECTIONS_MAX: usize = 128;
/// For a request's head, and for an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) async fn accept(listener: TcpListener, admin: Arc<Admin>, tasks: Tasks) -> anyhow::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        let accepted = tokio::select! {
            () = tasks.stopping().cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(connection(stream, Arc::clone(&admin), tasks.clone(), place));
            }
            // Out of descriptors, or the peer is gone already: neither ends the listener.
            Err(e) => {
                tracing::warn!(error = %e, "admin: accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, admin: Arc<Admin>, tasks: Tasks, place: OwnedSemaphorePermit) {
    let service = service_fn(move |request| {
        let admin = Arc::clone(&admin);
        async move { Ok::<_, Infallible>(admin.answer(request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_headers(64).max_buf_size(32 << 10);
    let mut serving = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = tasks.stopping().cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::time::timeout(HEAD_TIMEOUT, serving).await.unwrap_or(Ok(()))
        }
    };
    if let Err(e) = ended {
        tracing::debug!(error = %e, "admin: connection ended");
    }
    drop(place);
}
