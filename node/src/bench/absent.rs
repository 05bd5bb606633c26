//! Asking for streams that do not exist, as fast as answers come: each "no" claims to be current, so that it stands on a
//! read index of the metadata log.
//!
//! Called by the comparison (`examples/compare`).

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::meter::{Meter, Patience, name_of};
use super::setup::{self, SMALL};
use super::wire::{Conn, Look};
use super::{BenchError, Common, Report};

/// Runs the load.
pub async fn run(common: &Common) -> Result<Report, BenchError> {
    let run = setup::run_name();
    let conns = setup::connections(common, SMALL).await?;
    let meter = Arc::new(Meter::start(common));
    let mut lanes = JoinSet::new();
    for (lane, conn) in conns.into_iter().enumerate() {
        lanes.spawn(one(common.clone(), meter.clone(), format!("{run}-{lane}"), conn));
    }
    while let Some(done) = lanes.join_next().await {
        done.map_err(|e| BenchError::Server(format!("a task of the client failed: {e}")))?;
    }
    let meter =
        Arc::into_inner(meter).ok_or_else(|| BenchError::Server("a task of the client is left".into()))?;
    let mut report = Report::new("absent", common);
    report.part("absent", meter.finish());
    Ok(report)
}

async fn one(common: Common, meter: Arc<Meter>, name: String, conn: Conn) {
    let request = common.target.request("HEAD", &name, "", "");
    let (mut patience, mut conn) = (Patience::default(), Some(conn));
    loop {
        let begun = Instant::now();
        if !meter.may_start(begun) {
            return;
        }
        let why = match exchange(&common, &mut conn, &request).await {
            Ok(404) => {
                meter.done(begun, Instant::now(), 0);
                patience.succeeded();
                continue;
            }
            outcome => outcome.map_or_else(|e| name_of(&e), |status| status.to_string()),
        };
        if !patience.failed(&meter, &why).await {
            return;
        }
    }
}

/// One request on the connection, or on a new one.
async fn exchange(common: &Common, conn: &mut Option<Conn>, request: &[u8]) -> std::io::Result<u16> {
    let mut open = match conn.take() {
        Some(open) => open,
        None => Conn::open(&common.target, SMALL, common.timeout).await?,
    };
    let answer = open.exchange(request, Look::NoBody).await?;
    *conn = open.reusable().then_some(open);
    Ok(answer.status)
}
