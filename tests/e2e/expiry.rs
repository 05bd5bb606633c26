//! Streams that end by themselves, across deaths of the process: a use that was answered counts, whatever came after.
//!
//! Time passes between two processes, by the clock of the later one.

use std::time::Duration;

use http::Method;
use weir_tests::client::Client;
use weir_tests::files::Scratch;
use weir_tests::node::{Node, Setup};
use weir_tests::wait;

const PATIENCE: Duration = Duration::from_secs(20);
const HOUR_S: u64 = 3600;

struct World {
    setup: Setup,
    node: Option<Node>,
    client: Client,
}

impl World {
    async fn start(scratch: &Scratch) -> Self {
        let setup = Setup::new(scratch.path("data"));
        let mut node = setup.start().await.unwrap();
        let client = node.client().await.unwrap();
        Self { setup, node: Some(node), client }
    }

    /// Kills the process; the next one's clock shows so many seconds more than the real one.
    async fn killed_and_back_at(&mut self, offset_s: u64) {
        self.node.take().unwrap().kill();
        let setup = self.setup.clone().flag("test-clock-offset-ms", offset_s * 1000);
        let mut node = setup.start().await.unwrap();
        self.client = node.client().await.unwrap();
        self.node = Some(node);
    }

    /// The status of an answer that is not "not now".
    async fn ask(&self, method: Method, name: &str, fields: &[(&str, &str)], body: &'static str) -> u16 {
        let target = format!("/v1/stream/{name}");
        let what = format!("{method} {target} to be answered");
        let answered = wait::until(&what, PATIENCE, || async {
            let answer = self.client.send(method.clone(), &target, fields, body.into()).await;
            let status = answer.map_err(|e| anyhow::anyhow!("{e:?}"))?.status;
            Ok((status != 503).then_some(status))
        });
        answered.await.unwrap()
    }

    async fn put(&self, name: &str, field: (&str, &str), body: &'static str) {
        let fields = [("content-type", "text/plain"), field];
        assert_eq!(self.ask(Method::PUT, name, &fields, body).await, 201, "{name}");
    }

    async fn is(&self, method: Method, name: &str, status: u16) {
        assert_eq!(self.ask(method.clone(), name, &[], "").await, status, "{method} {name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answered_use_counts_although_the_process_died_after_it() {
    let scratch = Scratch::new();
    let mut world = World::start(&scratch).await;
    let hour = ("stream-ttl", "3600");
    for name in ["read", "written", "seen"] {
        world.put(name, hour, "first").await;
    }
    world.put("never-opened", hour, "").await;
    world.killed_and_back_at(HOUR_S - 60).await;
    world.is(Method::GET, "read", 200).await;
    world.is(Method::GET, "never-opened", 200).await;
    world.is(Method::HEAD, "seen", 200).await;
    let text = [("content-type", "text/plain")];
    assert_eq!(world.ask(Method::POST, "written", &text, "more").await, 204);

    world.killed_and_back_at(2 * HOUR_S - 120).await;
    for name in ["read", "written", "never-opened"] {
        world.is(Method::HEAD, name, 200).await;
    }
    world.is(Method::HEAD, "seen", 404).await;

    // A tenth more at the most.
    world.killed_and_back_at(2 * HOUR_S + HOUR_S / 10).await;
    for name in ["read", "written", "never-opened"] {
        world.is(Method::GET, name, 404).await;
    }
    world.put("read", hour, "anew").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_asks_for_ends_too_and_lets_its_source_go() {
    let scratch = Scratch::new();
    let mut world = World::start(&scratch).await;
    world.put("source", ("stream-ttl", "1000000"), "first").await;
    let fork = [("stream-forked-from", "/v1/stream/source"), ("stream-ttl", "1")];
    assert_eq!(world.ask(Method::PUT, "fork", &fork, "").await, 201);
    world.put("open", ("stream-ttl", "1"), "first").await;
    world.put("at", ("stream-expires-at", "2001-01-01T00:00:00Z"), "first").await;
    world.is(Method::DELETE, "source", 204).await;
    world.is(Method::HEAD, "source", 410).await;

    let admin = world.node.as_mut().unwrap().admin().await.unwrap();
    for name in ["fork", "open", "at", "source"] {
        let target = format!("/admin/streams/{name}");
        let what = format!("{name} to end");
        let gone = wait::until(&what, PATIENCE, || async {
            let answer = admin.send(Method::GET, &target, &[], "".into()).await;
            let status = answer.map_err(|e| anyhow::anyhow!("{e:?}"))?.status;
            Ok((status == 404).then_some(()))
        });
        gone.await.unwrap();
    }
    world.is(Method::HEAD, "source", 404).await;
}
