//! Segments: read-optimised objects that hold records sorted by stream.
//!
//! ```text
//! header    magic 8 · version u32 · identity · crc u32
//! body      per stream, in increasing id: its chunks in offset order, then its dedupe blob if it has one
//! pages     the index, at most 128 entries a page, each entry with the checksum of what it points at
//! root      identity · where the pages begin · each page's first key, length and checksum
//! trailer   crc u32 · root position u64 · root length u32 · root crc u32 · version u32 · magic 8
//! ```
//!
//! Invariants: numbers are little-endian or LEB128; every byte that a reader uses lies under a crc32c; an object is
//! written once under a key of its own and never changes, so whatever is verified may be cached for ever. A chunk is
//! the unit of reading, checking and caching: at most 256 KiB (`chunk::MAX_CHUNK`) unless one JSON element is larger. A
//! reader opens a segment from its end (root), reads one page, then chunks. Written by the flush and by recovery
//! through [`SegmentBuilder`], read by `reader`.

mod builder;
pub(super) mod chunk;
mod dedupe;
pub(super) mod format;

pub use builder::{BuildError, BuiltSegment, SegmentBuilder};
pub use format::{DecodeError, SegmentIdentity, read_header};

#[cfg(test)]
pub(super) mod model;
#[cfg(test)]
mod tests;
