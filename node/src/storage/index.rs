//! A segment's index: which chunk holds an offset, found with the root and one page.
//!
//! Invariants: entries are sorted by key, a stream's chunks are gapless, what they point at lies between header and
//! pages, one piece after the other. A page decodes on its own. Encoded so that one tiny stream costs about 13 bytes.
//! Decoders never panic and never allocate more than a small multiple of what they were given. Pure. Written by
//! `segment::SegmentBuilder`, read by `reader`.
//!
//! ```text
//! page   count · per entry: stream (less the one before) · epoch (if the stream is new) · kind u8
//!        · start (if the stream is new) · length in offsets (but dedupe) · position (first entry) · bytes · crc u32
//! root   identity · position of the first page · count
//!        · per page: stream (less the one before) · 1 if it begins with a dedupe blob u8 · start · bytes · crc u32
//! ```

use weir_api::{Offset, StreamEpoch, StreamId};

use super::segment::format::{Cursor, DecodeError, HEADER_MIN, SegmentIdentity, check, put_varint};

#[cfg(test)]
mod tests;

/// How many entries a page holds at most.
const PAGE_ENTRIES: usize = 128;
/// No entry is shorter: stream, kind, bytes, crc.
const LEAST_ENTRY: usize = 1 + 1 + 1 + 4;
/// No page reference is shorter: stream, flag, start, bytes, crc.
const LEAST_REF: usize = 1 + 1 + 1 + 1 + 4;

/// What an entry points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A chunk of bytes.
    Bytes,
    /// A chunk of JSON elements.
    Json,
    /// The stream's producer and sequence state as of the end of its chunks.
    Dedupe,
}

impl Kind {
    fn to_byte(self) -> u8 {
        match self {
            Self::Bytes => 0,
            Self::Json => 1,
            Self::Dedupe => 2,
        }
    }

    fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        match byte {
            0 => Ok(Self::Bytes),
            1 => Ok(Self::Json),
            2 => Ok(Self::Dedupe),
            _ => Err(DecodeError::Malformed("an index entry has an unknown kind")),
        }
    }
}

/// The order of entries: by stream, chunks by offset, the dedupe blob last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub stream: StreamId,
    pub dedupe: bool,
    pub start: Offset,
}

impl Key {
    /// Where the chunk that holds `offset` is, or the last one before it.
    pub(super) fn chunk(stream: StreamId, offset: Offset) -> Self {
        Self { stream, dedupe: false, start: offset }
    }

    /// Where the stream's dedupe blob is.
    pub(super) fn dedupe(stream: StreamId) -> Self {
        Self { stream, dedupe: true, start: Offset(u64::MAX) }
    }
}

/// One chunk or dedupe blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub stream: StreamId,
    /// The epoch at which the records were accepted.
    pub epoch: StreamEpoch,
    pub kind: Kind,
    /// First offset; a dedupe blob's is the offset it is the state of.
    pub start: Offset,
    /// The offset after the last.
    pub end: Offset,
    /// Position in the object.
    pub at: u64,
    /// Length in the object.
    pub bytes: u64,
    pub crc: u32,
}

impl Entry {
    pub(super) fn key(&self) -> Key {
        Key { stream: self.stream, dedupe: self.kind == Kind::Dedupe, start: self.start }
    }

    /// How many offsets it spans.
    pub(super) fn length(&self) -> u64 {
        self.end.0 - self.start.0
    }

    fn encode(&self, before: Option<&Self>, out: &mut Vec<u8>) {
        put_varint(self.stream.0 - before.map_or(0, |b| b.stream.0), out);
        let follows = before.is_some_and(|b| b.stream == self.stream);
        if !follows {
            put_varint(self.epoch.0, out);
        }
        out.push(self.kind.to_byte());
        if !follows {
            put_varint(self.start.0, out);
        }
        if self.kind != Kind::Dedupe {
            put_varint(self.length(), out);
        }
        if before.is_none() {
            put_varint(self.at, out);
        }
        put_varint(self.bytes, out);
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    fn decode(before: Option<&Self>, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let step = from.varint()?;
        let stream = StreamId(step.checked_add(before.map_or(0, |b| b.stream.0)).ok_or(RANGE)?);
        let same = before.filter(|b| b.stream == stream);
        let epoch = match same {
            Some(b) => b.epoch,
            None => StreamEpoch(from.varint()?),
        };
        let [kind] = from.array()?;
        let kind = Kind::from_byte(kind)?;
        let start = match same {
            Some(b) => b.end,
            None => Offset(from.varint()?),
        };
        let length = if kind == Kind::Dedupe { 0 } else { from.varint()? };
        let end = Offset(start.0.checked_add(length).ok_or(RANGE)?);
        let at = match before {
            Some(b) => b.at + b.bytes,
            None => from.varint()?,
        };
        let bytes = from.varint()?;
        at.checked_add(bytes).ok_or(RANGE)?;
        let crc = u32::from_le_bytes(from.array()?);
        let this = Self { stream, epoch, kind, start, end, at, bytes, crc };
        this.check_shape()?;
        if same.is_some_and(|b| b.kind == Kind::Dedupe || (kind != Kind::Dedupe && kind != b.kind)) {
            return Err(DecodeError::Malformed("a stream's index entries are mixed up"));
        }
        Ok(this)
    }

    /// Its length in offsets fits its length in bytes.
    fn check_shape(&self) -> Result<(), DecodeError> {
        let fits = match self.kind {
            Kind::Bytes => self.length() > 0 && self.bytes == self.length(),
            // An element has at least one byte and its comma, and its end in the table.
            Kind::Json => self.length() > 0 && self.length().checked_mul(6).is_some_and(|n| n <= self.bytes),
            Kind::Dedupe => self.bytes > 0,
        };
        if fits { Ok(()) } else { Err(DecodeError::Malformed("an index entry's lengths do not fit")) }
    }
}

const RANGE: DecodeError = DecodeError::Malformed("an index number is out of range");

/// Collects entries in key order.
#[derive(Debug, Default)]
pub(super) struct IndexBuilder {
    /// Full pages, one after the other.
    pages: Vec<u8>,
    refs: Vec<(Key, u32, u32)>,
    /// Entries of the page under way, encoded.
    page: Vec<u8>,
    in_page: usize,
    first: Option<Key>,
    before: Option<Entry>,
}

impl IndexBuilder {
    /// Adds the next entry: key above the one before, position where the one before ends.
    pub(super) fn push(&mut self, entry: Entry) {
        if self.in_page == PAGE_ENTRIES {
            self.close_page();
        }
        self.first.get_or_insert(entry.key());
        entry.encode(self.before.as_ref(), &mut self.page);
        self.in_page += 1;
        self.before = Some(entry);
    }

    fn close_page(&mut self) {
        let Some(first) = self.first.take() else { return };
        let start = self.pages.len();
        put_varint(self.in_page as u64, &mut self.pages);
        self.pages.append(&mut self.page);
        let page = &self.pages[start..];
        let length = u32::try_from(page.len()).expect("128 entries are a few kilobytes");
        self.refs.push((first, length, crc32c::crc32c(page)));
        self.in_page = 0;
        self.before = None;
    }

    /// About how many bytes the index takes by now.
    pub(super) fn len_bytes(&self) -> usize {
        self.pages.len() + self.page.len() + (self.refs.len() + 1) * 24
    }

    /// The pages, which go to position `pages_at` of the object, and the root.
    pub(super) fn finish(mut self, identity: &SegmentIdentity, pages_at: u64) -> (Vec<u8>, Vec<u8>) {
        self.close_page();
        let mut root = Vec::with_capacity(128 + self.refs.len() * 24);
        identity.encode(&mut root);
        put_varint(pages_at, &mut root);
        put_varint(self.refs.len() as u64, &mut root);
        let mut before = 0;
        for (first, length, crc) in &self.refs {
            put_varint(first.stream.0 - before, &mut root);
            root.push(u8::from(first.dedupe));
            put_varint(first.start.0, &mut root);
            put_varint(u64::from(*length), &mut root);
            root.extend_from_slice(&crc.to_le_bytes());
            before = first.stream.0;
        }
        (self.pages, root)
    }
}

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageRef {
    pub first: Key,
    /// Position in the object.
    pub at: u64,
    pub bytes: u32,
    pub crc: u32,
}

/// The top of the index: all that a lookup needs to name its page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Root {
    pub identity: SegmentIdentity,
    pub pages: Vec<PageRef>,
    /// Where the body ends and the pages begin.
    pages_at: u64,
}

impl Root {
    /// Reads a root, checked against its crc by the caller, that lies at `root_at` of its object.
    pub(super) fn decode(root: &[u8], root_at: u64) -> Result<Self, DecodeError> {
        let mut from = Cursor::new("segment root", root);
        let identity = SegmentIdentity::decode(&mut from)?;
        let pages_at = from.varint()?;
        let count = from.count(LEAST_REF)?;
        let mut pages: Vec<PageRef> = Vec::with_capacity(count);
        let mut at = pages_at;
        for _ in 0..count {
            let page = Self::decode_ref(pages.last(), at, &mut from)?;
            at = at.checked_add(page.bytes.into()).ok_or(RANGE)?;
            pages.push(page);
        }
        from.end()?;
        if at != root_at || pages_at < HEADER_MIN as u64 {
            return Err(DecodeError::Malformed("the index pages do not fill the place before the root"));
        }
        Ok(Self { identity, pages, pages_at })
    }

    fn decode_ref(before: Option<&PageRef>, at: u64, from: &mut Cursor<'_>) -> Result<PageRef, DecodeError> {
        let step = from.varint()?;
        let stream = StreamId(step.checked_add(before.map_or(0, |b| b.first.stream.0)).ok_or(RANGE)?);
        let dedupe = match from.array()? {
            [0] => false,
            [1] => true,
            _ => return Err(DecodeError::Malformed("an index page has an unknown flag")),
        };
        let first = Key { stream, dedupe, start: Offset(from.varint()?) };
        if before.is_some_and(|b| b.first >= first) {
            return Err(DecodeError::Malformed("index pages are out of order"));
        }
        let bytes = u32::try_from(from.varint()?).map_err(|_e| RANGE)?;
        Ok(PageRef { first, at, bytes, crc: u32::from_le_bytes(from.array()?) })
    }

    /// The number of the page that holds the last entry at or before `key`.
    pub(super) fn page_of(&self, key: Key) -> Option<usize> {
        self.pages.partition_point(|page| page.first <= key).checked_sub(1)
    }

    /// Reads one page's bytes.
    pub(super) fn decode_page(&self, page: &PageRef, bytes: &[u8]) -> Result<Page, DecodeError> {
        check(bytes, page.crc, "index page")?;
        let decoded = Page::decode(bytes, self.pages_at)?;
        if decoded.entries.first().map(Entry::key) != Some(page.first) {
            return Err(DecodeError::Malformed("an index page does not begin as the root says"));
        }
        Ok(decoded)
    }
}

/// A decoded page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    pub entries: Vec<Entry>,
}

impl Page {
    fn decode(page: &[u8], pages_at: u64) -> Result<Self, DecodeError> {
        let mut from = Cursor::new("index page", page);
        let count = from.count(LEAST_ENTRY)?;
        let mut entries: Vec<Entry> = Vec::with_capacity(count);
        for _ in 0..count {
            let entry = Entry::decode(entries.last(), &mut from)?;
            entries.push(entry);
        }
        from.end()?;
        let first_at = entries.first().map_or(0, |e| e.at);
        let ends = entries.last().map_or(0, |e| e.at + e.bytes);
        if first_at < HEADER_MIN as u64 || ends > pages_at {
            return Err(DecodeError::Malformed("an index page points outside the body"));
        }
        Ok(Self { entries })
    }

    /// The number of the last entry at or before `key`.
    pub(super) fn find(&self, key: Key) -> Option<usize> {
        self.entries.partition_point(|entry| entry.key() <= key).checked_sub(1)
    }
}
