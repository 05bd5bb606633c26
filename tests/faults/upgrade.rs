//! Node by node to a build that reads a next, made-up format: the cluster's goes up after the last, and there is no way
//! back.

use weir_tests::node::PATIENCE;
use weir_tests::{wait, wal};

use crate::cluster::Cluster;
use crate::writers::{self, Of};
use weir_tests::figures::Figures;

/// Makes a process of this build one of the next.
const NEXT: (&str, &str) = ("WEIR_PRETEND_FORMAT", "2");

/// Versions of the WAL objects in the bucket.
fn versions(cluster: &Cluster) -> Vec<u32> {
    let objects = cluster.bucket.kept_wal();
    let read = objects.values().filter_map(|o| wal::read(o).unwrap());
    let mut versions: Vec<u32> = read.map(|o| o.version).collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_format_goes_up_after_the_last_node_and_an_old_build_is_refused_then() {
    let mut cluster = Cluster::start_with(3, &[("segment-age", "500ms")]).await.unwrap();
    let writers = writers::start(&mut cluster, &[0, 1, 2]).await.unwrap();
    for i in 0..3 {
        let seen = cluster.asked(i, "/admin/cluster").await.unwrap();
        assert_eq!(seen["formatVersion"], 1, "not every node reads more");
        assert_eq!(versions(&cluster), [1]);
        let status = cluster.node(i).terminate(PATIENCE).await.unwrap();
        assert!(status.success(), "{}", cluster.node(i).log_tail());
        cluster.env(i, NEXT.0, Some(NEXT.1));
        let started = writers.now();
        cluster.restart(i).await.unwrap();
        let again = writers.all_append(started, Of::All, "after an upgrade").await.unwrap();
        Figures::of("upgrade", 3).with("node", i).took("appendsAgainS", again).write(&writers);
    }
    let admin = cluster.node(0).admin().await.unwrap();
    let raised = || async {
        let text = admin.get_text("/admin/cluster").await?;
        let seen: serde_json::Value = serde_json::from_str(&text)?;
        Ok((seen["formatVersion"] == 2).then_some(()))
    };
    wait::until("the format to go up", PATIENCE, raised).await.unwrap();
    writers.all_append(writers.now(), Of::All, "in the next format").await.unwrap();
    let newest = || async { Ok((versions(&cluster) == [1, 2]).then_some(())) };
    wait::until("a WAL object in the next format", PATIENCE, newest).await.unwrap();
    let segments = cluster.bucket.keys().into_iter().filter(|k| k.contains("/segments/"));
    let version = |key: &String| cluster.bucket.get(key).map(|o| o[8]);
    let segments: Vec<_> = segments.filter_map(|k| version(&k)).collect();
    assert!(!segments.is_empty() && segments.iter().all(|v| [1, 2].contains(v)), "{segments:?}");

    // The way back: with the log it has, and with none.
    cluster.kill(1);
    cluster.env(1, NEXT.0, None);
    let old = cluster.setup(1);
    let (status, said) = cluster.refused(1, &old).await.unwrap();
    assert!(!status.success(), "{said}");
    assert!(said.contains("format 2") && said.contains("this build reads 1 to 1"), "{said}");
    let mut empty = cluster.setup(1);
    empty.data = cluster.scratch.path("empty");
    empty.log = cluster.scratch.path("empty.stderr");
    let (status, said) = cluster.refused(1, &empty).await.unwrap();
    assert!(!status.success(), "{said}");
    assert!(said.contains("format 2") || said.contains("writes format 2"), "{said}");
    // It harmed nobody, and the next build comes back.
    cluster.env(1, NEXT.0, Some(NEXT.1));
    cluster.restart(1).await.unwrap();
    writers.all_append(writers.now(), Of::All, "after the refusals").await.unwrap();

    // All at once, from logs, snapshots and WALs of both formats.
    for i in 0..3 {
        cluster.kill(i);
    }
    for i in 0..3 {
        cluster.spawn(i).await.unwrap();
    }
    for i in 0..3 {
        cluster.ready(i).await.unwrap();
    }
    writers.all_append(writers.now(), Of::All, "after a restart of all").await.unwrap();
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}
