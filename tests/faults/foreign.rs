//! What does not belong together is refused by name, and harms nobody.

use weir_tests::files::{Scratch, copy_tree};
use weir_tests::node::{PATIENCE, Setup};

use crate::cluster::Cluster;
use crate::writers::{self, Of};

/// The cluster of a directory.
fn uid(directory: &std::path::Path) -> String {
    let file = std::fs::read(directory.join("identity.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&file).unwrap();
    json["identity"]["cluster"].as_str().unwrap_or_else(|| panic!("no cluster in {json}")).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_buckets_and_nodes_of_another_cluster_are_refused_by_name() {
    let mut cluster = Cluster::start(3).await.unwrap();
    let writers = writers::start(&mut cluster, &[0, 1, 2]).await.unwrap();
    let ours = cluster.asked(0, "/admin/cluster").await.unwrap()["uid"].as_str().unwrap().to_owned();
    let before: Vec<_> = cluster.bucket.keys().into_iter().filter(|k| k.contains("cluster.json")).collect();

    let elsewhere = Scratch::new();
    let store = format!("file://{}", elsewhere.path("store").display());
    let other = Setup::new(elsewhere.path("other")).flag("store", &store).flag("node-id", "node-7");
    let mut founder = other.start().await.unwrap();
    assert!(founder.terminate(PATIENCE).await.unwrap().success());
    let theirs = uid(&elsewhere.path("other"));

    // A process of ours with the other's directory, with the other's bucket, and one of the other's with our bucket.
    let with_directory = |name: &str| {
        let mut setup = cluster.setup(1);
        setup.data = elsewhere.path(name);
        setup.log = elsewhere.path(&format!("{name}.stderr"));
        setup
    };
    copy_tree(&elsewhere.path("other"), &elsewhere.path("taken")).unwrap();
    let cases = [
        ("the other's directory", with_directory("taken").flag("node-id", "node-7")),
        ("the other's bucket", with_directory("empty").flag("node-id", "node-7").flag("store", &store)),
    ];
    for (what, setup) in cases {
        let (status, said) = setup.refused().await.unwrap();
        assert_eq!(status.code(), Some(3), "{what}: {said}");
        assert!(said.contains(&ours) && said.contains(&theirs), "{what}: {said}");
    }
    // The right directory under another name, and the other's identity.
    cluster.kill(2);
    let renamed = cluster.setup(2).flag("node-id", "node-9");
    let (status, said) = renamed.refused().await.unwrap();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("node-2") && said.contains("node-9"), "{said}");
    let after: Vec<_> = cluster.bucket.keys().into_iter().filter(|k| k.contains("cluster.json")).collect();
    assert_eq!(before, after);
    cluster.restart(2).await.unwrap();
    writers.all_append(writers.now(), Of::All, "after the refusals").await.unwrap();
    writers.verify().await.unwrap();
    cluster.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_without_the_secret_are_refused_and_say_why() {
    let scratch = Scratch::new();
    let token = |name: &str, text: &str| {
        let path = scratch.path(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let right = token("right", "a-secret-of-ours-0123456789\n");
    let wrong = token("wrong", "a-secret-of-others-01234567\n");
    let mut cluster =
        Cluster::start_with(1, &[("admin-token-file", &right), ("cluster-size", "1")]).await.unwrap();
    let seed = cluster.node(0).addresses().await.unwrap().peer;
    for (name, file) in [("none", None), ("other", Some(&wrong))] {
        let mut setup =
            cluster.setup(0).flag("node-id", "node-1").flag("join", &seed).flag("bootstrap", false);
        setup.flags.retain(|f| !f.starts_with("--admin-token-file="));
        setup.flags.retain(|f| !f.starts_with("--peer-advertise="));
        if let Some(file) = file {
            setup = setup.flag("admin-token-file", file);
        }
        setup.data = scratch.path(name);
        setup.log = scratch.path(&format!("{name}.stderr"));
        let mut node = setup.spawn().unwrap();
        let why = node.unready_for(&["joining"]).await.unwrap();
        assert!(why.contains("secret") && why.contains(&seed), "{name}: {why}");
        node.kill();
    }
    // It is one node still.
    let status = cluster.node(0).terminate(PATIENCE).await.unwrap();
    assert!(status.success());
}
