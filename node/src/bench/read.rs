//! Catch-up: each connection reads a whole stream, from its start to its tail, again and again.
//!
//! An operation is one whole catch-up. Called by `cli::bench`.

use std::io;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::append::is_json;
use super::content::{self, Maker};
use super::meter::{Meter, Patience, name_of};
use super::setup;
use super::wire::{Conn, Look};
use super::{BenchError, Common, Report};

/// Read at a time: large enough that system calls are few, small enough to stay in the processor's cache.
const BUFFER: usize = 256 << 10;

/// What to read.
#[derive(Debug, Clone)]
pub struct Read {
    /// Bytes of content in the stream, about.
    pub bytes: u64,
    /// Bytes of one record; each is one append.
    pub record: usize,
    /// The stream's content type.
    pub content_type: String,
    /// Compare every byte.
    pub verify: bool,
}

/// Runs the load.
pub async fn run(common: &Common, load: &Read) -> Result<Report, BenchError> {
    if load.record < content::LEAST {
        let why = format!("--record must be at least {}: a record says which it is", content::LEAST);
        return Err(BenchError::Usage(why));
    }
    if is_json(&load.content_type) && load.verify {
        let why = "--verify compares bytes: take another --content-type than JSON, or `append --verify`";
        return Err(BenchError::Usage(why.to_owned()));
    }
    let names: Arc<[String]> = Arc::new([setup::run_name()]);
    setup::create(common, &names, &load.content_type).await?;
    let maker = Arc::new(Maker::new(load.record, is_json(&load.content_type)));
    let records = load.bytes.div_ceil(load.record as u64).max(1);
    fill(common, &names[0], load, &maker, records).await?;

    let conns = setup::connections(common, BUFFER).await?;
    let meter = Arc::new(Meter::start(common));
    let mut lanes = JoinSet::new();
    for conn in conns {
        let lane = Lane {
            common: common.clone(),
            name: names[0].clone(),
            meter: meter.clone(),
            conn: Some(conn),
            compare: load.verify.then(|| Compare::new(maker.clone(), records)),
        };
        lanes.spawn(lane.run());
    }
    while let Some(lane) = lanes.join_next().await {
        lane.map_err(|e| BenchError::Server(format!("a task of the client failed: {e}")))?;
    }
    let meter =
        Arc::into_inner(meter).ok_or_else(|| BenchError::Server("a task of the client is left".into()))?;
    let mut report = Report::new("read", common);
    report.set("bytes", records * load.record as u64);
    report.set("record", load.record);
    report.set("contentType", load.content_type.as_str());
    report.part("catch-up", meter.finish());
    setup::delete(common, &names).await;
    Ok(report)
}

/// Appends the records, one after another.
async fn fill(
    common: &Common,
    name: &str,
    load: &Read,
    maker: &Maker,
    records: u64,
) -> Result<(), BenchError> {
    let mut conn = setup::connect(common, setup::SMALL).await?;
    let mut patience = 0;
    let mut number = 0;
    while number < records {
        let request = common.target.request_with("POST", name, &load.content_type, &maker.make(0, number));
        let answer = conn.exchange(&request, Look::Framing).await;
        let answer = answer.map_err(|e| BenchError::Server(format!("filling the stream failed: {e}")))?;
        match answer.status {
            200 | 204 => (number, patience) = (number + 1, 0),
            // Refused before it was ordered: the server asks for patience.
            429 | 503 if patience < 100 => {
                patience += 1;
                tokio::time::sleep(super::PAUSE * 5).await;
            }
            status => {
                return Err(BenchError::Server(format!("filling the stream was answered {status}")));
            }
        }
        if !conn.reusable() {
            conn = setup::connect(common, setup::SMALL).await?;
        }
    }
    Ok(())
}

struct Lane {
    common: Common,
    name: String,
    meter: Arc<Meter>,
    conn: Option<Conn>,
    compare: Option<Compare>,
}

impl Lane {
    async fn run(mut self) {
        let mut patience = Patience::default();
        loop {
            let begun = Instant::now();
            if !self.meter.may_start(begun) {
                return;
            }
            match self.catch_up().await {
                Ok(()) => {
                    self.meter.done(begun, Instant::now(), 0);
                    patience.succeeded();
                }
                Err(e) => {
                    if !patience.failed(&self.meter, &name_of(&e)).await {
                        return;
                    }
                }
            }
        }
    }

    async fn catch_up(&mut self) -> io::Result<()> {
        let mut offset = "-1".to_owned();
        if let Some(compare) = &mut self.compare {
            compare.restart();
        }
        loop {
            let mut conn = match self.conn.take() {
                Some(conn) => conn,
                None => Conn::open(&self.common.target, BUFFER, self.common.timeout).await?,
            };
            let request = self.common.target.request("GET", &self.name, &format!("?offset={offset}"), "");
            let (compare, meter) = (&mut self.compare, &self.meter);
            let each = |piece: &[u8]| {
                meter.moved(Instant::now(), piece.len() as u64);
                if let Some(compare) = compare {
                    compare.feed(piece);
                }
            };
            let answer = conn.exchange_with(&request, Look::Progress, each).await?;
            self.conn = conn.reusable().then_some(conn);
            if answer.status != 200 {
                return Err(io::Error::other(answer.status.to_string()));
            }
            if answer.up_to_date || answer.closed {
                break;
            }
            match answer.next {
                Some(next) if next != offset => offset = next,
                _ => return Err(io::Error::other("Stream-Next-Offset does not move on")),
            }
        }
        match &self.compare {
            Some(compare) if !compare.is_whole() => Err(io::Error::other("content differs")),
            _ => Ok(()),
        }
    }
}

/// Compares a stream's bytes with what was appended.
struct Compare {
    maker: Arc<Maker>,
    records: u64,
    number: u64,
    at: usize,
    expected: Vec<u8>,
    differs: bool,
}

impl Compare {
    fn new(maker: Arc<Maker>, records: u64) -> Self {
        let expected = maker.make(0, 0);
        Self { maker, records, number: 0, at: 0, expected, differs: false }
    }

    fn restart(&mut self) {
        (self.number, self.at, self.differs) = (0, 0, false);
        self.maker.fill(0, 0, &mut self.expected);
    }

    fn feed(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let take = piece.len().min(self.expected.len() - self.at);
            self.differs |= self.expected[self.at..self.at + take] != piece[..take];
            piece = &piece[take..];
            self.at += take;
            if self.at == self.expected.len() {
                self.at = 0;
                self.number += 1;
                self.maker.fill(0, self.number, &mut self.expected);
            }
        }
    }

    fn is_whole(&self) -> bool {
        !self.differs && self.at == 0 && self.number == self.records
    }
}
