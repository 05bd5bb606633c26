//! The crash between any two steps of joining, registering, fencing, handing out, taking over, handing over and leaving:
//! whoever goes there ends there, the rest goes on, and it comes back.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use tokio::time::Instant;
use weir_tests::node::{PATIENCE, aborted, has_fault_points};

use crate::cluster::{Cluster, soaking};
use crate::writers::{self, Of, Writers};

/// What makes some node go there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// A node comes back without its disk.
    Joining,
    /// A node comes back.
    Returning,
    /// A node is killed for good.
    Losing,
    /// A node stops in order.
    Leaving,
    /// The leader does.
    LeaderLeaving,
}

use By::{Joining, LeaderLeaving, Leaving, Losing, Returning};

const STEPS: &[(&str, By)] = &[
    ("joining.nonce_kept", Joining),
    ("joining.number_given", Joining),
    ("joining.identity_written", Joining),
    ("members.before_change", Joining),
    ("members.changed", Joining),
    ("session.registered", Returning),
    ("fence.before_propose", Losing),
    ("fence.fenced", Losing),
    ("claim.handed_out", Losing),
    ("recovery.claimed", Losing),
    ("recovery.sealed", Losing),
    ("recovery.uploaded", Losing),
    ("recovery.committed", Losing),
    ("recovery.recovered", Losing),
    ("session.before_end", Leaving),
    ("session.ended", Leaving),
    ("lead.yielding", LeaderLeaving),
    ("lead.handed", LeaderLeaving),
];

/// In the gate: the ones that another suite has no cluster for.
const IN_THE_GATE: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_at_any_step_stops_nobody_else_and_loses_nothing() {
    assert!(has_fault_points(), "build the node with --features fault-points");
    let mut cluster = Cluster::start(3).await.unwrap();
    let only = std::env::var("WEIR_POINT").unwrap_or_default();
    let mut chosen: Vec<_> = STEPS.iter().filter(|(name, _)| name.contains(&only)).collect();
    while !soaking() && only.is_empty() && chosen.len() > IN_THE_GATE {
        chosen.remove(cluster.rng.index(chosen.len()));
    }
    let writers = writers::start(&mut cluster, &[0, 1, 2]).await.unwrap();
    for (name, by) in chosen {
        let since = Instant::now();
        let tried = abort_at(&mut cluster, &writers, name, *by).await;
        println!("{name} {by:?}: {:.1} s", since.elapsed().as_secs_f64());
        tried.with_context(|| format!("at {name}")).unwrap();
    }
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}

async fn abort_at(cluster: &mut Cluster, writers: &Writers, name: &str, by: By) -> Result<()> {
    let size = cluster.size();
    // Who goes there first ends there: all are armed, but those that the step is not about.
    let chosen = match by {
        LeaderLeaving | Losing => None,
        Joining | Returning | Leaving => Some(cluster.rng.index(size)),
    };
    let mut armed = BTreeSet::new();
    for i in 0..size {
        let wanted = match by {
            // Others register too, when they start armed.
            Returning => false,
            Joining => !name.starts_with("joining."),
            Losing | Leaving | LeaderLeaving => true,
        };
        if wanted {
            armed.insert(i);
            // In order, so that nothing is to be recovered: an armed one must not get to its point before its time.
            let status = cluster.node(i).terminate(PATIENCE).await?;
            ensure!(status.success(), "{status}\n{}", cluster.node(i).log_tail());
            cluster.env(i, "WEIR_FAULT_POINT", Some(name));
            cluster.restart(i).await?;
        }
    }
    writers.all_append(writers.now(), Of::All, "before the step").await?;
    let victim = match by {
        LeaderLeaving => cluster.leader(0).await?,
        Losing => {
            // There must be something to recover.
            writers::know_owners(&writers, cluster, 0).await?;
            let most = (0..size).max_by_key(|i| writers.names(Of::Node(*i)).len());
            most.context("a node")?
        }
        Joining | Returning | Leaving => chosen.context("chosen above")?,
    };
    let mut watched: BTreeSet<usize> = (0..size).collect();
    match by {
        Joining => {
            cluster.kill(victim);
            fs::remove_dir_all(cluster.scratch.path(&Cluster::name(victim)))?;
            cluster.env(victim, "WEIR_FAULT_POINT", Some(name));
            cluster.spawn(victim).await?;
        }
        Returning => {
            cluster.kill(victim);
            cluster.env(victim, "WEIR_FAULT_POINT", Some(name));
            cluster.spawn(victim).await?;
        }
        Losing => {
            cluster.kill(victim);
            watched.remove(&victim);
        }
        Leaving | LeaderLeaving => cluster.node(victim).signal(Signal::TERM),
    }
    let end = Instant::now() + PATIENCE;
    let mut fallen = None;
    while fallen.is_none() {
        for &i in &watched {
            if let Some(status) = cluster.node(i).try_exit()? {
                ensure!(aborted(status), "node {i}: {status}\n{}", cluster.node(i).log_tail());
                fallen = Some(i);
            }
        }
        ensure!(Instant::now() < end, "nobody went there");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    for i in 0..size {
        cluster.env(i, "WEIR_FAULT_POINT", None);
    }
    // Armed ones may follow; whoever has fallen comes back.
    let end = Instant::now() + PATIENCE;
    let begun = writers.now();
    loop {
        for i in 0..size {
            if cluster.node(i).try_exit()?.is_some() {
                cluster.kill(i);
                armed.remove(&i);
                cluster.spawn(i).await?;
            }
        }
        let again = writers.all_append(begun, Of::All, "after the step");
        if let Ok(Ok(_)) = tokio::time::timeout(std::time::Duration::from_secs(2), again).await {
            break;
        }
        ensure!(Instant::now() < end, "streams are stuck");
    }
    for i in armed {
        // It would end at the next step's preparations.
        cluster.kill(i);
        cluster.restart(i).await?;
    }
    cluster.settled(0).await
}
