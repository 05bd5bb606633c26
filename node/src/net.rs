//! The only maker of sockets.
//!
//! Invariant: nothing else binds or connects, so that a simulated network takes its place here alone. Called by `run`
//! (listeners) and by the peer and forwarding clients.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener as KernelListener, TcpSocket, TcpStream as KernelStream};
#[cfg(not(feature = "simulation"))]
pub use tokio::net::{TcpListener, TcpStream};

#[cfg(feature = "simulation")]
pub use crate::simulation::sockets::{TcpListener, TcpStream};

/// Raises this process's limit on open files as far as the system lets it, and says what it is then.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let wanted = rustix::process::Rlimit { current: limit.maximum, ..limit };
        match setrlimit(Resource::Nofile, wanted) {
            Ok(()) => limit.current = limit.maximum,
            Err(error) => tracing::warn!(%error, "the limit on open files stays as it is"),
        }
    }
    // None means no limit.
    limit.current.unwrap_or(u64::MAX)
}

/// A listening socket. The error says which address.
#[allow(clippy::disallowed_methods, reason = "this is the door")]
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let at = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}"));
    #[cfg(feature = "simulation")]
    if let Some(machine) = crate::simulation::machine() {
        return machine.bind(address).await.map(TcpListener::Simulated).map_err(at);
    }
    #[allow(clippy::useless_conversion, reason = "simulated machines have sockets of their own")]
    listen(address).map(Into::into).map_err(at)
}

/// As many clients may wait to be accepted as the system allows: thousands of readers come back at once when a node
/// is back, and what the queue does not hold is tried again only after seconds.
const WAITING: u32 = 1 << 16;

fn listen(address: SocketAddr) -> io::Result<KernelListener> {
    let address = there_are(address, TcpSocket::new_v6);
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING)
}

/// All addresses there are, `[::]`, are those of IPv4 where the kernel has no IPv6.
fn there_are(address: SocketAddr, v6: fn() -> io::Result<TcpSocket>) -> SocketAddr {
    let all = address.is_ipv6() && address.ip().is_unspecified();
    if all && v6().is_err() { (Ipv4Addr::UNSPECIFIED, address.port()).into() } else { address }
}

/// A connection to `host:port`, its name resolved anew, within `deadline`.
#[allow(clippy::disallowed_methods, reason = "this is the door")]
pub async fn connect(address: &str, deadline: Duration) -> io::Result<TcpStream> {
    let late =
        |_e| io::Error::new(io::ErrorKind::TimedOut, format!("no connection to {address} in {deadline:?}"));
    #[cfg(feature = "simulation")]
    if let Some(machine) = crate::simulation::machine() {
        let made = tokio::time::timeout(deadline, machine.connect(address)).await.map_err(late)?;
        return made.map(TcpStream::Simulated);
    }
    let connecting = KernelStream::connect(address);
    let stream = tokio::time::timeout(deadline, connecting).await.map_err(late)??;
    stream.set_nodelay(true)?;
    #[allow(clippy::useless_conversion, reason = "simulated machines have sockets of their own")]
    Ok(stream.into())
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
