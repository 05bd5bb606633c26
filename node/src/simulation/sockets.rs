//! Sockets that are the system's or a simulated machine's.
//!
//! Invariant: each behaves as the one within. Made by `net` only.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net;

use super::{Listener, Socket};

/// A listening socket.
#[derive(Debug)]
pub enum TcpListener {
    /// The system's.
    System(net::TcpListener),
    /// A simulated one.
    Simulated(Box<dyn Listener>),
}

/// A connection.
#[derive(Debug)]
pub enum TcpStream {
    /// The system's.
    System(net::TcpStream),
    /// A simulated one.
    Simulated(Box<dyn Socket>),
}

impl From<net::TcpListener> for TcpListener {
    fn from(listener: net::TcpListener) -> Self {
        Self::System(listener)
    }
}

impl From<net::TcpStream> for TcpStream {
    fn from(stream: net::TcpStream) -> Self {
        Self::System(stream)
    }
}

impl TcpListener {
    /// The next connection and where it comes from.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::System(listener) => listener.accept().await.map(|(stream, from)| (stream.into(), from)),
            Self::Simulated(listener) => {
                listener.accept().await.map(|(stream, from)| (TcpStream::Simulated(stream), from))
            }
        }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::System(listener) => listener.local_addr(),
            Self::Simulated(listener) => listener.local_addr(),
        }
    }
}

impl TcpStream {
    /// Small pieces leave at once.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        match self {
            Self::System(stream) => stream.set_nodelay(on),
            Self::Simulated(_) => Ok(()),
        }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Simulated(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Simulated(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_flush(cx),
            Self::Simulated(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Simulated(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::System(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Simulated(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::System(stream) => stream.is_write_vectored(),
            Self::Simulated(stream) => stream.is_write_vectored(),
        }
    }
}
