//! Limits of the service: said with their number, and nothing else is harmed.

use http::Method;
use weir_tests::client::Client;
use weir_tests::files::Scratch;
use weir_tests::node::{PATIENCE, Setup};

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
