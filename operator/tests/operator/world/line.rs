//! The line from the operator to the nodes' admin APIs: what is said on it, what fails, and that no two nodes are drained
//! at once.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use kube::runtime::events::{Recorder, Reporter};
use parking_lot::Mutex;
use serde_json::Value;
use weir_operator::admin::Admin;
use weir_operator::apply::Hands;
use weir_operator::controller::Context;
use weir_operator::metrics::Metrics;

use super::disturbed::{Disturbed, disturb};
use crate::api::Api;
use crate::nodes::Nodes;

pub(super) fn context(
    api: &Api,
    nodes: &Arc<Mutex<Nodes>>,
    disturbed: &Disturbed,
    violations: &Arc<Mutex<Vec<String>>>,
) -> Context {
    let (nodes, disturbed, violations) = (nodes.clone(), disturbed.clone(), violations.clone());
    let admin = Admin::over(Arc::new(move |request| {
        let (nodes, disturbed, violations) = (nodes.clone(), disturbed.clone(), violations.clone());
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let ip = head.uri.host().unwrap_or_default().to_owned();
            let path = head.uri.path().to_owned();
            let (answer, fault) = {
                let mut nodes = nodes.lock();
                nodes.calls = nodes.calls.wrapping_add(1);
                let (n, every) = (nodes.calls, nodes.unreliable);
                let fault = (every > 0 && n.is_multiple_of(every)).then(|| n / every % 4);
                if fault == Some(0) {
                    return Response::builder().status(502).body(Bytes::new()).map_err(|e| e.to_string());
                }
                let drained = path.strip_prefix("/admin/nodes/").and_then(|p| p.strip_suffix("/drain"));
                let reached = nodes.processes.values().any(|p| p.ip == ip && !p.hangs);
                // One that pins follows a pod that is gone; one that does not takes a node away.
                let fenced = path.strip_prefix("/admin/nodes/").and_then(|p| p.strip_suffix("/fence"));
                if let Some(node) =
                    fenced.filter(|_| body["incarnation"].is_null() && reached && nodes.has_quorum())
                    && nodes.serves(node)
                {
                    disturb(&disturbed, &violations, &nodes, node, "fenced");
                }
                if let Some(node) = drained.filter(|_| head.method == "POST" && reached && nodes.has_quorum())
                {
                    let begun = nodes.records.get(node).is_some_and(|r| r.draining.is_some());
                    if !begun && nodes.serves(node) {
                        disturb(&disturbed, &violations, &nodes, node, "drained");
                    }
                }
                (nodes.answer(&ip, head.method.as_str(), &path, &body), fault)
            };
            match answer {
                // It is done, and nobody hears of it.
                _ if fault == Some(1) => Err("connection reset".to_owned()),
                Some(_) if fault == Some(2) => Ok(Response::new(Bytes::from("<html>"))),
                _ if fault == Some(3) => std::future::pending().await,
                None => std::future::pending().await,
                Some((status, body)) => Response::builder()
                    .status(status)
                    .body(Bytes::from(body.to_string()))
                    .map_err(|e| e.to_string()),
            }
        })
    }));
    let client = api.client();
    let reporter = Reporter { controller: "weir-operator".into(), instance: Some("test".into()) };
    let recorder = Recorder::new(client.clone(), reporter);
    Context::new(Hands { client, admin, recorder, metrics: Metrics::default() }, "weir:default".to_owned())
}
