//! Watches how an HTTP/1.1 client frames its messages, ahead of hyper.
//!
//! hyper settles some conflicts by itself: `Content-Length` beside `Transfer-Encoding` is dropped, equal lengths are
//! merged, codings before `chunked` are ignored, all before a handler could see it. Whatever stands in front of this
//! node may settle them the other way, and then bytes of one client's body become another's request. Invariant: the
//! bytes after a head that frames its body in two ways never reach hyper, and that request is answered 400 and its
//! connection closed. The watcher follows bodies to know where heads begin; where it is stricter than hyper, it wins;
//! where hyper is stricter, hyper ends the connection. Pure. Fed by `socket`, its verdict read by `serve`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::headers::digits;

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
pub(super) enum Fed {
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

    /// Follows the bytes of one read.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Fed {
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

#[cfg(test)]
mod tests;
