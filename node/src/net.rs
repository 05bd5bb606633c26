//! The only maker of sockets.
//!
//! Invariant: nothing else binds or connects, so that a simulated network replaces this file alone. Called by `run`
//! (listeners) and by the peer and forwarding clients.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use tokio::net::{TcpListener, TcpStream};

/// A listening socket. The error says which address.
#[allow(clippy::disallowed_methods, reason = "this is the door")]
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let at = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}"));
    TcpListener::bind(address).await.map_err(at)
}

/// A connection to `host:port`, its name resolved anew, within `deadline`.
#[allow(clippy::disallowed_methods, reason = "this is the door")]
pub async fn connect(address: &str, deadline: Duration) -> io::Result<TcpStream> {
    let late =
        |_e| io::Error::new(io::ErrorKind::TimedOut, format!("no connection to {address} in {deadline:?}"));
    let stream = tokio::time::timeout(deadline, TcpStream::connect(address)).await.map_err(late)??;
    stream.set_nodelay(true)?;
    Ok(stream)
}
