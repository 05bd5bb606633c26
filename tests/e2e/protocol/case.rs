//! One row of a protocol table: a request and what its answer must be.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Deserialize;
use weir_tests::client::{Answer, Client};
use weir_tests::node::Setup;

#[derive(Debug, Clone)]
enum Expect {
    Has(&'static str, String),
    Some(&'static str),
    Lacks(&'static str),
    /// The body is exactly this.
    Body(Bytes),
    /// The error names this.
    Names(&'static str),
    /// The body is a problem document with exactly this field at fault.
    Problem(Option<&'static str>),
}

#[derive(Debug, Clone)]
pub(super) struct Case {
    method: Method,
    target: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    status: u16,
    expects: Vec<Expect>,
}

/// An error's body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Problem {
    title: String,
    status: u16,
    detail: String,
    field: Option<String>,
}

/// An offset as the server writes it.
pub(super) fn offset(n: u64) -> String {
    format!("{n:020}")
}

fn case(method: Method, name: &str) -> Case {
    let target = if name.starts_with('/') { name.to_owned() } else { format!("/v1/stream/{name}") };
    let (headers, expects) = (Vec::new(), Vec::new());
    Case { method, target, headers, body: Bytes::new(), status: 0, expects }
}

pub(super) fn put(name: &str) -> Case {
    case(Method::PUT, name)
}

pub(super) fn post(name: &str) -> Case {
    case(Method::POST, name)
}

pub(super) fn get(name: &str) -> Case {
    case(Method::GET, name)
}

pub(super) fn head(name: &str) -> Case {
    case(Method::HEAD, name)
}

pub(super) fn delete(name: &str) -> Case {
    case(Method::DELETE, name)
}

pub(super) fn request(method: &str, name: &str) -> Case {
    case(method.parse().unwrap(), name)
}

impl Case {
    /// A request header.
    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    pub(super) fn text(self) -> Self {
        self.with("content-type", "text/plain")
    }

    pub(super) fn json(self) -> Self {
        self.with("content-type", "application/json")
    }

    pub(super) fn closing(self) -> Self {
        self.with("stream-closed", "true")
    }

    pub(super) fn producer(self, id: &str, epoch: impl ToString, seq: impl ToString) -> Self {
        self.with("producer-id", id).with("producer-epoch", epoch).with("producer-seq", seq)
    }

    pub(super) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The answer's status.
    pub(super) fn is(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// The answer has this header with exactly this value.
    pub(super) fn has(mut self, name: &'static str, value: impl ToString) -> Self {
        self.expects.push(Expect::Has(name, value.to_string()));
        self
    }

    pub(super) fn some(mut self, name: &'static str) -> Self {
        self.expects.push(Expect::Some(name));
        self
    }

    pub(super) fn lacks(mut self, name: &'static str) -> Self {
        self.expects.push(Expect::Lacks(name));
        self
    }

    pub(super) fn next(self, offset_after: u64) -> Self {
        self.has("stream-next-offset", offset(offset_after))
    }

    pub(super) fn gives(mut self, body: impl Into<Bytes>) -> Self {
        self.expects.push(Expect::Body(body.into()));
        self
    }

    pub(super) fn names(mut self, field: &'static str) -> Self {
        self.expects.push(Expect::Names(field));
        self
    }

    /// A problem document that blames exactly this part of the request.
    pub(super) fn blames(mut self, field: &'static str) -> Self {
        self.expects.push(Expect::Problem(Some(field)));
        self
    }

    /// A problem document that blames no part of the request by itself.
    pub(super) fn refused(mut self) -> Self {
        self.expects.push(Expect::Problem(None));
        self
    }

    /// Whether this row is one of bad input.
    pub(super) fn is_refusal(&self) -> bool {
        self.status >= 400
    }

    fn is_problem(&self, answer: &Answer, field: Option<&str>) -> bool {
        let Ok(problem) = serde_json::from_slice::<Problem>(&answer.body) else { return false };
        let title = StatusCode::from_u16(self.status).ok().and_then(|s| s.canonical_reason());
        problem.status == self.status
            && Some(problem.title.as_str()) == title
            && problem.field.as_deref() == field
            && !problem.detail.is_empty()
            && answer.header("content-type") == Some("application/problem+json")
            && answer.header("cache-control") == Some("no-store")
    }

    fn complaints(&self, answer: &Answer) -> Vec<String> {
        let mut found = Vec::new();
        if answer.status != self.status {
            found.push(format!("status {}, not {}", answer.status, self.status));
        }
        for name in ["x-content-type-options", "cross-origin-resource-policy", "access-control-allow-origin"]
        {
            if answer.header(name).is_none() {
                found.push(format!("no {name}"));
            }
        }
        for expect in &self.expects {
            let bad = match expect {
                Expect::Has(name, value) => answer.header(name) != Some(value),
                Expect::Some(name) => answer.header(name).is_none(),
                Expect::Lacks(name) => answer.header(name).is_some(),
                Expect::Body(body) => answer.body != body,
                Expect::Problem(field) => !self.is_problem(answer, *field),
                Expect::Names(field) => !String::from_utf8_lossy(&answer.body).contains(field),
            };
            if bad {
                found.push(format!("not {expect:?}"));
            }
        }
        found
    }
}

/// Runs the tables against a fresh node and reports every row that is answered otherwise.
pub(super) async fn run(setup: Setup, tables: &[(&str, Vec<Case>)]) {
    let setup = setup.flag("long-poll-timeout", "250ms").flag("max-body", "64KiB");
    let mut node = setup.start().await.unwrap();
    let client: Client = node.client().await.unwrap();
    let mut wrong = Vec::new();
    for (table, rows) in tables {
        for (n, row) in rows.iter().enumerate() {
            let headers: Vec<(&str, &str)> = row.headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
            let answer = client.send(row.method.clone(), &row.target, &headers, row.body.clone()).await;
            let complaints = match &answer {
                Ok(answer) => row.complaints(answer),
                Err(e) => vec![format!("no answer: {e:?}")],
            };
            if !complaints.is_empty() {
                let (method, target) = (&row.method, &row.target);
                let target: String = target.chars().take(80).collect();
                wrong.push(format!(
                    "{table}[{n}] {method} {target} {headers:?}: {complaints:?}; got {answer:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}
