//! One request to its end: redirects followed, trouble waited out, time bounded.
//!
//! Invariant: only what is safe is sent again. *Safe* requests may take effect twice without harm; others go again only
//! if the server cannot have acted on them. Whether an earlier try may have taken effect is part of the answer.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, response};
use http_body_util::Full;
use tokio::time::{Instant, sleep};

use super::connection::{Body, Broken, Pool};
use super::failure::{Failure, Refused};
use super::origin::Origin;
use super::redirect::{self, HOPS_MAX, Place};
use super::retry::{self, Verdict};
use crate::clock::{self, Clock};
use crate::tasks::Tasks;

/// Longest body of an error that is read.
const ERROR_MAX: usize = 64 << 10;

/// Whether a request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// At any time: twice is as good as once.
    Safe,
    /// Only if the server has surely not acted on it.
    IfUntouched,
}

/// What to ask.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// Header fields beside those of the connection.
    pub headers: HeaderMap,
    /// The body; empty for none.
    pub body: Bytes,
    /// See there.
    pub repeat: Repeat,
    /// For all tries together; none begins later.
    pub patience: Duration,
    /// For the head of one try's answer. If it is longer than the patience, a try that has begun may take as long.
    pub head_wait: Duration,
}

/// The head of a good answer, and its body as it comes.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Body,
    /// An earlier try may have taken effect.
    pub repeated: bool,
}

impl Answer {
    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// Whether a flag is set.
    pub fn flag(&self, name: &str) -> bool {
        self.header(name).is_some_and(|v| v.eq_ignore_ascii_case("true"))
    }
}

/// A client of one server. Clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    pool: Pool,
    origin: Origin,
    clock: Clock,
    patience: Duration,
}

impl Client {
    /// `patience`: for one request with all its tries.
    pub fn new(origin: Origin, patience: Duration, tasks: Tasks, clock: Clock) -> Self {
        Self { pool: Pool::new(tasks, clock.clone()), origin, clock, patience }
    }

    /// The server it was made for.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// A request of this client's patience.
    pub fn ask(&self, method: Method, target: impl Into<String>, repeat: Repeat) -> Ask {
        Ask {
            method,
            target: target.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            repeat,
            patience: self.patience,
            head_wait: self.patience,
        }
    }

    /// Sends it, as often as it takes and may; answers with a status below 400 alone.
    pub async fn send(&self, ask: Ask) -> Result<Answer, Failure> {
        let end = self.clock.monotonic() + ask.patience;
        let (mut tries, mut doubt) = (0, false);
        loop {
            let now = self.clock.monotonic();
            let head_end = if ask.head_wait > ask.patience { now + ask.head_wait } else { end };
            let (why, wait) = match self.follow(&ask, head_end).await? {
                Ok((head, body)) => match retry::verdict(head.status) {
                    Verdict::Final => return finish(head, body, doubt).await,
                    Verdict::Later => {
                        let asked = retry::asked(&head.headers);
                        (self.told(head, body).await, asked)
                    }
                    Verdict::Unknown => {
                        doubt = true;
                        (self.told(head, body).await, None)
                    }
                },
                Err(Broken::NotSent(why)) => (why, None),
                Err(Broken::Cut(why)) => {
                    doubt = true;
                    (format!("{why} (from {})", self.origin), None)
                }
            };
            let pause = retry::pause(tries, wait, clock::random_u64());
            let may = !doubt || ask.repeat == Repeat::Safe;
            if !may || self.clock.monotonic() + pause >= end {
                let harmless = matches!(ask.method, Method::GET | Method::HEAD);
                return Err(if doubt && !harmless {
                    Failure::Unknown(why)
                } else {
                    Failure::Unavailable(why)
                });
            }
            sleep(pause).await;
            tries += 1;
        }
    }

    /// One try, through redirects. The outer error ends all tries.
    async fn follow(
        &self,
        ask: &Ask,
        end: Instant,
    ) -> Result<Result<(response::Parts, Body), Broken>, Failure> {
        let mut place = Place { origin: self.origin.clone(), target: ask.target.clone() };
        let mut headers = ask.headers.clone();
        for _ in 0..=HOPS_MAX {
            let request = self.request(ask, &place, &headers)?;
            let (head, body) = match self.pool.exchange(&place.origin, request, end).await {
                Ok(answer) => answer,
                Err(broken) => return Ok(Err(broken)),
            };
            match redirect::followed(&place, head.status, &head.headers, &mut headers) {
                Ok(None) => return Ok(Ok((head, body))),
                Ok(Some(next)) => place = next,
                Err(why) => return Err(Failure::Nonsense(why)),
            }
            // Read to its end, so that the connection can be used again; how it ends does not matter.
            drop(body.whole(ERROR_MAX).await);
        }
        Err(Failure::Nonsense(format!("{} redirects more than {HOPS_MAX} times", self.origin)))
    }

    fn request(
        &self,
        ask: &Ask,
        place: &Place,
        headers: &HeaderMap,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let bad = |e: http::Error| Failure::Nonsense(format!("cannot ask for {}: {e}", place.target));
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(&place.target)
            .header(HOST, &place.origin.authority)
            .body(Full::new(ask.body.clone()))
            .map_err(bad)?;
        request.headers_mut().extend(headers.clone());
        let agent = HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        Ok(request)
    }

    /// What an error says, for a message.
    async fn told(&self, head: response::Parts, body: Body) -> String {
        let refused = refusal(head, body).await;
        format!("{} answers {}: {refused}", self.origin, refused.status.as_u16())
    }
}

async fn refusal(head: response::Parts, body: Body) -> Refused {
    let text = body.whole(ERROR_MAX).await.unwrap_or_default();
    Refused::new(head.status, head.headers, &text)
}

async fn finish(head: response::Parts, body: Body, repeated: bool) -> Result<Answer, Failure> {
    if head.status.is_client_error() || head.status.is_server_error() {
        let mut refused = refusal(head, body).await;
        refused.repeated = repeated;
        return Err(Failure::Refused(Box::new(refused)));
    }
    Ok(Answer { status: head.status, headers: head.headers, body, repeated })
}
