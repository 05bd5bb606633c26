//! Scenario 2: a weight is a field. Edited, it is applied and shown; nothing restarts, nothing that is placed moves, and
//! what is placed later follows it.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::json;
use weir_tests::client::{Client, path};
use weir_tests::writers::Writers;

use crate::cluster::{Cluster, node_of};
use crate::figures::Measured;
use crate::watched::LIMIT;

/// Streams in the end, those of the load among them: 40, 10 and 10.
const STREAMS: usize = 60;
const WEIGHTS: [usize; 3] = [4, 1, 1];

async fn owners(cluster: &Cluster, writers: &Writers) -> Result<Vec<(String, usize)>> {
    writers.know_owners(async |stream| cluster.owner(stream).await).await?;
    Ok(writers.owners())
}

async fn edited(cluster: &Cluster, writers: &Writers) -> Result<()> {
    let measured = Measured::begin("slots-edited", cluster, writers).await?;
    cluster.patch(json!({"spec": {"nodes": [{"ordinal": 0, "slots": WEIGHTS[0]}]}})).await?;
    cluster
        .until("the weight in the status", |c| {
            let slots = node_of(c, 0)?.slots.as_ref()?;
            (slots.desired == 4 && slots.applied == Some(4)).then_some(())
        })
        .await?;
    measured.end(cluster, writers).await?;
    cluster.until_condition("SlotsSynced", "True", "").await?;
    Ok(())
}

/// Fills up to [`STREAMS`] and counts whose they are.
async fn later_placements_follow(cluster: &Cluster, before: &[(String, usize)]) -> Result<()> {
    let client = Client::new(&cluster.front_door(), LIMIT).following(true);
    let mut counts = [0_usize; 3];
    before.iter().for_each(|(_, owner)| counts[*owner] += 1);
    for n in before.len()..STREAMS {
        let name = format!("later-{n}");
        let made = client.send(Method::PUT, &path(&name), &[("content-type", "text/plain")], "".into()).await;
        let made = made.map_err(|e| anyhow::anyhow!("{e:?}"))?;
        ensure!(made.status == 201, "{name}: {made:?}");
        counts[cluster.owner(&name).await?] += 1;
    }
    for (count, weight) in counts.iter().zip(WEIGHTS) {
        let exact = STREAMS * weight / WEIGHTS.iter().sum::<usize>();
        ensure!(count.abs_diff(exact) <= 1, "not 4:1:1 within one: {counts:?}");
    }
    Ok(())
}

/// What the admin API was told behind the operator's back is put right.
async fn put_right(cluster: &Cluster) -> Result<()> {
    let answer = cluster.admin(1, Method::POST, "/admin/nodes/t-1", &json!({"slots": 9})).await?;
    ensure!(answer.status == 200, "{answer:?}");
    cluster.event("SlotsCorrected", |text| text.contains("t-1") && text.contains("to 9")).await?;
    cluster
        .until("the weight to be put right", |c| {
            (node_of(c, 1)?.slots.as_ref()?.applied == Some(1)).then_some(())
        })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the test bed: make kubernetes"]
async fn an_edited_weight_is_applied_without_a_restart_and_later_placements_follow_it() {
    let cluster = Cluster::start("slots", json!({})).await.unwrap();
    let writers = cluster.load().await.unwrap();
    let (lives, before) = (cluster.lives(), owners(&cluster, &writers).await.unwrap());
    edited(&cluster, &writers).await.unwrap();
    assert_eq!(owners(&cluster, &writers).await.unwrap(), before, "what is placed stays");
    later_placements_follow(&cluster, &before).await.unwrap();
    put_right(&cluster).await.unwrap();
    assert_eq!(owners(&cluster, &writers).await.unwrap(), before, "what is placed stays");
    assert_eq!(cluster.lives(), lives, "nothing restarts");
    cluster.end(Some(writers)).await.unwrap();
}
