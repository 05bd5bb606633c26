//! An API server in memory: objects with resource versions and UIDs, server-side apply as far as one manager needs it,
//! conflicts, preconditions, graceful deletion of pods, and faults on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// (resource, namespace, name)
pub(crate) type Key = (String, String, String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Conflict,
    Internal,
    Gone,
    NotFound,
    TooMany,
    Forbidden,
    /// The namespace is being deleted: nothing can be made in it.
    Ending,
    /// The answer is lost; the write is done.
    LostReply,
    /// No answer for longer than any deadline.
    Hang,
}

pub(crate) struct Write {
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) name: String,
}

pub(crate) type Decide = Box<dyn FnMut(&Method, &Key) -> Option<Fault> + Send>;
pub(crate) type OnDelete = Box<dyn FnMut(&Key, &Value, bool) + Send>;

pub(crate) struct Store {
    pub(crate) objects: BTreeMap<Key, Value>,
    applied: BTreeMap<Key, Value>,
    version: u64,
    pub(crate) now_ms: i64,
    pub(crate) writes: Vec<Write>,
    pub(crate) fault: Option<Decide>,
    pub(crate) on_delete: Option<OnDelete>,
    /// Pods whose names begin so cannot be created: a quota.
    pub(crate) forbid_pods: Option<String>,
    pub(crate) hosts_forbidden: bool,
    /// What was asked for: (resource or resource/subresource, verb), as roles name them.
    pub(crate) used: BTreeSet<(String, String)>,
    pub(crate) requests: u64,
    /// Objects that lists have given out.
    pub(crate) listed: std::cell::Cell<u64>,
    watchers: Vec<(String, mpsc::UnboundedSender<Bytes>)>,
}

impl Store {
    /// Tells whoever watches such objects.
    fn tell(&mut self, resource: &str, kind: &str, object: &Value) {
        let line = format!("{}\n", json!({"type": kind, "object": object}));
        let tell = |(r, to): &(String, mpsc::UnboundedSender<Bytes>)| {
            *r != resource || to.unbounded_send(Bytes::from(line.clone())).is_ok()
        };
        self.watchers.retain(tell);
    }

    fn take(&mut self, key: &Key) {
        if let Some(mut had) = self.objects.remove(key) {
            had["metadata"]["resourceVersion"] = json!(self.stamp());
            self.tell(&key.0, "DELETED", &had);
        }
    }

    pub(crate) fn stamp(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    pub(crate) fn time(&self) -> String {
        jiff::Timestamp::from_second(self.now_ms / 1000).unwrap().to_string()
    }

    pub(crate) fn get(&self, resource: &str, name: &str) -> Option<&Value> {
        let ns = if resource == "nodes" { "" } else { "streams" };
        self.objects.get(&(resource.to_owned(), ns.to_owned(), name.to_owned()))
    }

    pub(crate) fn all(&self, resource: &str) -> Vec<(Key, Value)> {
        let of = self.objects.iter().filter(|((r, _, _), _)| r == resource);
        of.map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    /// As somebody other than the operator would: unconditionally.
    pub(crate) fn put(&mut self, resource: &str, mut object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let ns = if resource == "nodes" { "" } else { "streams" };
        let version = self.stamp();
        let meta = &mut object["metadata"];
        meta["resourceVersion"] = json!(version);
        if meta["uid"].is_null() {
            meta["uid"] = json!(format!("uid-{version}"));
        }
        if meta["creationTimestamp"].is_null() {
            meta["creationTimestamp"] = json!(self.time());
        }
        let key = (resource.to_owned(), ns.to_owned(), name);
        let kind = if self.objects.contains_key(&key) { "MODIFIED" } else { "ADDED" };
        self.tell(resource, kind, &object);
        self.objects.insert(key, object);
    }

    pub(crate) fn edit(&mut self, resource: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let Some(mut object) = self.get(resource, name).cloned() else { return };
        let before = object.clone();
        change(&mut object);
        if object == before {
            return;
        }
        if resource == "streamclusters" && object["spec"] != before["spec"] {
            let generation = object["metadata"]["generation"].as_i64().unwrap_or(1) + 1;
            object["metadata"]["generation"] = json!(generation);
        }
        self.put(resource, object);
    }

    pub(crate) fn remove(&mut self, resource: &str, name: &str) {
        let ns = if resource == "nodes" { "" } else { "streams" };
        self.take(&(resource.to_owned(), ns.to_owned(), name.to_owned()));
    }
}

#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) store: Arc<Mutex<Store>>,
}

impl Api {
    pub(crate) fn new() -> Self {
        let store = Store {
            objects: BTreeMap::new(),
            applied: BTreeMap::new(),
            version: 100,
            now_ms: 1_800_000_000_000,
            writes: Vec::new(),
            fault: None,
            on_delete: None,
            forbid_pods: None,
            hosts_forbidden: false,
            used: BTreeSet::new(),
            requests: 0,
            listed: std::cell::Cell::new(0),
            watchers: Vec::new(),
        };
        Self { store: Arc::new(Mutex::new(store)) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.service(), "streams")
    }

    pub(crate) fn service(&self) -> Service {
        Service(self.clone())
    }

    fn serve(&self, method: &Method, path: &str, query: &str, body: &[u8]) -> (u16, Value) {
        let mut store = self.store.lock();
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let Some((key, sub)) = parse(path) else { return status(404, "NotFound", "no such path") };
        if key.0 == "nodes" && store.hosts_forbidden {
            return status(403, "Forbidden", "nodes is forbidden");
        }
        let manager_apply = query.contains("fieldManager=") && query.contains("force=true");
        match *method {
            Method::GET if key.2.is_empty() => list(&store, &key, query),
            Method::GET => match store.objects.get(&key) {
                Some(object) => (200, object.clone()),
                None => not_found(&key),
            },
            Method::POST => create(&mut store, key, body),
            Method::PUT => replace(&mut store, key, body),
            Method::PATCH => patch(&mut store, key, &sub, body, manager_apply),
            Method::DELETE => delete(&mut store, &key, &body),
            _ => status(405, "MethodNotAllowed", "no"),
        }
    }
}

/// As a role would have to allow it. Server-side apply of what is not there needs `create`, too.
fn count(store: &mut Store, method: &Method, path: &str, query: &str) {
    store.requests += 1;
    let Some((key, sub)) = parse(path) else { return };
    let what = if sub.is_empty() { key.0.clone() } else { format!("{}/{sub}", key.0) };
    let verb = match *method {
        Method::GET if query.contains("watch=true") || query.contains("watch=1") => "watch",
        Method::GET if key.2.is_empty() => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "odd",
    };
    if verb == "patch" && !store.objects.contains_key(&key) && sub.is_empty() {
        store.used.insert((what.clone(), "create".to_owned()));
    }
    store.used.insert((what, verb.to_owned()));
}

fn parse(path: &str) -> Option<(Key, String)> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let rest = match parts.as_slice() {
        ["api", "v1", rest @ ..] => rest,
        ["apis", _group, _version, rest @ ..] => rest,
        _ => return None,
    };
    let own = |s: &str| s.to_owned();
    match rest {
        ["namespaces", ns, resource] => Some(((own(resource), own(ns), String::new()), String::new())),
        ["namespaces", ns, resource, name] => Some(((own(resource), own(ns), own(name)), String::new())),
        ["namespaces", ns, resource, name, sub] => Some(((own(resource), own(ns), own(name)), own(sub))),
        [resource] => Some(((own(resource), String::new(), String::new()), String::new())),
        [resource, name] => Some(((own(resource), String::new(), own(name)), String::new())),
        _ => None,
    }
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code});
    (code, body)
}

fn not_found(key: &Key) -> (u16, Value) {
    status(404, "NotFound", &format!("{} \"{}\" not found", key.0, key.2))
}

fn conflict(key: &Key, why: &str) -> (u16, Value) {
    status(409, "Conflict", &format!("Operation cannot be fulfilled on {} \"{}\": {why}", key.0, key.2))
}

fn list(store: &Store, key: &Key, query: &str) -> (u16, Value) {
    let query = query.replace("%2F", "/").replace("%3D", "=");
    let selector = query.split('&').find_map(|q| q.strip_prefix("labelSelector="));
    let fits = |object: &Value| match selector.and_then(|s| s.split_once('=')) {
        Some((name, value)) => object["metadata"]["labels"][name] == value,
        None => selector.is_none_or(|name| !object["metadata"]["labels"][name].is_null()),
    };
    let only = query.split('&').find_map(|q| q.strip_prefix("fieldSelector=metadata.name="));
    let items: Vec<&Value> = store
        .objects
        .iter()
        .filter(|((r, ns, _), o)| *r == key.0 && (key.1.is_empty() || *ns == key.1) && fits(o))
        .filter(|((_, _, name), _)| only.is_none_or(|only| name == only))
        .map(|(_, o)| o)
        .collect();
    store.listed.set(store.listed.get() + items.len() as u64);
    (
        200,
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": store.version.to_string()}, "items": items}),
    )
}

fn wrote(store: &mut Store, verb: &str, key: &Key) {
    let (resource, name) = (key.0.clone(), key.2.clone());
    store.writes.push(Write { verb: verb.to_owned(), resource, name });
}

fn create(store: &mut Store, mut key: Key, mut object: Value) -> (u16, Value) {
    key.2 = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if key.2.is_empty() {
        key.2 = format!("generated-{}", store.version);
        object["metadata"]["name"] = json!(key.2);
    }
    if store.objects.contains_key(&key) {
        return status(409, "AlreadyExists", &format!("{} \"{}\" already exists", key.0, key.2));
    }
    if let Some(why) = store.forbid_pods.as_ref().filter(|_| key.0 == "pods") {
        return status(403, "Forbidden", &why.clone());
    }
    if key.0 == "persistentvolumeclaims" {
        object["status"] = json!({"phase": "Pending"});
    }
    wrote(store, "create", &key);
    store.put(&key.0, object);
    (201, store.objects[&key].clone())
}

fn replace(store: &mut Store, key: Key, object: Value) -> (u16, Value) {
    let Some(had) = store.objects.get(&key) else { return not_found(&key) };
    if object["metadata"]["resourceVersion"] != had["metadata"]["resourceVersion"] {
        return conflict(&key, "the object has been modified");
    }
    wrote(store, "replace", &key);
    store.put(&key.0, object);
    (200, store.objects[&key].clone())
}

fn patch(store: &mut Store, key: Key, sub: &str, body: Value, apply: bool) -> (u16, Value) {
    let Some(had) = store.objects.get(&key).cloned() else {
        if !apply || !sub.is_empty() {
            return not_found(&key);
        }
        wrote(store, "apply", &key);
        store.applied.insert(key.clone(), body.clone());
        store.put(&key.0, body);
        return (201, store.objects[&key].clone());
    };
    let differs = |field: &str| {
        let said = &body["metadata"][field];
        !said.is_null() && *said != had["metadata"][field]
    };
    if differs("uid") {
        let (code, mut answer) = status(422, "Invalid", "metadata.uid: Invalid value: field is immutable");
        answer["details"] = json!({"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]});
        return (code, answer);
    }
    if differs("resourceVersion") {
        return conflict(&key, "resourceVersion differs");
    }
    let mut new = had.clone();
    if sub == "status" {
        new["status"] = body["status"].clone();
    } else {
        if apply && let Some(before) = store.applied.get(&key) {
            withdraw(&mut new, before, &body);
        }
        let keep = had["metadata"].clone();
        merge(&mut new, &body);
        new["metadata"]["uid"] = keep["uid"].clone();
    }
    wrote(store, if apply { "apply" } else { "patch" }, &key);
    if apply && sub.is_empty() {
        store.applied.insert(key.clone(), body);
    }
    if new != had {
        store.put(&key.0, new);
    }
    (200, store.objects[&key].clone())
}

/// Fields that were applied before and are not any more.
fn withdraw(object: &mut Value, before: &Value, now: &Value) {
    let (Some(map), Some(before)) = (object.as_object_mut(), before.as_object()) else { return };
    for (name, was) in before {
        match now.get(name) {
            None => drop(map.remove(name)),
            Some(is) => {
                if let Some(inner) = map.get_mut(name) {
                    withdraw(inner, was, is);
                }
            }
        }
    }
}

fn merge(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(map), Value::Object(patch)) => {
            for (name, value) in patch {
                match value {
                    Value::Null => drop(map.remove(name)),
                    value => merge(map.entry(name).or_insert(Value::Null), value),
                }
            }
        }
        (object, patch) => {
            *object = patch.clone();
        }
    }
}

fn delete(store: &mut Store, key: &Key, options: &Value) -> (u16, Value) {
    let Some(had) = store.objects.get(key).cloned() else { return not_found(key) };
    for field in ["uid", "resourceVersion"] {
        let wanted = &options["preconditions"][field];
        if !wanted.is_null() && *wanted != had["metadata"][field] {
            return conflict(key, &format!("the {field} in the precondition does not match"));
        }
    }
    wrote(store, "delete", key);
    let force = options["gracePeriodSeconds"] == 0;
    if let Some(mut told) = store.on_delete.take() {
        told(key, &had, force);
        store.on_delete = Some(told);
    }
    if key.0 == "pods" && !force && !had["spec"]["nodeName"].is_null() {
        let now = store.time();
        store.edit("pods", &key.2, |pod| {
            if pod["metadata"]["deletionTimestamp"].is_null() {
                pod["metadata"]["deletionTimestamp"] = json!(now);
            }
        });
    } else {
        store.take(key);
    }
    (200, had)
}

#[derive(Clone)]
pub(crate) struct Service(Api);

impl tower::Service<Request<Body>> for Service {
    type Response = Response<UnsyncBoxBody<Bytes, std::io::Error>>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
            let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
            count(&mut api.store.lock(), &head.method, &path, &query);
            if query.contains("watch=true") || query.contains("watch=1") {
                let resource = path.rsplit('/').next().unwrap_or_default().to_owned();
                let (to, events) = mpsc::unbounded();
                api.store.lock().watchers.push((resource, to));
                let frames = events.map(|line| Ok::<_, std::io::Error>(Frame::data(line)));
                return Response::builder()
                    .body(StreamBody::new(frames).boxed_unsync())
                    .map_err(std::io::Error::other);
            }
            let fault = {
                let mut store = api.store.lock();
                let mut decide = store.fault.take();
                let key = parse(&path).map(|(key, _)| key);
                let fault = decide.as_mut().zip(key).and_then(|(decide, key)| decide(&head.method, &key));
                store.fault = decide;
                fault
            };
            let (code, answer) = match fault {
                None => api.serve(&head.method, &path, &query, &body),
                Some(Fault::Conflict) => status(409, "Conflict", "made up"),
                Some(Fault::Internal) => status(500, "InternalError", "made up"),
                Some(Fault::Gone) => status(410, "Expired", "made up"),
                Some(Fault::NotFound) => status(404, "NotFound", "made up"),
                Some(Fault::TooMany) => status(429, "TooManyRequests", "made up"),
                Some(Fault::Forbidden) => status(403, "Forbidden", "made up"),
                Some(Fault::Ending) => {
                    let (code, mut answer) = status(403, "Forbidden", "made up");
                    answer["details"] = json!({"causes": [{"reason": "NamespaceTerminating"}]});
                    (code, answer)
                }
                Some(Fault::LostReply) => {
                    let _done = api.serve(&head.method, &path, &query, &body);
                    status(504, "Timeout", "made up")
                }
                Some(Fault::Hang) => {
                    tokio::time::sleep(Duration::from_secs(3600)).await;
                    status(504, "Timeout", "made up")
                }
            };
            let body =
                Full::new(Bytes::from(answer.to_string())).map_err(|never| match never {}).boxed_unsync();
            Response::builder().status(code).body(body).map_err(std::io::Error::other)
        })
    }
}
