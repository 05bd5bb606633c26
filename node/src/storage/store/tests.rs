//! The store: conditional puts, deadlines, what is repeated and what is not.

use std::sync::Arc;

use super::*;
use crate::storage::faults::{Fault, FaultStore};

fn faulty() -> (Arc<FaultStore>, Store) {
    over(FaultStore::new())
}

/// For tests that stop the clock.
fn faulty_in_memory() -> (Arc<FaultStore>, Store) {
    over(FaultStore::in_memory())
}

fn over(faults: Arc<FaultStore>) -> (Arc<FaultStore>, Store) {
    let store = Store::over(faults.clone(), "/a/b/");
    (faults, store)
}

#[tokio::test]
async fn keys_live_under_the_prefix_and_are_listed_without_it() {
    let (_, store) = faulty();
    store.put_if_absent("x/1", Bytes::from_static(b"one")).await.unwrap();
    store.put_if_absent("x/2", Bytes::from_static(b"four")).await.unwrap();
    store.put_if_absent("y", Bytes::new()).await.unwrap();
    let mut listed = store.list("x", 10).await.unwrap();
    listed.sort_by(|a, b| a.key.cmp(&b.key));
    let want = [("x/1", 3), ("x/2", 4)].map(|(k, bytes)| Listed { key: k.to_owned(), bytes });
    assert_eq!(listed, want);
    assert_eq!(store.list("x", 1).await.unwrap().len(), 1);
    assert_eq!(store.get("x/1").await.unwrap(), Some(Bytes::from_static(b"one")));
    assert_eq!(store.get("x/3").await.unwrap(), None);
    assert_eq!(store.get_ranges("x/3", &[0..1, 5..6]).await.unwrap(), None);
    store.delete("x/1").await.unwrap();
    store.delete("x/1").await.unwrap();
    assert_eq!(store.get("x/1").await.unwrap(), None);
}

#[tokio::test]
async fn the_second_put_of_a_key_finds_it_taken() {
    let (_, store) = faulty();
    assert_eq!(store.put_if_absent("k", Bytes::from_static(b"1")).await.unwrap(), Put::Stored);
    assert_eq!(store.put_if_absent("k", Bytes::from_static(b"2")).await.unwrap(), Put::Exists);
    assert_eq!(store.get("k").await.unwrap(), Some(Bytes::from_static(b"1")));
}

#[tokio::test(start_paused = true)]
async fn a_put_that_hangs_ends_at_its_deadline_and_is_not_repeated() {
    let (faults, store) = faulty_in_memory();
    faults.on_put("k", Fault::HangBefore);
    let error = store.put_if_absent("k", Bytes::new()).await.unwrap_err();
    assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
    assert_eq!(error.to_string(), "put k: no answer within 10 s");
    faults.on_put("k", Fault::FailBefore);
    store.put_if_absent("k", Bytes::new()).await.unwrap_err();
    assert_eq!(faults.counts().puts, 2);
}

#[tokio::test(start_paused = true)]
async fn reads_are_tried_again_a_few_times() {
    let (faults, store) = faulty_in_memory();
    store.put_if_absent("k", Bytes::from_static(b"1")).await.unwrap();
    faults.fail_gets("k", 3);
    assert_eq!(store.get("k").await.unwrap(), Some(Bytes::from_static(b"1")));
    faults.fail_gets("k", 4);
    let error = store.get("k").await.unwrap_err();
    assert!(error.to_string().contains("injected: read failed"), "{error}");
}

#[tokio::test]
async fn half_a_credential_is_refused() {
    let url = "s3://bucket".parse().unwrap();
    let env = S3Env { access_key_id: Some("id".into()), ..S3Env::default() };
    assert!(matches!(Store::open(&url, env), Err(StoreError::Config(_))));
}

#[tokio::test]
async fn an_s3_bucket_opens_without_touching_the_network() {
    let url = "s3://bucket/prefix".parse().unwrap();
    let env = S3Env {
        endpoint: Some("http://127.0.0.1:9".into()),
        region: Some("eu-central-1".into()),
        access_key_id: Some("id".into()),
        secret_access_key: Some("secret".into()),
        session_token: None,
        more: vec![("AWS_PROFILE".into(), "x".into())],
    };
    assert!(Store::open(&url, env).unwrap().local_dir().is_none());
}

/// Twice the same trouble is the same text, with what the server said and nothing of the request.
#[test]
fn a_servers_error_is_its_code_and_message() {
    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);
    impl std::fmt::Display for Layer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }
    impl std::error::Error for Layer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }
    let said = "Server returned non-2xx status code: 404 Not Found: <?xml version=\"1.0\"?>\n<Error><Code>NoSuchBucket</Code>\
                <Message>The specified bucket does not exist.</Message><RequestId>17F0</RequestId></Error>";
    let request =
        Layer("Error performing PUT http://s3:7070/b/probe/1f in 3.1ms - …", Some(Layer(said, None).into()));
    let error = Layer("Generic S3 error: Error performing PUT …", Some(request.into()));
    let want = "http://s3:7070: Server returned non-2xx status code: 404 Not Found: NoSuchBucket: The specified bucket does not exist.";
    assert_eq!(text(&error), want);
    let local = Layer("Unable to open /data/x", Some(Layer("No such file (os error 2)", None).into()));
    assert_eq!(text(&local), "Unable to open /data/x: No such file (os error 2)");
    let page = Layer("502 Bad Gateway: <html>\n<Code></html>", None);
    assert_eq!(text(&page), "502 Bad Gateway: <html> <Code></html>");
}

/// The wrapping that `text` knows is the library's: a refused connection, whose port and duration differ each time.
#[tokio::test]
async fn the_same_trouble_with_a_server_reads_the_same() {
    let url = "s3://bucket/prefix".parse().unwrap();
    let env = S3Env {
        endpoint: Some("http://127.0.0.1:9".into()),
        region: Some("eu-central-1".into()),
        access_key_id: Some("id".into()),
        secret_access_key: Some("secret".into()),
        session_token: None,
        more: Vec::new(),
    };
    let store = Store::open(&url, env).unwrap();
    let once = store.put_if_absent("k", Bytes::new()).await.unwrap_err().to_string();
    assert_eq!(store.put_if_absent("k", Bytes::new()).await.unwrap_err().to_string(), once);
    assert!(once.starts_with("put k: http://127.0.0.1:9: ") && !once.contains("performing"), "{once}");
}
