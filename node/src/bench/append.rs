//! Appends, as fast as answers come: streams × connections × size.
//!
//! Invariant: with producers a request whose outcome is unknown is sent again, so that each record is there once; without,
//! it is not, and counts as one that may be there. Called by `cli::bench`.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::content::{self, Maker};
use super::meter::{Meter, Patience, name_of};
use super::setup::{self, SMALL};
use super::verify::{Sent, Verifier};
use super::wire::{Conn, Look};
use super::{BenchError, Common, Report};

/// What to append.
#[derive(Debug, Clone)]
pub struct Append {
    /// Streams, shared out among the connections.
    pub streams: usize,
    /// Bytes of one record.
    pub size: usize,
    /// The streams' content type.
    pub content_type: String,
    /// As idempotent producers, one for each connection.
    pub producers: bool,
    /// Read everything back and compare.
    pub verify: bool,
}

/// Whether streams of that content type hold JSON.
pub(super) fn is_json(content_type: &str) -> bool {
    content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// Runs the load.
pub async fn run(common: &Common, load: &Append) -> Result<Report, BenchError> {
    if load.size < content::LEAST {
        let why = format!("--size must be at least {}: a record says whose and which it is", content::LEAST);
        return Err(BenchError::Usage(why));
    }
    let run = setup::run_name();
    let names: Arc<[String]> = (0..load.streams).map(|n| format!("{run}-{n}")).collect();
    setup::create(common, &names, &load.content_type).await?;
    let maker = Arc::new(Maker::new(load.size, is_json(&load.content_type)));
    let conns = setup::connections(common, SMALL).await?;
    let meter = Arc::new(Meter::start(common));
    let mut lanes = JoinSet::new();
    for (lane, conn) in (0u32..).zip(conns) {
        let lane = Lane {
            common: common.clone(),
            producers: load.producers,
            maker: maker.clone(),
            meter: meter.clone(),
            lane,
            places: places(common, load, &names, lane),
            conn: Some(conn),
            request: Vec::with_capacity(load.size + 512),
            record: vec![0; load.size],
            sent: Verifier::default(),
            remembers: load.verify,
        };
        lanes.spawn(lane.run());
    }
    let mut sent = Verifier::default();
    while let Some(lane) = lanes.join_next().await {
        sent.merge(lane.map_err(|e| BenchError::Server(format!("a task of the client failed: {e}")))?);
    }
    let meter =
        Arc::into_inner(meter).ok_or_else(|| BenchError::Server("a task of the client is left".into()))?;
    let mut report = Report::new("append", common);
    report.set("streams", load.streams);
    report.set("size", load.size);
    report.set("producers", load.producers);
    report.set("contentType", load.content_type.as_str());
    report.part("append", meter.finish());
    if load.verify {
        report.verified = Some(sent.check(common, &names, &maker).await?);
    }
    setup::delete(common, &names).await;
    Ok(report)
}

/// A connection's place in one stream.
struct Place {
    stream: usize,
    /// The request up to what changes.
    head: Vec<u8>,
    next: u64,
}

/// With more streams than connections, each connection goes round its own; with fewer, streams have several writers.
fn places(common: &Common, load: &Append, names: &[String], lane: u32) -> Vec<Place> {
    let (lane_at, lanes) = (lane as usize, common.connections);
    let mine: Vec<usize> = if load.streams >= lanes {
        (lane_at..load.streams).step_by(lanes).collect()
    } else {
        vec![lane_at % load.streams]
    };
    let mut fields = format!("Content-Type: {}\r\nContent-Length: {}\r\n", load.content_type, load.size);
    if load.producers {
        fields += &format!("Producer-Id: lane-{lane}\r\nProducer-Epoch: 0\r\nProducer-Seq: ");
    }
    let head = |stream: usize| common.target.head("POST", &names[stream], "", &fields).into_bytes();
    mine.into_iter().map(|stream| Place { stream, head: head(stream), next: 0 }).collect()
}

/// One connection.
struct Lane {
    common: Common,
    producers: bool,
    maker: Arc<Maker>,
    meter: Arc<Meter>,
    lane: u32,
    places: Vec<Place>,
    conn: Option<Conn>,
    request: Vec<u8>,
    record: Vec<u8>,
    sent: Verifier,
    remembers: bool,
}

impl Lane {
    async fn run(mut self) -> Verifier {
        let mut patience = Patience::default();
        self.maker.fill(self.lane, 0, &mut self.record);
        let mut at = 0;
        let mut again = false;
        loop {
            let begun = Instant::now();
            // What is owed to a producer's order is sent again even after the time is up.
            if !again && !self.meter.may_start(begun) {
                return self.sent;
            }
            self.build(at);
            let outcome = self.exchange().await;
            let (stream, number) = (self.places[at].stream, self.places[at].next);
            let failure = match outcome {
                Ok(status) if (200..300).contains(&status) => None,
                Ok(status) => Some(status.to_string()),
                Err(e) => Some(name_of(&e)),
            };
            match failure {
                None => {
                    self.meter.done(begun, Instant::now(), self.record.len() as u64);
                    patience.succeeded();
                    again = false;
                }
                Some(why) => {
                    again = self.producers;
                    if !patience.failed(&self.meter, &why).await {
                        if self.remembers {
                            self.sent.sent(stream, self.lane, number, Sent::Maybe);
                        }
                        return self.sent;
                    }
                    if again {
                        continue;
                    }
                }
            }
            if self.remembers {
                let sent = if patience.is_failing() { Sent::Maybe } else { Sent::Surely };
                self.sent.sent(stream, self.lane, number, sent);
            }
            self.places[at].next += 1;
            at = (at + 1) % self.places.len();
        }
    }

    fn build(&mut self, at: usize) {
        let place = &self.places[at];
        self.request.clear();
        self.request.extend_from_slice(&place.head);
        if self.producers {
            let mut digits = [0; 20];
            self.request.extend_from_slice(decimal(place.next, &mut digits));
            self.request.extend_from_slice(b"\r\n");
        }
        self.request.extend_from_slice(b"\r\n");
        if self.remembers {
            self.maker.fill(self.lane, place.next, &mut self.record);
        }
        self.request.extend_from_slice(&self.record);
    }

    async fn exchange(&mut self) -> std::io::Result<u16> {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => Conn::open(&self.common.target, SMALL, self.common.timeout).await?,
        };
        let answer = conn.exchange(&self.request, Look::Framing).await?;
        self.conn = conn.reusable().then_some(conn);
        Ok(answer.status)
    }
}

/// Without an allocation.
fn decimal(mut n: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &digits[at..];
        }
    }
}
