//! What answers of the protocol mean, operation by operation.
//!
//! Used by whoever writes a history: `recorded` over real sockets, the simulation over simulated ones.

use anyhow::{Context, Result};
use serde_json::value::RawValue;

use crate::client::{Answer, Failure};
use crate::history::{Outcome, Reading, Refusal};
use crate::record::Content;

/// Where a reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    At(u64),
    Now,
}

impl From {
    /// As the protocol says it.
    pub fn text(self) -> String {
        match self {
            Self::At(offset) => format!("{offset:020}"),
            Self::Now => "now".to_owned(),
        }
    }
}

/// Of a PUT.
pub fn created(a: &Answer) -> Option<Outcome> {
    let closed = a.flag("stream-closed");
    match a.status {
        200 | 201 => Some(Outcome::Created { new: a.status == 201, next: a.next()?, closed }),
        _ => None,
    }
}

/// Of a POST, by a producer with numbers or not.
pub fn appended(a: &Answer, stamped: bool) -> Option<Outcome> {
    let closed = a.flag("stream-closed");
    match a.status {
        200 => Some(Outcome::Appended { duplicate: false, next: a.next()?, closed }),
        204 if !stamped => Some(Outcome::Appended { duplicate: false, next: a.next()?, closed }),
        // A producer's close without content is 204 both times: which it was, the answer does not say.
        204 => Some(Outcome::Appended { duplicate: true, next: a.next().unwrap_or(0), closed }),
        409 if a.header("producer-expected-seq").is_some() => Some(Outcome::Refused(Refusal::Producer)),
        403 | 400 if stamped => Some(Outcome::Refused(Refusal::Producer)),
        409 if !closed && !stamped => Some(Outcome::Refused(Refusal::SeqConflict)),
        _ => None,
    }
}

/// Of a DELETE.
pub fn deleted(a: &Answer) -> Option<Outcome> {
    (a.status == 204).then_some(Outcome::Deleted)
}

/// Of a HEAD.
pub fn found(a: &Answer) -> Option<Outcome> {
    let closed = a.flag("stream-closed");
    (a.status == 200).then_some(Outcome::Found { next: a.next()?, closed })
}

/// Of a GET.
pub fn read(a: &Answer, json: bool, from: From) -> Option<Outcome> {
    match a.status {
        200 | 204 => reading(json, from, a).map(Outcome::Read),
        _ => None,
    }
}

/// What an exchange means, and why that is unknown if it is: `success` reads the answers it knows.
pub fn of(
    answer: &Result<Answer, Failure>,
    success: impl Fn(&Answer) -> Option<Outcome>,
) -> (Outcome, Option<String>) {
    let outcome = outcome(answer, success);
    let why = || match answer {
        Ok(a) => format!("{} {:?}", a.status, a.body.slice(..a.body.len().min(300))),
        Err(e) => format!("{e:?}"),
    };
    let why = (outcome == Outcome::Unknown).then(why);
    (outcome, why)
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
fn outcome(answer: &Result<Answer, Failure>, success: impl Fn(&Answer) -> Option<Outcome>) -> Outcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(Failure::NotSent(_)) => return Outcome::Refused(Refusal::NotSent),
        Err(Failure::Cut(_) | Failure::Late) => return Outcome::Unknown,
    };
    if let Some(outcome) = success(answer) {
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
