//! Forks, as far as one request after the other does not show them. (The tables of requests are end-to-end tests.)

use super::*;

const TEXT: &str = "Content-Type: text/plain";
const JSON: &str = "Content-Type: application/json";
const FROM: &str = "Stream-Forked-From: /v1/stream/source";

#[tokio::test]
async fn who_waits_at_a_forks_tail_hears_of_the_forks_records_only() {
    let node = Node::start(|limits| limits.long_poll = PATIENCE).await;
    node.ask("PUT", "/v1/stream/source", &[TEXT], "one").await;
    assert_eq!(node.ask("PUT", "/v1/stream/fork", &[FROM], "").await.status, 201);
    let poll = "/v1/stream/fork?live=long-poll&offset=00000000000000000003";
    let (waited, ()) = tokio::join!(node.ask("GET", poll, &[], ""), async {
        assert_eq!(node.ask("POST", "/v1/stream/source", &[TEXT], "source").await.status, 204);
        assert_eq!(node.ask("POST", "/v1/stream/fork", &[TEXT], "fork").await.status, 204);
    });
    assert_eq!((waited.status, waited.body.as_str()), (200, "fork"));
    let inherited = node.ask("GET", "/v1/stream/fork?live=long-poll&offset=-1", &[], "").await;
    assert_eq!(inherited.body, "onefork");
    node.stop().await;
}

#[tokio::test]
async fn many_forks_at_once_of_one_source_all_begin_with_its_records() {
    let node = Node::start(|_| {}).await;
    node.ask("PUT", "/v1/stream/source", &[JSON], "[1,2]").await;
    node.ask("POST", "/v1/stream/source", &[JSON], "3").await;
    let fork = async |n: u32| {
        let path = format!("/v1/stream/fork-{n}");
        // Every other one brings something of its own.
        let body = if n.is_multiple_of(2) { format!("[{}]", 100 + n) } else { String::new() };
        let created = node.ask("PUT", &path, &[FROM], &body).await;
        let own = if body.is_empty() { String::new() } else { format!(",{}", 100 + n) };
        assert_eq!((created.status, created.get("content-type")), (201, Some("application/json")));
        assert_eq!(node.ask("GET", &path, &[], "").await.body, format!("[1,2,3{own}]"));
    };
    tokio::join!(fork(0), fork(1), fork(2), fork(3), fork(4), fork(5), fork(6), fork(7), fork(8), fork(9));
    node.stop().await;
}

#[tokio::test]
async fn forking_while_the_source_is_written_takes_a_prefix_of_it() {
    let node = Node::start(|_| {}).await;
    node.ask("PUT", "/v1/stream/source", &[TEXT], "").await;
    let write = async {
        for n in 0..200 {
            assert_eq!(node.ask("POST", "/v1/stream/source", &[TEXT], &format!("{n};")).await.status, 204);
        }
    };
    let fork = async {
        let mut forks = Vec::new();
        for n in 0..20 {
            let path = format!("/v1/stream/fork-{n}");
            assert_eq!(node.ask("PUT", &path, &[FROM], "").await.status, 201);
            let read = node.ask("GET", &path, &[], "").await;
            assert_eq!(read.get("stream-up-to-date"), Some("true"));
            forks.push((path, read.body));
        }
        forks
    };
    let ((), forks) = tokio::join!(write, fork);
    let source = node.ask("GET", "/v1/stream/source", &[], "").await.body;
    assert_eq!(source, (0..200).map(|n| format!("{n};")).collect::<String>(), "nothing of it moved");
    for (path, first) in forks {
        assert!(source.starts_with(&first), "{path} is no prefix: {first}");
        assert_eq!(node.ask("POST", &path, &[TEXT], "own").await.status, 204);
        assert_eq!(node.ask("GET", &path, &[], "").await.body, format!("{first}own"));
    }
    node.stop().await;
}
