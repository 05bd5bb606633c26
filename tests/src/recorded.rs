//! The protocol's operations, each written into the history: the only way in which a load talks to a node.

use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;
use serde_json::value::RawValue;

use crate::client::{Answer, Client, Failure, path};
use crate::history::{Action, History, Outcome, Pending, Reading, Refusal, Stamp};
use crate::record::{Content, Record};

/// A stream as its users know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub text: Arc<str>,
    pub json: bool,
}

impl Name {
    fn content_type(&self) -> &'static str {
        if self.json { "application/json" } else { "application/octet-stream" }
    }
}

/// What an append carries.
#[derive(Debug, Clone, Default)]
pub struct Append {
    pub record: Option<Record>,
    pub producer: Option<Stamp>,
    pub seq: Option<u64>,
    pub closes: bool,
}

/// Where a reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    At(u64),
    Now,
}

impl From {
    fn text(self) -> String {
        match self {
            Self::At(offset) => format!("{offset:020}"),
            Self::Now => "now".to_owned(),
        }
    }
}

/// A client that writes down what it does.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub client: Client,
    pub history: Arc<History>,
}

impl Recorded {
    /// PUT.
    pub async fn create(&self, name: &Name, first: Option<Record>, closed: bool) -> Outcome {
        let pending = self.history.begin(&name.text, name.json, Action::Create { first, closed });
        let mut headers = vec![("content-type", name.content_type())];
        if closed {
            headers.push(("stream-closed", "true"));
        }
        let body = first.map_or(Bytes::new(), |r| r.body(name.json));
        let answer = self.client.send(Method::PUT, &path(&name.text), &headers, body).await;
        self.finish(pending, answer, |a| match a.status {
            200 | 201 => Some(Outcome::Created {
                new: a.status == 201,
                next: a.next()?,
                closed: a.flag("stream-closed"),
            }),
            _ => None,
        })
    }

    /// POST.
    pub async fn append(&self, name: &Name, append: &Append) -> Outcome {
        let Append { record, producer, seq, closes } = append;
        let (record, seq, closes) = (*record, *seq, *closes);
        let action = Action::Append { record, producer: producer.clone(), seq, closes };
        let pending = self.history.begin(&name.text, name.json, action);
        let seq = seq.map(|s| format!("{s:012}"));
        let numbers = producer.as_ref().map(|p| (p.epoch.to_string(), p.seq.to_string()));
        let mut headers = vec![("content-type", name.content_type())];
        if let (Some(p), Some((epoch, number))) = (producer, &numbers) {
            headers.extend([("producer-id", &*p.id), ("producer-epoch", epoch), ("producer-seq", number)]);
        }
        if let Some(seq) = &seq {
            headers.push(("stream-seq", seq));
        }
        if closes {
            headers.push(("stream-closed", "true"));
        }
        let body = record.map_or(Bytes::new(), |r| r.body(name.json));
        let answer = self.client.send(Method::POST, &path(&name.text), &headers, body).await;
        let stamped = producer.is_some();
        self.finish(pending, answer, |a| {
            let closed = a.flag("stream-closed");
            match a.status {
                200 => Some(Outcome::Appended { duplicate: false, next: a.next()?, closed }),
                204 if !stamped => Some(Outcome::Appended { duplicate: false, next: a.next()?, closed }),
                // A producer's close without content is 204 both times: which it was, the answer does not say.
                204 => Some(Outcome::Appended { duplicate: true, next: a.next().unwrap_or(0), closed }),
                409 if a.header("producer-expected-seq").is_some() => {
                    Some(Outcome::Refused(Refusal::Producer))
                }
                403 | 400 if stamped => Some(Outcome::Refused(Refusal::Producer)),
                409 if !closed && !stamped => Some(Outcome::Refused(Refusal::SeqConflict)),
                _ => None,
            }
        })
    }

    /// DELETE.
    pub async fn delete(&self, name: &Name) -> Outcome {
        let pending = self.history.begin(&name.text, name.json, Action::Delete);
        let answer = self.client.send(Method::DELETE, &path(&name.text), &[], Bytes::new()).await;
        self.finish(pending, answer, |a| (a.status == 204).then_some(Outcome::Deleted))
    }

    /// HEAD.
    pub async fn head(&self, name: &Name) -> Outcome {
        let pending = self.history.begin(&name.text, name.json, Action::Head);
        let answer = self.client.send(Method::HEAD, &path(&name.text), &[], Bytes::new()).await;
        self.finish(pending, answer, |a| {
            let closed = a.flag("stream-closed");
            (a.status == 200).then_some(Outcome::Found { next: a.next()?, closed })
        })
    }

    /// One catch-up GET.
    pub async fn read(&self, name: &Name, from: From) -> Outcome {
        self.get(name, from, "").await
    }

    /// One long-poll.
    pub async fn long_poll(&self, name: &Name, from: From) -> Outcome {
        self.get(name, from, "&live=long-poll").await
    }

    async fn get(&self, name: &Name, from: From, live: &str) -> Outcome {
        let pending = self.history.begin(&name.text, name.json, Action::Read);
        let target = format!("{}?offset={}{live}", path(&name.text), from.text());
        let answer = self.client.send(Method::GET, &target, &[], Bytes::new()).await;
        self.finish(pending, answer, |a| match a.status {
            200 | 204 => reading(name.json, from, a).map(Outcome::Read),
            _ => None,
        })
    }

    fn finish(
        &self,
        pending: Pending,
        answer: Result<Answer, Failure>,
        success: impl Fn(&Answer) -> Option<Outcome>,
    ) -> Outcome {
        let failure = match &answer {
            Ok(a) => format!("{} {:?}", a.status, a.body.slice(..a.body.len().min(300))),
            Err(e) => format!("{e:?}"),
        };
        let outcome = outcome(answer, success);
        let why = (outcome == Outcome::Unknown).then_some(failure);
        self.history.end(pending, outcome.clone(), why);
        outcome
    }

    /// Catch-up from `from` until an answer says that it is up to date. The last outcome is the verdict.
    pub async fn read_all(&self, name: &Name, from: u64) -> Outcome {
        let mut from = From::At(from);
        loop {
            let outcome = self.read(name, from).await;
            match &outcome {
                Outcome::Read(r) if !r.up_to_date && !r.closed && !r.content.is_empty() => {
                    from = From::At(r.next);
                }
                _ => return outcome,
            }
        }
    }
}

fn reading(json: bool, from: From, a: &Answer) -> Option<Reading> {
    let next = a.next()?;
    let content = content(json, a).expect("a 200 holds what its content type says");
    let from = match from {
        // From beyond the tail nothing is read, at the tail.
        From::At(offset) if content.is_empty() => offset.min(next),
        From::At(offset) => offset,
        From::Now => next - content.len(),
    };
    let (up_to_date, closed) = (a.flag("stream-up-to-date"), a.flag("stream-closed"));
    Some(Reading { from, content, next, up_to_date, closed })
}

fn content(json: bool, a: &Answer) -> Result<Content> {
    if !json {
        return Ok(Content::Bytes(a.body.clone()));
    }
    if a.status == 204 {
        return Ok(Content::empty(true));
    }
    let elements: Vec<&RawValue> =
        serde_json::from_slice(&a.body).with_context(|| format!("no JSON array: {:?}", a.body))?;
    Ok(Content::Json(elements.into_iter().map(|e| e.get().into()).collect()))
}

/// What an exchange means: `success` reads the answers it knows, the rest is the same for every operation.
fn outcome(answer: Result<Answer, Failure>, success: impl Fn(&Answer) -> Option<Outcome>) -> Outcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(Failure::NotSent(_)) => return Outcome::Refused(Refusal::NotSent),
        Err(Failure::Cut(_) | Failure::Late) => return Outcome::Unknown,
    };
    if let Some(outcome) = success(&answer) {
        return outcome;
    }
    match answer.status {
        404 | 410 => Outcome::Refused(Refusal::Missing),
        409 if answer.flag("stream-closed") => {
            Outcome::Refused(Refusal::Closed { next: answer.next().unwrap_or(0) })
        }
        200..=299 => panic!("no such answer is in the protocol: {answer:?}"),
        503 | 429 => Outcome::Refused(Refusal::Unavailable),
        status @ (300..=499) => Outcome::Refused(Refusal::Other(status)),
        _ => Outcome::Unknown,
    }
}
