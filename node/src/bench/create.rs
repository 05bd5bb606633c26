//! Creates, as fast as answers come; each a stream of its own, empty or with first bytes.
//!
//! Called by `cli::bench`.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::meter::{Meter, Patience, name_of};
use super::setup::{self, SMALL};
use super::wire::{Conn, Look};
use super::{BenchError, Common, Report};

/// What to create.
#[derive(Debug, Clone)]
pub struct Create {
    /// First bytes.
    pub size: usize,
    /// The streams' content type.
    pub content_type: String,
}

/// Runs the load.
pub async fn run(common: &Common, load: &Create) -> Result<Report, BenchError> {
    let run = setup::run_name();
    let conns = setup::connections(common, SMALL).await?;
    let meter = Arc::new(Meter::start(common));
    let mut lanes = JoinSet::new();
    for (lane, conn) in conns.into_iter().enumerate() {
        lanes.spawn(one(common.clone(), load.clone(), meter.clone(), format!("{run}-{lane}"), conn));
    }
    let mut names = Vec::new();
    while let Some(created) = lanes.join_next().await {
        names.extend(created.map_err(|e| BenchError::Server(format!("a task of the client failed: {e}")))?);
    }
    let meter =
        Arc::into_inner(meter).ok_or_else(|| BenchError::Server("a task of the client is left".into()))?;
    let mut report = Report::new("create", common);
    report.set("size", load.size);
    report.set("contentType", load.content_type.as_str());
    report.part("create", meter.finish());
    report.first_name = Some(format!("{run}-0-0"));
    setup::delete(common, &names.into()).await;
    Ok(report)
}

/// One connection; answers the names it created, if they are to be deleted.
async fn one(common: Common, load: Create, meter: Arc<Meter>, base: String, conn: Conn) -> Vec<String> {
    let mut names = Vec::new();
    let mut patience = Patience::default();
    let mut conn = Some(conn);
    let body = vec![b'c'; load.size];
    for n in 0u64.. {
        let name = format!("{base}-{n}");
        let request = common.target.request_with("PUT", &name, &load.content_type, &body);
        let begun = Instant::now();
        if !meter.may_start(begun) {
            break;
        }
        match exchange(&common, &mut conn, &request).await {
            Ok(201) => {
                meter.done(begun, Instant::now(), load.size as u64);
                patience.succeeded();
                if !common.keep {
                    names.push(name);
                }
            }
            outcome => {
                let why = outcome.map_or_else(|e| name_of(&e), |status| status.to_string());
                if !patience.failed(&meter, &why).await {
                    break;
                }
            }
        }
    }
    names
}

/// One request on the connection, or on a new one.
pub(super) async fn exchange(
    common: &Common,
    conn: &mut Option<Conn>,
    request: &[u8],
) -> std::io::Result<u16> {
    let mut open = match conn.take() {
        Some(open) => open,
        None => Conn::open(&common.target, SMALL, common.timeout).await?,
    };
    let answer = open.exchange(request, Look::Framing).await?;
    *conn = open.reusable().then_some(open);
    Ok(answer.status)
}
