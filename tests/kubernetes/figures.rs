//! What a scenario came to: seconds to full service, failed requests, writes of the operator. `docs/reliability.md` gets its table
//! from these lines.

use std::time::Duration;

use anyhow::Result;
use weir_tests::figures::Figures;
use weir_tests::writers::{Moment, Of, Writers};

use crate::cluster::Cluster;

/// A scenario under measurement.
pub(crate) struct Measured {
    scenario: &'static str,
    nodes: u32,
    since: Moment,
    writes: u64,
}

impl Measured {
    /// What is about to happen is called so; requests of before count no more.
    pub(crate) async fn begin(
        scenario: &'static str,
        cluster: &Cluster,
        writers: &Writers,
    ) -> Result<Self> {
        writers.count_on();
        let writes = cluster.bed.operator_writes().await?;
        let nodes = cluster.now()?.spec.replicas;
        Ok(Self { scenario, nodes, since: writers.now(), writes })
    }

    /// Waits until every stream takes appends sent after the beginning, and the cluster is ready; writes down how long that
    /// took. To be called once the API shows what has happened, or it is ready still.
    pub(crate) async fn end(self, cluster: &Cluster, writers: &Writers) -> Result<()> {
        let appends = writers.all_append(self.since, Of::All, self.scenario).await?;
        self.end_after(cluster, writers, appends).await
    }

    /// The same where the caller has measured until when streams took no appends.
    pub(crate) async fn end_after(self, cluster: &Cluster, writers: &Writers, appends: Duration) -> Result<()> {
        cluster.until_ready().await?;
        let full = writers.since(self.since);
        // Another process, if the operator has been killed meanwhile, counts from zero.
        let now = cluster.bed.operator_writes().await?;
        let writes = if now >= self.writes { now - self.writes } else { now };
        Figures::of(self.scenario, self.nodes as usize)
            .took("appendsAgainS", appends)
            .took("fullServiceS", full)
            .with("operatorWrites", writes)
            .write(writers);
        Ok(())
    }
}
