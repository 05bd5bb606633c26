//! Appends that pass through a node, each over a connection of its own.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::stub::{Deed, Rig};
use super::*;

/// An append of one byte.
fn post(byte: &str) -> String {
    format!("POST /v1/stream/s HTTP/1.1\r\nHost: x\r\n{TEXT}\r\nContent-Length: 1\r\n\r\n{byte}")
}

impl Rig {
    /// Begins an append that the stub has, and does not answer.
    async fn begin(&mut self, byte: &str, deed: Deed) -> Client {
        self.stub.then(deed);
        let mut client = self.front.client().await;
        client.send(post(byte)).await;
        assert_eq!(self.stub.next().await.body.unwrap(), byte);
        client
    }

    /// An append that the stub answers.
    async fn pass(&mut self, byte: &str) {
        self.stub.then(Deed::Answer(204, ""));
        assert_eq!(self.front.ask("POST", "/v1/stream/s", &[TEXT], byte).await.status, 204);
        assert_eq!(self.stub.next().await.body.unwrap(), byte);
    }

    fn nothing_more(&mut self) {
        assert!(self.stub.seen.try_recv().is_err(), "nothing was sent twice");
    }

    /// Waits until as many connections of either kind are left.
    async fn until_left(&self, shared: usize, lanes: usize) {
        let left = async {
            while (self.front.router.connections(), self.front.router.lanes()) != (shared, lanes) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, left).await.expect("they are closed");
    }
}

#[tokio::test]
async fn an_append_has_a_connection_to_itself_and_leaves_it_to_the_next() {
    for (lanes, all_lanes) in [(2, 9), (9, 2)] {
        two_at_a_time(PoolLimits { lanes, all_lanes, ..quick() }).await;
    }
}

async fn two_at_a_time(limits: PoolLimits) {
    let mut rig = Rig::with(limits, |_| {}).await;
    // The first finds out whether anybody is there.
    rig.pass("x").await;
    assert_eq!((rig.front.router.connections(), rig.front.router.lanes()), (1, 0));
    for (status, body) in [(204, ""), (409, "no"), (204, "")] {
        rig.stub.then(Deed::Answer(status, body));
        let reply = rig.front.ask("POST", "/v1/stream/s", &[TEXT], "x").await;
        assert_eq!((reply.status, reply.body.as_str()), (status, body));
        assert_eq!(rig.stub.next().await.body.unwrap(), "x");
        assert_eq!(rig.front.router.lanes(), 1, "the same again");
    }
    // Two that wait have one each, and a third goes with all the rest.
    let mut waiting = Vec::new();
    for (byte, lanes) in [("0", 1), ("1", 2), ("2", 2)] {
        waiting.push(rig.begin(byte, Deed::Hold).await);
        assert_eq!(rig.front.router.lanes(), lanes);
    }
    assert_eq!(rig.front.router.connections(), 1);
    // Whose client goes, its connection goes: the owner is told.
    drop(waiting);
    rig.front.until_counted("forwards_total{outcome=\"abandoned\"} 3").await;
    rig.until_left(1, 0).await;
    rig.pass("x").await;
    rig.nothing_more();
    rig.stop().await;
}

#[tokio::test]
async fn what_is_long_or_has_many_fields_is_not_sent_so() {
    let mut rig = Rig::start(|_| {}).await;
    rig.meet().await;
    let long = "x".repeat((64 << 10) + 1);
    let many: Vec<String> = (0..90).map(|n| format!("X-{n}: {n}")).collect();
    let mut fields = vec![TEXT];
    fields.extend(many.iter().map(String::as_str));
    let chunked = "1\r\nx\r\n0\r\n\r\n";
    for (fields, body) in [(&fields[..1], long.as_str()), (&fields, "x")] {
        rig.stub.then(Deed::Answer(204, ""));
        assert_eq!(rig.front.ask("POST", "/v1/stream/s", fields, body).await.status, 204);
        assert_eq!(rig.stub.next().await.body.unwrap(), body.as_bytes());
    }
    rig.stub.then(Deed::Answer(204, ""));
    let mut client = rig.front.client().await;
    let head = format!("POST /v1/stream/s HTTP/1.1\r\nHost: x\r\n{TEXT}\r\nTransfer-Encoding: chunked");
    client.send(format!("{head}\r\n\r\n{chunked}")).await;
    assert_eq!(client.reply("POST").await.status, 204);
    assert_eq!(rig.stub.next().await.body.unwrap(), "x");
    assert_eq!((rig.front.router.connections(), rig.front.router.lanes()), (1, 0));
    rig.stop().await;
}

#[tokio::test]
async fn an_append_on_a_connection_that_was_closed_is_sent_once_over_another() {
    let mut rig = Rig::start(|_| {}).await;
    rig.meet().await;
    rig.pass("1").await;
    rig.stub.hang_up().await;
    for byte in ["2", "3"] {
        rig.pass(byte).await;
    }
    // And where the owner had said that it would close it.
    rig.stub.then(Deed::Last(204));
    assert_eq!(rig.front.ask("POST", "/v1/stream/s", &[TEXT], "4").await.status, 204);
    assert_eq!(rig.stub.next().await.body.unwrap(), "4");
    assert_eq!(rig.front.router.lanes(), 0);
    rig.pass("5").await;
    rig.nothing_more();
    rig.stop().await;
}

#[tokio::test]
async fn an_owner_that_dies_with_an_append_on_its_own_connection_leaves_its_outcome_unknown() {
    let mut rig = Rig::start(|_| {}).await;
    for deed in [Deed::Die, Deed::Hold] {
        rig.meet().await;
        let holds = matches!(deed, Deed::Hold);
        let mut client = rig.begin("x", deed).await;
        if holds {
            assert_eq!(rig.front.router.lanes(), 1);
            rig.stub.hang_up().await;
        }
        assert_eq!(client.reply("POST").await.status, 504);
        assert_eq!(rig.front.router.lanes(), 0);
    }
    rig.nothing_more();
    rig.stop().await;
}

#[tokio::test]
async fn an_answer_to_an_append_that_breaks_off_or_does_not_end_is_none() {
    let mut rig = Rig::start(|_| {}).await;
    rig.meet().await;
    for breaks in [true, false] {
        let (parts, answer) = mpsc::channel(1);
        let mut client = rig.begin("x", Deed::Stream("text/plain", answer)).await;
        parts.send(Ok(Bytes::from_static(b"half"))).await.unwrap();
        if breaks {
            parts.send(Err(std::io::Error::other("gone"))).await.unwrap();
        } else {
            let more = Bytes::from(vec![b'x'; 16 << 10]);
            // Until nobody takes any more.
            while parts.send(Ok(more.clone())).await.is_ok() {}
        }
        assert_eq!(client.reply("POST").await.status, 504);
        rig.until_left(1, 0).await;
    }
    rig.nothing_more();
    rig.stop().await;
}

#[tokio::test]
async fn an_append_is_not_waited_for_if_its_owner_cannot_be_reached_any_more() {
    let hour = Duration::from_secs(3_600);
    let limits = PoolLimits { ping: Duration::from_millis(20), ..quick() };
    let mut rig = Rig::with(limits, |l| l.request_timeout = hour).await;
    rig.meet().await;
    let mut client = rig.begin("x", Deed::Hold).await;
    assert_eq!(rig.front.router.lanes(), 1);
    rig.stub.listen_no_more().await;
    assert_eq!(client.reply("POST").await.status, 504);
    rig.until_left(1, 0).await;
    rig.nothing_more();
    rig.stop().await;
}

#[tokio::test]
async fn connections_of_appends_go_when_idle_and_keep_the_last_shared_one() {
    let idle = Duration::from_millis(100);
    let mut rig = Rig::with(PoolLimits { idle, ..quick() }, |_| {}).await;
    let (parts, mut client) = loop {
        rig.meet().await;
        let (parts, answer) = mpsc::channel(1);
        let client = rig.begin("x", Deed::Stream("text/plain", answer)).await;
        // On a slow machine the shared one may be gone by now.
        if rig.front.router.lanes() == 1 {
            break (parts, client);
        }
    };
    // As long as one is in use it is known that somebody is there.
    let met = tokio::time::Instant::now();
    while met.elapsed() < idle * 3 {
        tokio::time::sleep(idle / 10).await;
        assert_eq!((rig.front.router.connections(), rig.front.router.lanes()), (1, 1));
    }
    drop(parts);
    assert_eq!(client.reply("POST").await.status, 200);
    rig.until_left(0, 0).await;
    rig.stop().await;
}

#[tokio::test]
async fn an_owner_that_came_back_as_another_session_gets_what_is_its_own() {
    let mut rig = Rig::start(|_| {}).await;
    rig.meet().await;
    rig.pass("1").await;
    let node = rig.node.node.metadata();
    for hangs_up in [true, false] {
        if hangs_up {
            rig.stub.hang_up().await;
        }
        let name = if hangs_up { "b-stub" } else { "c-stub" };
        let before = *node.applied().borrow();
        register(node, name, &rig.stub.url, 1_000_000).await;
        let stream = format!("/v1/stream/{name}");
        assert_eq!(rig.node.ask("PUT", &stream, &[TEXT], "").await.status, 201);
        for _shared_then_own in 0..2 {
            rig.stub.then(Deed::Answer(204, ""));
            assert_eq!(rig.front.ask("POST", &stream, &[TEXT], "x").await.status, 204);
            let seen = rig.stub.next().await;
            assert_eq!(seen.uri.path(), stream);
            // It has to know the log as far as its own registration at least.
            let hop = seen.fields["weir-hop"].to_str().unwrap().to_owned();
            let (index, hops) = hop.split_once('.').unwrap();
            assert!(index.parse::<u64>().unwrap() > before && hops == "1", "{hop} after {before}");
        }
        assert_eq!(rig.front.router.lanes(), 1);
    }
    rig.nothing_more();
    rig.stop().await;
}

#[tokio::test]
async fn an_append_under_way_is_answered_when_the_node_stops() {
    let mut rig = Rig::start(|_| {}).await;
    rig.meet().await;
    let (parts, answer) = mpsc::channel(1);
    let mut client = rig.begin("x", Deed::Stream("text/plain", answer)).await;
    rig.front.stop.cancel();
    parts.send(Ok(Bytes::from_static(b"said"))).await.unwrap();
    drop(parts);
    let reply = client.reply("POST").await;
    assert_eq!((reply.status, reply.get("connection")), (200, Some("close")));
    client.ended().await;
    rig.stop().await;
}
