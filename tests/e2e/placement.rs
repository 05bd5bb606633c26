//! Placement on real processes: shares follow slots to the stream, and changing slots moves nothing that is placed (I7).

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tokio::task::JoinSet;
use weir_tests::client::Client;
use weir_tests::cluster::{Cluster, assigned_of};
use weir_tests::doors::Doors;

const WEIGHTS: [u64; 3] = [4, 1, 1];
const STREAMS: u64 = 6_000;
const CLIENTS: u64 = 48;
/// Streams whose place is looked at one by one.
const SAMPLE: u64 = 60;

fn path(n: u64) -> String {
    format!("placed/{n}")
}

/// Creates streams `from..to` from many clients at once, through all nodes.
async fn create(doors: &Doors, from: u64, to: u64) -> Result<()> {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let doors = doors.clone();
        clients.spawn(async move {
            for n in (from + client..to).step_by(CLIENTS as usize) {
                let target = format!("/v1/stream/{}", path(n));
                let text = [("content-type", "text/plain")];
                let made = doors.ask((n % 3) as usize, &Method::PUT, &target, &text, &Bytes::new()).await?;
                ensure!(made.status == 201, "{target}: {made:?}");
            }
            Ok(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    Ok(())
}

/// Where each stream of the sample is.
async fn places(admin: &Client) -> Result<Vec<String>> {
    let mut places = Vec::new();
    for n in (0..STREAMS).step_by((STREAMS / SAMPLE) as usize) {
        let status: Value =
            serde_json::from_str(&admin.get_text(&format!("/admin/streams/{}", path(n))).await?)?;
        places.push(status["ownership"]["node"].as_str().with_context(|| status.to_string())?.to_owned());
    }
    Ok(places)
}

async fn weigh(admin: &Client, node: usize, slots: u64) -> Result<()> {
    let json = [("content-type", "application/json")];
    let body = format!(r#"{{"slots": {slots}}}"#);
    let set = admin.send(Method::POST, &format!("/admin/nodes/node-{node}"), &json, body.into()).await;
    let set = set.map_err(|e| anyhow::anyhow!("{e:?}"))?;
    ensure!(set.status == 200, "{set:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_follow_slots_to_the_stream_and_what_is_placed_stays() {
    let change = |node: usize, setup: weir_tests::node::Setup| {
        setup.flag("slots", WEIGHTS[node]).flag("routing", "forward")
    };
    let mut cluster = Cluster::start(3, change).await.unwrap();
    let doors = Doors::of(&mut cluster.nodes).await.unwrap();
    let admin = cluster.nodes[1].admin().await.unwrap();
    create(&doors, 0, STREAMS).await.unwrap();
    let counts = assigned_of(&admin, STREAMS).await.unwrap();
    for (node, (count, weight)) in counts.iter().zip(WEIGHTS).enumerate() {
        let exact = STREAMS * weight / WEIGHTS.iter().sum::<u64>();
        assert!(count.abs_diff(exact) <= 1, "node {node} has {count}, not {exact}: {counts:?}");
    }
    let before = places(&admin).await.unwrap();

    // Node 0 takes none from now on, node 1 is to have twice as many as node 2: the next go there alone.
    for (node, slots) in [(0, 0), (1, 2)] {
        weigh(&admin, node, slots).await.unwrap();
    }
    assert_eq!(assigned_of(&admin, STREAMS).await.unwrap(), counts, "changing slots moves nothing");
    let more = counts[1] / 2;
    create(&doors, STREAMS, STREAMS + more).await.unwrap();
    let after = assigned_of(&admin, STREAMS + more).await.unwrap();
    assert_eq!(after, [counts[0], counts[1] + more, counts[2]]);
    assert_eq!(places(&admin).await.unwrap(), before, "what is placed stays");
    cluster.end().await.unwrap();
}
