//! A stream of the model: whole records, so that content is made when read.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::history::Stamp;
use crate::record::{Content, Record};

/// A stream in the model: whole records, so that content is made when read.
#[derive(Clone, Default)]
pub(super) struct Stream {
    pub(super) records: Vec<Cell>,
    pub(super) closed: bool,
    pub(super) producers: BTreeMap<Arc<str>, u64>,
    pub(super) closed_by: Option<Stamp>,
    pub(super) seq: u64,
}

#[derive(Clone)]
pub(super) struct Cell {
    pub(super) record: Record,
    /// Offsets missing at its end.
    pub(super) torn: u64,
    /// An acknowledgement of it was seen.
    pub(super) acked: bool,
    /// A reading has shown it.
    pub(super) read: bool,
}

impl Stream {
    pub(super) fn content(&self, json: bool) -> Content {
        match json {
            false => {
                let mut all = Vec::new();
                for c in &self.records {
                    let Content::Bytes(b) = c.record.content(false) else { unreachable!() };
                    all.extend_from_slice(&b[..b.len() - c.torn as usize]);
                }
                Content::Bytes(all.into())
            }
            true => {
                let mut all = Vec::new();
                for c in &self.records {
                    let Content::Json(e) = c.record.content(true) else { unreachable!() };
                    all.extend_from_slice(&e[..e.len() - c.torn as usize]);
                }
                Content::Json(all)
            }
        }
    }

    pub(super) fn tail(&self, json: bool) -> u64 {
        self.records.iter().map(|c| c.record.span(json) - c.torn).sum()
    }
}

pub(super) fn tail_of(content: Content, from: u64) -> Content {
    match content {
        Content::Bytes(b) => Content::Bytes(b.slice(from as usize..)),
        Content::Json(e) => Content::Json(e[from as usize..].to_vec()),
    }
}

pub(super) fn cell(record: Record) -> Cell {
    Cell { record, torn: 0, acked: false, read: false }
}
