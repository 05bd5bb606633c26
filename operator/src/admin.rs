//! Calls to the nodes' admin API.
//!
//! Invariant: every call has a deadline and a bound on what it reads; one pooled client for all; an answer counts only if
//! it comes from the node that was asked (addresses of pods are given out again). Types are `weir_api::admin`'s. Used by
//! `observe` and `apply`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use weir_api::admin::{
    ClusterStatus, DrainStatus, FenceNode, MemberList, NodeList, NodeStatus, Problem, ReadyStatus,
    RemovedNode, SetNode,
};
use weir_api::{Incarnation, NodeEpoch, NodeId, Slots};

use crate::names;

/// A call takes this long at most.
const DEADLINE: Duration = Duration::from_secs(3);
/// Largest answer: a hundred nodes take some 60 KiB.
const ANSWER_MAX: usize = 4 << 20;

/// Sends one request. The error is for people.
pub type Transport =
    Arc<dyn Fn(Request<Full<Bytes>>) -> BoxFuture<'static, Result<Response<Bytes>, String>> + Send + Sync>;

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// Nobody answered in time, or not as the API says: another node may.
    #[error("{0}")]
    Unreachable(String),
    /// The node refused.
    #[error("{code}: {detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Stable, as `no-such-node`.
        code: String,
        /// For people.
        detail: String,
    },
}

impl AdminError {
    /// The refusal's code.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Unreachable(_) => None,
            Self::Refused { code, .. } => Some(code),
        }
    }

    /// Another node could do it, or this one later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused { status, .. } => *status >= 500,
        }
    }
}

/// A node that can be asked.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub node: NodeId,
    /// `IP:PORT` of its admin listener.
    pub address: String,
    /// The bearer token.
    pub token: String,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.node, self.address)
    }
}

impl Target {
    /// The node in a pod with this address.
    pub fn new(node: NodeId, ip: &str, token: &str) -> Self {
        Self { node, address: address(ip), token: token.to_owned() }
    }
}

/// `IP:PORT` of the admin listener; an IPv6 address in brackets.
fn address(ip: &str) -> String {
    match ip.contains(':') {
        true => format!("[{ip}]:{}", names::ADMIN_PORT),
        false => format!("{ip}:{}", names::ADMIN_PORT),
    }
}

/// The client.
#[derive(Clone)]
pub struct Admin {
    transport: Transport,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admin")
    }
}

impl Admin {
    /// Over HTTP, connections pooled.
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(DEADLINE));
        connector.set_nodelay(true);
        let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .pool_max_idle_per_host(2)
            .pool_timer(TokioTimer::new())
            .build(connector);
        let send =
            move |request: Request<Full<Bytes>>| -> BoxFuture<'static, Result<Response<Bytes>, String>> {
                let answer = client.request(request);
                Box::pin(async move {
                    let (head, body) = answer.await.map_err(|e| causes(&e))?.into_parts();
                    let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(|e| e.to_string())?;
                    Ok(Response::from_parts(head, body.to_bytes()))
                })
            };
        Self { transport: Arc::new(send) }
    }

    /// Over something else.
    pub fn over(transport: Transport) -> Self {
        Self { transport }
    }

    async fn send(
        &self,
        to: &Target,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(StatusCode, Bytes), AdminError> {
        let unreachable = |why: String| AdminError::Unreachable(format!("{}: {why}", to.node));
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", to.address))
            .header(header::AUTHORIZATION, format!("Bearer {}", to.token));
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        let request = request.body(body).map_err(|e| unreachable(e.to_string()))?;
        match tokio::time::timeout(DEADLINE, (self.transport)(request)).await {
            Ok(Ok(response)) => Ok((response.status(), response.into_body())),
            Ok(Err(why)) => Err(unreachable(why)),
            Err(_elapsed) => Err(unreachable(format!("no answer in {} s", DEADLINE.as_secs()))),
        }
    }

    async fn call<T: DeserializeOwned>(
        &self,
        to: &Target,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<T, AdminError> {
        let (status, body) = self.send(to, method, path, body).await?;
        if !status.is_success() {
            return Err(refusal(to, status, &body));
        }
        parse(to, &body)
    }

    async fn get<T: DeserializeOwned>(&self, to: &Target, path: &str) -> Result<T, AdminError> {
        self.call(to, Method::GET, path, None).await
    }

    /// The cluster as this node sees it; an error if another node answers.
    pub async fn cluster(&self, to: &Target) -> Result<ClusterStatus, AdminError> {
        let status: ClusterStatus = self.get(to, "/admin/cluster").await?;
        match status.answered_by.node == to.node {
            true => Ok(status),
            false => {
                let why = format!("{}: {} answers at {}", to.node, status.answered_by.node, to.address);
                Err(AdminError::Unreachable(why))
            }
        }
    }

    /// Registered nodes.
    pub async fn nodes(&self, to: &Target) -> Result<NodeList, AdminError> {
        self.get(to, "/admin/nodes").await
    }

    /// Members of the metadata log.
    pub async fn members(&self, to: &Target) -> Result<MemberList, AdminError> {
        self.get(to, "/admin/members").await
    }

    /// Whether a node is ready, and why not.
    pub async fn ready(&self, to: &Target) -> Result<ReadyStatus, AdminError> {
        let (status, body) = self.send(to, Method::GET, "/readyz", None).await?;
        match status {
            StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE => parse(to, &body),
            other => Err(refusal(to, other, &body)),
        }
    }

    /// How far a drain is.
    pub async fn drain_status(&self, to: &Target, node: &NodeId) -> Result<DrainStatus, AdminError> {
        self.get(to, &format!("/admin/nodes/{node}/drain")).await
    }

    /// Begins a drain.
    pub async fn drain(&self, to: &Target, node: &NodeId) -> Result<DrainStatus, AdminError> {
        self.call(to, Method::POST, &format!("/admin/nodes/{node}/drain"), None).await
    }

    /// Ends a drain.
    pub async fn cancel_drain(&self, to: &Target, node: &NodeId) -> Result<DrainStatus, AdminError> {
        self.call(to, Method::DELETE, &format!("/admin/nodes/{node}/drain"), None).await
    }

    /// Sets a node's weight, in the name of a resource.
    pub async fn set_slots(
        &self,
        to: &Target,
        node: &NodeId,
        slots: Slots,
        resource: (String, u64),
    ) -> Result<NodeStatus, AdminError> {
        let (uid, generation) = resource;
        let body = SetNode { slots, resource_uid: Some(uid), resource_generation: Some(generation) };
        self.call(to, Method::POST, &format!("/admin/nodes/{node}"), Some(encode(&body))).await
    }

    /// Ends a session; with an incarnation, no other may register.
    pub async fn fence(
        &self,
        to: &Target,
        node: &NodeId,
        epoch: NodeEpoch,
        incarnation: Option<Incarnation>,
    ) -> Result<NodeStatus, AdminError> {
        let body = FenceNode { epoch, incarnation };
        self.call(to, Method::POST, &format!("/admin/nodes/{node}/fence"), Some(encode(&body))).await
    }

    /// Removes a node from the record.
    pub async fn remove(&self, to: &Target, node: &NodeId) -> Result<RemovedNode, AdminError> {
        self.call(to, Method::DELETE, &format!("/admin/nodes/{node}"), None).await
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self::new()
    }
}

fn encode<T: Serialize>(body: &T) -> Vec<u8> {
    serde_json::to_vec(body).expect("admin bodies are plain data")
}

fn parse<T: DeserializeOwned>(to: &Target, body: &[u8]) -> Result<T, AdminError> {
    let odd = |e: serde_json::Error| {
        AdminError::Unreachable(format!("{}: an answer of another kind: {e}", to.node))
    };
    serde_json::from_slice(body).map_err(odd)
}

fn refusal(to: &Target, status: StatusCode, body: &[u8]) -> AdminError {
    let problem: Option<Problem> = serde_json::from_slice(body).ok();
    let (code, detail) = match problem {
        Some(p) => (p.code, p.detail),
        None => ("no-problem-body".to_owned(), format!("{} answered {status}", to.node)),
    };
    AdminError::Refused { status: status.as_u16(), code, detail }
}

/// An error with what caused it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(e) = source {
        text = format!("{text}: {e}");
        source = e.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_make_urls() {
        assert_eq!(address("10.0.0.7"), "10.0.0.7:9090");
        assert_eq!(address("fd00::7"), "[fd00::7]:9090");
        let uri: http::Uri = format!("http://{}/readyz", address("fd00::7")).parse().unwrap();
        assert_eq!(uri.authority().unwrap().as_str(), "[fd00::7]:9090");
    }

    fn answering(status: u16, body: &'static str) -> Admin {
        Admin::over(Arc::new(move |_| {
            Box::pin(async move { Ok(Response::builder().status(status).body(Bytes::from(body)).unwrap()) })
        }))
    }

    fn target() -> Target {
        Target::new("demo-0".parse().unwrap(), "10.0.0.7", "secret")
    }

    #[tokio::test]
    async fn a_refusal_says_its_code() {
        let problem = r#"{"type":"t","code":"no-such-node","title":"t","status":404,"detail":"d"}"#;
        let e = answering(404, problem).nodes(&target()).await.unwrap_err();
        assert_eq!((e.code(), e.is_passing()), (Some("no-such-node"), false));
        let e = answering(502, "<html>").nodes(&target()).await.unwrap_err();
        assert!(e.is_passing(), "{e}");
        let e = answering(200, "[]").nodes(&target()).await.unwrap_err();
        assert!(e.is_passing() && e.code().is_none(), "{e}");
    }

    #[tokio::test]
    async fn an_unready_node_says_why() {
        let body = r#"{"ready":false,"reasons":[{"code":"store","detail":"d","sinceMs":1}]}"#;
        assert_eq!(answering(503, body).ready(&target()).await.unwrap().reasons[0].code, "store");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_hangs_costs_the_deadline() {
        let hangs = Admin::over(Arc::new(|_| Box::pin(std::future::pending())));
        let e = hangs.nodes(&target()).await.unwrap_err();
        assert_eq!(e, AdminError::Unreachable("demo-0: no answer in 3 s".to_owned()));
    }

    #[test]
    fn a_token_is_not_shown() {
        assert!(!format!("{:?}", target()).contains("secret"));
    }
}
