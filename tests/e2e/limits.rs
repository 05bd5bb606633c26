//! Limits of the service: said with their number, and nothing else is harmed.

use http::Method;
use weir_tests::client::Client;
use weir_tests::files::Scratch;
use weir_tests::node::{PATIENCE, Setup};
use weir_tests::wait;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_streams_are_created_than_allowed() {
    let scratch = Scratch::new();
    let mut node = Setup::new(scratch.path("data")).flag("max-streams", "2").start().await.unwrap();
    let client = Client::new(&node.addresses().await.unwrap().client, PATIENCE);
    let ask = async |method: Method, name: &str| {
        let target = format!("/v1/stream/{name}");
        let answer =
            client.send(method, &target, &[("content-type", "text/plain")], "".into()).await.unwrap();
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    };
    assert_eq!(ask(Method::PUT, "a").await.0, 201);
    assert_eq!(ask(Method::PUT, "b").await.0, 201);
    let (status, why) = ask(Method::PUT, "c").await;
    assert_eq!(status, 429, "{why}");
    assert!(why.contains("there are 2 streams"), "{why}");
    assert_eq!(ask(Method::PUT, "a").await.0, 200);
    assert_eq!(ask(Method::DELETE, "a").await.0, 204);
    assert_eq!(ask(Method::PUT, "c").await.0, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_open_streams_are_503_until_others_are_released_early() {
    let scratch = Scratch::new();
    // Nothing is released, and no segment is due, by time.
    let setup = Setup::new(scratch.path("data"))
        .flag("max-open-streams", "2")
        .flag("idle-release", "1h")
        .flag("segment-age", "1h");
    let mut node = setup.start().await.unwrap();
    let client = node.client().await.unwrap();
    let headers = [("content-type", "text/plain")];
    let append = async |name: &str| {
        let target = format!("/v1/stream/{name}");
        client.send(Method::POST, &target, &headers, name.to_owned().into()).await.unwrap()
    };
    for name in ["a", "b", "c"] {
        let put = client.send(Method::PUT, &format!("/v1/stream/{name}"), &headers, "".into()).await.unwrap();
        assert_eq!(put.status, 201, "what is not open is not bounded");
    }
    assert_eq!((append("a").await.status, append("b").await.status), (204, 204));
    let refused = append("c").await;
    let why = String::from_utf8_lossy(&refused.body).into_owned();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{why}");
    assert!(why.contains("2 streams are open here, which is the limit"), "{why}");
    let open = append("b").await;
    assert_eq!(open.status, 204, "what is open is served");
    let taken = || async { Ok((append("c").await.status == 204).then_some(())) };
    wait::until("a place", PATIENCE, taken).await.unwrap();
    for (name, content) in [("a", "a"), ("b", "bb"), ("c", "c")] {
        assert_eq!(client.get_text(&format!("/v1/stream/{name}?offset=-1")).await.unwrap(), content);
    }
}
