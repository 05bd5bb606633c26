//! `redirect` mode, and the hop.

use super::*;

/// The index and the hops of a redirect's Location, and the rest of it.
fn hop_of(reply: &Reply) -> (u64, u8, String) {
    let location = reply.get("location").expect("a Location");
    let (rest, hop) = location.rsplit_once("weir-hop=").expect("a hop");
    let (index, hops) = hop.split_once('.').expect("two numbers");
    (index.parse().unwrap(), hops.parse().unwrap(), rest.trim_end_matches(['?', '&']).to_owned())
}

#[tokio::test]
async fn every_method_is_redirected_to_the_owner_with_path_query_and_hop() {
    let pair = Pair::start(RoutingMode::Redirect).await;
    pair.create("a/b").await;
    let base = format!("http://{}", pair.owner.node.addresses().client);
    for (method, target, body) in [
        ("GET", "/v1/stream/a/b", ""),
        ("GET", "/v1/stream/a%2Fb?offset=-1&live=long-poll&cursor=5", ""),
        ("GET", "/v1/stream/a/b?offset=-1&live=sse", ""),
        ("HEAD", "/v1/stream/a/b", ""),
        ("POST", "/v1/stream/a/b", "text"),
        ("PUT", "/v1/stream/a/b", ""),
        ("DELETE", "/v1/stream/a/b", ""),
    ] {
        let reply = pair.front.ask(method, target, &[TEXT], body).await;
        let (index, hops, rest) = hop_of(&reply);
        assert_eq!((reply.status, hops), (307, 1), "{method}");
        assert_eq!(rest, format!("{base}{target}"));
        assert!(index > 0 && index <= *pair.owner.node.metadata().applied().borrow());
        assert_eq!(reply.get("cache-control"), Some("no-store"));
        assert_eq!(reply.get("access-control-allow-origin"), Some("*"));
        assert!(reply.get("access-control-expose-headers").unwrap().contains("Location"));
        assert_eq!(reply.body, "");
    }
    assert!(pair.front.counted("redirects_total 7"), "{}", pair.front.metrics.text());
    // Nothing of it happened.
    let head = pair.owner.ask("HEAD", "/v1/stream/a/b", &[], "").await;
    assert_eq!(head.get("stream-next-offset"), Some("00000000000000000000"));
    // What every node answers.
    let preflight = pair.front.ask("OPTIONS", "/v1/stream/a/b?weir-hop=nonsense", &[], "").await;
    assert_eq!(preflight.status, 204);
    assert_eq!(pair.front.ask("GET", "/health", &[], "").await.status, 200);
    assert_eq!(pair.front.ask("PATCH", "/v1/stream/a/b", &[], "").await.status, 405);
    assert_eq!(pair.front.ask("GET", "/v1/stream/none", &[], "").await.status, 404);
    pair.stop().await;
}

#[tokio::test]
async fn the_owner_serves_a_redirected_request_as_if_it_had_come_first() {
    let pair = Pair::start(RoutingMode::Redirect).await;
    pair.create("s").await;
    pair.owner.ask("POST", "/v1/stream/s", &[TEXT], "hello").await;
    let reply = pair.front.ask("GET", "/v1/stream/s?offset=-1", &[], "").await;
    let target = reply.get("location").unwrap().strip_prefix("http://").unwrap();
    let target = &target[target.find('/').unwrap()..];
    let direct = pair.owner.ask("GET", "/v1/stream/s?offset=-1", &[], "").await;
    let hopped = pair.owner.ask("GET", target, &[], "").await;
    assert_eq!((hopped.status, hopped.body.as_str()), (200, "hello"));
    assert_eq!(hopped.get("etag"), direct.get("etag"), "the hop is no part of what is cached");
    let created = pair.owner.ask("PUT", "/v1/stream/new?weir-hop=1.1", &[TEXT], "").await;
    assert_eq!(created.get("location"), Some("http://test.example:80/v1/stream/new"));
    pair.stop().await;
}

#[tokio::test]
async fn a_body_is_taken_in_before_the_redirect_and_the_connection_goes_on() {
    let pair = Pair::start(RoutingMode::Redirect).await;
    pair.create("s").await;
    let mut client = pair.front.client().await;
    for size in [10, 100_000, 10 << 20] {
        let reply = client.request("POST", "/v1/stream/s", &[TEXT], &"x".repeat(size)).await;
        assert_eq!((reply.status, reply.get("connection")), (307, None), "{size}");
    }
    let over = client.request("POST", "/v1/stream/s", &[TEXT], &"x".repeat((16 << 20) + 1)).await;
    assert_eq!((over.status, over.get("connection")), (413, Some("close")));
    client.ended().await;
    pair.stop().await;
}

#[tokio::test]
async fn a_body_that_never_comes_ends_the_connection_after_the_redirect() {
    let pair =
        Pair::with(RoutingMode::Redirect, quick(), |l| l.body_timeout = Duration::from_millis(50)).await;
    pair.create("s").await;
    let mut client = pair.front.client().await;
    client
        .send(format!("POST /v1/stream/s HTTP/1.1\r\nHost: x\r\n{TEXT}\r\nContent-Length: 9\r\n\r\nabc"))
        .await;
    let reply = client.reply("POST").await;
    assert_eq!((reply.status, reply.get("connection")), (307, Some("close")));
    client.ended().await;
    pair.stop().await;
}

#[tokio::test]
async fn a_client_that_waits_to_be_asked_for_its_body_is_redirected_instead() {
    let pair = Pair::start(RoutingMode::Redirect).await;
    pair.create("s").await;
    for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let mut client = pair.front.client().await;
        let head = format!("POST /v1/stream/s HTTP/1.1\r\nHost: x\r\n{TEXT}\r\n{framing}");
        client.send(format!("{head}\r\nExpect: 100-continue\r\n\r\n")).await;
        let reply = client.reply("POST").await;
        assert_eq!((reply.status, reply.get("connection")), (307, Some("close")), "{framing}");
        client.ended().await;
    }
    pair.stop().await;
}

#[tokio::test]
async fn a_body_of_unknown_length_is_forwarded_also_in_redirect_mode() {
    let pair = Pair::start(RoutingMode::Redirect).await;
    pair.create("s").await;
    let mut client = pair.front.client().await;
    let head =
        format!("POST /v1/stream/s HTTP/1.1\r\nHost: x\r\n{TEXT}\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")).await;
    let reply = client.reply("POST").await;
    assert_eq!((reply.status, reply.get("stream-next-offset")), (204, Some("00000000000000000005")));
    let next = client.request("GET", "/v1/stream/s", &[], "").await;
    assert_eq!(next.status, 307, "the connection goes on");
    assert!(pair.front.counted("forwards_total{outcome=\"answered\"} 1"));
    pair.stop().await;
}

#[tokio::test]
async fn a_hop_is_refused_if_it_is_malformed_too_far_or_ahead_of_this_node() {
    let pair = Pair::start(RoutingMode::Redirect).await;
    pair.create("s").await;
    for bad in ["", "1", "1.x", "-1.1", "1.1&weir-hop=1.1"] {
        let reply = pair.front.ask("GET", &format!("/v1/stream/s?weir-hop={bad}"), &[], "").await;
        assert_eq!((reply.status, reply.field().as_str()), (400, "weir-hop"), "{bad}");
    }
    let by_field = pair.front.ask("GET", "/v1/stream/s", &["weir-hop: 1"], "").await;
    assert_eq!((by_field.status, by_field.field().as_str()), (400, "weir-hop"));
    // Three times is the last.
    let third = pair.front.ask("GET", "/v1/stream/s?weir-hop=1.2", &[], "").await;
    assert_eq!((third.status, hop_of(&third).1), (307, 3));
    for far in ["1.3", "1.4", "1.300"] {
        let reply = pair.front.ask("POST", &format!("/v1/stream/s?weir-hop={far}"), &[TEXT], "x").await;
        assert_eq!((reply.status, reply.get("retry-after")), (503, Some("1")), "{far}");
    }
    assert!(pair.front.counted("hops_exceeded_total 3"));
    // The owner itself serves what came over three hops.
    assert_eq!(pair.owner.ask("GET", "/v1/stream/s", &["weir-hop: 1.3"], "").await.status, 200);
    let ahead = pair.front.ask("GET", "/v1/stream/s?weir-hop=18446744073709551615.1", &[], "").await;
    assert_eq!((ahead.status, ahead.get("retry-after")), (503, Some("1")));
    pair.stop().await;
}

#[tokio::test]
async fn a_node_waits_for_what_the_sender_knew() {
    let pair = Pair::start(RoutingMode::Redirect).await;
    pair.create("s").await;
    let next = *pair.owner.node.metadata().applied().borrow() + 1;
    let waits = async {
        let reply = pair.front.ask("GET", &format!("/v1/stream/s?weir-hop={next}.1"), &[], "").await;
        assert_eq!(reply.status, 307);
        assert!(hop_of(&reply).0 >= next, "each hop knows at least as much as the last");
    };
    tokio::join!(waits, pair.create("another"));
    pair.stop().await;
}

/// Nodes that each take another for the owner: at worst a request goes round three times.
#[tokio::test]
async fn a_circle_ends_after_three_hops() {
    for mode in [RoutingMode::Redirect, RoutingMode::Forward] {
        let (node, other) = (Node::start(|_| {}).await, Node::start(|_| {}).await);
        let metadata = node.node.metadata();
        let me = register(metadata, "third", "http://127.0.0.1:1", 0).await;
        let listener = net::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        // What is placed at "a-circle" is sent to the front, which takes "a-circle" for somebody else.
        register(metadata, "a-circle", &format!("http://{}", listener.local_addr().unwrap()), 1000).await;
        assert_eq!(node.ask("PUT", "/v1/stream/s", &[TEXT], "").await.status, 201);
        let router = Router::new(metadata.clone(), me, mode, other.tasks.clone(), quick());
        let front = Front::serve(listener, (other.node.streams(), &other.tasks), router, |_| {});
        let mut target = "/v1/stream/s".to_owned();
        let mut hops = 0;
        let last = loop {
            let reply = front.ask("POST", &target, &[TEXT], "x").await;
            if reply.status != 307 {
                break reply;
            }
            hops += 1;
            let at = format!("http://{}", front.address);
            target = reply.get("location").unwrap().strip_prefix(&at).expect("to the front").to_owned();
        };
        assert_eq!((last.status, last.get("retry-after")), (503, Some("1")));
        assert_eq!(hops, if mode == RoutingMode::Redirect { 3 } else { 0 });
        assert!(front.counted("hops_exceeded_total 1"));
        let forwards = front.counted("forwards_total{outcome=\"answered\"} 3");
        assert_eq!(forwards, mode == RoutingMode::Forward, "{}", front.metrics.text());
        front.stop.cancel();
        other.stop().await;
        node.stop().await;
    }
}
