//! Cutting a [`Payload`] without copying its content.
//!
//! Invariant: any run of a payload's offsets is again a payload that shares its bytes; a JSON run keeps each element's
//! own text. Pure. Called by the tail buffer, the segment reader and whoever answers reads.

use crate::storage::record::Payload;

impl Payload {
    /// The offsets `from..to`, counted from the payload's own first. Panics if they are not inside it, like a slice.
    #[must_use]
    pub fn slice(&self, from: u64, to: u64) -> Self {
        let (from, to) = (index(from), index(to));
        match self {
            Self::Bytes(bytes) => Self::Bytes(bytes.slice(from..to)),
            Self::Json { ends, .. } if from == 0 && to == ends.len() => self.clone(),
            Self::Json { text, ends } => {
                let base = text_start(ends, from);
                let kept = &ends[from..to];
                let stop = kept.last().copied().unwrap_or(base);
                Self::Json {
                    text: text.slice(base as usize..stop as usize),
                    ends: kept.iter().map(|end| end - base).collect(),
                }
            }
        }
    }

    /// How many offsets from `from` on, and before `to`, fit into `max_bytes`: whole elements; may be none.
    pub fn fitting(&self, from: u64, to: u64, max_bytes: usize) -> u64 {
        match self {
            Self::Bytes(_) => (to - from).min(max_bytes as u64),
            Self::Json { ends, .. } => {
                let base = text_start(ends, index(from)) as usize;
                let run = &ends[index(from)..index(to)];
                run.partition_point(|&end| end as usize - base <= max_bytes) as u64
            }
        }
    }
}

/// A position inside a payload in memory always fits.
fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// Where element `n` begins in the text.
fn text_start(ends: &[u32], n: usize) -> u32 {
    match n {
        0 => 0,
        n => ends[n - 1],
    }
}
