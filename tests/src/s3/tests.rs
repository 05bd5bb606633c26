//! The fake bucket keeps the promises of a real one, and breaks exactly what it is told to.

use std::time::Duration;

use http::Method;

use super::{FakeS3, FaultProxy, Faults, Outage};
use crate::client::{Answer, Client, Failure};
use crate::node::PATIENCE;

struct Bucket {
    fake: FakeS3,
    client: Client,
}

impl Bucket {
    async fn new() -> Self {
        let fake = FakeS3::start(7).await;
        let client = Client::new(&fake.address(), Duration::from_secs(5));
        Self { fake, client }
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        header: (&str, &str),
        body: &str,
    ) -> Result<Answer, Failure> {
        self.client.send(method, &format!("/weir{target}"), &[header], body.to_owned().into()).await
    }

    async fn put_if_absent(&self, key: &str, body: &str) -> u16 {
        self.send(Method::PUT, key, ("if-none-match", "*"), body).await.unwrap().status
    }
}

#[tokio::test]
async fn put_if_absent_stores_once() {
    let b = Bucket::new().await;
    assert_eq!(b.put_if_absent("/a/1", "one").await, 200);
    assert_eq!(b.put_if_absent("/a/1", "two").await, 412);
    assert_eq!(b.fake.get("a/1").unwrap(), "one");
    b.fake.set(Faults { overwrites: true, ..Faults::default() });
    assert_eq!(b.put_if_absent("/a/1", "two").await, 200);
    assert_eq!(b.fake.get("a/1").unwrap(), "two");
}

#[tokio::test]
async fn ranges_and_lists_are_exact() {
    let b = Bucket::new().await;
    for key in ["a/1", "a/2", "a/b/3", "c"] {
        b.fake.put(key, "0123456789".into());
    }
    let read = async |range| {
        let answer = b.send(Method::GET, "/a/1", ("range", range), "").await.unwrap();
        (answer.status, String::from_utf8(answer.body.to_vec()).unwrap())
    };
    assert_eq!(read("bytes=2-4").await, (206, "234".to_owned()));
    assert_eq!(read("bytes=8-").await, (206, "89".to_owned()));
    assert_eq!(read("bytes=-3").await, (206, "789".to_owned()));
    assert_eq!(read("bytes=20-30").await.0, 416);
    let list = b.send(Method::GET, "?list-type=2&prefix=a%2F&delimiter=%2F", ("x-x", ""), "").await.unwrap();
    let xml = String::from_utf8(list.body.to_vec()).unwrap();
    assert_eq!(xml.matches("<Key>").count(), 2, "{xml}");
    assert!(xml.contains("<Prefix>a/b/</Prefix>"), "{xml}");
    let first = b.send(Method::GET, "?list-type=2&max-keys=1", ("x-x", ""), "").await.unwrap();
    let xml = String::from_utf8(first.body.to_vec()).unwrap();
    assert!(xml.contains("<NextContinuationToken>a/1<"), "{xml}");
}

#[tokio::test]
async fn each_fault_does_what_it_says() {
    let b = Bucket::new().await;
    b.fake.set(Faults { failed: 1000, ..Faults::default() });
    assert_eq!(b.put_if_absent("/failed", "x").await, 500);
    assert_eq!(b.fake.get("failed"), None);
    b.fake.set(Faults { ambiguous: 1000, ..Faults::default() });
    let answer = b.send(Method::PUT, "/ambiguous", ("if-none-match", "*"), "x").await;
    assert!(answer.is_err() || answer.is_ok_and(|a| a.status == 500));
    assert!(b.fake.get("ambiguous").is_some());
    b.fake.set(Faults { conflict: 1000, ..Faults::default() });
    assert_eq!(b.put_if_absent("/conflict", "x").await, 409);
    b.fake.set(Faults { late: 1000, ..Faults::default() });
    assert_eq!(b.put_if_absent("/late", "x").await, 500);
    let stored = || async { Ok(b.fake.get("late")) };
    crate::wait::until("the late put", PATIENCE, stored).await.unwrap();
    b.fake.set(Faults { outage: Some(Outage::Errors), ..Faults::default() });
    assert_eq!(b.put_if_absent("/outage", "x").await, 503);
    b.fake.set(Faults { outage: Some(Outage::Cuts), ..Faults::default() });
    let cut = b.send(Method::GET, "/late", ("x-x", ""), "").await;
    assert!(matches!(cut, Err(Failure::Cut(_))), "{cut:?}");
}

/// The proxy's faults, seen against a bucket that has none of its own.
#[tokio::test]
async fn the_proxy_breaks_what_it_is_told_to_and_passes_the_rest_on_whole() {
    let fake = FakeS3::start(7).await;
    let proxy = FaultProxy::start(fake.address().parse().unwrap(), 7).await;
    let client = Client::new(&proxy.address().to_string(), PATIENCE);
    let put = async |key: &str| {
        let target = format!("/weir/{key}");
        client.send(Method::PUT, &target, &[("if-none-match", "*")], format!("content of {key}").into()).await
    };
    let read = async || client.send(Method::GET, "/weir/fine", &[], "".into()).await;
    assert_eq!(put("fine").await.unwrap().status, 200);
    assert_eq!(put("fine").await.unwrap().status, 412);
    assert_eq!(read().await.unwrap().body, "content of fine");

    proxy.set(Faults { failed: 1000, ..Faults::default() });
    for n in 0..10 {
        let answer = put(&format!("failed-{n}")).await;
        assert!(matches!(&answer, Err(Failure::Cut(_)) | Ok(Answer { status: 503, .. })), "{answer:?}");
    }
    proxy.set(Faults { ambiguous: 1000, ..Faults::default() });
    for n in 0..10 {
        let answer = put(&format!("lost-{n}")).await;
        assert!(matches!(&answer, Err(Failure::Cut(_)) | Ok(Answer { status: 500, .. })), "{answer:?}");
        assert!(fake.get(&format!("lost-{n}")).is_some(), "only its reply was lost");
    }
    proxy.set(Faults { conflict: 1000, ..Faults::default() });
    assert_eq!(put("conflict").await.unwrap().status, 409);
    proxy.set(Faults { late: 1000, ..Faults::default() });
    assert_eq!(put("late").await.unwrap().status, 500);
    proxy.land_late().await;
    assert_eq!(fake.keys().len(), 1 + 10 + 1, "what was refused never came: {:?}", fake.keys());

    proxy.set(Faults { reads: 1000, ..Faults::default() });
    for _ in 0..10 {
        let answer = read().await;
        let broken = matches!(&answer, Err(Failure::Cut(_)) | Ok(Answer { status: 500 | 503, .. }));
        assert!(broken, "{answer:?}");
    }
    proxy.set(Faults { outage: Some(Outage::Cuts), ..Faults::default() });
    assert!(matches!(read().await, Err(Failure::Cut(_))));
    proxy.set(Faults::default());
    assert_eq!(read().await.unwrap().body, "content of fine");
}
