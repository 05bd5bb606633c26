//! Conflicting framing: two lengths, or a length and chunks, end the connection and reach no stream.

use http::Method;
use weir_tests::files::Scratch;
use weir_tests::node::{PATIENCE, Setup};
use weir_tests::raw;

/// What follows each conflicting head: were it read as a request, a stream would appear.
const SMUGGLED: &str = "PUT /v1/stream/smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";

const CONFLICTS: &[(&str, &str)] = &[
    ("two lengths", "Content-Length: 4\r\nContent-Length: 0\r\n\r\n"),
    ("two equal lengths", "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd"),
    ("a list of lengths", "Content-Length: 4, 4\r\n\r\nabcd"),
    ("length and chunked", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("chunked and length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    ("a negative length", "Content-Length: -4\r\n\r\n"),
    ("a signed length", "Content-Length: +4\r\n\r\nabcd"),
    ("no number", "Content-Length: four\r\n\r\n"),
    ("a huge length", "Content-Length: 99999999999999999999\r\n\r\n"),
    ("another coding", "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("chunked misspelt", "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("chunked with a blank before the colon", "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicting_framing_closes_the_connection() {
    let scratch = Scratch::new();
    let mut node = Setup::new(scratch.path("data")).start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    let client = node.client().await.unwrap();
    client.send(Method::PUT, "/v1/stream/framed", &[], "".into()).await.unwrap();
    let mut wrong = Vec::new();
    for (what, rest) in CONFLICTS {
        let head = "POST /v1/stream/framed HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n";
        let request = format!("{head}{rest}{SMUGGLED}");
        match raw::until_closed(&address, request.as_bytes(), PATIENCE).await {
            // Closing without a word is fine; an answer must be one refusal.
            Ok(answer) if answer.is_empty() => {}
            Ok(answer) if answer.starts_with("HTTP/1.1 4") && answer.matches("HTTP/1.1 ").count() == 1 => {}
            Ok(answer) => wrong.push(format!("{what}: {answer:?}")),
            Err(e) => wrong.push(format!("{what}: {e:#}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let smuggled = client.send(Method::HEAD, "/v1/stream/smuggled", &[], "".into()).await.unwrap();
    assert_eq!(smuggled.status, 404);
    let framed = client.send(Method::HEAD, "/v1/stream/framed", &[], "".into()).await.unwrap();
    assert_eq!(framed.next(), Some(0), "a body of unclear length was appended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunked_body_is_appended_whole() {
    let scratch = Scratch::new();
    let mut node = Setup::new(scratch.path("data")).start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    let client = node.client().await.unwrap();
    client.send(Method::PUT, "/v1/stream/chunked", &[], "".into()).await.unwrap();
    let head = "POST /v1/stream/chunked HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n\
                Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let whole = format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    let answer = raw::until_closed(&address, whole.as_bytes(), PATIENCE).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    for broken in ["3\r\nabcd\r\n0\r\n\r\n", "x\r\nabc\r\n0\r\n\r\n", "ffffffffffffffffff\r\nabc"] {
        let request = format!("{head}{broken}");
        let answer = raw::until_closed(&address, request.as_bytes(), PATIENCE).await.unwrap();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{broken:?}: {answer}");
    }
    let read = client.send(Method::GET, "/v1/stream/chunked", &[], "".into()).await.unwrap();
    assert_eq!(&read.body[..], b"abcde");
}

/// Heads that are wrong by themselves: the status, and what the answer says if it is ours and not the HTTP library's.
const MALFORMED: &[(&str, &str, u16, &str)] = &[
    ("no host", "GET /v1/stream/framed HTTP/1.1\r\nConnection: close\r\n\r\n", 400, r#""field":"Host""#),
    (
        "two hosts",
        "GET /v1/stream/framed HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
        400,
        r#""field":"Host""#,
    ),
    ("no version", "GET /v1/stream/framed\r\n\r\n", 400, ""),
    ("an unknown version", "GET /v1/stream/framed HTTP/3.0\r\nHost: x\r\n\r\n", 400, ""),
    ("no method", " /v1/stream/framed HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""),
    ("a method that is no token", "G(T /v1/stream/framed HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""),
    ("a blank in the target", "GET /v1/stream/a b HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""),
    ("a field without a colon", "GET /v1/stream/framed HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", 400, ""),
    ("a field without a name", "GET /v1/stream/framed HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n", 400, ""),
    ("a blank in a field's name", "GET /v1/stream/framed HTTP/1.1\r\nHost: x\r\na b: y\r\n\r\n", 400, ""),
    ("a folded field", "GET /v1/stream/framed HTTP/1.1\r\nHost: x\r\nA: y\r\n z\r\n\r\n", 400, ""),
    ("a NUL in a field", "GET /v1/stream/framed HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n", 400, ""),
    ("the greeting of TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", 400, ""),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_heads_get_one_refusal_and_the_connection_ends() {
    let scratch = Scratch::new();
    let mut node = Setup::new(scratch.path("data")).start().await.unwrap();
    let address = node.addresses().await.unwrap().client;
    let large = format!("GET /v1/stream/framed HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "x".repeat(100 << 10));
    let rows = MALFORMED.iter().copied().chain([("a huge field", large.as_str(), 431, "")]);
    let mut wrong = Vec::new();
    for (what, request, status, says) in rows {
        let answer = raw::until_closed(&address, request.as_bytes(), PATIENCE).await;
        let right = answer.as_ref().is_ok_and(|a| {
            let once = a.matches("HTTP/1.1 4").count() == 1;
            a.starts_with(&format!("HTTP/1.1 {status} ")) && once && a.contains(says)
        });
        if !right {
            wrong.push(format!("{what}: {answer:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(node.try_exit().unwrap().is_none(), "the node ended");
}
