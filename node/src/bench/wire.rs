//! A lean HTTP/1.1 client: one connection, prebuilt requests, and of an answer only what a load needs.
//!
//! Invariant: nothing grows with what the server sends: heads and chunk lines must fit into the connection's buffer, bodies
//! are handed on in pieces and never held. Every wait has a deadline. Used by every load.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::BenchError;
use crate::net::{self, TcpStream};

/// Where the server is, and under which path its streams are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `host:port`.
    pub authority: String,
    /// Begins and ends with a slash.
    pub prefix: String,
}

impl Target {
    /// From `http://host[:port]` and the path under which streams are.
    pub fn parse(url: &str, prefix: &str) -> Result<Self, BenchError> {
        let bad =
            || BenchError::Usage(format!("--target {url:?} must be http://HOST[:PORT], without a path"));
        let parsed = url::Url::parse(url).map_err(|_e| bad())?;
        if parsed.scheme() == "https" {
            let why = "--target must be http: the bench client speaks no TLS, which would measure the client";
            return Err(BenchError::Usage(why.to_owned()));
        }
        let bare = parsed.path() == "/" && parsed.query().is_none() && parsed.username().is_empty();
        let host = parsed.host_str().filter(|_| bare && parsed.scheme() == "http").ok_or_else(bad)?;
        let authority = format!("{host}:{}", parsed.port_or_known_default().unwrap_or(80));
        let plain = prefix.bytes().all(|b| b.is_ascii_graphic() && !b"?#%".contains(&b));
        if !plain || !prefix.starts_with('/') {
            let why = format!("--prefix {prefix:?} must be a path, as /v1/stream/");
            return Err(BenchError::Usage(why));
        }
        let prefix = format!("{}/", prefix.trim_end_matches('/'));
        Ok(Self { authority, prefix })
    }

    /// The head of a request, without the empty line that ends it. `fields` are whole lines.
    pub(super) fn head(&self, method: &str, name: &str, query: &str, fields: &str) -> String {
        let Self { authority, prefix } = self;
        format!("{method} {prefix}{name}{query} HTTP/1.1\r\nHost: {authority}\r\n{fields}")
    }

    /// A request without a body.
    pub(super) fn request(&self, method: &str, name: &str, query: &str, fields: &str) -> Vec<u8> {
        let mut head = self.head(method, name, query, fields);
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// A request with a body.
    pub(super) fn request_with(&self, method: &str, name: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
        let fields = format!("Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len());
        let mut request = self.request(method, name, "", &fields);
        request.extend_from_slice(body);
        request
    }
}

/// An answer's head.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) next: Option<String>,
    pub(super) cursor: Option<String>,
    pub(super) up_to_date: bool,
    pub(super) closed: bool,
    pub(super) base64: bool,
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// What of the body is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Done,
    Length(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    UntilClose,
}

/// What the loads look for in answers. Appends look for nothing: their heads are read for framing alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Framing,
    Progress,
    /// The answer to a HEAD: framed like a GET's, without the body.
    NoBody,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Conn {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// What of the buffer is read and not used.
    start: usize,
    end: usize,
    left: Left,
    keep: bool,
    deadline: Duration,
}

impl Conn {
    /// `buffer`: bytes read at a time, and the longest head.
    pub(super) async fn open(target: &Target, buffer: usize, deadline: Duration) -> io::Result<Self> {
        let stream = net::connect(&target.authority, deadline).await?;
        let buffer = vec![0; buffer];
        Ok(Self { stream, buffer, start: 0, end: 0, left: Left::Done, keep: true, deadline })
    }

    /// Whether another request may follow on this connection.
    pub(super) fn reusable(&self) -> bool {
        self.keep && self.left == Left::Done
    }

    pub(super) async fn send(&mut self, request: &[u8]) -> io::Result<()> {
        timeout(self.deadline, self.stream.write_all(request)).await.map_err(|_e| late())?
    }

    /// Sends a request and reads its whole answer, the body passed over.
    pub(super) async fn exchange(&mut self, request: &[u8], look: Look) -> io::Result<Answer> {
        self.exchange_with(request, look, |_| {}).await
    }

    /// The same, with the body handed on piece by piece.
    pub(super) async fn exchange_with(
        &mut self,
        request: &[u8],
        look: Look,
        mut body: impl FnMut(&[u8]),
    ) -> io::Result<Answer> {
        self.send(request).await?;
        let answer = self.answer(look).await?;
        while let Some(piece) = self.piece().await? {
            body(piece);
        }
        Ok(answer)
    }

    /// The next answer's head. Interim answers are passed over.
    pub(super) async fn answer(&mut self, look: Look) -> io::Result<Answer> {
        loop {
            let mut scanned = 0usize;
            let length = loop {
                let unread = &self.buffer[self.start..self.end];
                // The end may lie across two reads.
                let from = scanned.saturating_sub(3);
                if let Some(at) = find_end(&unread[from..]) {
                    break from + at;
                }
                scanned = unread.len();
                if !self.fill().await? {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server closed the connection",
                    ));
                }
            };
            let head = &self.buffer[self.start..self.start + length];
            let mut answer = Answer::default();
            (self.left, self.keep) = parse(head, look, &mut answer)?;
            self.start += length;
            if answer.status >= 200 {
                return Ok(answer);
            }
        }
    }

    /// The next piece of the body; `None` at its end.
    pub(super) async fn piece(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            match self.left {
                Left::Done => return Ok(None),
                Left::Length(n) | Left::Chunk(n) => {
                    let have = self.end - self.start;
                    if have == 0 {
                        if !self.fill().await? {
                            let why = "the server closed the connection within a body";
                            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
                        }
                        continue;
                    }
                    let take = usize::try_from(n).unwrap_or(usize::MAX).min(have);
                    let rest = n - take as u64;
                    self.left = match (self.left, rest) {
                        (Left::Length(_), 0) => Left::Done,
                        (Left::Length(_), rest) => Left::Length(rest),
                        (_, 0) => Left::ChunkEnd,
                        (_, rest) => Left::Chunk(rest),
                    };
                    return Ok(Some(self.take(take)));
                }
                Left::UntilClose => {
                    if self.start == self.end && !self.fill().await? {
                        self.left = Left::Done;
                        continue;
                    }
                    return Ok(Some(self.take(self.end - self.start)));
                }
                Left::ChunkSize => {
                    let line = self.line().await?;
                    let size =
                        chunk_size(&self.buffer[line.clone()]).ok_or_else(|| malformed("chunk size"))?;
                    self.left = if size == 0 { Left::Trailer } else { Left::Chunk(size) };
                }
                Left::ChunkEnd => {
                    if !self.line().await?.is_empty() {
                        return Err(malformed("chunk"));
                    }
                    self.left = Left::ChunkSize;
                }
                Left::Trailer => {
                    if self.line().await?.is_empty() {
                        self.left = Left::Done;
                    }
                }
            }
        }
    }

    fn take(&mut self, length: usize) -> &[u8] {
        let piece = self.start..self.start + length;
        self.start = piece.end;
        &self.buffer[piece]
    }

    /// Where the next line is, without its end.
    async fn line(&mut self) -> io::Result<std::ops::Range<usize>> {
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(at) = unread.iter().position(|b| *b == b'\n') {
                let line = self.start..self.start + at;
                self.start = line.end + 1;
                let bare = self.buffer[line.clone()].strip_suffix(b"\r").map_or(line.len(), <[u8]>::len);
                return Ok(line.start..line.start + bare);
            }
            if !self.fill().await? {
                return Err(malformed("end of the body"));
            }
        }
    }

    /// Reads what has come. `false`: the server has closed.
    async fn fill(&mut self) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            if self.start == 0 {
                return Err(malformed("head or line, which does not fit into the buffer"));
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let read = self.stream.read(&mut self.buffer[self.end..]);
        let n = timeout(self.deadline, read).await.map_err(|_e| late())??;
        self.end += n;
        Ok(n > 0)
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed {what}"))
}

/// Where the head ends, its empty line included.
fn find_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 3;
    while at < bytes.len() {
        match bytes[at] {
            b'\n' if bytes[at - 3..at] == *b"\r\n\r" => return Some(at + 1),
            b'\n' => at += 2,
            b'\r' => at += 1,
            _ => at += 4,
        }
    }
    None
}

/// Reads a head, its empty line included: fills `answer`; how the body is framed, and whether another request may follow.
fn parse(head: &[u8], look: Look, answer: &mut Answer) -> io::Result<(Left, bool)> {
    let mut lines = head.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    let first = lines.next().unwrap_or_default();
    let status = first.strip_prefix(b"HTTP/1.").and_then(|r| r.get(2..5));
    answer.status = status
        .and_then(number)
        .and_then(|n| u16::try_from(n).ok())
        .ok_or_else(|| malformed("status line"))?;
    let mut keep = first.starts_with(b"HTTP/1.1");
    let mut left = None;
    for line in lines {
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                left = Some(Left::Length(number(value).ok_or_else(|| malformed("Content-Length"))?));
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(malformed("Transfer-Encoding"));
                }
                left = Some(Left::ChunkSize);
            }
            10 if name.eq_ignore_ascii_case(b"connection") => keep &= !value.eq_ignore_ascii_case(b"close"),
            _ if look == Look::Framing => {}
            18 if name.eq_ignore_ascii_case(b"stream-next-offset") => answer.next = Some(text(value)),
            13 if name.eq_ignore_ascii_case(b"stream-cursor") => answer.cursor = Some(text(value)),
            17 if name.eq_ignore_ascii_case(b"stream-up-to-date") => answer.up_to_date = true,
            13 if name.eq_ignore_ascii_case(b"stream-closed") => answer.closed = true,
            24 if name.eq_ignore_ascii_case(b"stream-sse-data-encoding") => answer.base64 = true,
            _ => {}
        }
    }
    let bodiless = answer.status < 200 || matches!(answer.status, 204 | 304);
    let left = match left {
        _ if bodiless || look == Look::NoBody => Left::Done,
        Some(Left::Length(0)) => Left::Done,
        Some(left) => left,
        None => {
            keep = false;
            Left::UntilClose
        }
    };
    Ok((left, keep))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

fn number(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.len() < 20 && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| digits.iter().fold(0, |n, b| n * 10 + u64::from(b - b'0')))
}

/// Hexadecimal digits, then maybe an extension.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|b| *b == b';').next()?.trim_ascii();
    if digits.is_empty() || digits.len() > 15 {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
