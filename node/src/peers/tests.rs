//! Calls over real sockets on loopback: answers, refusals, silence.

use std::io::{Seek as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::net;

const ECHO: Call = Call::new("test/echo");
const SMALL: Call = Call::new("test/small").bounded(8, 8);
const OPEN: Call = Call::new("test/open").for_strangers();
const HANG: Call = Call::new("test/hang");
const NONE: Call = Call::new("test/none");
const FILE: Call = Call::new("test/file");
const SOON: Duration = Duration::from_secs(20);

struct Rig {
    tasks: Tasks,
    peers: Peers,
    address: String,
}

fn tokens(text: &str) -> Tokens {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let (_, path) = file.keep().unwrap();
    Tokens::open(path).unwrap()
}

fn peers(name: &str, cluster: Option<u128>, token: Option<&str>, generation: u64) -> (Peers, Tasks) {
    let tasks = Tasks::default();
    let peers = Peers::new(name.parse().unwrap(), generation, token.map(tokens), &tasks);
    peers.set_cluster(cluster.map(ClusterUid));
    (peers, tasks)
}

async fn rig(cluster: Option<u128>, token: Option<&str>) -> Rig {
    let (peers, tasks) = peers("n-0", cluster, token, 0);
    let listener = net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tasks.spawn_vital("peers", serve(listener, peers.clone()));
    peers.handle(
        ECHO,
        |from, body| async move { Ok([from.as_str().as_bytes(), b":", &body].concat().into()) },
    );
    peers.handle(SMALL, |_, body| async move { Ok([body.as_ref(), body.as_ref()].concat().into()) });
    peers.handle(OPEN, |_, body| async move { Ok(body) });
    peers.handle(HANG, |_, _| std::future::pending());
    peers.handle_streaming(FILE, |_, mut body| async move {
        let mut all = Vec::new();
        while let Some(piece) = body.next().await? {
            all.extend_from_slice(&piece);
        }
        let crc = all.split_off(all.len() - 4);
        assert_eq!(crc32c::crc32c(&all[4..]).to_le_bytes(), *crc);
        Ok(format!("{} {}", String::from_utf8_lossy(&all[..4]), all.len() - 4).into())
    });
    Rig { tasks, peers, address }
}

async fn refusal(peers: &Peers, address: &str, call: &Call) -> Refusal {
    match peers.call(address, call, Bytes::from_static(b"x"), SOON).await {
        Err(PeerError::Refused { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_answered_and_says_who_called() {
    let rig = rig(Some(1), None).await;
    let (me, tasks) = peers("n-1", Some(1), None, 0);
    let answer = me.call(&rig.address, &ECHO, Bytes::from_static(b"hello"), SOON).await;
    assert_eq!(answer.unwrap(), "n-1:hello");
    let answers = futures::future::join_all((0..500).map(|i| {
        let (me, address) = (me.clone(), rig.address.clone());
        async move { me.call(&address, &ECHO, Bytes::from(format!("{i}")), SOON).await.unwrap() }
    }));
    for (i, answer) in answers.await.into_iter().enumerate() {
        assert_eq!(answer, format!("n-1:{i}"));
    }
    tasks.stop().await;
    rig.tasks.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_belong_is_refused_by_name() {
    let rig = rig(Some(1), Some("a-token-0123456789\na-newer-token-0123456789")).await;
    let refused = async |cluster, token, generation, call| {
        let (me, tasks) = peers("n-1", cluster, token, generation);
        let refusal = refusal(&me, &rig.address, call).await;
        tasks.stop().await;
        refusal
    };
    let good = Some("a-newer-token-0123456789");
    assert_eq!(refused(Some(1), None, 0, &ECHO).await.code, RefusalCode::Unauthorized);
    let wrong = refused(Some(1), Some("another-token-0123456"), 0, &OPEN).await;
    assert_eq!(wrong.code, RefusalCode::Unauthorized);
    let other = refused(Some(2), good, 0, &ECHO).await;
    assert_eq!(other.code, RefusalCode::OtherCluster);
    let names = [ClusterUid(1), ClusterUid(2)].map(|uid| uid.to_string());
    assert!(names.iter().all(|name| other.text.contains(name)), "{other}");
    assert_eq!(refused(None, good, 0, &ECHO).await.code, RefusalCode::Malformed);
    assert_eq!(refused(Some(1), good, 1, &ECHO).await.code, RefusalCode::Generation);
    assert_eq!(refused(Some(1), good, 0, &NONE).await.code, RefusalCode::NoSuchCall);
    assert_eq!(refused(None, good, 0, &NONE).await.code, RefusalCode::Malformed);
    // Both tokens are good, and a stranger may make the calls that are for strangers.
    for token in ["a-token-0123456789", "a-newer-token-0123456789"] {
        let (me, tasks) = peers("n-1", None, Some(token), 0);
        assert_eq!(me.call(&rig.address, &OPEN, Bytes::from_static(b"x"), SOON).await.unwrap(), "x");
        tasks.stop().await;
    }
    rig.tasks.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_cluster_answers_nobody() {
    let rig = rig(None, None).await;
    let (me, tasks) = peers("n-1", None, None, 0);
    assert_eq!(refusal(&me, &rig.address, &OPEN).await.code, RefusalCode::NotReady);
    rig.peers.set_cluster(Some(ClusterUid(3)));
    assert!(me.call(&rig.address, &OPEN, Bytes::new(), SOON).await.is_ok());
    tasks.stop().await;
    rig.tasks.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_bounded_on_both_ways() {
    let rig = rig(Some(1), None).await;
    let (me, tasks) = peers("n-1", Some(1), None, 0);
    let call =
        async |call: &Call, bytes: usize| me.call(&rig.address, call, vec![7; bytes].into(), SOON).await;
    assert_eq!(call(&SMALL, 4).await.unwrap().len(), 8);
    assert!(matches!(call(&SMALL, 9).await, Err(PeerError::Unreachable { .. })));
    assert!(matches!(call(&SMALL, 8).await, Err(PeerError::Unknown { .. })), "the answer is too long");
    let unaware = SMALL.bounded(100, 100);
    match call(&unaware, 9).await {
        Err(PeerError::Refused { refusal, .. }) => assert_eq!(refusal.code, RefusalCode::TooLarge),
        other => panic!("{other:?}"),
    }
    assert_eq!(call(&ECHO, BODY_MAX - 16).await.unwrap().len(), BODY_MAX - 16 + 4);
    tasks.stop().await;
    rig.tasks.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_told_apart_from_no_answer() {
    let rig = rig(Some(1), None).await;
    let (me, tasks) = peers("n-1", Some(1), None, 0);
    let hang = me.call(&rig.address, &HANG, Bytes::new(), Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(hang, PeerError::Unknown { .. }) && !hang.is_definite(), "{hang}");
    // A port that was free a moment ago.
    let free = net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().local_addr().unwrap().to_string();
    for _ in 0..5 {
        let gone = me.call(&free, &ECHO, Bytes::new(), SOON).await.unwrap_err();
        assert!(gone.is_definite(), "{gone}");
    }
    let nonsense = me.call("not an address", &ECHO, Bytes::new(), SOON).await.unwrap_err();
    assert!(matches!(nonsense, PeerError::Unreachable { .. }), "{nonsense}");
    // Back once somebody listens again.
    let listener = net::bind(free.parse().unwrap()).await.unwrap();
    rig.tasks.spawn_vital("again", serve(listener, rig.peers.clone()));
    let tries = AtomicU64::new(0);
    let again = async {
        while me.call(&free, &ECHO, Bytes::new(), SOON).await.is_err() {
            tries.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(SOON, again).await.is_ok(), "never back in {tries:?} tries");
    tasks.stop().await;
    rig.tasks.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_fails_calls_under_way_and_comes_back() {
    let rig = rig(Some(1), None).await;
    let (me, tasks) = peers("n-1", Some(1), None, 0);
    assert!(me.call(&rig.address, &ECHO, Bytes::new(), SOON).await.is_ok());
    let hanging = me.call(&rig.address, &HANG, Bytes::new(), SOON * 10);
    let cutting = async { rig.peers.cut(true) };
    let (hung, ()) = tokio::join!(hanging, cutting);
    assert!(hung.is_err());
    assert!(me.call(&rig.address, &ECHO, Bytes::new(), SOON).await.is_err());
    rig.peers.cut(false);
    let back = async {
        while me.call(&rig.address, &ECHO, Bytes::new(), SOON).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, back).await.unwrap();
    tasks.stop().await;
    rig.tasks.stop().await;
}

/// An open file at its start, whose name is gone.
fn temporary(content: &[u8]) -> File {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let file = File::create(&path).unwrap();
    (&file).write_all(content).unwrap();
    (&file).rewind().unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_sent_in_pieces_with_its_checksum() {
    let rig = rig(Some(1), None).await;
    let (me, tasks) = peers("n-1", Some(1), None, 0);
    for length in [0, 1, PIECE, 3 * PIECE + 17] {
        let file = temporary(&vec![0x5a; length]);
        let head = Bytes::from_static(b"head");
        let answer = me.call_streaming(&rig.address, &FILE, head, file, length as u64, SOON).await;
        assert_eq!(answer.unwrap(), format!("head {length}"));
    }
    // A file shorter than it was said to be ends the call, not the connection.
    let file = temporary(b"");
    let cut = me.call_streaming(&rig.address, &FILE, Bytes::from_static(b"head"), file, 9, SOON).await;
    assert!(cut.is_err());
    assert!(me.call(&rig.address, &ECHO, Bytes::new(), SOON).await.is_ok());
    tasks.stop().await;
    rig.tasks.stop().await;
}
