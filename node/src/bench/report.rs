//! What a run came to: a table for people, JSON for programs.
//!
//! Invariant: the JSON's names and units do not change; times are milliseconds, rates are per second. Called by every load
//! (which fills it) and by `cli::bench` (which prints it).

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::Common;
use super::meter::Tally;

/// What reading back found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Records that are as they should be.
    pub records: u64,
    /// Bytes that the server sent.
    pub bytes: u64,
    /// Acknowledged, and not there.
    pub lost: u64,
    /// There more than once.
    pub doubled: u64,
    /// There before one that was sent earlier.
    pub disordered: u64,
    /// Not the bytes that were sent.
    pub damaged: u64,
    /// Never sent by this run.
    pub foreign: u64,
}

impl Verified {
    /// Nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.lost + self.doubled + self.disordered + self.damaged + self.foreign == 0
    }

    pub(super) fn add(&mut self, other: &Self) {
        let Self { records, bytes, lost, doubled, disordered, damaged, foreign } = other;
        self.records += records;
        self.bytes += bytes;
        self.lost += lost;
        self.doubled += doubled;
        self.disordered += disordered;
        self.damaged += damaged;
        self.foreign += foreign;
    }
}

/// What live readers got.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// Records that writers had acknowledged.
    pub sent: u64,
    /// Records that readers should have got, and did.
    pub received: u64,
    /// Should have come, and did not.
    pub lost: u64,
    /// Came more than once.
    pub doubled: u64,
    /// Times that readers had to connect anew.
    pub reconnects: u64,
}

/// One kind of operation.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// What was counted.
    pub tally: Tally,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Report {
    /// The load's name.
    pub load: &'static str,
    /// What was asked for, in order.
    pub settings: Vec<(&'static str, Value)>,
    /// By kind of operation.
    pub parts: Vec<Part>,
    /// What reading back found.
    pub verified: Option<Verified>,
    /// What live readers got.
    pub delivered: Option<Delivered>,
    /// The name of a stream that the run created.
    pub first_name: Option<String>,
}

impl Report {
    pub(super) fn new(load: &'static str, common: &Common) -> Self {
        let target = format!("http://{}{}", common.target.authority, common.target.prefix);
        let settings = vec![("target", target.into()), ("connections", common.connections.into())];
        Self { load, settings, parts: Vec::new(), verified: None, delivered: None, first_name: None }
    }

    pub(super) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.settings.push((name, value.into()));
    }

    pub(super) fn part(&mut self, name: &str, tally: Tally) {
        self.parts.push(Part { name: name.to_owned(), tally });
    }

    /// No request failed, nothing is lost, doubled, damaged, and something was done.
    pub fn is_good(&self) -> bool {
        let failures: u64 = self.parts.iter().map(|p| p.tally.failures()).sum();
        let operations: u64 = self.parts.iter().map(|p| p.tally.operations).sum();
        let delivered = self.delivered.as_ref().is_none_or(|d| d.lost + d.doubled == 0);
        let verified = self.verified.as_ref().is_none_or(Verified::is_good);
        failures == 0 && operations > 0 && delivered && verified
    }

    /// The first part, which every load has.
    pub fn main(&self) -> &Tally {
        &self.parts.first().expect("a load reports at least one part").tally
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let mut out = Map::new();
        out.insert("load".to_owned(), self.load.into());
        out.extend(self.settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let parts = self.parts.iter().map(|p| (p.name.clone(), part_json(&p.tally)));
        out.insert("operations".to_owned(), Value::Object(parts.collect()));
        if let Some(v) = &self.verified {
            let found = json!({
                "records": v.records, "bytes": v.bytes, "lost": v.lost, "doubled": v.doubled,
                "disordered": v.disordered, "damaged": v.damaged, "foreign": v.foreign,
            });
            out.insert("verified".to_owned(), found);
        }
        if let Some(d) = &self.delivered {
            let found = json!({
                "sent": d.sent, "received": d.received, "lost": d.lost, "doubled": d.doubled,
                "reconnects": d.reconnects,
            });
            out.insert("delivered".to_owned(), found);
        }
        out.insert("good".to_owned(), self.is_good().into());
        Value::Object(out)
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let settings = self.settings.iter().map(|(name, value)| match value {
            Value::String(text) => format!("{name} {text}"),
            other => format!("{name} {other}"),
        });
        let settings: Vec<_> = settings.collect();
        line(&mut out, format_args!("{}: {}", self.load, settings.join(", ")));
        let columns = format_args!(
            "{:<10} {:>10} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7}",
            "", "count", "per second", "MB/s", "p50 ms", "p99 ms", "p999 ms", "max ms", "stall ms", "errors"
        );
        line(&mut out, columns);
        for Part { name, tally } in &self.parts {
            let row = format_args!(
                "{name:<10} {:>10} {:>11.0} {:>9.1} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>9.1} {:>7}",
                tally.operations,
                tally.rate(),
                tally.byte_rate() / 1e6,
                tally.percentile_ms(50.0),
                tally.percentile_ms(99.0),
                tally.percentile_ms(99.9),
                tally.percentile_ms(100.0),
                tally.longest_stall.as_secs_f64() * 1e3,
                tally.failures()
            );
            line(&mut out, row);
        }
        for Part { name, tally } in &self.parts {
            for (why, n) in &tally.errors {
                line(&mut out, format_args!("error in {name}: {why}: {n}"));
            }
        }
        if let Some(v) = &self.verified {
            let Verified { records, bytes, lost, doubled, disordered, damaged, foreign } = v;
            let row = format_args!(
                "verified: {records} records in {bytes} bytes; lost {lost}, doubled {doubled}, out of order \
                 {disordered}, damaged {damaged}, foreign {foreign}"
            );
            line(&mut out, row);
        }
        if let Some(Delivered { sent, received, lost, doubled, reconnects }) = &self.delivered {
            let row = format_args!(
                "delivered: {received} (of {sent} appends); lost {lost}, doubled {doubled}, reconnects {reconnects}"
            );
            line(&mut out, row);
        }
        out
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{}", text.to_string().trim_end()).expect("a String takes what it is given");
}

fn part_json(tally: &Tally) -> Value {
    let ms = |p| round(tally.percentile_ms(p));
    json!({
        "count": tally.operations,
        "bytes": tally.bytes,
        "seconds": round(tally.measured.as_secs_f64()),
        "perSecond": round(tally.rate()),
        "bytesPerSecond": round(tally.byte_rate()),
        "latencyMs": {
            "mean": round(tally.latency.mean() / 1e6), "p50": ms(50.0), "p90": ms(90.0), "p99": ms(99.0),
            "p999": ms(99.9), "max": ms(100.0),
        },
        "longestStallMs": round(tally.longest_stall.as_secs_f64() * 1e3),
        "errors": tally.errors,
    })
}

fn round(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}
