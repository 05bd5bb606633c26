//! Path and method to endpoint.
//!
//! Invariant: pure, and the only list of what there is.

use http::Method;
use weir_api::NodeId;

use super::problem::Error;

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
    Livez,
    Readyz,
    Metrics,
    Cluster,
    Nodes,
    SetNode(NodeId),
    /// The name as it stands in the path, percent-encoded.
    Stream(String),
    SkipDamage,
    Drain(NodeId),
    BeginDrain(NodeId),
    CancelDrain(NodeId),
    BeginTransfer,
    AbortTransfer,
}

pub(super) fn route(method: &Method, path: &str) -> Result<Endpoint, Error> {
    let get = |endpoint| match *method {
        Method::GET | Method::HEAD => Ok(endpoint),
        _ => Err(not_allowed(method, "GET, HEAD")),
    };
    match path {
        "/livez" => get(Endpoint::Livez),
        "/readyz" => get(Endpoint::Readyz),
        "/metrics" => get(Endpoint::Metrics),
        "/admin/cluster" => get(Endpoint::Cluster),
        "/admin/nodes" => get(Endpoint::Nodes),
        "/admin/recovery/skip" => match *method {
            Method::POST => Ok(Endpoint::SkipDamage),
            _ => Err(not_allowed(method, "POST")),
        },
        "/admin/transfer" => match *method {
            Method::POST => Ok(Endpoint::BeginTransfer),
            Method::DELETE => Ok(Endpoint::AbortTransfer),
            _ => Err(not_allowed(method, "POST, DELETE")),
        },
        _ => {
            if let Some(id) = of_node(path, "/drain") {
                return drain(method, id);
            }
            if let Some(id) =
                path.strip_prefix("/admin/nodes/").filter(|id| !id.is_empty() && !id.contains('/'))
            {
                if *method != Method::POST {
                    return Err(not_allowed(method, "POST"));
                }
                return id
                    .parse()
                    .map(Endpoint::SetNode)
                    .map_err(|e: weir_api::IdError| Error::BadNodeId(e.to_string()));
            }
            match path.strip_prefix("/admin/streams/") {
                Some(name) if !name.is_empty() => get(Endpoint::Stream(name.to_owned())),
                _ => Err(Error::NoSuchPath(path.chars().take(200).collect())),
            }
        }
    }
}

/// The id in `/admin/nodes/{id}` and what follows.
fn of_node<'a>(path: &'a str, what: &str) -> Option<&'a str> {
    let id = path.strip_prefix("/admin/nodes/")?.strip_suffix(what)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

fn drain(method: &Method, id: &str) -> Result<Endpoint, Error> {
    let endpoint = match *method {
        Method::GET | Method::HEAD => Endpoint::Drain,
        Method::POST => Endpoint::BeginDrain,
        Method::DELETE => Endpoint::CancelDrain,
        _ => return Err(not_allowed(method, "GET, HEAD, POST, DELETE")),
    };
    id.parse().map(endpoint).map_err(|e: weir_api::IdError| Error::BadNodeId(e.to_string()))
}

fn not_allowed(method: &Method, allowed: &'static str) -> Error {
    Error::MethodNotAllowed { method: method.as_str().chars().take(40).collect(), allowed }
}
