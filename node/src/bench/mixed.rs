//! All operations beside each other: appends, catch-up reads, heads and creates, in given shares, over shared streams.
//!
//! Invariant: which operation comes next follows from the connection's number alone, so that two runs ask for the same.
//! Called by `cli::bench`.

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

const BUFFER: usize = 64 << 10;

/// What can be asked for, in the order of [`Mix`]'s shares.
pub const KINDS: [&str; 4] = ["append", "read", "head", "create"];

/// How often each kind comes, in parts of their sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix(pub [u32; KINDS.len()]);

impl Mix {
    /// From `append=70,read=20,head=5,create=5`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let allowed =
            || "a list such as append=70,read=20,head=5,create=5, with at least one above 0".to_owned();
        let mut shares = [0; KINDS.len()];
        for part in text.split(',') {
            let (kind, share) = part.split_once('=').ok_or_else(allowed)?;
            let at = KINDS.iter().position(|k| *k == kind.trim()).ok_or_else(allowed)?;
            shares[at] = share.trim().parse().ok().filter(|n| *n <= 1_000_000).ok_or_else(allowed)?;
        }
        if shares.iter().all(|n| *n == 0) { Err(allowed()) } else { Ok(Self(shares)) }
    }

    fn kind(self, mut random: u64) -> usize {
        random %= self.0.iter().map(|n| u64::from(*n)).sum::<u64>();
        let mut at = 0;
        for share in self.0 {
            if random < u64::from(share) {
                break;
            }
            random -= u64::from(share);
            at += 1;
        }
        at
    }
}

/// What to do.
#[derive(Debug, Clone)]
pub struct Mixed {
    /// Shares of the operations.
    pub mix: Mix,
    /// Streams; all connections use all of them.
    pub streams: usize,
    /// Bytes of one record.
    pub size: usize,
    /// The streams' content type.
    pub content_type: String,
}

/// Runs the load.
pub async fn run(common: &Common, load: &Mixed) -> Result<Report, BenchError> {
    if load.size < content::LEAST {
        return Err(BenchError::Usage(format!("--size must be at least {}", content::LEAST)));
    }
    let run = setup::run_name();
    let names: Arc<[String]> = (0..load.streams).map(|n| format!("{run}-{n}")).collect();
    setup::create(common, &names, &load.content_type).await?;
    let conns = setup::connections(common, BUFFER).await?;
    let gate = Meter::start(common);
    let uncounted = Common { count: None, ..common.clone() };
    let shared = Arc::new(Shared {
        common: common.clone(),
        load: load.clone(),
        record: Maker::new(load.size, is_json(&load.content_type)).make(0, 0),
        meters: KINDS.map(|_| gate.sibling(&uncounted)),
        gate,
        names: names.clone(),
    });
    let mut lanes = JoinSet::new();
    for (lane, conn) in conns.into_iter().enumerate() {
        lanes.spawn(one(shared.clone(), lane, conn));
    }
    let mut created = Vec::new();
    while let Some(more) = lanes.join_next().await {
        created.extend(more.map_err(|e| BenchError::Server(format!("a task of the client failed: {e}")))?);
    }
    let shared =
        Arc::into_inner(shared).ok_or_else(|| BenchError::Server("a task of the client is left".into()))?;
    let mut report = Report::new("mixed", common);
    report.set("streams", load.streams);
    report.set("size", load.size);
    report.set("contentType", load.content_type.as_str());
    let ended = shared.gate.finish();
    for (at, meter) in shared.meters.into_iter().enumerate() {
        if load.mix.0[at] > 0 {
            let mut tally = meter.finish();
            tally.measured = ended.measured.min(tally.measured);
            report.part(KINDS[at], tally);
        }
    }
    setup::delete(common, &names).await;
    setup::delete(common, &created.into()).await;
    Ok(report)
}

struct Shared {
    common: Common,
    load: Mixed,
    record: Vec<u8>,
    gate: Meter,
    meters: [Meter; KINDS.len()],
    names: Arc<[String]>,
}

/// One connection; answers the names it created, if they are to be deleted.
async fn one(shared: Arc<Shared>, lane: usize, conn: Conn) -> Vec<String> {
    let Shared { common, load, gate, meters, names, .. } = &*shared;
    let mut conn = Some(conn);
    let mut created = Vec::new();
    let mut patience = Patience::default();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(lane as u64 + 1) | 1;
    for n in 0u64.. {
        let begun = Instant::now();
        if !gate.may_start(begun) {
            break;
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let kind = load.mix.kind(state >> 33);
        let at = usize::try_from(state & 0xffff_ffff).unwrap_or(0) % names.len();
        let fresh = (KINDS[kind] == "create").then(|| format!("{}-l{lane}-{n}", names[0]));
        let request = request(&shared, kind, fresh.as_ref().unwrap_or(&names[at]));
        let look = if KINDS[kind] == "head" { Look::NoBody } else { Look::Framing };
        let why = match exchange(common, &mut conn, &request, look).await {
            Ok((status, bytes)) if (200..300).contains(&status) => {
                let moved = if KINDS[kind] == "append" { load.size as u64 } else { bytes };
                meters[kind].done(begun, Instant::now(), moved);
                patience.succeeded();
                created.extend(fresh.filter(|_| !common.keep));
                continue;
            }
            Ok((status, _)) => status.to_string(),
            Err(e) => name_of(&e),
        };
        if !patience.failed(&meters[kind], &why).await {
            break;
        }
    }
    created
}

fn request(shared: &Shared, kind: usize, name: &str) -> Vec<u8> {
    let Shared { common, load, record, .. } = shared;
    match KINDS[kind] {
        "append" => common.target.request_with("POST", name, &load.content_type, record),
        "read" => common.target.request("GET", name, "?offset=-1", ""),
        "head" => common.target.request("HEAD", name, "", ""),
        _ => common.target.request_with("PUT", name, &load.content_type, b""),
    }
}

async fn exchange(
    common: &Common,
    conn: &mut Option<Conn>,
    request: &[u8],
    look: Look,
) -> io::Result<(u16, u64)> {
    let mut open = match conn.take() {
        Some(open) => open,
        None => Conn::open(&common.target, BUFFER, common.timeout).await?,
    };
    let mut bytes = 0;
    let answer = open.exchange_with(request, look, |piece| bytes += piece.len() as u64).await?;
    *conn = open.reusable().then_some(open);
    Ok((answer.status, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_read_and_kept_to() {
        let mix = Mix::parse("append=3, read=1").unwrap();
        assert_eq!(mix, Mix([3, 1, 0, 0]));
        let kinds: Vec<_> = (0..8).map(|n| mix.kind(n)).collect();
        assert_eq!(kinds, [0, 0, 0, 1, 0, 0, 0, 1]);
        for bad in ["", "append", "append=x", "delete=1", "append=0", "append=-1"] {
            assert!(Mix::parse(bad).is_err(), "{bad}");
        }
    }
}
