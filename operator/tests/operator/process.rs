//! The operator as a process: how it starts, what ends it, and what it says with its exit code.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::api::{Api, Fault};
use crate::fixtures::minimal;
use crate::socket::Socket;

static STARTED: AtomicU32 = AtomicU32::new(0);

/// A process of the operator's, its kubeconfig and its log.
struct Operator {
    child: Child,
    folder: PathBuf,
}

impl Operator {
    fn start(server: &str, args: &[&str], fault: Option<&str>) -> Self {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("weir-operator-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "t"}}]});
        std::fs::write(folder.join("kubeconfig"), config.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-operator"));
        command
            .args(["--image", "weir:test", "--kubeconfig", "--listen", "127.0.0.1:0"])
            .args(args)
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .stderr(File::create(folder.join("log")).unwrap());
        if let Some(point) = fault {
            command.env("WEIR_OPERATOR_FAULT", point);
        }
        Self { child: command.spawn().unwrap(), folder }
    }

    /// One of those that elect a leader by a lease of a few seconds.
    fn elected(socket: &Socket, who: &str, fault: Option<&str>) -> Self {
        let lease = ["--lease-namespace", "streams", "--lease-seconds", "5", "--identity", who];
        Self::start(&format!("http://{}", socket.address), &lease, fault)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }

    async fn until_said(&self, words: &str) {
        until(words, || self.log().contains(words).then_some(())).await;
    }

    fn terminate(&self) {
        let kill = format!("kill -TERM {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Its exit code, when it has ended.
    async fn exit(&mut self) -> Option<i32> {
        until("its end", || self.child.try_wait().unwrap()).await.code()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looks = async {
        loop {
            match look() {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(120), looks).await;
    found.unwrap_or_else(|_elapsed| panic!("never: {what}"))
}

fn holder(api: &Api) -> String {
    let lease = api.store.lock().get("leases", "weir-operator").cloned().unwrap_or_default();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

async fn until_led_by(api: &Api, who: &str) {
    until(&format!("{who} to lead"), || (holder(api) == who).then_some(())).await;
}

/// Built together with the node there are two implementations of cryptography, between which rustls chooses by panicking.
#[tokio::test]
async fn it_comes_as_far_as_to_call_the_api_server_over_tls() {
    // Nobody listens there.
    let mut operator = Operator::start("https://127.0.0.1:1", &["--no-leader-election"], None);
    let said = ["definition cannot be read", "API server does not answer"];
    let called = || {
        let log = operator.log();
        (operator.child.try_wait().unwrap().is_some() || said.iter().any(|s| log.contains(s))).then_some(())
    };
    until("a call", called).await;
    let log = operator.log();
    assert!(said.iter().any(|s| log.contains(s)) && !log.contains("panicked"), "{log}");
}

#[tokio::test]
async fn told_to_stop_it_lets_its_lease_go_and_succeeds_whether_it_leads_or_waits() {
    let api = Api::new();
    let socket = Socket::open(&api).await;
    let mut leads = Operator::elected(&socket, "a", None);
    until_led_by(&api, "a").await;
    leads.until_said("leading").await;
    let mut waits = Operator::elected(&socket, "b", None);
    waits.until_said("waiting for the lease").await;
    waits.terminate();
    assert_eq!(waits.exit().await, Some(0));
    assert_eq!(holder(&api), "a", "who waits has nothing to let go");
    leads.terminate();
    assert_eq!(leads.exit().await, Some(0));
    assert_eq!(holder(&api), "", "the next one need not wait");
    assert!(leads.log().contains("SIGTERM: stopping") && leads.log().contains("lease let go"));
}

#[tokio::test]
async fn who_loses_the_lease_fails_and_leaves_it_to_the_other() {
    let api = Api::new();
    let socket = Socket::open(&api).await;
    let mut operator = Operator::elected(&socket, "a", None);
    until_led_by(&api, "a").await;
    api.store.lock().edit("leases", "weir-operator", |l| l["spec"]["holderIdentity"] = json!("b"));
    assert_eq!(operator.exit().await, Some(1));
    assert!(operator.log().contains("another process holds the lease"));
    assert_eq!(holder(&api), "b");
}

#[tokio::test]
async fn who_cannot_renew_the_lease_fails_and_does_nothing_more() {
    let api = Api::new();
    let socket = Socket::open(&api).await;
    api.store.lock().put("streamclusters", minimal());
    let mut operator = Operator::elected(&socket, "a", None);
    let pods = |n: usize| (api.store.lock().all("pods").len() == n).then_some(());
    until("pods", || pods(3)).await;
    api.store.lock().fault = Some(Box::new(|_, _| Some(Fault::Internal)));
    assert_eq!(operator.exit().await, Some(1));
    assert!(operator.log().contains("the lease could not be renewed"));
    assert_eq!(holder(&api), "a", "it could not be let go either: others wait for its end");
}

/// As `CONTRIBUTING.md` has it. Here the feature is on because `weir-tests` asks for it; in what ships it is off.
#[tokio::test]
async fn an_armed_point_ends_it_there_with_its_lease_held_and_the_next_goes_on() {
    let api = Api::new();
    let socket = Socket::open(&api).await;
    api.store.lock().put("streamclusters", minimal());
    let mut operator = Operator::elected(&socket, "a", Some("after-create-pod:2"));
    assert_eq!(operator.exit().await, Some(86), "built without weir-operator/fault-points?");
    assert_eq!(holder(&api), "a");
    assert_eq!(api.store.lock().all("pods").len(), 2);
    let mut next = Operator::elected(&socket, "a", None);
    until("all pods", || (api.store.lock().all("pods").len() == 3).then_some(())).await;
    next.terminate();
    assert_eq!(next.exit().await, Some(0));
}

#[tokio::test]
async fn a_point_that_there_is_not_is_refused_with_those_that_there_are() {
    let mut operator = Operator::start("http://127.0.0.1:1", &[], Some("after-lunch"));
    assert_eq!(operator.exit().await, Some(1));
    let log = operator.log();
    assert!(log.contains("no point \"after-lunch\"; there are: before-apply, "), "{log}");
}
