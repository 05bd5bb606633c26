//! A client's socket under hyper: read through the watcher, written with a limit to patience.
//!
//! Invariant: nothing after a refused head and nothing that is malformed is handed on; a client that stops reading is
//! given up; when hyper is done, a socket whose client may still be sending goes back to `serve`, which made this.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use super::framing::{Fed, Watcher};
use crate::net::TcpStream;

/// What is this small is copied together: a plain send costs the kernel less than a gathering write, by more than that.
const SMALL: usize = 1024;

/// A client's connection, its read half watched.
#[derive(Debug)]
pub(crate) struct Watched {
    /// `None` once given back.
    stream: Option<TcpStream>,
    /// Read before it was known which protocol the client speaks.
    prefix: Bytes,
    /// `None`: not HTTP/1.1.
    watcher: Option<Watcher>,
    refused: bool,
    malformed: bool,
    ended: bool,
    /// Where the socket goes at the end, if the client may still be sending.
    home: Option<oneshot::Sender<TcpStream>>,
    /// Runs while the client takes none of what is to be written.
    stalled: Option<Pin<Box<Sleep>>>,
    patience: Duration,
}

impl Watched {
    /// `patience`: how long a client may take nothing of what is written to it.
    pub(crate) fn new(
        stream: TcpStream,
        prefix: Bytes,
        watcher: Option<Watcher>,
        home: oneshot::Sender<TcpStream>,
        patience: Duration,
    ) -> Self {
        Self {
            stream: Some(stream),
            prefix,
            watcher,
            refused: false,
            malformed: false,
            ended: false,
            home: Some(home),
            stalled: None,
            patience,
        }
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.stream.as_mut().expect("the socket is given back only when this is dropped"))
    }

    /// Passes the outcome of a write on; one that pends too long fails.
    fn written<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let patience = self.patience;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(timer.as_mut().poll(cx));
        self.ended = true;
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client stopped reading")))
    }

    fn fill(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return self.stream().poll_read(cx, buf);
        }
        let n = self.prefix.len().min(buf.remaining());
        buf.put_slice(&self.prefix[..n]);
        self.prefix.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let (false, Some(stream), Some(home)) = (self.ended, self.stream.take(), self.home.take()) {
            drop(home.send(stream));
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.refused {
            // Not the end: that would keep hyper from answering. The answer closes the connection.
            return Poll::Pending;
        }
        if this.malformed {
            return Poll::Ready(Err(malformed()));
        }
        let before = buf.filled().len();
        let read = ready!(this.fill(cx, buf));
        let new = &buf.filled()[before..];
        this.ended |= read.is_err() || new.is_empty();
        read?;
        let Some(watcher) = &mut this.watcher else { return Poll::Ready(Ok(())) };
        match watcher.feed(new) {
            Fed::All => {}
            Fed::Refused(good) => {
                this.refused = true;
                buf.set_filled(before + good);
            }
            Fed::Malformed(good) => {
                this.malformed = true;
                buf.set_filled(before + good);
                if good == 0 {
                    return Poll::Ready(Err(malformed()));
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed chunked encoding")
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = this.stream().poll_write(cx, buf);
        this.written(cx, poll)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length: usize = bufs.iter().map(|part| part.len()).sum();
        let poll = if length <= SMALL {
            let mut whole = [0; SMALL];
            let mut rest = &mut whole[..];
            for part in bufs {
                let (place, after) = rest.split_at_mut(part.len());
                place.copy_from_slice(part);
                rest = after;
            }
            this.stream().poll_write(cx, &whole[..length])
        } else {
            this.stream().poll_write_vectored(cx, bufs)
        };
        this.written(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}
