//! TEMPORARY in-memory stand-in for the streams service, until the real one is merged.
#![allow(missing_docs, clippy::unused_async)]

pub mod error;
pub mod log;
pub mod name;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_api::{Offset, StreamEpoch, StreamId};

use crate::metadata::command::StreamConfig;
use crate::storage::record::{Dedupe, Frame, Payload};
pub use error::StreamError;
pub use log::{Append, Appended};
use log::{StreamLog, Verdict};
pub use name::StreamName;

#[derive(Debug, Clone)]
pub struct CreateSpec {
    pub config: StreamConfig,
    pub closed: bool,
    pub first: Option<Payload>,
}
#[derive(Debug, Clone)]
pub struct Created {
    pub new: bool,
    pub info: StreamInfo,
}
#[derive(Debug, Clone)]
pub struct StreamInfo {
    pub id: StreamId,
    pub config: Arc<StreamConfig>,
    pub start: Offset,
    pub next: Offset,
    pub closed: bool,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    Start,
    Now,
    At(Offset),
}
#[derive(Debug, Clone)]
pub struct ReadChunk {
    pub info: StreamInfo,
    pub start: Offset,
    pub next: Offset,
    pub parts: Vec<Payload>,
    pub up_to_date: bool,
    pub closed: bool,
}

#[derive(Debug)]
struct Core {
    log: StreamLog,
    data: Vec<u8>,
    ends: Vec<usize>,
}
#[derive(Debug)]
pub struct OpenStream {
    id: StreamId,
    config: Arc<StreamConfig>,
    core: Mutex<Core>,
    more: Notify,
}

#[derive(Debug, Clone, Default)]
pub struct Streams {
    all: Arc<Mutex<HashMap<Arc<str>, Arc<OpenStream>>>>,
    next_id: Arc<Mutex<u64>>,
}

impl OpenStream {
    pub fn config(&self) -> &Arc<StreamConfig> {
        &self.config
    }
    pub async fn append(&self, a: Append) -> Result<Appended, StreamError> {
        let done = {
            let mut core = self.core.lock();
            match core.log.check(&a, 100)? {
                Verdict::Already(done) => return Ok(done),
                Verdict::Accept => {}
            }
            let payload = match a.content {
                Some(Ok(p)) => p,
                _ => Payload::Bytes(bytes::Bytes::new()),
            };
            let base = core.data.len();
            match &payload {
                Payload::Bytes(b) => core.data.extend_from_slice(b),
                Payload::Json { text, ends } => {
                    core.data.extend_from_slice(text);
                    core.ends.extend(ends.iter().map(|e| base + *e as usize));
                }
            }
            let frame = Frame {
                stream: self.id,
                epoch: StreamEpoch(1),
                offset: core.log.tail,
                payload,
                producer: a.producer,
                seq: a.seq,
                closes: a.closes,
                births: false,
                intro: None,
            };
            core.log.accept(&frame)
        };
        self.more.notify_waiters();
        Ok(done)
    }
    fn info(&self) -> StreamInfo {
        let core = self.core.lock();
        StreamInfo {
            id: self.id,
            config: self.config.clone(),
            start: Offset(0),
            next: core.log.tail,
            closed: core.log.closed,
        }
    }
    fn read(&self, from: ReadFrom, max: usize) -> ReadChunk {
        let info = self.info();
        let core = self.core.lock();
        let start = match from {
            ReadFrom::Start => 0,
            ReadFrom::Now => info.next.0,
            ReadFrom::At(o) => o.0.min(info.next.0),
        };
        let (mut parts, mut next) = (vec![], start);
        if start < info.next.0 {
            if self.config.is_json() {
                let at = |n: u64| if n == 0 { 0 } else { core.ends[n as usize - 1] };
                next = start + 1;
                while next < info.next.0 && at(next + 1) - at(start) <= max {
                    next += 1;
                }
                for half in [(start, (start + next) / 2), ((start + next) / 2, next)] {
                    if half.0 < half.1 {
                        let text = bytes::Bytes::copy_from_slice(&core.data[at(half.0)..at(half.1)]);
                        let ends = (half.0 + 1..=half.1).map(|n| (at(n) - at(half.0)) as u32).collect();
                        parts.push(Payload::Json { text, ends });
                    }
                }
            } else {
                next = info.next.0.min(start + max as u64);
                parts.push(Payload::Bytes(bytes::Bytes::copy_from_slice(
                    &core.data[start as usize..next as usize],
                )));
            }
        }
        let up_to_date = next == info.next.0;
        ReadChunk {
            closed: info.closed && up_to_date,
            info,
            start: Offset(start),
            next: Offset(next),
            parts,
            up_to_date,
        }
    }
}

impl Streams {
    pub async fn create(&self, name: &StreamName, spec: CreateSpec) -> Result<Created, StreamError> {
        let (stream, new) = {
            let mut all = self.all.lock();
            if let Some(known) = all.get(name.as_str()) {
                let info = known.info();
                let same = info.config.expiry == spec.config.expiry
                    && info.config.content_type.eq_ignore_ascii_case(&spec.config.content_type)
                    && info.closed == spec.closed;
                return if same {
                    Ok(Created { new: false, info })
                } else {
                    Err(StreamError::ConfigMismatch)
                };
            }
            let mut id = self.next_id.lock();
            *id += 1;
            let log = StreamLog { tail: Offset(0), closed: false, born: true, dedupe: Dedupe::default() };
            let stream = Arc::new(OpenStream {
                id: StreamId(*id),
                config: Arc::new(spec.config),
                core: Mutex::new(Core { log, data: vec![], ends: vec![] }),
                more: Notify::new(),
            });
            all.insert(name.shared(), stream.clone());
            (stream, true)
        };
        if spec.first.is_some() || spec.closed {
            stream
                .append(Append {
                    content: spec.first.map(Ok),
                    producer: None,
                    seq: None,
                    closes: spec.closed,
                })
                .await?;
        }
        Ok(Created { new, info: stream.info() })
    }
    pub async fn writer(&self, name: &StreamName) -> Result<Arc<OpenStream>, StreamError> {
        self.all.lock().get(name.as_str()).cloned().ok_or(StreamError::NotFound)
    }
    pub async fn delete(&self, name: &StreamName) -> Result<(), StreamError> {
        self.all.lock().remove(name.as_str()).map(|_| ()).ok_or(StreamError::NotFound)
    }
    pub async fn head(&self, name: &StreamName) -> Result<StreamInfo, StreamError> {
        Ok(self.writer(name).await?.info())
    }
    pub async fn read(
        &self,
        name: &StreamName,
        from: ReadFrom,
        max: usize,
    ) -> Result<ReadChunk, StreamError> {
        Ok(self.writer(name).await?.read(from, max))
    }
    pub async fn wait(
        &self,
        name: &StreamName,
        from: ReadFrom,
        max: usize,
        timeout: Duration,
    ) -> Result<ReadChunk, StreamError> {
        let stream = self.writer(name).await?;
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            let more = stream.more.notified();
            let chunk = stream.read(from, max);
            if !chunk.parts.is_empty() || chunk.closed {
                return Ok(chunk);
            }
            if tokio::time::timeout_at(deadline, more).await.is_err() {
                return Ok(chunk);
            }
        }
    }
}
