//! Every command, and what it prints.

use serde_json::{Value, json};
use weir_tests::cli::Weir;
use weir_tests::files::Scratch;
use weir_tests::node::Setup;

use super::{at, node};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_bytes_from_its_creation_to_its_end() {
    let (scratch, _node, weir) = node().await;
    let created = weir.run(&["create", "notes", "--content-type", "text/plain"]).await.ok();
    assert_eq!(created, format!("created notes (text/plain); next offset {}\n", at(0)));
    let again = weir.run(&["create", "notes", "--content-type", "text/plain", "--json"]).await.ok();
    let expected = json!({"name": "notes", "created": false, "contentType": "text/plain", "nextOffset": at(0),
        "closed": false});
    assert_eq!(parsed(&again), expected);

    let appended = weir.run(&["append", "notes", "first ", "second "]).await.ok();
    assert_eq!(appended, format!("appended 13 bytes to notes in 2 requests; next offset {}\n", at(13)));
    let appended = weir.run_with(&["append", "notes", "--lines", "--json"], b"a\nb\n").await.ok();
    let appended = parsed(&appended);
    assert_eq!((&appended["units"], &appended["nextOffset"]), (&json!(4), &json!(at(17))));
    let file = scratch.path("input");
    std::fs::write(&file, "from a file").unwrap();
    weir.run(&["append", "notes", "--file", file.to_str().unwrap(), "--seq", "7"]).await.ok();

    let read = weir.run(&["read", "notes"]).await;
    assert_eq!((read.code, read.out.as_str()), (Some(0), "first second a\nb\nfrom a file"));
    assert_eq!(read.err, format!("next offset {} (the end)\n", at(28)));
    let read = weir.run(&["read", "notes", "--offset", &at(13), "--json"]).await;
    assert_eq!(read.out, "a\nb\nfrom a file");
    let said = parsed(&read.err);
    assert_eq!(
        (&said["nextOffset"], &said["upToDate"], &said["ahead"]),
        (&json!(at(28)), &json!(true), &json!(0))
    );
    assert_eq!(weir.run(&["read", "notes", "--offset", "now", "--quiet"]).await.ok(), "");

    let head = weir.run(&["head", "notes"]).await.ok();
    let expected = format!(
        "name          notes\ncontent type  text/plain\nnext offset   {}\nclosed        no\n",
        at(28)
    );
    assert_eq!(head, expected);
    assert_eq!(weir.run(&["close", "notes"]).await.ok(), format!("closed notes; final offset {}\n", at(28)));
    weir.run(&["close", "notes", "--json"]).await.ok();
    assert_eq!(parsed(&weir.run(&["head", "notes", "--json"]).await.ok())["closed"], true);
    let refused = weir.run(&["append", "notes", "more"]).await;
    assert_eq!(refused.code, Some(9));
    assert_eq!(refused.err, "weir: notes is closed: it takes no more\n  read it with: weir read notes\n");
    let read = weir.run(&["read", "notes", "--follow"]).await;
    assert_eq!(read.err, format!("next offset {} (closed: there will be no more)\n", at(28)));

    assert_eq!(weir.run(&["rm", "notes"]).await.ok(), "deleted notes\n");
    let gone = weir.run(&["rm", "notes"]).await;
    assert_eq!((gone.code, gone.out.as_str()), (Some(7), ""));
    weir.run(&["rm", "notes", "--missing-ok"]).await.ok();
    weir.run(&["create", "a"]).await.ok();
    weir.run(&["create", "b"]).await.ok();
    let some = weir.run(&["rm", "a", "missing", "b"]).await;
    assert_eq!((some.code, some.out.as_str()), (Some(7), "deleted a\ndeleted b\n"));
    assert!(some.err.starts_with("weir: no such stream: missing\n"), "{}", some.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_json_goes_in_and_out_element_by_element() {
    let (_scratch, _node, weir) = node().await;
    let json = "application/json";
    weir.run(&["create", "events", "--content-type", json, "--data", "[1, 2.50]"]).await.ok();
    let appended = weir.run(&["append", "events", "{\"a\": [1]}", "[3,[4]]"]).await.ok();
    assert_eq!(appended, format!("appended 3 elements to events in 2 requests; next offset {}\n", at(5)));
    let input = b"5\n{\n\"b\": 12345678901234567890\n}\n[6,7]";
    let appended = weir.run_with(&["append", "events"], input).await.ok();
    assert!(appended.starts_with("appended 4 elements to events in "), "{appended}");
    weir.run_with(&["append", "events", "--lines"], b"[8]\n\n\"nine\"\n").await.ok();

    let all = weir.run(&["read", "events", "--quiet"]).await.ok();
    assert_eq!(
        parsed(&all),
        parsed(r#"[1,2.50,{"a":[1]},3,[4],5,{"b":12345678901234567890},6,7,[8],"nine"]"#)
    );
    let lines = weir.run(&["read", "events", "--json-lines", "--quiet"]).await.ok();
    let expected = "1\n2.50\n{\"a\": [1]}\n3\n[4]\n5\n{ \"b\": 12345678901234567890 }\n6\n7\n[8]\n\"nine\"\n";
    assert_eq!(lines, expected);
    weir.run(&["close", "events"]).await.ok();
    let last = weir.run(&["tail", "events", "-n", "2", "--quiet"]).await.ok();
    assert_eq!(last, "[8]\n\"nine\"\n");
    let none = weir.run(&["create", "empty", "--content-type", json]).await;
    assert_eq!(none.code, Some(0));
    assert_eq!(weir.run(&["read", "empty", "--quiet"]).await.ok(), "[]\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_goes_its_own_way() {
    let (_scratch, _node, weir) = node().await;
    weir.run(&["create", "main", "--content-type", "text/plain", "--data", "abcdef"]).await.ok();
    let forked = weir.run(&["fork", "main", "try"]).await.ok();
    assert_eq!(forked, format!("forked try (text/plain); next offset {}\n", at(6)));
    let forked =
        weir.run(&["fork", "main", "early", "--offset", &at(2), "--sub-offset", "1", "--json"]).await.ok();
    assert_eq!(parsed(&forked)["nextOffset"], at(3));
    weir.run(&["append", "try", "X"]).await.ok();
    weir.run(&["append", "main", "g"]).await.ok();
    for (name, holds) in [("main", "abcdefg"), ("try", "abcdefX"), ("early", "abc")] {
        assert_eq!(weir.run(&["read", name, "--quiet"]).await.ok(), holds);
    }
    let missing = weir.run(&["fork", "nothing", "x"]).await;
    assert_eq!(missing.code, Some(7));
    assert!(missing.err.starts_with("weir: no such stream: nothing\n"), "{}", missing.err);
    let beyond = weir.run(&["fork", "main", "x", "--offset", &at(9)]).await;
    assert_eq!(beyond.code, Some(8), "{}", beyond.err);
    let stream = weir.run(&["admin", "stream", "main"]).await.ok();
    assert!(stream.contains("forks           2\n"), "{stream}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_may_end_by_themselves() {
    let (_scratch, _node, weir) = node().await;
    weir.run(&["create", "idle", "--ttl", "2h"]).await.ok();
    weir.run(&["create", "dated", "--expires-at", "2999-01-01T00:00:00Z"]).await.ok();
    weir.run(&["create", "past", "--ttl", "0"]).await.ok();
    let head = weir.run(&["head", "idle"]).await.ok();
    assert!(head.ends_with("time to live  7200 s\n"), "{head}");
    let head = parsed(&weir.run(&["head", "dated", "--json"]).await.ok());
    assert!(head["expiresAt"].as_str().unwrap().starts_with("2999-01-01T00:00:00"), "{head}");
    let listed = weir.run(&["ls", "--json"]).await.ok();
    let names: Vec<Value> = listed.lines().map(|l| parsed(l)["name"].clone()).collect();
    assert_eq!(names, ["dated", "idle"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_paged_and_made_of_what_is_there() {
    let (_scratch, mut node, weir) = node().await;
    assert_eq!(weir.run(&["ls"]).await.ok(), "");
    for name in ["job/2", "job/10", "other", "job é"] {
        weir.run(&["create", name, "--content-type", "text/plain", "--data", "x"]).await.ok();
    }
    weir.run(&["rm", "other"]).await.ok();
    weir.run(&["close", "job/2"]).await.ok();
    let (one, job) = (at(1), "text/plain    ");
    let table = format!(
        "NAME    CONTENT TYPE  NEXT OFFSET           CLOSED\njob é   {job}{one}  no\njob/10  {job}{one}  no\njob/2   {job}{one}  yes\n"
    );
    assert_eq!(weir.run(&["ls"]).await.ok(), table);
    let lines = weir.run(&["ls", "job/", "--json"]).await.ok();
    let lines: Vec<Value> = lines.lines().map(parsed).collect();
    assert_eq!(
        lines[0],
        json!({"name": "job/10", "contentType": "text/plain", "nextOffset": one, "closed": false})
    );
    assert_eq!((lines.len(), &lines[1]["closed"]), (2, &json!(true)));
    let first = weir.run(&["ls", "job", "--limit", "1", "--json"]).await.ok();
    assert_eq!(parsed(&first)["name"], "job é");
    let rest = weir.run(&["ls", "job", "--after", "job é", "--json"]).await.ok();
    assert_eq!(rest.lines().count(), 2);

    // The route itself.
    let client = node.client().await.unwrap();
    let get = async |target: &str| client.send(http::Method::GET, target, &[], "".into()).await.unwrap();
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = get(&format!("/v1/streams?prefix=job&limit=1{after}")).await;
        assert_eq!((page.status, page.header("access-control-allow-origin")), (200, Some("*")));
        assert_eq!(
            (page.header("content-type"), page.header("cache-control")),
            (Some("application/json"), Some("no-store"))
        );
        let page: Value = serde_json::from_slice(&page.body).unwrap();
        seen.extend(
            page["streams"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else { break };
        after = format!(
            "&after={}",
            percent_encoding::utf8_percent_encode(next, percent_encoding::NON_ALPHANUMERIC)
        );
    }
    assert_eq!(seen, ["job é", "job/10", "job/2"]);
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("prefix=%zz", "prefix"),
        ("after=a&after=b", "after"),
    ] {
        let refused = get(&format!("/v1/streams?{query}")).await;
        let problem: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!((refused.status, &problem["field"]), (400, &json!(field)), "{query}");
    }
    let wrong = client.send(http::Method::PUT, "/v1/streams", &[], "".into()).await.unwrap();
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    let head = client.send(http::Method::HEAD, "/v1/streams", &[], "".into()).await.unwrap();
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_was_born_before_a_crash_is_listed_after_it() {
    let scratch = Scratch::new();
    let setup = Setup::new(scratch.path("data"));
    let mut node = setup.start().await.unwrap();
    let weir = Weir::new(&node.addresses().await.unwrap().client);
    weir.run(&["create", "born", "--data", "x"]).await.ok();
    node.kill();
    let mut node = setup.start().await.unwrap();
    let weir = Weir::new(&node.addresses().await.unwrap().client);
    let listed = weir.run(&["ls", "--json"]).await.ok();
    assert_eq!(parsed(&listed)["name"], "born");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_commands_show_the_cluster_and_set_weights() {
    let (_scratch, mut node, weir) = node().await;
    weir.run(&["create", "notes", "--data", "hello"]).await.ok();
    let cluster = weir.run(&["admin", "cluster"]).await.ok();
    for part in [
        "nodes           1 of 1 alive; configured for 1\n",
        "streams         1, 1 open\n",
        "recoveries      none\n",
    ] {
        assert!(cluster.contains(part), "{part} in {cluster}");
    }
    let set = weir.run(&["admin", "slots", "node-0", "3"]).await.ok();
    assert_eq!(set, "node-0: 3 slots; 1 stream assigned\n");
    let nodes = weir.run(&["admin", "nodes"]).await.ok();
    let row: Vec<&str> = nodes.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..5], ["node-0", "alive", "3", "1", "1"], "{nodes}");
    let stream = weir.run(&["admin", "stream", "notes"]).await.ok();
    assert!(stream.contains("owner           open at node-0, node epoch "), "{stream}");
    assert!(stream.contains(&format!("durable to      {} (", at(5))), "{stream}");

    let admin = node.admin().await.unwrap();
    let raw = admin.get_text("/admin/nodes").await.unwrap();
    // But for what is of the moment: how long ago a heartbeat came, how far behind the log is.
    let lasting = |text: &str| {
        let mut nodes = parsed(text);
        let node = nodes["nodes"][0].as_object_mut().unwrap();
        node.retain(|field, _| !["silentMs", "logLag"].contains(&field.as_str()));
        nodes
    };
    assert_eq!(lasting(&weir.run(&["admin", "nodes", "--json"]).await.ok()), lasting(&raw));
    assert_eq!(parsed(&weir.run(&["admin", "cluster", "--json"]).await.ok())["streams"], 1);
    let epoch = parsed(&raw)["nodes"][0]["epoch"].as_u64().unwrap();
    let wrong_epoch =
        format!("weir: epoch: node node-0 is registered at epoch {epoch}: only that one can be fenced");
    for (args, code, first) in [
        (&["admin", "stream", "nothing"][..], 7, "weir: no stream has the name \"nothing\""),
        (&["admin", "slots", "node-9", "1"], 7, "weir: no node node-9 has registered; these have: node-0"),
        (&["admin", "fence", "node-9"], 7, "weir: no node node-9 has registered; these have: node-0"),
        (&["admin", "fence", "node-0", "--epoch", "1"], 8, &wrong_epoch),
        (&["admin", "remove", "node-0"], 2, "weir: removing node-0 cannot be taken back"),
    ] {
        let refused = weir.run(args).await;
        assert_eq!((refused.code, refused.err.lines().next().unwrap()), (Some(code), first));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admin_listener_with_a_token_wants_it_from_a_file() {
    let scratch = Scratch::new();
    let token = scratch.path("token");
    std::fs::write(&token, "a-good-token-0123456789\n").unwrap();
    let setup = Setup::new(scratch.path("data")).flag("admin-token-file", token.display());
    let mut node = setup.spawn().unwrap();
    let addresses = node.addresses().await.unwrap();
    let mut weir = Weir::new(&addresses.client);
    weir.admin = format!("http://{}", addresses.admin);
    let denied = weir.run(&["admin", "nodes"]).await;
    assert_eq!(denied.code, Some(12));
    assert!(denied.err.ends_with("--token-file or WEIR_ADMIN_TOKEN_FILE\n"), "{}", denied.err);
    let nodes = weir.run(&["admin", "nodes", "--json", "--token-file", token.to_str().unwrap()]).await.ok();
    assert_eq!(parsed(&nodes)["nodes"].as_array().unwrap().len(), 1);
    let other = scratch.path("other");
    std::fs::write(&other, "another-token-0123456789\n").unwrap();
    let denied = weir.run(&["admin", "nodes", "--token-file", other.to_str().unwrap()]).await;
    assert_eq!(denied.code, Some(12), "{}", denied.err);
}
