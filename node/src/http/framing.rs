//! Watches how an HTTP/1.1 client frames its messages, ahead of hyper.
//!
//! hyper settles some conflicts by itself: `Content-Length` beside `Transfer-Encoding` is dropped, equal lengths are
//! merged, codings before `chunked` are ignored, all before a handler could see it. Whatever stands in front of this
//! node may settle them the other way, and then bytes of one client's body become another's request. Invariant: the
//! bytes after a head that frames its body in two ways never reach hyper, and that request is answered 400 and its
//! connection closed. The watcher follows bodies to know where heads begin; where it is stricter than hyper, it wins;
//! where hyper is stricter, hyper ends the connection. Made by `serve` for every connection, read by `http::handle`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use super::headers::digits;
use crate::net::TcpStream;

/// What is wrong with a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Framing {
    /// `Content-Length` twice, be it with one value.
    TwoLengths = 1,
    /// `Content-Length` and `Transfer-Encoding`.
    LengthAndChunked = 2,
    /// `Content-Length` that is no number.
    BadLength = 3,
    /// `Transfer-Encoding` other than one `chunked`.
    BadCoding = 4,
}

impl Framing {
    fn from_code(code: u8) -> Option<Self> {
        [Self::TwoLengths, Self::LengthAndChunked, Self::BadLength, Self::BadCoding]
            .into_iter()
            .find(|f| *f as u8 == code)
    }

    /// The header at fault.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::TwoLengths | Self::LengthAndChunked | Self::BadLength => "Content-Length",
            Self::BadCoding => "Transfer-Encoding",
        }
    }

    /// For the client.
    pub(crate) fn detail(self) -> &'static str {
        match self {
            Self::TwoLengths => "Content-Length stands twice: it may stand once",
            Self::LengthAndChunked => "Content-Length and Transfer-Encoding exclude each other",
            Self::BadLength => "Content-Length must be decimal digits, below 2^64",
            Self::BadCoding => "Transfer-Encoding may stand once and be nothing but chunked",
        }
    }
}

/// What the watcher tells the handlers of its connection.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// The number of the refused head, if any.
    head: AtomicU64,
    code: AtomicU8,
}

impl Default for Verdict {
    fn default() -> Self {
        Self { head: AtomicU64::new(u64::MAX), code: AtomicU8::new(0) }
    }
}

impl Verdict {
    /// What is wrong with the connection's request number `head`, counted from 0, or with one before it.
    pub(crate) fn on(&self, head: u64) -> Option<Framing> {
        if head < self.head.load(Ordering::Acquire) {
            return None;
        }
        Framing::from_code(self.code.load(Ordering::Relaxed))
    }

    fn refuse(&self, head: u64, framing: Framing) {
        self.code.store(framing as u8, Ordering::Relaxed);
        self.head.store(head, Ordering::Release);
    }
}

/// The longest line whose content matters; of longer ones only the end is looked for.
const MAX_LINE: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In a head; whether its request line has come.
    Head { begun: bool },
    /// This many bytes of a body of known length are to come.
    Body(u64),
    /// At a chunk's size line.
    ChunkSize,
    /// This many bytes of a chunk are to come.
    Chunk(u64),
    /// At the line end after a chunk.
    ChunkEnd,
    /// In the lines after the last chunk.
    Trailer,
}

/// The framing of a head so far.
#[derive(Debug, Default)]
struct Head {
    lengths: u32,
    length: Option<u64>,
    codings: u32,
    chunked: bool,
}

impl Head {
    fn line(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|b| *b == b':') else { return };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            self.lengths += 1;
            self.length = digits(value);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.codings += 1;
            self.chunked = value.eq_ignore_ascii_case(b"chunked");
        }
    }

    fn end(&self) -> Result<State, Framing> {
        match (self.lengths, self.codings) {
            (0, 0) => Ok(State::Head { begun: false }),
            (1, 0) => match self.length {
                Some(0) => Ok(State::Head { begun: false }),
                Some(n) => Ok(State::Body(n)),
                None => Err(Framing::BadLength),
            },
            (0, 1) if self.chunked => Ok(State::ChunkSize),
            (0, _) => Err(Framing::BadCoding),
            (_, 0) => Err(Framing::TwoLengths),
            _ => Err(Framing::LengthAndChunked),
        }
    }
}

/// How far a read may be handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fed {
    All,
    /// Up to here; a refused head ends there and nothing after it counts.
    Refused(usize),
    /// Up to here; what follows is malformed chunking.
    Malformed(usize),
}

/// Follows one connection's bytes.
#[derive(Debug)]
pub(crate) struct Watcher {
    state: State,
    head: Head,
    heads: u64,
    /// The beginning of a line that an earlier read began, and how much of it there was.
    carry: Vec<u8>,
    carried: usize,
    verdict: Arc<Verdict>,
}

impl Watcher {
    pub(crate) fn new(verdict: Arc<Verdict>) -> Self {
        let state = State::Head { begun: false };
        Self { state, head: Head::default(), heads: 0, carry: Vec::new(), carried: 0, verdict }
    }

    fn feed(&mut self, bytes: &[u8]) -> Fed {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.state {
                State::Body(left) | State::Chunk(left) => {
                    let step = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    at += step;
                    self.skip(left - step as u64);
                }
                _ => {
                    let Some(end) = rest.iter().position(|b| *b == b'\n') else {
                        self.keep(rest);
                        return Fed::All;
                    };
                    match self.line(&rest[..end]) {
                        Ok(()) => at += end + 1,
                        Err(Some(framing)) => {
                            self.verdict.refuse(self.heads, framing);
                            return Fed::Refused(at + end + 1);
                        }
                        Err(None) => return Fed::Malformed(at),
                    }
                }
            }
        }
        Fed::All
    }

    fn skip(&mut self, left: u64) {
        self.state = match (self.state, left) {
            (State::Body(_), 0) => State::Head { begun: false },
            (State::Body(_), left) => State::Body(left),
            (_, 0) => State::ChunkEnd,
            (_, left) => State::Chunk(left),
        };
    }

    fn keep(&mut self, part: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.carry.len()).min(part.len());
        self.carry.extend_from_slice(&part[..room]);
        self.carried += part.len();
    }

    /// A line is complete; `end` is what of it came last, without its line feed.
    fn line(&mut self, end: &[u8]) -> Result<(), Option<Framing>> {
        if self.carried == 0 {
            return self.whole_line(end, end.len());
        }
        self.keep(end);
        let line = std::mem::take(&mut self.carry);
        let length = std::mem::take(&mut self.carried);
        let result = self.whole_line(&line, length);
        self.carry = line;
        self.carry.clear();
        result
    }

    /// `line` is the line, or the beginning of it if it is `length` bytes long and that is over [`MAX_LINE`].
    fn whole_line(&mut self, line: &[u8], length: usize) -> Result<(), Option<Framing>> {
        let cut = length > line.len();
        let bare = line.strip_suffix(b"\r").filter(|_| !cut);
        self.state = match self.state {
            State::Head { begun } => {
                let line = bare.unwrap_or(line);
                match (line.is_empty(), begun) {
                    // Blank lines before a request are passed over, as hyper does.
                    (true, false) => State::Head { begun: false },
                    (true, true) => {
                        let next = self.head.end().map_err(Some)?;
                        self.head = Head::default();
                        self.heads += 1;
                        next
                    }
                    (false, begun) => {
                        if begun {
                            self.head.line(line);
                        }
                        State::Head { begun: true }
                    }
                }
            }
            State::ChunkSize => match chunk_size(bare.ok_or(None)?).ok_or(None)? {
                0 => State::Trailer,
                n => State::Chunk(n),
            },
            State::ChunkEnd if bare == Some(b"") => State::ChunkSize,
            State::Trailer if cut => State::Trailer,
            State::Trailer => match bare.ok_or(None)? {
                b"" => State::Head { begun: false },
                _ => State::Trailer,
            },
            State::ChunkEnd | State::Body(_) | State::Chunk(_) => return Err(None),
        };
        Ok(())
    }
}

/// Hexadecimal digits, then blanks, then maybe an extension.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(line.len());
    let rest = line[end..].trim_ascii_start();
    let plain = !line.contains(&b'\r') && (rest.is_empty() || rest.starts_with(b";"));
    if end == 0 || !plain {
        return None;
    }
    let digits = std::str::from_utf8(&line[..end]).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

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
        let poll = this.stream().poll_write_vectored(cx, bufs);
        this.written(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}

#[cfg(test)]
mod tests;
