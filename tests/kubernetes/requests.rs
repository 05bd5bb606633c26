//! Requests at the API server, by its audit log.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::bed::{Bed, OPERATOR};
use crate::watched::LIMIT;

/// The operator's account, as the API server calls it.
const ACCOUNT: &str = "weir-operator";

/// One request that was answered.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// When it came, in milliseconds since 1970.
    pub(crate) at_ms: i64,
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    /// It came to nothing.
    pub(crate) refused: bool,
}

impl Request {
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

/// The operator's requests about a namespace's objects so far, in the order of their arrival.
pub(crate) async fn of_operator(bed: &Bed, namespace: &str) -> Result<Vec<Request>> {
    let path = bed.run(&["audit"]).await?;
    let text = std::fs::read_to_string(path.trim()).with_context(|| path.clone())?;
    let user = format!("system:serviceaccount:{OPERATOR}:{ACCOUNT}");
    let named = format!("\"namespace\":\"{namespace}\"");
    // A line that is not complete yet is read the next time.
    let lines = text.lines().filter(|l| l.contains(&user) && l.contains(&named));
    let mut all: Vec<Request> = lines.filter_map(|l| request(&serde_json::from_str(l).ok()?)).collect();
    all.sort_by_key(|r| r.at_ms);
    Ok(all)
}

fn request(line: &Value) -> Option<Request> {
    let at: k8s_openapi::jiff::Timestamp = line["requestReceivedTimestamp"].as_str()?.parse().ok()?;
    let about = &line["objectRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(Request {
        at_ms: at.as_millisecond(),
        verb: text(&line["verb"]),
        resource: text(&about["resource"]),
        name: text(&about["name"]),
        refused: line["responseStatus"]["code"].as_u64().is_some_and(|code| code >= 400),
    })
}

/// What some passes over a cluster came to.
#[derive(Debug)]
pub(crate) struct Passes {
    pub(crate) count: u32,
    /// When each began, and the one after them, in milliseconds since 1970.
    pub(crate) starts: Vec<i64>,
    /// From the first to the last.
    pub(crate) took: Duration,
    /// Writes within.
    pub(crate) writes: Vec<Request>,
}

/// A pass begins with a look at the StreamCluster.
fn begins_pass(request: &Request, cluster: &str) -> bool {
    request.verb == "get" && request.resource == "streamclusters" && request.name == cluster
}

/// Waits until the operator has gone over a cluster so many times more. `nudge` is called after each pass.
pub(crate) async fn passes<F>(
    bed: &Bed,
    namespace: &str,
    cluster: &str,
    count: u32,
    mut nudge: impl FnMut(u32) -> F,
) -> Result<Passes>
where
    F: Future<Output = Result<()>>,
{
    let known = of_operator(bed, namespace).await?.last().map_or(0, |r| r.at_ms);
    let mut seen = 0;
    nudge(0).await?;
    let end = tokio::time::Instant::now() + LIMIT;
    loop {
        let since: Vec<Request> =
            of_operator(bed, namespace).await?.into_iter().filter(|r| r.at_ms > known).collect();
        let starts: Vec<i64> = since.iter().filter(|r| begins_pass(r, cluster)).map(|r| r.at_ms).collect();
        // One more, so that those counted are over.
        if let Some(last) = starts.get(count as usize) {
            let took = u64::try_from(last - starts[0]).unwrap_or(0);
            let within = |r: &Request| r.is_write() && (starts[0]..*last).contains(&r.at_ms);
            let writes = since.into_iter().filter(within).collect();
            let starts = starts[..=count as usize].to_vec();
            return Ok(Passes { count, starts, took: Duration::from_millis(took), writes });
        }
        anyhow::ensure!(tokio::time::Instant::now() < end, "waited {LIMIT:?} for {count} passes, saw {seen}");
        if starts.len() > seen {
            seen = starts.len();
            nudge(u32::try_from(seen)?).await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Passes as they come by themselves.
pub(crate) async fn passes_by_themselves(
    bed: &Bed,
    namespace: &str,
    cluster: &str,
    count: u32,
) -> Result<Passes> {
    passes(bed, namespace, cluster, count, |_| std::future::ready(Ok(()))).await
}
