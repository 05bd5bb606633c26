//! A stream's name: what follows `/v1/stream/` in a URL, percent-decoded.
//!
//! Invariant: a [`StreamName`] is valid (see [`ALLOWED`]); nothing behind it checks again. Made by `http::paths`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// The longest name, in bytes of its decoded form.
pub const MAX_BYTES: usize = 1024;

/// The first segment that belongs to the protocol's control requests.
pub const RESERVED: &str = "__ds";

/// What a name may be, for error messages.
pub const ALLOWED: &str = "a stream name is 1 to 1024 bytes of UTF-8 after percent-decoding: segments divided by '/', none of them \
     empty, '.' or '..', no control characters, the first segment not '__ds'";

/// What must be written with a percent sign in a path.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// The name of a stream.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamName(Arc<str>);

/// Why a text names no stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Its first segment is [`RESERVED`].
    #[error("names beginning with the segment '__ds' are reserved")]
    Reserved,
    /// No name at all.
    #[error("the name is empty: {ALLOWED}")]
    Empty,
    /// Over [`MAX_BYTES`].
    #[error("the name is too long: {ALLOWED}")]
    TooLong,
    /// Two slashes in a row, or one at an end.
    #[error("the name has an empty segment: {ALLOWED}")]
    EmptySegment,
    /// `.` or `..` as a segment.
    #[error("the name has '.' or '..' as a segment: {ALLOWED}")]
    DotSegment,
    /// U+0000 to U+001F or U+007F to U+009F.
    #[error("the name has a control character: {ALLOWED}")]
    Control,
    /// A percent sign that two hexadecimal digits do not follow.
    #[error("the name has a '%' without two hexadecimal digits: {ALLOWED}")]
    Percent,
    /// Not UTF-8 once decoded.
    #[error("the name is not UTF-8: {ALLOWED}")]
    NotUtf8,
}

impl StreamName {
    /// From the part of a URL's path after `/v1/stream/`, as it was sent. An encoded slash divides like a plain one.
    pub fn from_path(raw: &str) -> Result<Self, NameError> {
        // Thrice the limit is all that decoding can shrink to it.
        if raw.len() > 3 * MAX_BYTES {
            return Err(NameError::TooLong);
        }
        decode(raw)?.parse()
    }

    /// As it stands in a URL's path.
    pub fn to_path(&self) -> String {
        utf8_percent_encode(&self.0, ENCODED).to_string()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, shared.
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

/// Undoes percent-encoding.
pub(crate) fn decode(raw: &str) -> Result<Cow<'_, str>, NameError> {
    if !raw.contains('%') {
        return Ok(Cow::Borrowed(raw));
    }
    let bytes = raw.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let whole = |(at, &b): (usize, &u8)| b != b'%' || (hex(at + 1) && hex(at + 2));
    if !bytes.iter().enumerate().all(whole) {
        return Err(NameError::Percent);
    }
    percent_encoding::percent_decode(bytes).decode_utf8().map_err(|_e| NameError::NotUtf8)
}

impl FromStr for StreamName {
    type Err = NameError;

    /// From the decoded text.
    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        let mut segments = text.split('/');
        if segments.next() == Some(RESERVED) {
            return Err(NameError::Reserved);
        }
        if text.len() > MAX_BYTES {
            return Err(NameError::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(NameError::Control);
        }
        for segment in text.split('/') {
            match segment {
                "" => return Err(NameError::EmptySegment),
                "." | ".." => return Err(NameError::DotSegment),
                _ => {}
            }
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamName({:?})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_decoded_and_may_have_several_segments() {
        for (raw, name) in [
            ("a", "a"),
            ("a/b/c", "a/b/c"),
            ("a%2Fb", "a/b"),
            ("a%2fb%20c", "a/b c"),
            ("caf%C3%A9", "café"),
            ("café", "café"),
            ("a.b/..c/...", "a.b/..c/..."),
            ("x__ds", "x__ds"),
            ("x/__ds", "x/__ds"),
            ("__dsx", "__dsx"),
            ("a+b", "a+b"),
            ("%25", "%"),
        ] {
            assert_eq!(
                StreamName::from_path(raw).map(|n| n.as_str().to_owned()),
                Ok(name.to_owned()),
                "{raw}"
            );
        }
        assert!(StreamName::from_path(&"a".repeat(MAX_BYTES)).is_ok());
        assert!(StreamName::from_path(&"%61".repeat(MAX_BYTES)).is_ok());
    }

    #[test]
    fn every_wrong_form_is_refused_by_its_kind() {
        for (raw, why) in [
            ("", NameError::Empty),
            ("/", NameError::EmptySegment),
            ("a/", NameError::EmptySegment),
            ("/a", NameError::EmptySegment),
            ("a//b", NameError::EmptySegment),
            ("a%2F%2Fb", NameError::EmptySegment),
            (".", NameError::DotSegment),
            ("a/../b", NameError::DotSegment),
            ("%2e%2e/etc", NameError::DotSegment),
            ("a/%2e", NameError::DotSegment),
            ("a%00", NameError::Control),
            ("a%0d%0ab", NameError::Control),
            ("a%7F", NameError::Control),
            ("a%C2%85", NameError::Control),
            ("%", NameError::Percent),
            ("a%4", NameError::Percent),
            ("a%zz", NameError::Percent),
            ("a%+1", NameError::Percent),
            ("%ff", NameError::NotUtf8),
            ("%C3", NameError::NotUtf8),
            ("__ds", NameError::Reserved),
            ("__ds/subscriptions/a", NameError::Reserved),
            ("%5F%5Fds/a", NameError::Reserved),
            ("__ds%2Fa", NameError::Reserved),
        ] {
            assert_eq!(StreamName::from_path(raw), Err(why), "{raw}");
        }
        assert_eq!(StreamName::from_path(&"a".repeat(MAX_BYTES + 1)), Err(NameError::TooLong));
        assert_eq!(StreamName::from_path(&"é".repeat(MAX_BYTES / 2 + 1)), Err(NameError::TooLong));
        assert_eq!(StreamName::from_path(&"%61".repeat(MAX_BYTES + 1)), Err(NameError::TooLong));
    }

    proptest! {
        #[test]
        fn what_parses_survives_the_way_through_a_path(text in "\\PC{1,60}") {
            if let Ok(name) = text.parse::<StreamName>() {
                prop_assert_eq!(StreamName::from_path(&name.to_path()), Ok(name));
            }
        }

        #[test]
        fn no_path_panics(raw in ".{0,60}|(%[0-9a-f]{2}|/|\\.){0,40}") {
            if let Ok(name) = StreamName::from_path(&raw) {
                prop_assert!(!name.as_str().is_empty() && name.as_str().len() <= MAX_BYTES);
                prop_assert!(!name.as_str().chars().any(char::is_control));
                prop_assert!(name.as_str().split('/').all(|s| !matches!(s, "" | "." | "..")));
            }
        }
    }
}
