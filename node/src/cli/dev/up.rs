//! `weir dev up` from beginning to end: folder, processes one after the other, ready, shown, watched, stopped.
//!
//! Invariant: however it ends, all children are told to stop, waited for, and killed if they do not; nothing is deleted
//! but by `--fresh`.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::{join_all, select_all};
use rustix::process::Signal;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::timeout;
use weir_api::admin::{NodeList, SetNode};

use super::super::stop::Stop;
use super::super::{ExitCode, answer, note};
use super::Up;
use super::folder::{self, Folder, Kept};
use super::logs::{Following, Tail};
use super::plan::{self, Plan, Ports};
use super::process::{Node, Starter, how};
use super::screen::{self, Shown};
use crate::client::admin::AdminClient;
use crate::client::{Client, Failure};
use crate::clock::Clock;
use crate::net;
use crate::tasks::Tasks;

/// Nodes, if nobody says.
const USUAL: usize = 3;
/// For all to be ready: a start that has much to recover takes its time.
const READY: Duration = Duration::from_secs(180);
/// From SIGTERM to SIGKILL: much longer than the nodes give themselves.
const GRACE: Duration = Duration::from_secs(15);
/// For one request to the admin API.
const ASK: Duration = Duration::from_secs(10);

/// SIGINT, SIGTERM and SIGHUP: all mean stop.
struct Asked([Signals; 3]);

impl Asked {
    fn new() -> Result<Self, Stop> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [a, b, c] = kinds.map(signal);
        let failed =
            |e: std::io::Error| Stop::new(ExitCode::Failure, format!("cannot listen for signals: {e}"));
        Ok(Self([a.map_err(failed)?, b.map_err(failed)?, c.map_err(failed)?]))
    }

    async fn stop(&mut self) {
        let [a, b, c] = &mut self.0;
        tokio::select! {
            _ = a.recv() => {}
            _ = b.recv() => {}
            _ = c.recv() => {}
        }
    }
}

pub(super) async fn up(args: Up, tasks: &Tasks) -> Result<(), Stop> {
    let mut asked = Asked::new()?;
    let path = args.dir.clone().map_or_else(folder::usual, Ok)?;
    let folder = Folder::open(&path)?;
    let mut nodes = Vec::new();
    let started = tokio::select! {
        started = start(&args, &folder, tasks, &mut nodes) => started.map(|()| true),
        () = asked.stop() => Ok(false),
    };
    let mut following = None;
    let result = match started {
        Ok(true) => {
            if !args.quiet {
                let tails = nodes.iter().map(|n| Tail::at_end(n.id.clone(), n.log.clone())).collect();
                following = Some(Following::start(tasks, tails));
            }
            watch(&mut nodes, &mut asked).await
        }
        Ok(false) => Ok(()),
        Err(e) => Err(e),
    };
    stop(&mut nodes, &mut asked).await;
    if let Some(following) = following {
        following.stop().await;
    }
    result
}

/// Starts all nodes, waits until they are ready, and shows them.
async fn start(args: &Up, folder: &Folder, tasks: &Tasks, nodes: &mut Vec<Node>) -> Result<(), Stop> {
    if args.fresh {
        folder.clear()?;
    }
    let kept = folder.kept()?.map_or_else(Vec::new, |kept| kept.nodes);
    let plan = planned(args, kept.len())?;
    folder.idle((0..plan.nodes).map(plan::id))?;
    let mut ports = addresses(args.base_port, plan.nodes, &kept).await?;
    folder.keep(&Kept::new(ports.clone()))?;
    let starter = Starter::new(args.more.clone())?;
    for node in 0..plan.nodes {
        let settings = plan.settings(folder.path(), node, ports[node], &others(&ports, node));
        if let Some(flag) = plan::clash(&settings, &args.more) {
            let why = format!("{flag}: `weir dev up` gives every node its own");
            return Err(Stop::usage(why).hint("after -- go flags that all nodes share"));
        }
        let started = starter.start(folder, node, &settings).await?;
        ports[node] = started.ports;
        nodes.push(started);
    }
    // Now that all addresses are known: the next start takes the same, and so does one by hand.
    folder.keep(&Kept::new(ports.clone()))?;
    for node in 0..plan.nodes {
        let settings = plan.settings(folder.path(), node, ports[node], &others(&ports, node));
        folder.replace(&format!("{}.toml", plan::id(node)), plan::file(&settings).as_bytes())?;
    }
    let end = Clock::default().monotonic() + READY;
    for node in nodes.iter_mut() {
        node.ready(tasks, end).await?;
    }
    if let Err(e) = weigh(&plan, &ports, tasks).await {
        note(&format!("weir: --slots: {e}"));
    }
    show(args, folder, starter.typed(), nodes)
}

/// What the arguments and the folder amount to.
fn planned(args: &Up, kept: usize) -> Result<Plan, Stop> {
    let nodes = match (args.nodes.map(usize::from), kept) {
        (None, 0) => USUAL,
        (None, kept) => kept,
        (Some(nodes), kept) if nodes < kept => {
            let why = format!(
                "--nodes {nodes}: the folder holds a cluster of {kept}, which does not become smaller so"
            );
            return Err(Stop::usage(why).hint("begin anew with --fresh, or name another folder with --dir"));
        }
        (Some(nodes), _) => nodes,
    };
    if !args.slots.is_empty() && args.slots.len() != nodes {
        let why = format!("--slots has {} weights for {nodes} nodes: give one for each", args.slots.len());
        return Err(Stop::usage(why));
    }
    Ok(Plan { nodes, slots: args.slots.clone(), routing: args.routing })
}

fn others(ports: &[Ports], node: usize) -> Vec<u16> {
    ports.iter().enumerate().filter(|(other, _)| *other != node).map(|(_, p)| p.peer).collect()
}

/// Where each node is to listen.
async fn addresses(base: Option<u16>, nodes: usize, kept: &[Ports]) -> Result<Vec<Ports>, Stop> {
    match base {
        Some(0) => Ok(vec![Ports::ANY; nodes]),
        Some(base) => {
            let ports: Vec<_> = (0..nodes).map(|node| plan::fixed(base, node)).collect();
            for port in ports.iter().copied().flat_map(Ports::all) {
                if let Err(e) = net::bind(plan::at(port)).await {
                    return Err(Stop::new(ExitCode::Failure, format!("--base-port {base}: {e}"))
                        .hint("name another, or leave it out: ports that are free are found then"));
                }
            }
            Ok(ports)
        }
        None => {
            let mut free = BTreeSet::new();
            for port in plan::candidates(nodes, kept) {
                if net::bind(plan::at(port)).await.is_ok() {
                    free.insert(port);
                }
            }
            Ok(plan::choose(nodes, kept, &free))
        }
    }
}

/// Sets the weights that were asked for: the log keeps those of an earlier run.
async fn weigh(plan: &Plan, ports: &[Ports], tasks: &Tasks) -> Result<(), Failure> {
    let (Some(first), false) = (ports.first(), plan.slots.is_empty()) else { return Ok(()) };
    let origin = format!("http://{}", plan::at(first.admin)).parse().map_err(Failure::Nonsense)?;
    let admin = AdminClient::new(Client::new(origin, ASK, tasks.clone(), Clock::default()), None)?;
    let list: NodeList =
        serde_json::from_slice(&admin.nodes().await?).map_err(|e| Failure::Nonsense(e.to_string()))?;
    for (node, slots) in plan.slots.iter().enumerate() {
        let id = plan::id(node);
        if list.nodes.iter().any(|n| n.id.as_str() == id && n.slots != *slots) {
            let body = SetNode { slots: *slots, resource_uid: None, resource_generation: None };
            admin.set_node(&id, &body).await?;
        }
    }
    Ok(())
}

fn show(args: &Up, folder: &Folder, weir: &str, nodes: &[Node]) -> Result<(), Stop> {
    let shown: Vec<_> = nodes
        .iter()
        .map(|n| Shown {
            id: n.id.clone(),
            ports: n.ports,
            pid: n.pid,
            config: n.file.display().to_string(),
            log: n.log.display().to_string(),
        })
        .collect();
    let path = folder.path().display().to_string();
    let text =
        if args.json { screen::json(&path, &shown) } else { screen::ready(&path, weir, &shown, !args.quiet) };
    match answer(&text) {
        ExitCode::Ok => Ok(()),
        code => Err(Stop::new(code, "nobody can be told where the nodes are")),
    }
}

/// Tells of nodes that end, until it is asked to stop or none is left.
async fn watch(nodes: &mut [Node], asked: &mut Asked) -> Result<(), Stop> {
    loop {
        let (at, status) = tokio::select! {
            () = asked.stop() => return Ok(()),
            ended = one_end(nodes) => ended,
        };
        let running = nodes.iter().filter(|n| n.is_running()).count();
        let n = &nodes[at];
        note(&screen::ended(&n.id, n.pid, &how(status), running, nodes.len(), &n.by_hand));
        if running == 0 {
            return Err(Stop::new(ExitCode::Failure, "no node is left").hint("start all again: weir dev up"));
        }
    }
}

async fn one_end(nodes: &mut [Node]) -> (usize, std::process::ExitStatus) {
    let ends = nodes.iter_mut().enumerate().map(|(at, node)| Box::pin(async move { (at, node.end().await) }));
    select_all(ends).await.0
}

/// SIGTERM to all that run; SIGKILL to those that do not end within the time, or at the second signal.
async fn stop(nodes: &mut [Node], asked: &mut Asked) {
    let running = nodes.iter().filter(|n| n.is_running()).count();
    if running == 0 {
        return;
    }
    note(&format!("\nstopping {running} of {}; a second signal kills them", nodes.len()));
    for node in nodes.iter() {
        node.signal(Signal::TERM);
        // One that was stopped by SIGSTOP hears of nothing else.
        node.signal(Signal::CONT);
    }
    let ended = tokio::select! {
        all = timeout(GRACE, all_end(nodes)) => all.is_ok(),
        () = asked.stop() => false,
    };
    if !ended {
        for node in nodes.iter().filter(|n| n.is_running()) {
            note(&format!("{} (process {}) does not end: killed", node.id, node.pid));
            node.signal(Signal::KILL);
        }
        // Nothing outlives that but a process in a system call that hangs.
        drop(timeout(GRACE, all_end(nodes)).await);
    }
}

async fn all_end(nodes: &mut [Node]) {
    join_all(nodes.iter_mut().filter(|n| n.is_running()).map(Node::end)).await;
}
