//! The client against servers that misbehave, over real sockets: each test scripts what the server does with one
//! connection after another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::streams::{Append, Live, NewStream, Stamp};
use super::*;
use crate::clock::Clock;
use crate::net::{self, TcpListener, TcpStream};
use crate::streams::StreamName;
use crate::tasks::Tasks;

/// What the server does with a request.
#[derive(Clone)]
enum Does {
    /// Answers so.
    Says(String),
    /// Reads it and closes the connection.
    Cuts,
    /// Sends the head and a part of the body, then closes.
    Breaks(&'static str),
}

/// A scripted server: step *n* of the script is for request *n*, the last step for all that follow.
struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    tasks: Tasks,
}

impl Server {
    async fn new(script: Vec<Does>) -> Self {
        let tasks = Tasks::default();
        let listener = net::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        tasks.spawn(accept(listener, script, seen.clone(), tasks.clone()));
        Self { address, seen, tasks }
    }

    fn client(&self, patience: Duration) -> Client {
        let origin = format!("http://{}", self.address).parse().unwrap();
        Client::new(origin, patience, self.tasks.clone(), Clock::default())
    }

    /// First lines of what came.
    fn asked(&self) -> Vec<String> {
        self.seen.lock().iter().map(|r| r.lines().next().unwrap_or_default().to_owned()).collect()
    }
}

async fn accept(listener: TcpListener, script: Vec<Does>, seen: Arc<Mutex<Vec<String>>>, tasks: Tasks) {
    while let Ok((stream, _)) = listener.accept().await {
        let (script, seen) = (script.clone(), seen.clone());
        tasks.spawn(async move {
            drop(talk(stream, &script, &seen).await);
        });
    }
}

async fn talk(mut stream: TcpStream, script: &[Does], seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    loop {
        let request = request(&mut stream).await?;
        let step = {
            let mut seen = seen.lock();
            seen.push(request);
            script[(seen.len() - 1).min(script.len() - 1)].clone()
        };
        match step {
            Does::Says(text) => stream.write_all(text.as_bytes()).await?,
            Does::Cuts => return Ok(()),
            Does::Breaks(text) => return stream.write_all(text.as_bytes()).await,
        }
    }
}

async fn request(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(text).unwrap();
    let length =
        head.lines().find_map(|l| l.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(head + std::str::from_utf8(&body).unwrap())
}

fn says(status: u16, fields: &str, body: &str) -> Does {
    let length = if status == 204 { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    Does::Says(format!("HTTP/1.1 {status} X\r\n{fields}{length}\r\n{body}"))
}

fn to(server: &Server) -> Does {
    says(307, &format!("location: http://{}/v1/stream/x?weir-hop=7.1\r\n", server.address), "")
}

fn x() -> StreamName {
    "x".parse().unwrap()
}

fn append(stamp: Option<Stamp>) -> Append {
    Append { content_type: "text/plain".into(), data: "hello".into(), stamp, seq: None }
}

fn stamp() -> Option<Stamp> {
    Some(Stamp { id: "p".into(), epoch: 1, seq: 7 })
}

const PATIENCE: Duration = Duration::from_secs(20);
const NEXT: &str = "stream-next-offset: 00000000000000000005\r\n";

#[tokio::test]
async fn a_redirect_is_followed_with_method_body_and_fields() {
    let owner = Server::new(vec![says(204, NEXT, "")]).await;
    let front = Server::new(vec![to(&owner)]).await;
    let done = front.client(PATIENCE).append(&x(), append(stamp())).await.unwrap();
    assert_eq!(done.next, "00000000000000000005");
    let seen = owner.seen.lock().clone();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].starts_with("POST /v1/stream/x?weir-hop=7.1 HTTP/1.1\r\n"), "{seen:?}");
    for part in ["producer-id: p\r\n", "producer-epoch: 1\r\n", "producer-seq: 7\r\n", "\r\n\r\nhello"] {
        assert!(seen[0].contains(part), "{part:?} in {seen:?}");
    }
    assert!(seen[0].contains(&format!("host: {}\r\n", owner.address)), "{seen:?}");
}

#[tokio::test]
async fn redirects_in_a_circle_end() {
    let circle = Server::new(vec![says(307, "location: /v1/stream/x\r\n", "")]).await;
    let failed = circle.client(PATIENCE).head(&x()).await.unwrap_err();
    assert!(matches!(&failed, Failure::Nonsense(why) if why.contains("more than 8 times")), "{failed:?}");
    assert_eq!(circle.asked().len(), 9);
}

#[tokio::test]
async fn what_the_server_did_not_take_is_sent_again_even_if_it_is_not_idempotent() {
    for status in [429, 503] {
        let busy = says(status, "retry-after: 0\r\n", "");
        let server = Server::new(vec![busy.clone(), busy, says(204, NEXT, "")]).await;
        server.client(PATIENCE).append(&x(), append(None)).await.unwrap();
        assert_eq!(server.asked().len(), 3, "{status}");
    }
}

#[tokio::test]
async fn retry_after_is_honoured_and_patience_bounds_it() {
    let server = Server::new(vec![says(503, "retry-after: 3600\r\n", r#"{"detail": "no owner"}"#)]).await;
    let failed = server.client(PATIENCE).append(&x(), append(None)).await.unwrap_err();
    assert!(matches!(&failed, Failure::Unavailable(why) if why.ends_with("503: no owner")), "{failed:?}");
    assert_eq!(server.asked().len(), 1, "an hour's wait is not begun");
}

#[tokio::test]
async fn an_append_of_unknown_outcome_is_sent_again_only_with_a_stamp() {
    for unknown in [Does::Cuts, says(504, "", ""), says(502, "", ""), says(500, "", "")] {
        let script = vec![unknown, says(204, NEXT, "")];
        let server = Server::new(script.clone()).await;
        let failed = server.client(PATIENCE).append(&x(), append(None)).await.unwrap_err();
        assert!(matches!(failed, Failure::Unknown(_)), "{failed:?}");
        assert_eq!(server.asked().len(), 1);
        let server = Server::new(script).await;
        let done = server.client(PATIENCE).append(&x(), append(stamp())).await.unwrap();
        assert!(done.duplicate);
        assert_eq!(server.asked().len(), 2);
    }
}

#[tokio::test]
async fn idempotent_requests_are_sent_again_after_a_cut() {
    let found = says(200, &format!("content-type: text/plain\r\n{NEXT}"), "");
    let server = Server::new(vec![Does::Cuts, says(503, "", ""), found.clone()]).await;
    assert_eq!(server.client(PATIENCE).head(&x()).await.unwrap().content_type, "text/plain");
    let server = Server::new(vec![Does::Cuts, found]).await;
    let (new, _) = server.client(PATIENCE).create(&x(), &NewStream::default()).await.unwrap();
    assert!(!new);
    let server = Server::new(vec![Does::Cuts, says(204, NEXT, "")]).await;
    server.client(PATIENCE).close(&x(), None).await.unwrap();
    assert_eq!(server.asked(), ["POST /v1/stream/x HTTP/1.1"; 2]);
}

#[tokio::test]
async fn gone_after_a_try_that_may_have_deleted_it_is_deleted() {
    let server = Server::new(vec![Does::Cuts, says(404, "", "")]).await;
    server.client(PATIENCE).delete(&x()).await.unwrap();
    let server = Server::new(vec![says(404, "", "")]).await;
    let failed = server.client(PATIENCE).delete(&x()).await.unwrap_err();
    assert!(matches!(failed, Failure::Refused(_)), "{failed:?}");
}

#[tokio::test]
async fn without_a_server_a_request_gives_up_as_unavailable() {
    let listener = net::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let client = Client::new(origin, Duration::from_millis(300), Tasks::default(), Clock::default());
    let failed = client.append(&x(), append(None)).await.unwrap_err();
    assert!(matches!(&failed, Failure::Unavailable(why) if why.contains("cannot connect to")), "{failed:?}");
}

#[tokio::test]
async fn a_refusal_is_final() {
    for status in [400, 403, 404, 409, 410, 413, 501] {
        let server = Server::new(vec![says(status, "", "")]).await;
        let failed = server.client(PATIENCE).append(&x(), append(stamp())).await.unwrap_err();
        assert!(matches!(&failed, Failure::Refused(r) if r.status.as_u16() == status), "{failed:?}");
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error_and_connections_are_used_again_after_whole_ones() {
    let head = format!("HTTP/1.1 200 X\r\n{NEXT}content-length: 10\r\n\r\nhello");
    let server = Server::new(vec![Does::Breaks(head.leak())]).await;
    let client = server.client(PATIENCE);
    let mut chunk = client.read(&x(), "-1", Live::LongPoll, Some("12")).await.unwrap();
    assert_eq!(chunk.body.next().await.unwrap().unwrap(), "hello");
    assert!(chunk.body.next().await.is_err());
    assert_eq!(server.asked(), ["GET /v1/stream/x?offset=-1&live=long-poll&cursor=12 HTTP/1.1"]);
    let server = Server::new(vec![says(200, NEXT, "hello")]).await;
    let client = server.client(PATIENCE);
    for _ in 0..3 {
        let chunk = client.read(&x(), "now", Live::No, None).await.unwrap();
        assert_eq!(chunk.body.whole(10).await.unwrap(), "hello");
    }
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn an_answer_that_is_not_of_the_protocol_is_told_so() {
    let server = Server::new(vec![says(200, "content-type: text/html\r\n", "<html>")]).await;
    let failed = server.client(PATIENCE).head(&x()).await.unwrap_err();
    assert!(matches!(&failed, Failure::Nonsense(why) if why.contains("is it a stream server")), "{failed:?}");
    let failed = server.client(PATIENCE).list("", None, 5).await.unwrap_err();
    assert!(matches!(failed, Failure::Nonsense(_)), "{failed:?}");
    let failed = server.client(PATIENCE).events(&x(), "now").await.unwrap_err();
    assert!(matches!(failed, Failure::Nonsense(_)), "{failed:?}");
}

#[tokio::test]
async fn the_admin_token_does_not_follow_a_redirect_to_another_origin() {
    let other = Server::new(vec![says(200, "", "{}")]).await;
    let front = Server::new(vec![
        says(307, "location: /admin/cluster?again\r\n", ""),
        says(307, &format!("location: http://{}/admin/cluster\r\n", other.address), ""),
    ])
    .await;
    let client = admin::AdminClient::new(front.client(PATIENCE), Some("secret")).unwrap();
    client.cluster().await.unwrap();
    assert!(front.seen.lock().iter().all(|r| r.contains("authorization: Bearer secret")));
    assert_eq!(other.asked(), ["GET /admin/cluster HTTP/1.1"]);
    assert!(!other.seen.lock()[0].contains("secret"));
    assert!(!format!("{client:?}").contains("secret"));
}

#[tokio::test]
async fn a_fork_names_its_source_by_path() {
    let server = Server::new(vec![says(201, NEXT, "")]).await;
    let fork = streams::ForkOf {
        source: "a b/c".parse().unwrap(),
        offset: Some("00000000000000000003".into()),
        sub_offset: Some(2),
    };
    let new = NewStream { fork: Some(fork), ttl_s: Some(60), closed: true, ..NewStream::default() };
    let (new, _) = server.client(PATIENCE).create(&x(), &new).await.unwrap();
    assert!(new);
    let seen = server.seen.lock()[0].clone();
    for part in [
        "PUT /v1/stream/x HTTP/1.1\r\n",
        "stream-forked-from: /v1/stream/a%20b/c\r\n",
        "stream-fork-offset: 00000000000000000003\r\n",
        "stream-fork-sub-offset: 2\r\n",
        "stream-ttl: 60\r\n",
        "stream-closed: true\r\n",
    ] {
        assert!(seen.contains(part), "{part:?} in {seen:?}");
    }
}
