//! What the user reads: the table of nodes, what to try, and what to do about a node that ended.
//!
//! Invariant: pure; every command shown can be typed as it stands.

use serde::Serialize;

use super::super::human::Table;
use super::plan::{self, Ports};

/// A node as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) id: String,
    pub(super) ports: Ports,
    pub(super) pid: u32,
    pub(super) config: String,
    pub(super) log: String,
}

fn url(port: u16) -> String {
    format!("http://{}", plan::at(port))
}

/// Above the logs, once all are ready.
pub(super) fn ready(folder: &str, weir: &str, nodes: &[Shown], logs: bool) -> String {
    let titles = ["NODE", "CLIENTS", "ADMIN PAGE", ">PID"];
    let row = |n: &Shown| {
        vec![n.id.clone(), url(n.ports.client), format!("{}/", url(n.ports.admin)), n.pid.to_string()]
    };
    let table = Table::new(&titles).text(Some(&titles), &nodes.iter().map(row).collect::<Vec<_>>());
    let count = if nodes.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", nodes.len()) };
    let after = if logs { "Their logs:" } else { "Their logs are there too." };
    format!(
        "{count}, ready; all they keep is in {folder}\n\n{table}\nTry in another terminal:\n{}\nCtrl-C stops them all, and \
         what is stored stays. {after}\n",
        tries(weir, nodes)
    )
}

fn tries(weir: &str, nodes: &[Shown]) -> String {
    let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else { return String::new() };
    // The addresses that commands use of themselves need not be said.
    let server = |port| if port == 4437 { String::new() } else { format!(" --server {}", url(port)) };
    let admin = |port| if port == 9090 { String::new() } else { format!(" --admin {}", url(port)) };
    let create = format!(
        "  {weir} create notes --content-type text/plain{} && {weir} append notes 'first '{}\n      Any node takes any request\n",
        server(first.ports.client),
        server(last.ports.client)
    );
    let look = format!(
        "  {weir} admin stream notes{}\n      Who has it; `{weir} admin nodes` shows all of them\n",
        admin(first.ports.admin)
    );
    let kill = if nodes.len() > 2 {
        let then = "dies, and soon its streams go on at the others; how to start it again is shown here";
        format!("  kill -9 {}\n      {} {then}\n", last.pid, last.id)
    } else {
        let then = "dies, and what was stored is there when it is back; how to start it is shown here";
        format!("  kill -9 {}\n      {} {then}\n", last.pid, last.id)
    };
    format!("{create}{look}{kill}")
}

#[derive(Serialize)]
struct All<'a> {
    dir: &'a str,
    nodes: Vec<One<'a>>,
}

#[derive(Serialize)]
struct One<'a> {
    id: &'a str,
    pid: u32,
    client: String,
    admin: String,
    peer: String,
    config: &'a str,
    log: &'a str,
}

/// The same for programs: one line.
pub(super) fn json(folder: &str, nodes: &[Shown]) -> String {
    let nodes = nodes.iter().map(|n| One {
        id: &n.id,
        pid: n.pid,
        client: url(n.ports.client),
        admin: url(n.ports.admin),
        peer: plan::at(n.ports.peer).to_string(),
        config: &n.config,
        log: &n.log,
    });
    let all = All { dir: folder, nodes: nodes.collect() };
    serde_json::to_string(&all).map_or_else(|e| e.to_string(), |text| text + "\n")
}

/// When a node has ended by itself.
pub(super) fn ended(id: &str, pid: u32, how: &str, running: usize, of: usize, by_hand: &str) -> String {
    let streams = match (of, running) {
        (1, _) => "What was stored is there when it is back.",
        (_, running) if running * 2 > of => "The others take its streams over after the node timeout.",
        _ => {
            "Too few are left to decide anything: streams that are open go on, and nothing else does until it is back."
        }
    };
    format!(
        "\n{id} (process {pid}) has ended: {how}. {streams}\nStart it again, in another terminal:\n  {by_hand}\n"
    )
}
