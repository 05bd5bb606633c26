//! The header fields of the protocol: names, strict parsing of a request's, values of a response's.
//!
//! Invariant: a field that may stand once is refused when it stands twice; every refusal names the field and what is
//! allowed. Pure. Called by every verb of `http`.

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat};
use http::{HeaderMap, HeaderValue};
use weir_api::Offset;

use super::error::Reject;
use super::paths::{self, Target};
use crate::metadata::command::{Expiry, StreamConfig};
use crate::storage::record::ProducerStamp;
use crate::streams::StreamName;

/// Names of the protocol's own fields.
pub(crate) mod names {
    use http::HeaderName;

    pub(crate) const STREAM_NEXT_OFFSET: HeaderName = HeaderName::from_static("stream-next-offset");
    pub(crate) const STREAM_UP_TO_DATE: HeaderName = HeaderName::from_static("stream-up-to-date");
    pub(crate) const STREAM_CURSOR: HeaderName = HeaderName::from_static("stream-cursor");
    pub(crate) const STREAM_CLOSED: HeaderName = HeaderName::from_static("stream-closed");
    pub(crate) const STREAM_TTL: HeaderName = HeaderName::from_static("stream-ttl");
    pub(crate) const STREAM_EXPIRES_AT: HeaderName = HeaderName::from_static("stream-expires-at");
    pub(crate) const PRODUCER_EPOCH: HeaderName = HeaderName::from_static("producer-epoch");
    pub(crate) const PRODUCER_SEQ: HeaderName = HeaderName::from_static("producer-seq");
    pub(crate) const PRODUCER_EXPECTED_SEQ: HeaderName = HeaderName::from_static("producer-expected-seq");
    pub(crate) const PRODUCER_RECEIVED_SEQ: HeaderName = HeaderName::from_static("producer-received-seq");
}

/// What flags are set to.
pub(crate) const TRUE: HeaderValue = HeaderValue::from_static("true");

const OCTET_STREAM: &str = "application/octet-stream";
const MAX_CONTENT_TYPE: usize = 256;
const MAX_PRODUCER_ID: usize = 256;
const MAX_SEQ: usize = 256;
/// 3,000 years: far beyond use, far below what overflows in milliseconds.
const MAX_TTL_S: u64 = 100_000_000_000;
/// The largest integer that JavaScript's numbers hold exactly.
const MAX_SAFE: u64 = (1 << 53) - 1;

/// The fields of one request that may stand once, each as it came.
#[derive(Debug, Default)]
pub(crate) struct RequestHeaders<'a> {
    content_type: Option<&'a HeaderValue>,
    content_encoding: Option<&'a HeaderValue>,
    closed: Option<&'a HeaderValue>,
    seq: Option<&'a HeaderValue>,
    ttl: Option<&'a HeaderValue>,
    expires_at: Option<&'a HeaderValue>,
    forked_from: Option<&'a HeaderValue>,
    fork_offset: Option<&'a HeaderValue>,
    fork_sub_offset: Option<&'a HeaderValue>,
    producer_id: Option<&'a HeaderValue>,
    producer_epoch: Option<&'a HeaderValue>,
    producer_seq: Option<&'a HeaderValue>,
    /// Kept for `Location`.
    pub(crate) host: Option<&'a HeaderValue>,
    /// Waits for `100 Continue` before it sends its body.
    pub(crate) expects: bool,
    /// Carries credentials, so that answers are its own.
    pub(crate) personal: bool,
}

/// What a PUT says of the fork it makes.
#[derive(Debug)]
pub(crate) struct Fork<'a> {
    pub(crate) source: StreamName,
    pub(crate) offset: Option<Offset>,
    pub(crate) sub_offset: u64,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) expiry: Option<Expiry>,
}

impl<'a> RequestHeaders<'a> {
    /// One pass over the fields.
    pub(crate) fn parse(map: &'a HeaderMap) -> Result<Self, Reject> {
        let mut found = Self::default();
        for (name, value) in map {
            let (slot, field) = match name.as_str() {
                "content-type" => (&mut found.content_type, "Content-Type"),
                "content-encoding" => (&mut found.content_encoding, "Content-Encoding"),
                "stream-closed" => (&mut found.closed, "Stream-Closed"),
                "stream-seq" => (&mut found.seq, "Stream-Seq"),
                "stream-ttl" => (&mut found.ttl, "Stream-TTL"),
                "stream-expires-at" => (&mut found.expires_at, "Stream-Expires-At"),
                "stream-forked-from" => (&mut found.forked_from, "Stream-Forked-From"),
                "stream-fork-offset" => (&mut found.fork_offset, "Stream-Fork-Offset"),
                "stream-fork-sub-offset" => (&mut found.fork_sub_offset, "Stream-Fork-Sub-Offset"),
                "producer-id" => (&mut found.producer_id, "Producer-Id"),
                "producer-epoch" => (&mut found.producer_epoch, "Producer-Epoch"),
                "producer-seq" => (&mut found.producer_seq, "Producer-Seq"),
                "host" => (&mut found.host, "Host"),
                "expect" => {
                    found.expects = true;
                    continue;
                }
                "authorization" | "cookie" => {
                    found.personal = true;
                    continue;
                }
                _ => continue,
            };
            if slot.replace(value).is_some() {
                return Err(Reject::bad(field, format!("{field} stands twice: it may stand once")));
            }
        }
        Ok(found)
    }

    /// Reads every field, for the fuzzer.
    #[cfg(fuzzing)]
    pub(crate) fn read_all(&self) {
        drop((self.content_type().is_ok(), self.config(), self.seq(), self.producer().is_ok()));
        std::hint::black_box((self.identity_encoding().is_ok(), self.fork().is_ok(), self.closes()));
    }

    /// The body is to be taken as it is.
    pub(crate) fn identity_encoding(&self) -> Result<(), Reject> {
        match self.content_encoding {
            Some(v) if !v.as_bytes().eq_ignore_ascii_case(b"identity") => Err(Reject::Encoding),
            _ => Ok(()),
        }
    }

    /// `Stream-Closed`: any value but `true` counts as absent.
    pub(crate) fn closes(&self) -> bool {
        self.closed.is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"true"))
    }

    /// `Content-Type`, a media type.
    pub(crate) fn content_type(&self) -> Result<Option<&'a str>, Reject> {
        let Some(value) = self.content_type else { return Ok(None) };
        let bad = || {
            Reject::bad(
                "Content-Type",
                "Content-Type must be a media type such as application/json, at most 256 bytes of printable ASCII",
            )
        };
        let text = value.to_str().map_err(|_e| bad())?;
        let (kind, sub) = essence(text).split_once('/').ok_or_else(bad)?;
        let token = |s: &str| !s.is_empty() && s.bytes().all(is_token_byte);
        if text.len() > MAX_CONTENT_TYPE || !token(kind) || !token(sub) {
            return Err(bad());
        }
        Ok(Some(text))
    }

    /// What PUT asks for.
    pub(crate) fn config(&self) -> Result<StreamConfig, Reject> {
        let content_type = self.content_type()?.unwrap_or(OCTET_STREAM).to_owned();
        Ok(StreamConfig { content_type, expiry: self.expiry()?.unwrap_or(Expiry::Never) })
    }

    /// `Stream-TTL` or `Stream-Expires-At`.
    fn expiry(&self) -> Result<Option<Expiry>, Reject> {
        match (self.ttl, self.expires_at) {
            (Some(_), Some(_)) => Err(Reject::bad(
                "Stream-TTL",
                "Stream-TTL and Stream-Expires-At exclude each other: send one",
            )),
            (Some(ttl), None) => ttl_seconds(ttl).map(Expiry::Ttl).map(Some),
            (None, Some(at)) => expires_at_ms(at).map(Expiry::At).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// The fields of a fork; what the fork takes over from its source is `None`.
    pub(crate) fn fork(&self) -> Result<Option<Fork<'a>>, Reject> {
        let Some(from) = self.forked_from else {
            let stray =
                [(self.fork_offset, "Stream-Fork-Offset"), (self.fork_sub_offset, "Stream-Fork-Sub-Offset")];
            return match stray.into_iter().find(|(given, _)| given.is_some()) {
                Some((_, field)) => {
                    Err(Reject::bad(field, format!("{field} goes only with Stream-Forked-From")))
                }
                None => Ok(None),
            };
        };
        let offset = self.fork_offset.map(fork_offset).transpose()?;
        let sub_offset = self.fork_sub_offset.map_or(Ok(0), sub_offset)?;
        if sub_offset > 0 && offset.is_none() {
            return Err(Reject::bad(
                "Stream-Fork-Sub-Offset",
                "Stream-Fork-Sub-Offset counts from Stream-Fork-Offset, which is missing",
            ));
        }
        let (content_type, expiry) = (self.content_type()?, self.expiry()?);
        Ok(Some(Fork { source: source(from)?, offset, sub_offset, content_type, expiry }))
    }

    /// `Stream-Seq`: opaque, ordered by bytes.
    pub(crate) fn seq(&self) -> Result<Option<Bytes>, Reject> {
        let Some(value) = self.seq else { return Ok(None) };
        if value.is_empty() || value.len() > MAX_SEQ {
            return Err(Reject::bad("Stream-Seq", "Stream-Seq must be 1 to 256 bytes"));
        }
        Ok(Some(Bytes::copy_from_slice(value.as_bytes())))
    }

    /// The three fields of an idempotent producer: all or none.
    pub(crate) fn producer(&self) -> Result<Option<ProducerStamp>, Reject> {
        let (id, epoch, seq) = match (self.producer_id, self.producer_epoch, self.producer_seq) {
            (None, None, None) => return Ok(None),
            (Some(id), Some(epoch), Some(seq)) => (id, epoch, seq),
            (None, _, _) => return Err(incomplete("Producer-Id")),
            (_, None, _) => return Err(incomplete("Producer-Epoch")),
            (_, _, None) => return Err(incomplete("Producer-Seq")),
        };
        let bad_id = || Reject::bad("Producer-Id", "Producer-Id must be 1 to 256 bytes of UTF-8");
        let text = std::str::from_utf8(id.as_bytes()).map_err(|_e| bad_id())?;
        if text.is_empty() || text.len() > MAX_PRODUCER_ID {
            return Err(bad_id());
        }
        Ok(Some(ProducerStamp {
            id: text.into(),
            epoch: safe_integer(epoch, "Producer-Epoch")?,
            seq: safe_integer(seq, "Producer-Seq")?,
        }))
    }
}

fn incomplete(field: &'static str) -> Reject {
    Reject::bad(
        field,
        format!("{field} is missing: Producer-Id, Producer-Epoch and Producer-Seq go together, all or none"),
    )
}

fn safe_integer(value: &HeaderValue, field: &'static str) -> Result<u64, Reject> {
    digits(value.as_bytes())
        .filter(|n| *n <= MAX_SAFE)
        .ok_or_else(|| Reject::bad(field, format!("{field} must be decimal digits, from 0 to {MAX_SAFE}")))
}

/// Decimal digits and nothing else.
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

fn ttl_seconds(value: &HeaderValue) -> Result<u64, Reject> {
    plain_digits(value.as_bytes()).filter(|n| *n <= MAX_TTL_S).ok_or_else(|| {
        Reject::bad(
            "Stream-TTL",
            format!(
                "Stream-TTL must be whole seconds from 0 to {MAX_TTL_S}: decimal digits without sign, leading zero, point or exponent"
            ),
        )
    })
}

/// The path of a stream, as in its URL.
fn source(value: &HeaderValue) -> Result<StreamName, Reject> {
    let bad = |why: String| Reject::bad("Stream-Forked-From", why);
    let path = value.to_str().ok().filter(|p| !p.contains(['?', '#']));
    let Some(Target::Stream(raw)) = path.map(paths::target) else {
        return Err(bad(
            "Stream-Forked-From must be the path of a stream, such as /v1/stream/name".to_owned()
        ));
    };
    StreamName::from_path(raw).map_err(|e| bad(format!("Stream-Forked-From names no stream: {e}")))
}

/// How other servers write the beginning of a stream. Clients and the public test suite know it by heart; nothing else
/// of that form means anything here.
const BEGINNING: &[u8] = b"0000000000000000_0000000000000000";

fn fork_offset(value: &HeaderValue) -> Result<Offset, Reject> {
    if value.as_bytes() == BEGINNING {
        return Ok(Offset(0));
    }
    value.to_str().ok().and_then(parse_offset).ok_or_else(|| {
        Reject::bad(
            "Stream-Fork-Offset",
            "Stream-Fork-Offset must be what a Stream-Next-Offset said: 20 decimal digits",
        )
    })
}

fn sub_offset(value: &HeaderValue) -> Result<u64, Reject> {
    plain_digits(value.as_bytes()).ok_or_else(|| {
        Reject::bad(
            "Stream-Fork-Sub-Offset",
            "Stream-Fork-Sub-Offset must be a whole number of bytes (of a JSON stream: messages): decimal digits without sign or leading zero",
        )
    })
}

/// Decimal digits without leading zeros.
fn plain_digits(text: &[u8]) -> Option<u64> {
    digits(text).filter(|_| text.len() == 1 || text.first() != Some(&b'0'))
}

fn expires_at_ms(value: &HeaderValue) -> Result<u64, Reject> {
    let time = value.to_str().ok().and_then(|t| DateTime::parse_from_rfc3339(t).ok());
    let time = time.ok_or_else(|| {
        Reject::bad(
            "Stream-Expires-At",
            "Stream-Expires-At must be an RFC 3339 time with a zone, such as 2027-01-31T12:00:00Z",
        )
    })?;
    // A time before 1970 is as past as 1970 is.
    Ok(u64::try_from(time.timestamp_millis()).unwrap_or(0))
}

/// As `Stream-Expires-At` is answered.
pub(crate) fn rfc3339(at_ms: u64) -> Option<HeaderValue> {
    let time = i64::try_from(at_ms).ok().and_then(DateTime::from_timestamp_millis)?;
    HeaderValue::try_from(time.to_rfc3339_opts(SecondsFormat::Millis, true)).ok()
}

fn is_token_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// The same media type, whatever its case and parameters.
pub(crate) fn same_type(a: &str, b: &str) -> bool {
    essence(a).eq_ignore_ascii_case(essence(b))
}

/// A stored content type as a value; the common ones cost nothing.
pub(crate) fn content_type_value(content_type: &str) -> HeaderValue {
    match content_type {
        "application/json" => HeaderValue::from_static("application/json"),
        "text/plain" => HeaderValue::from_static("text/plain"),
        OCTET_STREAM => HeaderValue::from_static(OCTET_STREAM),
        other => HeaderValue::from_str(other).unwrap_or(HeaderValue::from_static(OCTET_STREAM)),
    }
}

/// How many digits an offset has.
const OFFSET_DIGITS: usize = 20;

/// An offset as clients see it: 20 decimal digits, so that byte order is numeric order.
pub(crate) fn offset_text(offset: Offset) -> [u8; OFFSET_DIGITS] {
    let mut text = [b'0'; OFFSET_DIGITS];
    let mut rest = offset.0;
    for place in text.iter_mut().rev() {
        *place = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    text
}

/// See [`offset_text`].
pub(crate) fn offset_value(offset: Offset) -> HeaderValue {
    HeaderValue::from_bytes(&offset_text(offset)).expect("digits are valid in a header")
}

/// Exactly what [`offset_text`] writes: one position has one spelling, so that offsets compare as text and cache keys
/// are unique.
pub(crate) fn parse_offset(text: &str) -> Option<Offset> {
    (text.len() == OFFSET_DIGITS).then(|| digits(text.as_bytes()).map(Offset)).flatten()
}

#[cfg(test)]
mod tests;
