//! Nodes are looked at, fenced and removed by command, through any other node.

use anyhow::Result;
use http::Method;
use serde_json::Value;
use weir_tests::cli::Weir;
use weir_tests::client::Client;
use weir_tests::node::{Node, PATIENCE};
use weir_tests::wait;

use super::cluster::{BYTES, Three, asked, leader};

async fn command(node: &mut Node) -> Weir {
    let addresses = node.addresses().await.unwrap();
    let mut weir = Weir::new(&addresses.client);
    weir.admin = format!("http://{}", addresses.admin);
    weir
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_fenced_by_command_and_its_streams_go_on_elsewhere() {
    let mut three = Three::start_with(|s| s.flag("routing", "forward").flag("lease", "2s")).await.unwrap();
    let leads = leader(&three.nodes[0].admin().await.unwrap()).await.unwrap();
    let (at, victim) = ((leads + 1) % 3, (leads + 2) % 3);
    let name = format!("node-{victim}");
    let weir = command(&mut three.nodes[at]).await;

    // Who votes, at a node that follows and at the one that leads.
    let members = weir.run(&["admin", "members"]).await.ok();
    assert_eq!(members.lines().filter(|l| l.contains("votes")).count(), 2, "{members}");
    assert!(members.contains("3 of 3 voters wanted; whether a majority is heard"), "{members}");
    let at_leader = command(&mut three.nodes[leads]).await;
    let members = parsed(&at_leader.run(&["admin", "members", "--json"]).await.ok());
    assert_eq!(members["quorumHealthy"], true);
    let members = members["members"].as_array().unwrap();
    assert!(members.iter().all(|m| m["matchedIndex"].as_u64().is_some()), "{members:?}");
    assert_eq!(members.iter().filter(|m| m["leader"] == true).count(), 1);

    // Streams at each node; the victim's is open.
    let client = three.nodes[at].client().await.unwrap();
    let mut its = None;
    for i in 0..6 {
        let path = format!("/v1/stream/s{i}");
        assert_eq!(client.send(Method::PUT, &path, &BYTES, "".into()).await.unwrap().status, 201);
        assert_eq!(client.send(Method::POST, &path, &BYTES, "x".into()).await.unwrap().status, 204);
        let status = parsed(&weir.run(&["admin", "stream", &format!("s{i}"), "--json"]).await.ok());
        if status["ownership"]["node"] == name.as_str() {
            its = Some(path);
        }
    }
    let its = its.expect("six streams on three nodes of one weight");

    // An epoch that is not its own changes nothing and is answered with the right one.
    let nodes = parsed(&weir.run(&["admin", "nodes", "--json"]).await.ok());
    let epoch = nodes["nodes"][victim]["epoch"].as_u64().unwrap();
    let wrong = weir.run(&["admin", "fence", &name, "--epoch", &(epoch + 1).to_string()]).await;
    assert_eq!(wrong.code, Some(8), "{wrong:?}");
    assert!(wrong.err.contains(&format!("registered at epoch {epoch}")), "{wrong:?}");
    assert!(wrong.err.contains("leave --epoch out"), "{wrong:?}");

    let told = weir.run(&["admin", "fence", &name]).await.ok();
    assert_eq!(told, format!("{name} is fenced at epoch {epoch}\n"));
    let status = three.nodes[victim].exit(PATIENCE).await.unwrap();
    assert_eq!(status.code(), Some(4), "{}", three.nodes[victim].log_tail());
    let goes_on = async || {
        let append = client.send(Method::POST, &its, &BYTES, "y".into()).await;
        Ok(append.is_ok_and(|a| a.status == 204).then_some(()))
    };
    wait::until("its stream to take appends", PATIENCE, goes_on).await.unwrap();
    let row = parsed(&weir.run(&["admin", "nodes", "--json"]).await.ok())["nodes"][victim].clone();
    assert_eq!((&row["alive"], &row["fairShare"]), (&Value::Bool(false), &Value::from(0)));

    // It is taken out for good, and its directory leaves the log.
    let live = weir.run(&["admin", "remove", &format!("node-{at}"), "--yes"]).await;
    assert!((live.code, live.err.contains("is alive")) == (Some(8), true), "{live:?}");
    let removed = async || {
        let told = weir.run(&["admin", "remove", &name, "--yes"]).await;
        anyhow::ensure!(told.code == Some(0) || told.err.contains("not recovered yet"), "{told:?}");
        Ok((told.code == Some(0)).then_some(()))
    };
    wait::until("its removal, once it is recovered", PATIENCE, removed).await.unwrap();
    let left = async || {
        let members = parsed(&weir.run(&["admin", "members", "--json"]).await.ok());
        let members = members["members"].as_array().cloned().unwrap_or_default();
        Ok(members.iter().all(|m| m["node"] != name.as_str()).then_some(()))
    };
    wait::until("it to leave the metadata log", PATIENCE, left).await.unwrap();
    let nodes = parsed(&weir.run(&["admin", "nodes", "--json"]).await.ok());
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(client.send(Method::POST, &its, &BYTES, "z".into()).await.unwrap().status, 204);
}

/// The numbers that a metrics page has for a series.
async fn counted(admin: &Client, series: &str) -> Result<f64> {
    let page = admin.get_text("/metrics").await?;
    let line = page.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned));
    Ok(line.ok_or_else(|| anyhow::anyhow!("no {series} in\n{page}"))?.parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_in_a_cluster_is_counted() {
    let mut three = Three::start_with(|s| s.flag("node-timeout", "5s").flag("lease", "2s")).await.unwrap();
    let leads = leader(&three.nodes[0].admin().await.unwrap()).await.unwrap();
    let (at, victim) = ((leads + 1) % 3, (leads + 2) % 3);
    let mut admins = Vec::new();
    for node in &mut three.nodes {
        admins.push(node.admin().await.unwrap());
    }
    for node in &admins {
        for (series, value) in [
            ("weir_metadata_voters", 3.0),
            ("weir_metadata_voter_target", 3.0),
            ("weir_metadata_quorum_lost", 0.0),
            ("weir_session_alive", 1.0),
            ("weir_draining", 0.0),
        ] {
            assert_eq!(counted(node, series).await.unwrap(), value, "{series}");
        }
        assert!(counted(node, "weir_node_epoch").await.unwrap() > 1e12);
        let holds = async || {
            let lease = counted(node, "weir_lease_remaining_seconds").await?;
            anyhow::ensure!(lease <= 2.0, "{lease}");
            Ok((lease > 0.0).then_some(()))
        };
        wait::until("a lease", PATIENCE, holds).await.unwrap();
    }
    let client = three.nodes[at].client().await.unwrap();
    let victims = three.nodes[victim].client().await.unwrap();
    for i in 0..6 {
        let path = format!("/v1/stream/s{i}");
        assert_eq!(client.send(Method::PUT, &path, &BYTES, "".into()).await.unwrap().status, 201);
        // Open where it is its own, redirected elsewhere.
        let append = victims.send(Method::POST, &path, &BYTES, "x".into()).await.unwrap();
        assert!([204, 307].contains(&append.status), "{}", append.status);
    }
    assert_eq!(counted(&admins[at], r#"weir_placements_total{outcome="created"}"#).await.unwrap(), 6.0);
    let opened = counted(&admins[victim], r#"weir_placements_total{outcome="opened"}"#).await.unwrap();
    let redirected = counted(&admins[victim], "weir_redirects_total").await.unwrap();
    assert_eq!((opened, redirected), (2.0, 4.0));

    three.nodes[victim].kill();
    let witness = &admins[at];
    let recovered = async || {
        let cluster = asked(witness, "/admin/cluster").await?;
        Ok((cluster["nodesAlive"] == 2 && cluster["awaitingRecovery"] == 0).then_some(()))
    };
    wait::until("the lost node's recovery", PATIENCE, recovered).await.unwrap();
    let (mut takeovers, mut fences) = (0.0, 0.0);
    for i in [leads, at] {
        takeovers += counted(&admins[i], r#"weir_takeover_seconds_count{of="other"}"#).await.unwrap();
        fences += counted(&admins[i], r#"weir_fenced_sessions_total{by="silence"}"#).await.unwrap();
    }
    assert!(takeovers >= 1.0 && fences >= 1.0, "{takeovers} takeovers, {fences} fences");
}
