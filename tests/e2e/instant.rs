//! A stream that exists is never answered 404, at any node, the instant its create was acknowledged at another; and what
//! was appended through one is read through another at once.

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::Method;
use tokio::task::JoinSet;
use weir_tests::cluster::Cluster;
use weir_tests::doors::Doors;

/// Creating at once, so that views are never all at the same entry.
const WRITERS: usize = 12;
/// Streams of each writer.
const STREAMS: usize = 60;

const TEXT: [(&str, &str); 1] = [("content-type", "text/plain")];

/// Creates at one node and asks the other two in the same moment, all ways at once.
async fn one(doors: &Doors, writer: usize, n: usize) -> Result<()> {
    let target = format!("/v1/stream/instant/{writer}/{n}");
    let (at, others) = (n % 3, [(n + 1) % 3, (n + 2) % 3]);
    // With and without first bytes: those come to life by another road.
    let first = Bytes::from_static(if n.is_multiple_of(2) { b"" } else { b"first " });
    let created = doors.ask(at, &Method::PUT, &target, &TEXT, &first).await?;
    ensure!(created.status == 201, "{target}: {created:?}");
    let none = Bytes::new();
    let (head, read) = tokio::join!(
        doors.ask(others[0], &Method::HEAD, &target, &[], &none),
        doors.ask(others[1], &Method::GET, &target, &[], &none),
    );
    let (head, read) = (head?, read?);
    ensure!((head.status, head.next()) == (200, Some(first.len() as u64)), "HEAD {target}: {head:?}");
    ensure!((read.status, &read.body) == (200, &first), "GET {target}: {read:?}");
    let posted = doors.ask(others[0], &Method::POST, &target, &TEXT, &Bytes::from_static(b"more")).await?;
    ensure!(posted.status == 204, "POST {target}: {posted:?}");
    let whole = [&first[..], b"more"].concat();
    let (read, head) = tokio::join!(
        doors.ask(others[1], &Method::GET, &target, &[], &none),
        doors.ask(at, &Method::HEAD, &target, &[], &none),
    );
    let (read, head) = (read?, head?);
    ensure!(read.status == 200 && read.body == whole, "GET {target}: {read:?}");
    ensure!((head.status, head.next()) == (200, Some(whole.len() as u64)), "HEAD {target}: {head:?}");
    Ok(())
}

async fn everywhere_at_once(mode: &'static str) -> Doors {
    let mut cluster = Cluster::start(3, move |_, setup| setup.flag("routing", mode)).await.unwrap();
    let doors = Doors::of(&mut cluster.nodes).await.unwrap();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let doors = doors.clone();
        writers.spawn(async move {
            for n in 0..STREAMS {
                one(&doors, writer, n).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap().unwrap();
    }
    println!("{mode}: {} redirects, {} put off", doors.followed(), doors.put_off());
    cluster.end().await.unwrap();
    doors
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_there_at_every_node_when_its_create_is_acknowledged_with_redirects() {
    let doors = everywhere_at_once("redirect").await;
    assert!(doors.followed() > STREAMS, "most streams are somewhere else");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_there_at_every_node_when_its_create_is_acknowledged_with_forwarding() {
    let doors = everywhere_at_once("forward").await;
    assert_eq!(doors.followed(), 0);
}
