//! The accept loop and the life of a client's connection.
//!
//! Invariant: connections are bounded and none outlives a stop by more than its grace; a request that reached this
//! process before the stop is answered; a socket is closed in a way that lets the client read the last answer. Called
//! by `run`.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::body::Body;
use super::framing::{Framing, Verdict, Watcher};
use super::socket::Watched;
use super::{App, HttpLimits, Incoming, handle};
use crate::net::{TcpListener, TcpStream};
use crate::tasks::Tasks;

/// With these bytes a client says that it speaks HTTP/2.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// After a stop an idle connection stays open this long: a request may be under way to it. What has come when the time
/// is over is still read: [`until_ended`] looks at the connection first.
const QUIET: Duration = Duration::from_millis(250);

/// How long a client may go on sending after its last answer. Closing on unread bytes resets the connection, and the
/// answer may be lost with it.
const LINGER: Duration = Duration::from_secs(2);

/// Requests at a time over one HTTP/2 connection.
const MAX_STREAMS: u32 = 256;

/// How often an HTTP/2 client is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(20);

/// What answers the requests that connections bring.
pub(super) trait Service: Send + Sync + 'static {
    /// What connections may take.
    fn limits(&self) -> &HttpLimits;

    /// Cancelled when no more requests are to be taken.
    fn stop(&self) -> &CancellationToken;

    /// Answers one request. `refused`: its framing is ambiguous.
    fn answer(
        &self,
        request: Request<Incoming>,
        refused: Option<Framing>,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Ends what waits for something to happen.
    fn leave(&self);
}

impl Service for App {
    fn limits(&self) -> &HttpLimits {
        &self.limits
    }

    fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    fn answer(
        &self,
        request: Request<Incoming>,
        refused: Option<Framing>,
    ) -> impl Future<Output = Response<Body>> + Send {
        handle(self, request, refused)
    }

    fn leave(&self) {
        self.streams.leave();
    }
}

/// Serves clients on `listener` until the app's `stop` is cancelled, then ends every connection politely. Returns once
/// the last is closed.
pub async fn serve(listener: TcpListener, app: Arc<App>, tasks: Tasks) {
    serve_with(listener, app, tasks).await;
}

/// The same for any service.
pub(super) async fn serve_with<S: Service>(listener: TcpListener, app: Arc<S>, tasks: Tasks) {
    let most = u32::try_from(app.limits().max_connections).unwrap_or(u32::MAX >> 1);
    let places = Arc::new(Semaphore::new(most as usize));
    let stop = app.stop().clone();
    while let Some(place) = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        place = places.clone().acquire_owned() => place.ok(),
    } {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _peer)) => begin(stream, place, &app, &tasks),
            Err(e) => pause(&e).await,
        }
    }
    // Whoever waits at a tail is answered, and every event stream ends.
    app.leave();
    // Clients that are connected already and wait to be accepted would be reset.
    while let Ok(place) = places.clone().try_acquire_owned()
        && let Some(Ok((stream, _peer))) = listener.accept().now_or_never()
    {
        begin(stream, place, &app, &tasks);
    }
    drop(listener);
    drop(places.acquire_many(most).await);
}

/// One client's failure is no reason to wait; a lack of descriptors or memory is.
async fn pause(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "cannot accept a connection");
        sleep(Duration::from_millis(50)).await;
    }
}

fn begin<S: Service>(stream: TcpStream, place: OwnedSemaphorePermit, app: &Arc<S>, tasks: &Tasks) {
    let (app, others) = (app.clone(), tasks.clone());
    tasks.spawn(async move {
        connection(stream, app, others).await;
        drop(place);
    });
}

async fn connection<S: Service>(mut stream: TcpStream, app: Arc<S>, tasks: Tasks) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "client gone before its first request");
        return;
    }
    let Some((prefix, speaks_http2)) = first_bytes(&mut stream, &*app).await else { return };
    let (home, back) = oneshot::channel();
    if speaks_http2 {
        let io = Watched::new(stream, prefix, None, home, app.limits().write_timeout);
        two(io, &app, tasks).await;
    } else {
        let verdict = Arc::new(Verdict::default());
        let watcher = Watcher::new(verdict.clone());
        let io = Watched::new(stream, prefix, Some(watcher), home, app.limits().write_timeout);
        one(io, &app, verdict).await;
    }
    if let Ok(stream) = back.await {
        let _late = timeout(LINGER, linger(stream)).await.is_err();
    }
}

/// The connection's first bytes, and whether they begin HTTP/2. `None`: there is nothing to serve.
async fn first_bytes<S: Service>(stream: &mut TcpStream, app: &S) -> Option<(Bytes, bool)> {
    let mut buffer = [0; PREFACE.len()];
    let mut filled = 0;
    let reading = async {
        loop {
            let n = stream.read(&mut buffer[filled..]).await.ok().filter(|n| *n > 0)?;
            filled += n;
            let begins = buffer[..filled] == PREFACE[..filled];
            if !begins || filled == PREFACE.len() {
                return Some(begins);
            }
        }
    };
    let told = async {
        app.stop().cancelled().await;
        sleep(QUIET).await;
    };
    let speaks_http2 = tokio::select! {
        biased;
        read = timeout(app.limits().head_timeout, reading) => read.ok().flatten()?,
        () = told => return None,
    };
    Some((Bytes::copy_from_slice(&buffer[..filled]), speaks_http2))
}

async fn one<S: Service>(io: Watched, app: &Arc<S>, verdict: Arc<Verdict>) {
    let served = AtomicU64::new(0);
    let service = service_fn(|request| {
        let refused = verdict.on(served.fetch_add(1, Ordering::Relaxed));
        async move { Ok::<_, Infallible>(app.answer(request, refused).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.limits().head_timeout)
        .max_header_size(app.limits().max_head)
        .serve_connection(TokioIo::new(io), service);
    until_ended(pin!(connection), |c| c.graceful_shutdown(), &**app).await;
}

async fn two<S: Service>(io: Watched, app: &Arc<S>, tasks: Tasks) {
    let max_head = u32::try_from(app.limits().max_head).unwrap_or(u32::MAX);
    let service = service_fn(|request| {
        let app = app.clone();
        async move { Ok::<_, Infallible>(app.answer(request, None).await) }
    });
    let connection = http2::Builder::new(OnTasks(tasks))
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(max_head)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .serve_connection(TokioIo::new(io), service);
    until_ended(pin!(connection), |c| c.graceful_shutdown(), &**app).await;
}

/// Drives a connection until it ends; after a stop it is told to take no more requests and gets a grace for those that
/// it has.
async fn until_ended<C, S>(mut connection: Pin<&mut C>, finish: impl FnOnce(Pin<&mut C>), app: &S)
where
    S: Service,
    C: Future<Output = Result<(), hyper::Error>>,
{
    tokio::select! {
        biased;
        ended = &mut connection => return log(ended),
        () = async { app.stop().cancelled().await; sleep(QUIET).await } => {}
    }
    finish(connection.as_mut());
    match timeout(app.limits().shutdown_grace, connection).await {
        Ok(ended) => log(ended),
        Err(_late) => tracing::warn!("a connection was cut: its requests outlasted the shutdown's grace"),
    }
}

fn log(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// Tells the client that nothing more comes, and drops what it still sends.
async fn linger(mut stream: TcpStream) {
    let mut sink = [0; 4096];
    if stream.shutdown().await.is_ok() {
        while stream.read(&mut sink).await.is_ok_and(|n| n > 0) {}
    }
}

/// Where HTTP/2 runs its requests.
#[derive(Clone)]
pub(super) struct OnTasks(pub(super) Tasks);

impl<F> Executor<F> for OnTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, work: F) {
        self.0.spawn(work);
    }
}
