//! The protocol's requests, and the list of streams.
//!
//! Invariant: offsets are opaque here. What is idempotent by the protocol is sent again after trouble, an append only
//! under a producer's stamp; close is safe because closing twice is closing.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::connection::Body;
use super::failure::{Failure, Refused};
use super::send::{Answer, Client, Repeat};
use crate::streams::StreamName;

/// What may stand in a query's value as it is.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// For the head of a live read's answer: longer than any server lets one wait.
const LIVE_WAIT: Duration = Duration::from_secs(11 * 60);
/// For the next event: servers give signs of life far more often.
const EVENT_WAIT: Duration = Duration::from_secs(120);
/// Longest page of the list.
const PAGE_MAX: usize = 8 << 20;

/// What to create, beside the name.
#[derive(Debug, Clone, Default)]
pub struct NewStream {
    /// Left to the server, or to the source of a fork, if `None`.
    pub content_type: Option<String>,
    /// Seconds, renewed by reads and writes.
    pub ttl_s: Option<u64>,
    /// RFC 3339.
    pub expires_at: Option<String>,
    /// Closed from the start.
    pub closed: bool,
    /// First bytes.
    pub data: Bytes,
    /// What it is a fork of.
    pub fork: Option<ForkOf>,
}

/// Where a fork leaves its source.
#[derive(Debug, Clone)]
pub struct ForkOf {
    /// The source.
    pub source: StreamName,
    /// `None`: at its tail.
    pub offset: Option<String>,
    /// So many units beyond the offset.
    pub sub_offset: Option<u64>,
}

/// An idempotent producer's stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The producer.
    pub id: String,
    /// Its epoch.
    pub epoch: u64,
    /// The request's number.
    pub seq: u64,
}

/// One append.
#[derive(Debug, Clone)]
pub struct Append {
    /// The stream's.
    pub content_type: String,
    /// What to add.
    pub data: Bytes,
    /// Makes repetitions harmless.
    pub stamp: Option<Stamp>,
    /// `Stream-Seq`.
    pub seq: Option<String>,
}

/// What an append or a close came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The tail after it.
    pub next: String,
    /// The producer's highest number known to the server, if the request had a stamp.
    pub highest: Option<u64>,
    /// It was there before.
    pub duplicate: bool,
    /// The stream is closed behind it.
    pub closed: bool,
}

/// A stream as HEAD tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its content type.
    pub content_type: String,
    /// The tail.
    pub next: String,
    /// Seconds.
    pub ttl: Option<String>,
    /// RFC 3339.
    pub expires_at: Option<String>,
    /// Ended for good.
    pub closed: bool,
}

impl Described {
    /// Whether it counts elements.
    pub fn is_json(&self) -> bool {
        is_json(&self.content_type)
    }
}

/// Whether a content type is that of JSON streams.
pub fn is_json(content_type: &str) -> bool {
    content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// How to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Live {
    /// What is there.
    No,
    /// At the tail, wait for more.
    LongPoll,
}

/// A part of a stream.
#[derive(Debug)]
pub struct Chunk {
    /// Where to go on.
    pub next: String,
    /// It reaches the tail.
    pub up_to_date: bool,
    /// It reaches the end of a closed stream.
    pub closed: bool,
    /// To be sent with the next live read.
    pub cursor: Option<String>,
    /// Absent if there is no content.
    pub content_type: Option<String>,
    /// The content.
    pub body: Body,
}

/// Events of a stream.
#[derive(Debug)]
pub struct Events {
    /// The data is in base64.
    pub base64: bool,
    /// The events' text.
    pub body: Body,
}

/// One page of the list.
#[derive(Debug, Clone, Deserialize)]
pub struct Page {
    /// Ordered by name.
    pub streams: Vec<Listed>,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// A stream in the list.
#[derive(Debug, Clone, Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its content type.
    pub content_type: String,
    /// At least what is committed of it.
    pub next_offset: String,
    /// Ended for good.
    pub closed: bool,
}

impl Client {
    /// Creates a stream or finds it as asked for; `true` if it is new.
    pub async fn create(&self, name: &StreamName, new: &NewStream) -> Result<(bool, Described), Failure> {
        let mut ask = self.ask(Method::PUT, path(name), Repeat::Safe);
        let NewStream { content_type, ttl_s, expires_at, closed, data, fork } = new;
        ask.body = data.clone();
        set(&mut ask.headers, "content-type", content_type.as_deref())?;
        set(&mut ask.headers, "stream-ttl", ttl_s.map(|s| s.to_string()).as_deref())?;
        set(&mut ask.headers, "stream-expires-at", expires_at.as_deref())?;
        set(&mut ask.headers, "stream-closed", closed.then_some("true"))?;
        if let Some(ForkOf { source, offset, sub_offset }) = fork {
            set(&mut ask.headers, "stream-forked-from", Some(&path(source)))?;
            set(&mut ask.headers, "stream-fork-offset", offset.as_deref())?;
            set(&mut ask.headers, "stream-fork-sub-offset", sub_offset.map(|n| n.to_string()).as_deref())?;
        }
        let answer = self.send(ask).await?;
        let new = answer.status == StatusCode::CREATED;
        Ok((new, described(&answer)?))
    }

    /// Appends.
    pub async fn append(&self, name: &StreamName, append: Append) -> Result<Appended, Failure> {
        let Append { content_type, data, stamp, seq } = append;
        let repeat = if stamp.is_some() { Repeat::Safe } else { Repeat::IfUntouched };
        let mut ask = self.ask(Method::POST, path(name), repeat);
        ask.body = data;
        set(&mut ask.headers, "content-type", Some(&content_type))?;
        set(&mut ask.headers, "stream-seq", seq.as_deref())?;
        let stamped = stamp.is_some();
        put_stamp(&mut ask.headers, stamp)?;
        let answer = self.send(ask).await?;
        // New data of a producer is told from a repetition by its status.
        appended(&answer, stamped && answer.status == StatusCode::NO_CONTENT)
    }

    /// Closes the stream for good.
    pub async fn close(&self, name: &StreamName, stamp: Option<Stamp>) -> Result<Appended, Failure> {
        let mut ask = self.ask(Method::POST, path(name), Repeat::Safe);
        set(&mut ask.headers, "stream-closed", Some("true"))?;
        put_stamp(&mut ask.headers, stamp)?;
        let answer = self.send(ask).await?;
        appended(&answer, false)
    }

    /// What a stream is.
    pub async fn head(&self, name: &StreamName) -> Result<Described, Failure> {
        let answer = self.send(self.ask(Method::HEAD, path(name), Repeat::Safe)).await?;
        described(&answer)
    }

    /// Deletes a stream. Gone after a try that may have taken effect is deleted.
    pub async fn delete(&self, name: &StreamName) -> Result<(), Failure> {
        match self.send(self.ask(Method::DELETE, path(name), Repeat::Safe)).await {
            Ok(_done) => Ok(()),
            Err(Failure::Refused(r)) if r.repeated && is_gone(&r) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Reads from `offset` on.
    pub async fn read(
        &self,
        name: &StreamName,
        offset: &str,
        live: Live,
        cursor: Option<&str>,
    ) -> Result<Chunk, Failure> {
        let mut target = format!("{}?offset={}", path(name), utf8_percent_encode(offset, QUERY));
        if live == Live::LongPoll {
            target.push_str("&live=long-poll");
            if let Some(cursor) = cursor {
                target.push_str(&format!("&cursor={}", utf8_percent_encode(cursor, QUERY)));
            }
        }
        let mut ask = self.ask(Method::GET, target, Repeat::Safe);
        if live == Live::LongPoll {
            ask.head_wait = LIVE_WAIT;
        }
        let answer = self.send(ask).await?;
        Ok(Chunk {
            next: next_offset(&answer)?,
            up_to_date: answer.flag("stream-up-to-date"),
            closed: answer.flag("stream-closed"),
            cursor: answer.header("stream-cursor").map(str::to_owned),
            content_type: answer.header("content-type").map(str::to_owned),
            body: answer.body,
        })
    }

    /// The events of a stream from `offset` on.
    pub async fn events(&self, name: &StreamName, offset: &str) -> Result<Events, Failure> {
        let target = format!("{}?offset={}&live=sse", path(name), utf8_percent_encode(offset, QUERY));
        let mut ask = self.ask(Method::GET, target, Repeat::Safe);
        set(&mut ask.headers, "accept", Some("text/event-stream"))?;
        let mut answer = self.send(ask).await?;
        let kind = answer.header("content-type").unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return Err(Failure::Nonsense(format!("{} answers {kind:?} instead of events", self.origin())));
        }
        answer.body.patient(EVENT_WAIT);
        let base64 = answer.header("stream-sse-data-encoding").is_some_and(|v| v == "base64");
        Ok(Events { base64, body: answer.body })
    }

    /// One page of the streams whose names begin with `prefix`, behind `after`.
    pub async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Failure> {
        let mut target = format!("/v1/streams?prefix={}&limit={limit}", utf8_percent_encode(prefix, QUERY));
        if let Some(after) = after {
            target.push_str(&format!("&after={}", utf8_percent_encode(after, QUERY)));
        }
        let answer = self.send(self.ask(Method::GET, target, Repeat::Safe)).await?;
        let text = answer.body.whole(PAGE_MAX).await.map_err(Failure::Unavailable)?;
        serde_json::from_slice(&text)
            .map_err(|e| Failure::Nonsense(format!("{} lists streams in another form: {e}", self.origin())))
    }
}

/// Not there, or no longer.
pub fn is_gone(refused: &Refused) -> bool {
    matches!(refused.status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

fn path(name: &StreamName) -> String {
    format!("/v1/stream/{}", name.to_path())
}

fn set(headers: &mut HeaderMap, name: &'static str, value: Option<&str>) -> Result<(), Failure> {
    let Some(text) = value else { return Ok(()) };
    let value = HeaderValue::from_str(text).or_else(|_e| HeaderValue::from_bytes(text.as_bytes()));
    let value = value.map_err(|_e| Failure::Nonsense(format!("{text:?} cannot be sent as {name}")))?;
    let name = if name == "content-type" { CONTENT_TYPE } else { HeaderName::from_static(name) };
    headers.insert(name, value);
    Ok(())
}

fn put_stamp(headers: &mut HeaderMap, stamp: Option<Stamp>) -> Result<(), Failure> {
    let Some(Stamp { id, epoch, seq }) = stamp else { return Ok(()) };
    set(headers, "producer-id", Some(&id))?;
    set(headers, "producer-epoch", Some(&epoch.to_string()))?;
    set(headers, "producer-seq", Some(&seq.to_string()))
}

fn next_offset(answer: &Answer) -> Result<String, Failure> {
    let next = answer.header("stream-next-offset").map(str::to_owned);
    next.ok_or_else(|| {
        Failure::Nonsense("the answer has no Stream-Next-Offset: is it a stream server?".into())
    })
}

fn appended(answer: &Answer, duplicate: bool) -> Result<Appended, Failure> {
    let highest = answer.header("producer-seq").and_then(|v| v.parse().ok());
    Ok(Appended { next: next_offset(answer)?, highest, duplicate, closed: answer.flag("stream-closed") })
}

fn described(answer: &Answer) -> Result<Described, Failure> {
    let text = |name| answer.header(name).map(str::to_owned);
    Ok(Described {
        content_type: text("content-type").unwrap_or_else(|| "application/octet-stream".into()),
        next: next_offset(answer)?,
        ttl: text("stream-ttl"),
        expires_at: text("stream-expires-at"),
        closed: answer.flag("stream-closed"),
    })
}
