//! `weir admin`: how the cluster, its nodes and a stream's ownership stand, and a node's weight. What ends nodes is in
//! `members`.
//!
//! Invariant: `--json` is the server's answer as it came; the tables are made from the same types that it is made from.

use bytes::Bytes;
use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use weir_api::admin::{
    ClusterStatus, NodeList, NodeStatus, OwnershipState, RecoveryStatus, SetNode, StreamStatus,
};
use weir_api::{NodeId, Slots};

use super::connect::{self, AdminArgs};
use super::exit::CLIENT_CODES;
use super::human::{self, Table};
use super::info::shown;
use super::members::{self, Fence, Remove};
use super::stop::Stop;
use super::{ExitCode, moves, values};
use crate::streams::StreamName;

pub(super) const HELP: &str = "\
Examples:
  weir admin cluster
  weir admin nodes --json | jq '.nodes[].id'
  weir admin stream notes
      Who has it, and how much of it is in segments
  weir admin slots node-0 2
      From now on twice the share of new streams; 0 takes none. Streams that are there stay
  weir admin drain node-0 --wait
      Its streams go to the others; it takes none until: weir admin drain node-0 --cancel
  weir admin transfer notes node-1 --wait
  weir admin fence node-2
      Ends its session, so that others take its streams over at once
  weir admin nodes --admin http://10.0.0.7:9090 --token-file /etc/weir/token

The admin listener has a page too, which shows all of it live: http://127.0.0.1:9090/";

/// Ask and tell a node's admin listener
#[derive(Debug, Args)]
#[command(after_help = format!("{HELP}\n\n{CLIENT_CODES}"), subcommand_required = true, arg_required_else_help = true,
          disable_help_subcommand = true)]
pub(super) struct Admin {
    #[command(subcommand)]
    what: What,
    /// Print the server's JSON as it is
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    server: AdminArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The cluster, its metadata log, and what waits for recovery
    #[command(after_help = CLIENT_CODES)]
    Cluster,
    /// All nodes: their epochs, weights and streams
    #[command(after_help = CLIENT_CODES)]
    Nodes,
    /// The metadata log's members: who votes, who leads, who is behind
    #[command(after_help = CLIENT_CODES)]
    Members,
    /// One stream: who has it, and how much of it is in segments
    #[command(after_help = CLIENT_CODES)]
    Stream {
        /// The stream
        #[arg(value_name = "NAME", value_parser = values::name)]
        name: StreamName,
    },
    #[command(after_help = CLIENT_CODES)]
    Drain(moves::Drain),
    #[command(after_help = CLIENT_CODES)]
    Transfer(moves::Transfer),
    /// Set a node's weight
    #[command(after_help = CLIENT_CODES)]
    Slots {
        /// The node
        #[arg(value_name = "NODE")]
        node: NodeId,
        /// 0 (no new streams) to 1000000
        #[arg(value_name = "N")]
        slots: Slots,
    },
    Fence(Fence),
    Remove(Remove),
}

pub(super) fn run(args: Admin) -> ExitCode {
    connect::run(async move |tasks| {
        let Admin { what, json, server } = args;
        let client = server.client(tasks)?;
        let answer = match &what {
            What::Cluster => client.cluster().await.map_err(Stop::about_admin),
            What::Nodes => client.nodes().await.map_err(Stop::about_admin),
            What::Members => client.members().await.map_err(Stop::about_admin),
            What::Stream { name } => client.stream(name).await.map_err(Stop::about_admin),
            What::Slots { node, slots } => {
                let body = SetNode { slots: *slots, resource_uid: None, resource_generation: None };
                client.set_node(node.as_str(), &body).await.map_err(Stop::about_admin)
            }
            What::Drain(drain) => return said(drain.run(&client).await?, json),
            What::Transfer(transfer) => return said(transfer.run(&client).await?, json),
            What::Fence(fence) => fence.ask(&client).await,
            What::Remove(remove) => remove.ask(&client).await,
        }?;
        if json {
            return said((answer, String::new()), json);
        }
        shown(&match what {
            What::Cluster => cluster(&parsed(&answer)?),
            What::Nodes => nodes(&parsed(&answer)?),
            What::Stream { .. } => stream(&parsed(&answer)?),
            What::Slots { .. } => slots(&parsed(&answer)?),
            What::Members => members::members(&parsed(&answer)?),
            What::Fence(fence) => fence.told(&parsed(&answer)?),
            What::Remove(_) => Remove::told(&parsed(&answer)?),
            What::Drain(_) | What::Transfer(_) => return Ok(()),
        })
    })
}

/// The server's answer as it is, or the text made of it.
fn said((answer, text): moves::Told, json: bool) -> Result<(), Stop> {
    if !json {
        return shown(&text);
    }
    let mut text = String::from_utf8_lossy(&answer).into_owned();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    shown(&text)
}

pub(super) fn parsed<T: DeserializeOwned>(answer: &Bytes) -> Result<T, Stop> {
    serde_json::from_slice(answer).map_err(|e| {
        Stop::new(ExitCode::Failure, format!("the server's answer is not as this version knows it: {e}"))
            .hint("see it as it is with --json")
    })
}

fn cluster(c: &ClusterStatus) -> String {
    let leader = match (&c.log.leader_node, &c.log.leader) {
        (Some(node), _) => node.to_string(),
        (None, Some(raft)) => format!("raft id {raft}"),
        (None, None) => "none known".to_owned(),
    };
    let mut rows = vec![("cluster", c.uid.to_string())];
    rows.extend(c.identity.iter().map(|i| ("identity", i.clone())));
    rows.extend([
        ("nodes", format!("{} of {} alive; configured for {}", c.nodes_alive, c.nodes, c.configured_size)),
        ("streams", format!("{}, {} open", c.streams, c.open_streams)),
        ("log leader", format!("{leader}, term {}", c.log.term)),
        ("log voters", format!("{} wanted{}", c.voter_target, quorum(c.quorum_healthy))),
        ("log applied", format!("entry {}, {}", c.log.applied_index, human::date(c.log.time_ms))),
        ("format version", c.format_version.to_string()),
        ("moving", human::counted(c.pending_transfers, "stream")),
        (
            "recoveries",
            if c.awaiting_recovery == 0 { "none".into() } else { c.awaiting_recovery.to_string() },
        ),
        ("answered by", format!("{}, weir {}", c.answered_by.node, c.answered_by.version)),
    ]);
    rows.extend(c.unformed.iter().map(|why| ("no writes yet", why.clone())));
    human::list(&rows) + &recoveries(&c.recoveries)
}

/// Only the leader knows.
fn quorum(healthy: Option<bool>) -> &'static str {
    match healthy {
        Some(true) => ", a majority is heard",
        Some(false) => ", NO MAJORITY is heard",
        None => "",
    }
}

fn recoveries(all: &[RecoveryStatus]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let titles = ["NODE", ">EPOCH", "ENDED", ">OPEN STREAMS", "RECOVERED BY"];
    let row = |r: &RecoveryStatus| {
        let by = r.claimed_by.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        vec![
            r.node.to_string(),
            r.epoch.to_string(),
            human::date(r.ended_at_ms),
            r.open_streams.to_string(),
            by,
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    format!("\n{}", Table::new(&titles).text(Some(&titles), &rows))
}

fn nodes(list: &NodeList) -> String {
    let titles = ["NODE", "STATE", ">SLOTS", ">STREAMS", ">FAIR SHARE", ">OPEN", ">EPOCH", ">RAFT ID", "URL"];
    let row = |n: &NodeStatus| {
        vec![
            n.id.to_string(),
            state(n).to_owned(),
            n.slots.to_string(),
            n.assigned_streams.to_string(),
            n.fair_share.to_string(),
            n.open_streams.to_string(),
            n.epoch.to_string(),
            n.raft_id.to_string(),
            n.http_url.clone(),
        ]
    };
    let rows: Vec<_> = list.nodes.iter().map(row).collect();
    Table::new(&titles).text(Some(&titles), &rows)
}

fn state(n: &NodeStatus) -> &'static str {
    match (n.alive, n.draining) {
        (true, true) => "draining",
        (true, false) => "alive",
        (false, _) => "gone",
    }
}

fn stream(s: &StreamStatus) -> String {
    let node = s.ownership.node.as_ref().map_or_else(String::new, |n| {
        let epoch = s.ownership.node_epoch.map_or_else(String::new, |e| format!(", node epoch {e}"));
        format!(" at {n}{epoch}")
    });
    let owner = match s.ownership.state {
        OwnershipState::Released => "released: the next to need it opens it".to_owned(),
        OwnershipState::Placed => format!("placed{node}, not opened"),
        OwnershipState::Open => format!("open{node}"),
        OwnershipState::AwaitingRecovery => format!("awaiting recovery{node}"),
    };
    let is_json = crate::client::streams::is_json(&s.content_type);
    let amount = |n: u64| if is_json { human::counted(n, "element") } else { human::bytes(n) };
    let kept = s.committed_offset.0.saturating_sub(s.start_offset.0);
    let mut rows = vec![
        ("name", s.name.clone()),
        ("number", s.id.to_string()),
        ("content type", s.content_type.clone()),
        ("owner", owner),
        ("stream epoch", s.epoch.to_string()),
        ("begins at", format!("{:020}", s.start_offset.0)),
        (
            "in segments to",
            format!(
                "{:020} ({} in {})",
                s.committed_offset.0,
                amount(kept),
                human::counted(s.extents, "extent")
            ),
        ),
    ];
    if let Some(tail) = s.tail_offset {
        let ahead = amount(tail.0.saturating_sub(s.committed_offset.0));
        rows.push(("durable to", format!("{:020} ({ahead} in the WAL)", tail.0)));
    }
    rows.extend(s.transfer.as_ref().map(|t| ("on its way to", t.to_node.to_string())));
    rows.push(("closed", human::yes(s.closed)));
    rows.extend(s.ttl_seconds.map(|t| ("time to live", format!("{t} s"))));
    rows.extend(s.expires_at_ms.map(|at| ("expires at", human::date(at))));
    if s.unborn {
        rows.push(("unborn", "its first bytes have not come: clients get 404".to_owned()));
    }
    if s.tombstone {
        rows.push(("deleted", "kept for its forks: clients get 410".to_owned()));
    }
    if s.forks > 0 {
        rows.push(("forks", s.forks.to_string()));
    }
    human::list(&rows)
}

fn slots(n: &NodeStatus) -> String {
    format!(
        "{}: {}; {} assigned\n",
        n.id,
        human::counted(u64::from(n.slots.get()), "slot"),
        human::counted(n.assigned_streams, "stream")
    )
}
