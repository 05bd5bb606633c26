//! What a scenario came to: seconds to full service, pauses, failed requests, writes of the operator. `docs/reliability.md` gets its table
//! from these lines.

use anyhow::Result;
use weir_tests::figures::Figures;
use weir_tests::writers::{Moment, Of, Writers};

use crate::bed::ip_family;
use crate::cluster::Cluster;

/// A scenario under measurement.
pub(crate) struct Measured {
    scenario: &'static str,
    nodes: u32,
    since: Moment,
    /// By which process, and how many it had written.
    writes: (String, u64),
}

impl Measured {
    /// What is about to happen is called so; requests and pauses of before count no more.
    pub(crate) async fn begin(scenario: &'static str, cluster: &Cluster, writers: &Writers) -> Result<Self> {
        writers.count_on();
        let writes = cluster.bed.operator_writes().await?;
        writers.longest_gap(Of::All);
        let nodes = cluster.now()?.spec.replicas;
        Ok(Self { scenario, nodes, since: writers.now(), writes })
    }

    /// Waits until the cluster is as wanted and every stream takes appends, and writes down how long that took. To be called
    /// once the API shows what has happened, for until then the cluster may be as wanted still.
    pub(crate) async fn end(self, cluster: &Cluster, writers: &Writers) -> Result<()> {
        cluster.until_ready().await?;
        writers.all_append(writers.now(), Of::All, self.scenario).await?;
        let full = writers.since(self.since);
        let (process, writes) = cluster.bed.operator_writes().await?;
        let mut figures = Figures::of(self.scenario, self.nodes as usize)
            .with("family", ip_family())
            .took("fullServiceS", full)
            .took("longestPauseS", writers.longest_gap(Of::All));
        // Another process, if the operator was killed meanwhile, counts from zero.
        if process == self.writes.0 {
            figures = figures.with("operatorWrites", writes.saturating_sub(self.writes.1));
        }
        figures.write(writers);
        Ok(())
    }
}
