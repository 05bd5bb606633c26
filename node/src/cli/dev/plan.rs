//! Which nodes there are, where they listen, and the configuration file of each.
//!
//! Invariant: pure. A file is complete by itself, so that `weir serve --config FILE` starts the node by hand.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use weir_api::Slots;

use super::Routing;

/// Between the ports of two nodes.
const STEP: u16 = 10;
/// The highest first port that leaves room for nine nodes.
pub(super) const BASE_MAX: u16 = u16::MAX - 8 * STEP - 2;
/// Settings that the user's own flags may say otherwise. From SIGTERM until a node exits whatever is left to do: when all
/// stop at once, whoever is last has no majority to end its session with, and need not wait long for one. And of a node
/// that is away the library of the log has a lot to say, many times a second.
const SOFT: [(&str, &str); 2] = [("shutdown-grace", "3s"), ("log-level", "info,openraft=off")];

/// A node's three ports on loopback; 0 is any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ports {
    pub(super) client: u16,
    pub(super) peer: u16,
    pub(super) admin: u16,
}

impl Ports {
    pub(super) const ANY: Self = Self { client: 0, peer: 0, admin: 0 };

    pub(super) fn all(self) -> [u16; 3] {
        [self.client, self.peer, self.admin]
    }

    pub(super) fn map(self, mut f: impl FnMut(u16) -> u16) -> Self {
        Self { client: f(self.client), peer: f(self.peer), admin: f(self.admin) }
    }
}

pub(super) fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

pub(super) fn id(node: usize) -> String {
    format!("node-{node}")
}

/// The ports that a node has by `--base-port`.
pub(super) fn fixed(base: u16, node: usize) -> Ports {
    let first = base + STEP * small(node);
    Ports { client: first, peer: first + 1, admin: first + 2 }
}

/// Those it has if nobody says and they are free: the first those of a plain `weir serve`, so that commands find it.
fn usual(node: usize) -> Ports {
    let n = small(node);
    Ports { client: 4437 + STEP * n, peer: 4438 + STEP * n, admin: 9090 + n }
}

fn small(node: usize) -> u16 {
    u16::try_from(node).expect("there are nine nodes at most")
}

/// Each node's ports: what it had, else the usual ones; any where these are taken.
pub(super) fn choose(nodes: usize, kept: &[Ports], free: &BTreeSet<u16>) -> Vec<Ports> {
    let mut left = free.clone();
    let wanted = |node: usize| kept.get(node).copied().unwrap_or_else(|| usual(node));
    (0..nodes).map(|node| wanted(node).map(|port| if left.remove(&port) { port } else { 0 })).collect()
}

/// All that [`choose`] may want to know of.
pub(super) fn candidates(nodes: usize, kept: &[Ports]) -> BTreeSet<u16> {
    let usual = (kept.len()..nodes).map(usual);
    kept.iter().take(nodes).copied().chain(usual).flat_map(Ports::all).filter(|port| *port != 0).collect()
}

/// What all nodes have in common.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    pub(super) slots: Vec<Slots>,
    pub(super) routing: Option<Routing>,
}

impl Plan {
    /// The settings of a node that listens at `ports` and knows of others' peer ports.
    pub(super) fn settings(&self, folder: &Path, node: usize, ports: Ports, peers: &[u16]) -> Table {
        let text = |text: String| Value::String(text);
        let path = |name: &str| folder.join(name).display().to_string();
        let mut table = Table::new();
        let mut set = |name: &str, value: Value| drop(table.insert(name.to_owned(), value));
        set("node-id", text(id(node)));
        set("data-dir", text(path(&id(node))));
        // Only a relative path has no URL.
        let store = url::Url::from_file_path(folder.join("store"));
        set("store", text(store.map_or_else(|()| path("store"), String::from)));
        set("cluster-size", Value::Integer(i64::try_from(self.nodes).expect("nine at most")));
        set("listen", text(at(ports.client).to_string()));
        set("peer-listen", text(at(ports.peer).to_string()));
        set("admin-listen", text(at(ports.admin).to_string()));
        let seeds: Vec<_> =
            peers.iter().filter(|port| **port != 0).map(|port| text(at(*port).to_string())).collect();
        if !seeds.is_empty() {
            set("join", Value::Array(seeds));
        }
        // Without effect where there is a cluster already.
        set("bootstrap", Value::Boolean(node == 0));
        for (name, value) in SOFT {
            set(name, text(value.to_owned()));
        }
        if let Some(slots) = self.slots.get(node) {
            set("slots", Value::Integer(i64::from(slots.get())));
        }
        if let Some(routing) = self.routing {
            let mode = match routing {
                Routing::Redirect => "redirect",
                Routing::Forward => "forward",
            };
            set("routing", text(mode.to_owned()));
        }
        table
    }
}

/// The file: the settings, and what it is.
pub(super) fn file(settings: &Table) -> String {
    format!("# Written by `weir dev up` at each start.\n{settings}")
}

/// The variables that would hold before a file's settings.
pub(super) fn variables(settings: &Table) -> Vec<String> {
    let names = settings.keys().map(String::as_str).chain(["config"]);
    names.map(|name| format!("WEIR_{}", name.to_ascii_uppercase().replace('-', "_"))).collect()
}

/// The first of the user's own flags that says what the plan says.
pub(super) fn clash<'a>(settings: &Table, more: &'a [String]) -> Option<&'a str> {
    more.iter().map(String::as_str).find(|flag| {
        let name = flag.strip_prefix("--").map(|f| f.split('=').next().unwrap_or(f));
        let soft = |name: &str| SOFT.iter().any(|(soft, _)| *soft == name);
        name.is_some_and(|name| name == "config" || settings.contains_key(name) && !soft(name))
    })
}
