//! The admin listener's page in Chromium, against three real nodes: what it shows, and that it shows it live.

use std::path::Path;

use anyhow::Result;
use http::Method;
use serde_json::json;
use weir_tests::browser::Browser;
use weir_tests::client::Client;
use weir_tests::files::Scratch;
use weir_tests::node::{Node, PATIENCE, Setup};

/// Three nodes of one cluster, short of patience with each other.
async fn three(scratch: &Scratch) -> Result<Vec<Node>> {
    let mut nodes: Vec<Node> = Vec::new();
    for i in 0..3 {
        let setup = Setup::new(scratch.path(&format!("node-{i}")))
            .flag("node-id", format!("node-{i}"))
            .flag("store", format!("file://{}", scratch.path("store").display()))
            .flag("cluster-size", 3)
            .flag("node-timeout", "5s")
            .flag("lease", "2s");
        let setup = match nodes.first_mut() {
            None => setup.flag("bootstrap", true),
            Some(founder) => setup.flag("join", founder.addresses().await?.peer),
        };
        nodes.push(setup.spawn()?);
    }
    for node in &mut nodes {
        node.ready(PATIENCE).await?;
    }
    Ok(nodes)
}

/// The text of an element, as people see it.
fn text(selector: &str) -> String {
    format!("document.querySelector({})?.innerText.trim()", json!(selector))
}

fn cell(node: usize, column: &str) -> String {
    text(&format!("tr[data-node=node-{node}] > :nth-child({column})"))
}

const NODE: &str = "1";
const STATE: &str = "2";
const SLOTS: &str = "3";
const STREAMS: &str = "4";

/// Whether what is known of the cluster is out of sight.
const HIDDEN: &str = "document.querySelector('#seen').hidden";
/// Nothing was thrown, and the policy forbade nothing.
const NONE: [&str; 0] = [];

/// Keeps a picture where `WEIR_PICTURES` says, for whoever wants to look.
async fn picture(browser: &mut Browser, name: &str) {
    let png = browser.picture().await.unwrap();
    if let Some(folder) = std::env::var_os("WEIR_PICTURES") {
        std::fs::write(Path::new(&folder).join(format!("{name}.png.base64")), png).unwrap();
    }
}

async fn post(admin: &Client, target: &str, body: &str) -> u16 {
    let json = [("content-type", "application/json")];
    admin.send(Method::POST, target, &json, body.to_owned().into()).await.unwrap().status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make conformance"]
async fn the_page_shows_three_nodes_live_and_what_becomes_of_them() {
    let scratch = Scratch::new();
    let mut nodes = three(&scratch).await.unwrap();
    let client = nodes[0].client().await.unwrap();
    for i in 0..6 {
        let target = format!("/v1/stream/s/{i}");
        let put =
            client.send(Method::PUT, &target, &[("content-type", "text/plain")], "".into()).await.unwrap();
        assert_eq!(put.status, 201);
    }
    let address = nodes[0].addresses().await.unwrap().admin;
    let mut page = Browser::start().await.unwrap();
    page.open(&format!("http://{address}/")).await.unwrap();

    page.until(&text("#link"), "live, from node-0").await.unwrap();
    page.until(&text("#sum-nodes"), "3 of 3 alive").await.unwrap();
    page.until(&text("#sum-streams"), "6").await.unwrap();
    let names = "[...document.querySelectorAll('#nodes tbody .name')].map((e) => e.innerText)";
    assert_eq!(page.value(names).await.unwrap(), json!(["node-0", "node-1", "node-2"]));
    assert_eq!(page.value("document.querySelectorAll('#members tbody tr').length").await.unwrap(), 3);
    page.until(&text("#sum-quorum-more"), "3 of 3 voters wanted").await.unwrap();
    for node in 0..3 {
        page.until(&cell(node, STATE), "alive").await.unwrap();
        page.until(&cell(node, STREAMS), "2 of 2").await.unwrap();
    }
    assert_eq!(page.value("document.querySelectorAll('.notice').length").await.unwrap(), 0);
    picture(&mut page, "light").await;

    // Changed at another node, seen here without a reload, in the same row.
    page.value("window.kept = document.querySelector('tr[data-node=node-2]'); 0").await.unwrap();
    let other = nodes[1].admin().await.unwrap();
    assert_eq!(post(&other, "/admin/nodes/node-2", r#"{"slots": 4}"#).await, 200);
    page.until(&cell(2, SLOTS), "4").await.unwrap();
    page.until(&cell(2, STREAMS), "2 of 4").await.unwrap();
    page.until(&cell(1, STREAMS), "2 of 1").await.unwrap();
    assert_eq!(page.value("kept === document.querySelector('tr[data-node=node-2]')").await.unwrap(), true);

    // Who has a stream; a name is never markup.
    page.value("document.querySelector('#find-name').focus(); 0").await.unwrap();
    page.type_text("s/0").await.unwrap();
    page.enter().await.unwrap();
    page.until(&format!("{}.startsWith('owner')", text("#found")), true).await.unwrap();
    page.value("document.querySelector('#find-name').value = '<img src=x onerror=alert(1)>'; document.querySelector('#find').requestSubmit()").await.unwrap();
    page.until(&format!("{}.includes('<img')", text("#find-error")), true).await.unwrap();

    // Lost for good: gone here, and said so.
    nodes[2].kill();
    page.until(&cell(2, STATE), "gone").await.unwrap();
    page.until(&text("#sum-nodes"), "2 of 3 alive").await.unwrap();
    page.until(&format!("{}?.includes('Gone: node-2')", text(".notice")), true).await.unwrap();
    assert!(page.value(&cell(0, NODE)).await.unwrap().as_str().unwrap().starts_with("node-0"));
    page.scheme("dark").await.unwrap();
    picture(&mut page, "dark").await;
    assert_eq!(page.complaints(), NONE);

    // The asked node itself goes: what was seen stays, marked as old.
    nodes[0].kill();
    page.until("document.querySelector('#link').dataset.state", "stale").await.unwrap();
    page.until(&format!("{}?.includes('has not answered since')", text(".notice")), true).await.unwrap();
    assert_eq!(page.value(&cell(1, STATE)).await.unwrap(), "alive", "as it was seen last");
    picture(&mut page, "stale").await;
    page.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: make conformance"]
async fn the_page_asks_for_a_token_and_keeps_it_for_its_tab_alone() {
    let scratch = Scratch::new();
    let file = scratch.path("token");
    std::fs::write(&file, "a-good-token-0123456789\n").unwrap();
    let setup = Setup::new(scratch.path("data")).flag("admin-token-file", file.display());
    let mut node = setup.start().await.unwrap();
    let address = node.addresses().await.unwrap().admin;
    let mut page = Browser::start().await.unwrap();
    page.open(&format!("http://{address}/")).await.unwrap();
    page.until("document.activeElement?.id", "token").await.unwrap();
    assert_eq!(page.value(HIDDEN).await.unwrap(), true, "nothing of the cluster is shown");
    picture(&mut page, "token").await;

    page.type_text("another-token-0123456789").await.unwrap();
    page.enter().await.unwrap();
    page.until(&text("#token-error"), "The node does not take this token (any more).").await.unwrap();
    page.value("document.querySelector('#token').focus(); 0").await.unwrap();
    page.type_text("a-good-token-0123456789").await.unwrap();
    page.enter().await.unwrap();
    page.until(&text("#link"), "live, from node-0").await.unwrap();
    page.until("document.querySelector('#token-form').hidden", true).await.unwrap();
    let kept = "[sessionStorage.getItem('weir-token'), localStorage.length, document.cookie]";
    assert_eq!(page.value(kept).await.unwrap(), json!(["a-good-token-0123456789", 0, ""]));

    // It is no cookie: what does not name it gets nothing done.
    let foreign =
        "fetch('/admin/nodes/node-0', {method: 'POST', body: '{\"slots\": 9}'}).then((r) => r.status)";
    assert_eq!(page.value(foreign).await.unwrap(), 401);

    // The token is no longer good: it is asked for again.
    std::fs::write(&file, "a-third-token-0123456789\n").unwrap();
    page.until("document.querySelector('#token-form').hidden", false).await.unwrap();
    assert_eq!(page.value("sessionStorage.length").await.unwrap(), 0);
    assert_eq!(page.value(HIDDEN).await.unwrap(), true);
    assert_eq!(page.complaints(), NONE);
    page.close().await.unwrap();
    assert!(node.try_exit().unwrap().is_none(), "the node ended\n{}", node.log_tail());
}
