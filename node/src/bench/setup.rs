//! What a load needs on the server before it is measured, and takes away after.
//!
//! Invariant: bounded time; the first thing that goes wrong is told with the server's own status. Used by every load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::wire::{Conn, Look};
use super::{BenchError, Common};
use crate::clock;

/// Read at a time where answers are small.
pub(super) const SMALL: usize = 16 << 10;

/// A name for this run's streams that no other run has.
pub(super) fn run_name() -> String {
    format!("bench-{:012x}", clock::random_u64() & 0xffff_ffff_ffff)
}

pub(super) async fn connect(common: &Common, buffer: usize) -> Result<Conn, BenchError> {
    let authority = &common.target.authority;
    Conn::open(&common.target, buffer, common.timeout)
        .await
        .map_err(|e| BenchError::Server(format!("cannot connect to {authority}: {e}")))
}

/// Connections for a load, all open before it begins.
pub(super) async fn connections(common: &Common, buffer: usize) -> Result<Vec<Conn>, BenchError> {
    let mut all = Vec::with_capacity(common.connections);
    for _ in 0..common.connections {
        all.push(connect(common, buffer).await?);
    }
    Ok(all)
}

/// Creates the streams.
pub(super) async fn create(
    common: &Common,
    names: &Arc<[String]>,
    content_type: &str,
) -> Result<(), BenchError> {
    let fields = format!("Content-Type: {content_type}\r\nContent-Length: 0\r\n");
    each(common, names, "PUT", &fields).await
}

/// Deletes the streams, unless they are to be kept. What does not succeed is left.
pub(super) async fn delete(common: &Common, names: &Arc<[String]>) {
    if !common.keep
        && let Err(e) = each(common, names, "DELETE", "").await
    {
        tracing::warn!("streams are left on the server: {e}");
    }
}

/// One request for each name, over a few connections.
async fn each(
    common: &Common,
    names: &Arc<[String]>,
    method: &'static str,
    fields: &str,
) -> Result<(), BenchError> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..common.connections.clamp(1, 32).min(names.len()) {
        let mut conn = connect(common, SMALL).await?;
        let (common, names, next, fields) = (common.clone(), names.clone(), next.clone(), fields.to_owned());
        tasks.spawn(async move {
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                let request = common.target.request(method, name, "", &fields);
                let answer = conn.exchange(&request, Look::Framing).await;
                match answer {
                    Ok(answer) if answer.is_success() => {}
                    Ok(answer) => {
                        let status = answer.status;
                        return Err(BenchError::Server(format!("{method} {name} was answered {status}")));
                    }
                    Err(e) => return Err(BenchError::Server(format!("{method} {name} failed: {e}"))),
                }
                if !conn.reusable() {
                    conn = connect(&common, SMALL).await?;
                }
            }
            Ok(())
        });
    }
    joined(tasks).await
}

/// Waits for all; the first error counts.
pub(super) async fn joined<T: 'static>(mut tasks: JoinSet<Result<T, BenchError>>) -> Result<(), BenchError> {
    while let Some(done) = tasks.join_next().await {
        done.map_err(|e| BenchError::Server(format!("a task of the client failed: {e}")))??;
    }
    Ok(())
}
