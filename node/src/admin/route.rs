//! Path and method to endpoint.
//!
//! Invariant: pure, and the only list of what there is.

use http::Method;
use weir_api::NodeId;

use super::page::{self, File};
use super::problem::Error;

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// A file of the web page.
    Page(&'static File),
    Livez,
    Readyz,
    Metrics,
    Cluster,
    Members,
    Nodes,
    Node(NodeId),
    SetNode(NodeId),
    RemoveNode(NodeId),
    Fence(NodeId),
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
    let post = |endpoint| match *method {
        Method::POST => Ok(endpoint),
        _ => Err(not_allowed(method, "POST")),
    };
    match path {
        "/livez" => get(Endpoint::Livez),
        "/readyz" => get(Endpoint::Readyz),
        "/metrics" => get(Endpoint::Metrics),
        "/admin/cluster" => get(Endpoint::Cluster),
        "/admin/members" => get(Endpoint::Members),
        "/admin/nodes" => get(Endpoint::Nodes),
        "/admin/recovery/skip" => post(Endpoint::SkipDamage),
        "/admin/transfer" => match *method {
            Method::POST => Ok(Endpoint::BeginTransfer),
            Method::DELETE => Ok(Endpoint::AbortTransfer),
            _ => Err(not_allowed(method, "POST, DELETE")),
        },
        _ => {
            if let Some(file) = page::file(path) {
                return get(Endpoint::Page(file));
            }
            if let Some(below) = path.strip_prefix("/admin/nodes/").filter(|below| !below.is_empty()) {
                let (id, what) = below.split_once('/').map_or((below, None), |(id, what)| (id, Some(what)));
                let id = || id.parse().map_err(|e: weir_api::IdError| Error::BadNodeId(e.to_string()));
                return match what {
                    None => match *method {
                        Method::GET | Method::HEAD => id().map(Endpoint::Node),
                        Method::POST => id().map(Endpoint::SetNode),
                        Method::DELETE => id().map(Endpoint::RemoveNode),
                        _ => Err(not_allowed(method, "GET, HEAD, POST, DELETE")),
                    },
                    Some("drain") => match *method {
                        Method::GET | Method::HEAD => id().map(Endpoint::Drain),
                        Method::POST => id().map(Endpoint::BeginDrain),
                        Method::DELETE => id().map(Endpoint::CancelDrain),
                        _ => Err(not_allowed(method, "GET, HEAD, POST, DELETE")),
                    },
                    Some("fence") => id().map(Endpoint::Fence).and_then(post),
                    Some(_) => Err(nothing_at(path)),
                };
            }
            match path.strip_prefix("/admin/streams/") {
                Some(name) if !name.is_empty() => get(Endpoint::Stream(name.to_owned())),
                _ => Err(nothing_at(path)),
            }
        }
    }
}

fn nothing_at(path: &str) -> Error {
    Error::NoSuchPath(path.chars().take(200).collect())
}

fn not_allowed(method: &Method, allowed: &'static str) -> Error {
    Error::MethodNotAllowed { method: method.as_str().chars().take(40).collect(), allowed }
}
