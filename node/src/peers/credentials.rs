//! What every call says of its sender, and what both sides make of it.
//!
//! Invariant: who lacks the secret learns nothing, not even the cluster's name. Used by `super` and `server`.

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, response};
use weir_api::{ClusterUid, NodeId};

use super::{Body, Call, Inner, Refusal, RefusalCode};
use crate::tokens::Denied;

const CLUSTER: &str = "weir-cluster";
const GENERATION: &str = "weir-generation";
const NODE: &str = "weir-node";

/// The request of a call.
pub(super) fn request(
    inner: &Inner,
    address: &str,
    call: &Call,
    body: Body,
) -> Result<Request<Body>, String> {
    let mut request = Request::post(format!("http://{address}/peer/{}", call.path))
        .body(body)
        .map_err(|e| format!("not an address: {e}"))?;
    let headers = request.headers_mut();
    if let Some(tokens) = &inner.tokens {
        let secret = tokens.first().map_err(|denied| match denied {
            Denied::File(why) => why,
            Denied::Unauthorized => "there is no token".to_owned(),
        })?;
        headers.insert(AUTHORIZATION, secret);
    }
    say(inner, headers);
    let node = HeaderValue::from_str(inner.node.as_str()).map_err(|e| e.to_string())?;
    headers.insert(NODE, node);
    Ok(request)
}

/// Which cluster, and which generation of it, this node is of.
pub(super) fn say(inner: &Inner, headers: &mut HeaderMap) {
    headers.insert(GENERATION, HeaderValue::from(inner.generation));
    let cluster = inner.cluster.lock().map(|uid| HeaderValue::from_str(&uid.to_string()));
    if let Some(Ok(cluster)) = cluster {
        headers.insert(CLUSTER, cluster);
    }
}

/// Lets a call in and says who sent it.
pub(super) fn admit(inner: &Inner, head: &Parts, call: &Call) -> Result<NodeId, Refusal> {
    if let Some(tokens) = &inner.tokens {
        tokens.check(head.headers.get(AUTHORIZATION)).map_err(|denied| match denied {
            Denied::Unauthorized => {
                Refusal::new(RefusalCode::Unauthorized, "the call does not carry this cluster's secret")
            }
            Denied::File(why) => Refusal::new(RefusalCode::NotReady, why),
        })?;
    }
    let malformed =
        |what: &str| Refusal::new(RefusalCode::Malformed, format!("{what} is missing or malformed"));
    let theirs: Option<ClusterUid> = optional(&head.headers, CLUSTER).map_err(|()| malformed(CLUSTER))?;
    let ours = *inner.cluster.lock();
    match (ours, theirs) {
        (None, _) => return Err(Refusal::new(RefusalCode::NotReady, "this node is of no cluster yet")),
        (Some(_), None) if call.strangers => {}
        (Some(_), None) => return Err(malformed(CLUSTER)),
        (Some(ours), Some(theirs)) if ours != theirs => return Err(other_cluster(inner, ours, theirs)),
        (Some(_), Some(_)) => {}
    }
    let generation = optional(&head.headers, GENERATION).map_err(|()| malformed(GENERATION))?;
    check_generation(inner, generation.ok_or_else(|| malformed(GENERATION))?)?;
    let node = optional(&head.headers, NODE).map_err(|()| malformed(NODE))?;
    node.ok_or_else(|| malformed(NODE))
}

/// The other side's word on who it is.
pub(super) fn check_answer(inner: &Inner, head: &response::Parts) -> Result<(), Refusal> {
    let theirs: Option<ClusterUid> = optional(&head.headers, CLUSTER).unwrap_or_default();
    match (*inner.cluster.lock(), theirs) {
        (Some(ours), Some(theirs)) if ours != theirs => Err(other_cluster(inner, theirs, ours)),
        _ => Ok(()),
    }
}

fn other_cluster(inner: &Inner, callee: ClusterUid, caller: ClusterUid) -> Refusal {
    let text = format!("the called node is of cluster {callee}, the caller of cluster {caller}");
    tracing::warn!(node = %inner.node, "{text}");
    Refusal::new(RefusalCode::OtherCluster, text)
}

fn check_generation(inner: &Inner, theirs: u64) -> Result<(), Refusal> {
    let ours = inner.generation;
    if ours == theirs {
        return Ok(());
    }
    let text = format!("the called node is of generation {ours}, the caller of generation {theirs}");
    Err(Refusal::new(RefusalCode::Generation, text))
}

fn optional<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Result<Option<T>, ()> {
    match headers.get(name) {
        None => Ok(None),
        Some(value) => value.to_str().ok().and_then(|text| text.parse().ok()).map(Some).ok_or(()),
    }
}
