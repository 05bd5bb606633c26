//! `weir admin members`, `fence` and `remove`: who votes, and the ends of nodes.
//!
//! Invariant: what cannot be taken back names what it does, and is done to the epoch that was shown or not at all.

use std::io::{self, IsTerminal as _, Write as _};

use bytes::Bytes;
use clap::Args;
use weir_api::admin::{FenceNode, MemberList, MemberStatus, NodeStatus, RemovedNode};
use weir_api::{Incarnation, NodeEpoch, NodeId};

use super::admin::parsed;
use super::exit::{CLIENT_CODES, ExitCode};
use super::human::{self, Table};
use super::stop::Stop;
use crate::client::admin::AdminClient;

const FENCE_HELP: &str = "\
Examples:
  weir admin fence node-2
      Ends the session that node-2 has now; a process that comes back registers a new one
  weir admin fence node-2 --epoch 1796005000123
      The same, but only if that is still its epoch
  weir admin fence node-2 --incarnation 7c9e6679-7425-40de
      From now on only that process (or pod) may be node-2

A node that does not answer is fenced by the leader after --node-timeout; nobody has to. Fence it by hand to be faster,
or where a process must not come back.";

const REMOVE_HELP: &str = "\
Examples:
  weir admin drain node-2 --wait && weir admin remove node-2
      (and stop its process in between: a live node is not removed)
  weir admin fence node-2 && weir admin remove node-2 --yes
      After a loss for good, once its streams are recovered (weir admin cluster)

What is kept is its highest epoch and its last incarnation, which never registers again. A new process may take the
same node id.";

/// End a node's session, whether or not its process is gone
#[derive(Debug, Args)]
#[command(after_help = format!("{FENCE_HELP}\n\n{CLIENT_CODES}"))]
pub(super) struct Fence {
    /// The node
    #[arg(value_name = "NODE")]
    node: NodeId,
    /// The epoch to end [default: the one it has now]
    #[arg(long, value_name = "N", value_parser = epoch)]
    epoch: Option<NodeEpoch>,
    /// The only incarnation that may register from now on: what the new process is given as --incarnation, on Kubernetes
    /// the pod's UID
    #[arg(long, value_name = "TEXT")]
    incarnation: Option<Incarnation>,
}

/// Take a node out of the cluster for good
#[derive(Debug, Args)]
#[command(after_help = format!("{REMOVE_HELP}\n\n{CLIENT_CODES}"))]
pub(super) struct Remove {
    /// The node
    #[arg(value_name = "NODE")]
    node: NodeId,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

fn epoch(text: &str) -> Result<NodeEpoch, String> {
    let why = |_e| "an epoch is a whole number; weir admin nodes shows it".to_owned();
    text.parse().map(NodeEpoch).map_err(why)
}

impl Fence {
    pub(super) async fn ask(&self, client: &AdminClient) -> Result<Bytes, Stop> {
        let Self { node, epoch, incarnation } = self;
        let epoch = match epoch {
            Some(epoch) => *epoch,
            None => parsed::<NodeStatus>(&client.node(node).await.map_err(unknown)?)?.epoch,
        };
        let body = FenceNode { epoch, incarnation: incarnation.clone() };
        client.fence(node, &body).await.map_err(|e| match unknown(e) {
            stop if stop.code == ExitCode::Refused => {
                stop.hint("leave --epoch out to fence the epoch that it has when you ask")
            }
            stop => stop,
        })
    }

    pub(super) fn told(&self, n: &NodeStatus) -> String {
        let pinned = n.pinned_to.as_ref().filter(|_| self.incarnation.is_some());
        let pinned =
            pinned.map_or_else(String::new, |to| format!("; only incarnation {to} may register now"));
        let asked = self.epoch.unwrap_or(n.epoch);
        match (n.alive, n.epoch > asked) {
            (false, _) => format!("{} is fenced at epoch {}{pinned}\n", n.id, n.epoch),
            (true, true) => {
                format!("{} has come back since, at epoch {}; epoch {asked} is over{pinned}\n", n.id, n.epoch)
            }
            (true, false) => {
                format!("{} goes on at epoch {}: it is of that incarnation{pinned}\n", n.id, n.epoch)
            }
        }
    }
}

impl Remove {
    pub(super) async fn ask(&self, client: &AdminClient) -> Result<Bytes, Stop> {
        if !self.yes {
            self.confirm()?;
        }
        client.remove(&self.node).await.map_err(unknown)
    }

    fn confirm(&self) -> Result<(), Stop> {
        let node = &self.node;
        if !io::stdin().is_terminal() {
            return Err(Stop::usage(format!("removing {node} cannot be taken back"))
                .hint(format!("say that it is meant: weir admin remove {node} --yes")));
        }
        let asked = || {
            let mut err = io::stderr().lock();
            write!(err, "Remove {node} for good? Its process can never come back. [y/N] ")?;
            err.flush()?;
            let mut said = String::new();
            io::stdin().read_line(&mut said).map(|_| said)
        };
        let said = asked().map_err(|e| Stop::new(ExitCode::Failure, format!("cannot ask: {e}")))?;
        match said.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(Stop::new(ExitCode::Failure, format!("{node} is left as it is"))),
        }
    }

    pub(super) fn told(n: &RemovedNode) -> String {
        format!("{} is removed; a new process of that id registers above epoch {}\n", n.id, n.epoch)
    }
}

/// A refusal that an admin command about a node meets.
fn unknown(e: crate::client::Failure) -> Stop {
    match Stop::about_admin(e) {
        stop if stop.code == ExitCode::NotFound => stop.hint("weir admin nodes lists them"),
        stop => stop,
    }
}

pub(super) fn members(list: &MemberList) -> String {
    let titles = [">RAFT ID", "NODE", "ROLE", "PEER ADDRESS", ">HOLDS LOG TO", "CAUGHT UP", "HEARD"];
    let dash = || "-".to_owned();
    let row = |m: &MemberStatus| {
        vec![
            m.raft_id.to_string(),
            m.node.as_ref().map_or_else(|| "not registered".to_owned(), ToString::to_string),
            role(m).to_owned(),
            m.peer_address.clone(),
            m.matched_index.map_or_else(dash, |index| index.to_string()),
            m.caught_up.map_or_else(dash, human::yes),
            m.heard_ms_ago.map_or_else(dash, heard),
        ]
    };
    let rows: Vec<_> = list.members.iter().map(row).collect();
    let voters = list.members.iter().filter(|m| m.voter).count();
    let quorum = match list.quorum_healthy {
        Some(true) => "a majority of them is heard",
        Some(false) => "NO MAJORITY of them is heard",
        None => "whether a majority is heard, and who holds what, the leader knows: ask it",
    };
    format!(
        "{}\n{voters} of {} wanted; {quorum}\n",
        Table::new(&titles).text(Some(&titles), &rows),
        human::counted(list.voter_target.into(), "voter")
    )
}

fn role(m: &MemberStatus) -> &'static str {
    match (m.leader, m.voter) {
        (true, _) => "leads",
        (false, true) => "votes",
        (false, false) => "learns",
    }
}

fn heard(ms: u64) -> String {
    match ms {
        0..1_000 => "just now".to_owned(),
        _ => format!("{} ago", human::time(std::time::Duration::from_millis(ms))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> MemberList {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn members_show_who_votes_and_what_only_the_leader_knows() {
        let leader = list(
            r#"{"voterTarget": 3, "quorumHealthy": true, "members": [
                {"raftId": 1, "node": "a", "peerAddress": "a:1", "voter": true, "leader": true,
                 "matchedIndex": 9, "caughtUp": true},
                {"raftId": 2, "peerAddress": "b:1", "voter": false, "leader": false, "heardMsAgo": 61000}]}"#,
        );
        assert_eq!(
            members(&leader),
            "RAFT ID  NODE            ROLE    PEER ADDRESS  HOLDS LOG TO  CAUGHT UP  HEARD\n\
             \u{20}     1  a               leads   a:1                      9  yes        -\n\
             \u{20}     2  not registered  learns  b:1                      -  -          1m 01s ago\n\
             \n1 of 3 voters wanted; a majority of them is heard\n"
        );
        let told = members(&list(r#"{"voterTarget": 1, "members": []}"#));
        assert!(told.ends_with(
            "0 of 1 voter wanted; whether a majority is heard, and who holds what, the leader knows: ask it\n"
        ));
    }

    #[test]
    fn an_epoch_is_a_number() {
        assert_eq!(epoch("12"), Ok(NodeEpoch(12)));
        for bad in ["-1", "x", "1.5", "", "18446744073709551616"] {
            assert!(epoch(bad).unwrap_err().contains("weir admin nodes"), "{bad}");
        }
    }
}
