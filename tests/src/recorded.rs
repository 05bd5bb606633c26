//! The protocol's operations, each written into the history: the only way in which a load talks to a node.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;

use crate::client::{Answer, Client, Failure, path};
use crate::history::{Action, History, Outcome, Pending, Stamp};
use crate::meaning;
pub use crate::meaning::From;
use crate::record::Record;

/// A stream as its users know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub text: Arc<str>,
    pub json: bool,
}

impl Name {
    /// Of what is appended to it.
    pub fn content_type(&self) -> &'static str {
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
        self.finish(pending, answer, meaning::created)
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
        self.finish(pending, answer, |a| meaning::appended(a, stamped))
    }

    /// DELETE.
    pub async fn delete(&self, name: &Name) -> Outcome {
        let pending = self.history.begin(&name.text, name.json, Action::Delete);
        let answer = self.client.send(Method::DELETE, &path(&name.text), &[], Bytes::new()).await;
        self.finish(pending, answer, meaning::deleted)
    }

    /// HEAD.
    pub async fn head(&self, name: &Name) -> Outcome {
        let pending = self.history.begin(&name.text, name.json, Action::Head);
        let answer = self.client.send(Method::HEAD, &path(&name.text), &[], Bytes::new()).await;
        self.finish(pending, answer, meaning::found)
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
        self.finish(pending, answer, |a| meaning::read(a, name.json, from))
    }

    fn finish(
        &self,
        pending: Pending,
        answer: Result<Answer, Failure>,
        success: impl Fn(&Answer) -> Option<Outcome>,
    ) -> Outcome {
        let (outcome, why) = meaning::of(&answer, success);
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
