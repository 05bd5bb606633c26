//! A small HTTP client for streams that tells three things apart: answered, surely not sent, and unknown.
//!
//! One client is one pool of connections; a load uses several.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// A header's text; empty bytes never stand for absence.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// `Stream-Next-Offset`.
    pub fn next(&self) -> Option<u64> {
        self.header("stream-next-offset")?.parse().ok()
    }

    /// Whether a header that says `true` or nothing says `true`.
    pub fn flag(&self, name: &str) -> bool {
        self.header(name) == Some("true")
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// No connection, so the server saw nothing.
    NotSent(String),
    /// The connection ended before the answer did.
    Cut(String),
    /// No answer in time.
    Late,
}

/// A pool of connections to one address.
#[derive(Debug, Clone)]
pub struct Client {
    pool: Pool<HttpConnector, Full<Bytes>>,
    base: String,
    deadline: Duration,
    /// Redirects that are followed for one request.
    hops: usize,
}

impl Client {
    /// A client for `http://<address>`, whose requests take no longer than `deadline`.
    pub fn new(address: &str, deadline: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(deadline));
        let pool = Pool::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Self { pool, base: format!("http://{address}"), deadline, hops: 0 }
    }

    /// Whether it goes where a redirect leads, a few times for one request, with body and all.
    #[must_use]
    pub fn following(self, follow: bool) -> Self {
        Self { hops: if follow { 4 } else { 0 }, ..self }
    }

    /// Sends one request to `target` (path and query) and takes the whole answer.
    pub async fn send(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer, Failure> {
        match tokio::time::timeout(self.deadline, self.exchange(method, target, headers, body)).await {
            Ok(result) => result,
            Err(_late) => Err(Failure::Late),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer, Failure> {
        let mut uri = format!("{}{target}", self.base);
        let mut hops = self.hops;
        loop {
            let mut request = Request::builder().method(method.clone()).uri(&uri);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.body(Full::new(body.clone())).expect("the test's request is well formed");
            let answer = self.once(request).await?;
            // Whoever redirects has done nothing.
            match answer.header("location").filter(|_| answer.status == 307 && hops > 0) {
                Some(location) => uri = location.to_owned(),
                None => return Ok(answer),
            }
            hops -= 1;
        }
    }

    async fn once(&self, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let response = self.pool.request(request).await.map_err(|e| {
            let why = chain(&e);
            if e.is_connect() { Failure::NotSent(why) } else { Failure::Cut(why) }
        })?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|e| Failure::Cut(chain(&e)))?.to_bytes();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// A GET that must be answered 200, as text.
    pub async fn get_text(&self, target: &str) -> anyhow::Result<String> {
        let answer = self
            .send(Method::GET, target, &[], Bytes::new())
            .await
            .map_err(|e| anyhow::anyhow!("GET {target}: {e:?}"))?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        anyhow::ensure!(answer.status == StatusCode::OK.as_u16(), "GET {target}: {} {text}", answer.status);
        Ok(text)
    }
}

fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut source = e.source();
    while let Some(e) = source {
        text = format!("{text}: {e}");
        source = e.source();
    }
    text
}

/// The path of a stream; `name` is already fit for a URL.
pub fn path(name: &str) -> String {
    format!("/v1/stream/{name}")
}
