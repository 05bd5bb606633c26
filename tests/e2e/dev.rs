//! `weir dev up`: a cluster to play with comes up, is used, loses a node and gets it back, stops without leaving anything
//! behind, and is there again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};
use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::{Child, Command};
use weir_tests::client::Client;
use weir_tests::cluster;
use weir_tests::files::Scratch;
use weir_tests::node::{PATIENCE, binary, readiness};
use weir_tests::wait;

/// `weir dev up`, at work.
struct Up {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

/// One of its nodes, as it says.
#[derive(Debug, Clone)]
struct Node {
    pid: Pid,
    client: String,
    admin: String,
}

impl Node {
    fn of(json: &Value) -> Result<Self> {
        let text =
            |name: &str| json[name].as_str().map(str::to_owned).with_context(|| format!("{name} in {json}"));
        let pid = json["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).context("a process id")?;
        let address = |name| Ok::<_, anyhow::Error>(text(name)?.trim_start_matches("http://").to_owned());
        Ok(Self { pid, client: address("client")?, admin: address("admin")? })
    }

    fn client(&self) -> Client {
        Client::new(&self.client, PATIENCE)
    }

    fn admin(&self) -> Client {
        Client::new(&self.admin, PATIENCE)
    }

    async fn gone(&self) -> Result<()> {
        let gone = async || Ok(is_gone(self.pid).then_some(()));
        wait::until(&format!("process {:?} to be gone", self.pid), PATIENCE, gone).await
    }
}

/// Ended; whether somebody has waited for it does not matter.
fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // The state stands behind the name, which is in parentheses.
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

fn command(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(["dev", "up"]).args(args).env_clear().env("PATH", std::env::var("PATH").unwrap_or_default());
    // As a user's might be who talks to another node: it is not the nodes' business.
    command.env("XDG_STATE_HOME", scratch.path("state")).env("WEIR_NODE_ID", "other").env("WEIR_SLOTS", "7");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

impl Up {
    fn start(scratch: &Scratch, name: &str, args: &[&str]) -> Result<Self> {
        let (out, err) = (scratch.path(&format!("{name}.out")), scratch.path(&format!("{name}.err")));
        let child = command(scratch, args).stdout(File::create(&out)?).stderr(File::create(&err)?).spawn()?;
        Ok(Self { child, out, err })
    }

    /// Runs one that is to refuse; gives its exit code and what it said.
    async fn refused(scratch: &Scratch, args: &[&str]) -> Result<(Option<i32>, String)> {
        let mut this = Self::start(scratch, "refused", args)?;
        Ok((this.end().await?.code(), this.said()))
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Waits until it has said `what` on stderr.
    async fn says(&self, what: &str) -> Result<String> {
        let said = async || Ok(Some(self.said()).filter(|said| said.contains(what)));
        wait::until(&format!("{what:?} in {}", self.err.display()), PATIENCE, said).await
    }

    /// Waits until all nodes are ready, as it tells programs.
    async fn nodes(&mut self) -> Result<Vec<Node>> {
        let mut told = None;
        let end = tokio::time::Instant::now() + PATIENCE * 2;
        while told.is_none() {
            let text = fs::read_to_string(&self.out)?;
            told = text.ends_with('\n').then(|| serde_json::from_str::<Value>(&text)).transpose()?;
            if let Some(status) = self.child.try_wait()? {
                bail!("{status}: {}", self.said());
            }
            ensure!(tokio::time::Instant::now() < end, "not ready: {}", self.said());
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let told = told.context("a line")?;
        told["nodes"].as_array().context("nodes")?.iter().map(Node::of).collect()
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid as i32)).context("it has ended")?;
        Ok(kill_process(pid, signal)?)
    }

    async fn end(&mut self) -> Result<ExitStatus> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.with_context(|| format!("it does not end: {}", self.said()))?.map_err(Into::into)
    }

    async fn stop(&mut self) -> Result<()> {
        self.signal(Signal::INT)?;
        let status = self.end().await?;
        ensure!(status.success(), "{status}: {}", self.said());
        Ok(())
    }
}

async fn ask(client: &Client, method: Method, target: &str, body: &'static str) -> Result<(u16, String)> {
    let text = [("content-type", "text/plain")];
    let answer =
        client.send(method, target, &text, body.into()).await.map_err(|e| anyhow!("{target}: {e:?}"))?;
    Ok((answer.status, String::from_utf8_lossy(&answer.body).into_owned()))
}

/// Asks until it is answered as wanted: while streams are taken over it may be put off.
async fn in_the_end(
    client: &Client,
    method: Method,
    target: &str,
    body: &'static str,
    want: u16,
) -> Result<String> {
    let asked = async || {
        let answer = ask(client, method.clone(), target, body).await.unwrap_or_default();
        Ok(Some(answer.1).filter(|_| answer.0 == want))
    };
    wait::until(&format!("{want} for {method} {target}"), PATIENCE, asked).await
}

async fn weights(node: &Node) -> Result<Vec<u64>> {
    let mut nodes = cluster::nodes(&node.admin()).await?;
    nodes.sort_by_key(|n| n["id"].to_string());
    nodes.iter().map(|n| n["slots"].as_u64().context("slots")).collect()
}

const HASTE: [&str; 4] = ["--", "--node-timeout=3s", "--lease=1s", "--log-level=info"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_cluster_is_used_loses_a_node_gets_it_back_and_keeps_what_it_has() {
    let scratch = Scratch::new();
    let common = ["--json", "--base-port=0", "--routing=forward"];
    let args = [&common[..], &["--slots=4,1,1"], &HASTE].concat();
    let mut up = Up::start(&scratch, "first", &args).unwrap();
    let nodes = up.nodes().await.unwrap();
    assert_eq!(nodes.len(), 3);
    assert_eq!(weights(&nodes[2]).await.unwrap(), [4, 1, 1]);
    let dir = scratch.path("state/weir/dev");
    assert!(dir.join("store/cluster.json").exists() && dir.join("node-2.toml").exists());
    for n in 0..6 {
        let target = format!("/v1/stream/kept/{n}");
        assert_eq!(ask(&nodes[n % 3].client(), Method::PUT, &target, "first ").await.unwrap().0, 201);
    }

    // One dies: it is said, the others have its streams, and what is said brings it back.
    kill_process(nodes[1].pid, Signal::KILL).unwrap();
    let said = up.says("Start it again").await.unwrap();
    let pid = nodes[1].pid.as_raw_nonzero();
    assert!(said.contains(&format!("node-1 (process {pid}) has ended: killed by SIGKILL")), "{said}");
    for n in 0..6 {
        in_the_end(&nodes[2].client(), Method::POST, &format!("/v1/stream/kept/{n}"), "second", 204)
            .await
            .unwrap();
    }
    let typed = said.lines().skip_while(|line| !line.starts_with("Start it again")).nth(1).unwrap();
    assert!(typed.contains("serve --config") && typed.ends_with(&HASTE[1..].join(" ")), "{typed}");
    let log = File::create(scratch.path("by-hand.err")).unwrap();
    let mut by_hand = Command::new("sh")
        .args(["-c", &format!("exec {typed}")])
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let ready = async || Ok((readiness(&nodes[1].admin).await.0 == 200).then_some(()));
    wait::until("the node started by hand to be ready where it was", PATIENCE, ready).await.unwrap();
    kill_process(Pid::from_raw(by_hand.id().unwrap() as i32).unwrap(), Signal::TERM).unwrap();
    assert!(by_hand.wait().await.unwrap().success());

    up.stop().await.unwrap();
    for node in &nodes {
        node.gone().await.unwrap();
    }
    let logs = up.said();
    assert!(logs.contains("node-0 | ") && logs.contains("node-2 | "), "logs are followed: {logs}");

    // Not smaller; again with all there is; and anew with nothing.
    let (code, said) = Up::refused(&scratch, &["--nodes=2"]).await.unwrap();
    assert!(code == Some(2) && said.contains("--fresh"), "{code:?} {said}");
    let mut up =
        Up::start(&scratch, "again", &[&common[..], &["--quiet", "--slots=1,2,3"]].concat()).unwrap();
    let nodes = up.nodes().await.unwrap();
    assert_eq!(weights(&nodes[0]).await.unwrap(), [1, 2, 3], "weights are set on a cluster that was there");
    for n in 0..6 {
        let target = format!("/v1/stream/kept/{n}");
        let read = in_the_end(&nodes[n % 3].client(), Method::GET, &target, "", 200).await.unwrap();
        assert_eq!(read, "first second", "{target}");
    }
    up.stop().await.unwrap();
    assert!(!up.said().contains("node-0 | "), "logs stay where they are");
    let mut up = Up::start(&scratch, "anew", &[&common[..], &["--fresh", "--nodes=1"]].concat()).unwrap();
    let nodes = up.nodes().await.unwrap();
    assert_eq!(nodes.len(), 1);
    assert_eq!(ask(&nodes[0].client(), Method::GET, "/v1/stream/kept/0", "").await.unwrap().0, 404);
    up.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outlives_a_local_cluster_and_two_do_not_share_a_folder() {
    let scratch = Scratch::new();
    let dir = format!("--dir={}", scratch.path("mine").display());
    let mut up = Up::start(&scratch, "up", &["--json", "--base-port=0", "--nodes=2", &dir]).unwrap();
    let nodes = up.nodes().await.unwrap();
    for more in [&[][..], &["--fresh"]] {
        let (code, said) = Up::refused(&scratch, &[&[&dir[..]], more].concat()).await.unwrap();
        let holder = format!("another `weir dev up` (process {})", up.child.id().unwrap());
        assert!(code == Some(6) && said.contains(&holder), "{code:?} {said}");
    }
    // One that hangs is no survivor either.
    kill_process(nodes[1].pid, Signal::STOP).unwrap();
    up.signal(Signal::KILL).unwrap();
    up.end().await.unwrap();
    for node in &nodes {
        node.gone().await.unwrap();
    }

    // A node that cannot start ends it all, and its own words say why.
    let (code, said) = Up::refused(&scratch, &["--base-port=0", &dir, "--", "--lease=5m"]).await.unwrap();
    assert!(
        code == Some(2) && said.contains("node-0 ended at its start") && said.contains("--node-timeout"),
        "{said}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    if port < 65_000 {
        let (code, said) = Up::refused(&scratch, &[&format!("--base-port={port}"), &dir]).await.unwrap();
        assert!(
            code == Some(1) && said.contains(&format!("cannot listen on 127.0.0.1:{port}")),
            "{code:?} {said}"
        );
    }
    let (code, said) = Up::refused(&scratch, &[&dir, "--slots=1,2,3"]).await.unwrap();
    assert!(code == Some(2) && said.contains("3 weights for 2 nodes"), "{code:?} {said}");
    let (code, said) = Up::refused(&scratch, &[&dir, "--base-port=0", "--", "--data-dir=/x"]).await.unwrap();
    assert!(code == Some(2) && said.contains("--data-dir=/x"), "{code:?} {said}");
    let other = scratch.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("letter.txt"), "dear").unwrap();
    let (code, said) =
        Up::refused(&scratch, &[&format!("--dir={}", other.display()), "--fresh"]).await.unwrap();
    assert!(code == Some(2) && said.contains("letter.txt"), "{code:?} {said}");
    assert!(Path::new(&other.join("letter.txt")).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_nodes_that_do_not() {
    let scratch = Scratch::new();
    let mut up = Up::start(&scratch, "up", &["--json", "--base-port=0", "--nodes=1", "--quiet"]).unwrap();
    let nodes = up.nodes().await.unwrap();
    // A request that never ends keeps the node from stopping for its whole grace period.
    let stream = tokio::net::TcpStream::connect(&nodes[0].client).await.unwrap();
    let mut stream = stream;
    let head =
        "PUT /v1/stream/x HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 10\r\n\r\nhalf";
    tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
    up.signal(Signal::TERM).unwrap();
    up.says("stopping 1 of 1").await.unwrap();
    up.signal(Signal::TERM).unwrap();
    assert!(up.end().await.unwrap().success());
    nodes[0].gone().await.unwrap();
}
