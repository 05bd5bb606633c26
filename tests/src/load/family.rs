//! Streams forked from each other, and streams that end by themselves: one worker that knows what each must hold.
//!
//! Every name has one writer, which waits for its answers, so what a stream holds is known to the byte (or, while an
//! append has no answer, one of two things). Names are never used twice. A fork must begin with what its source held
//! at the offset, whatever becomes of the source; a stream with a TTL must be there for that long after each answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use http::Method;
use tokio::time::Instant;

use super::Load;
use crate::client::{Answer, Client, Failure, path};
use crate::rng::Rng;
use crate::wait;

/// How many streams are remembered; more are deleted.
const REMEMBERED: usize = 10;
/// The TTL of streams that are to end soon.
const SHORT: Duration = Duration::from_secs(1);
/// How long the worker rests between two actions, so that it does not crowd out the others.
const PAUSE: Duration = Duration::from_millis(4);

#[derive(Debug, Clone)]
struct Branch {
    name: String,
    holds: String,
    /// An append without an answer.
    perhaps: Option<String>,
}

/// A stream with a TTL, and when the last request that it answered was sent.
#[derive(Debug, Clone)]
struct Mortal {
    name: String,
    used: Instant,
}

/// The worker's memory. It outlives the node's processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Family {
    seed: u64,
    named: u64,
    branches: Vec<Branch>,
    mortal: Option<Mortal>,
    broken: Vec<String>,
}

impl Family {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    fn name(&mut self, kind: &str) -> String {
        self.named += 1;
        format!("{kind}-{}-{}", self.seed, self.named)
    }

    async fn act(&mut self, client: &Client, rng: &mut Rng) {
        let first = format!("{};", rng.below(1_000_000));
        match rng.below(10) {
            _ if self.branches.is_empty() => self.found(client, first).await,
            0 => self.found(client, first).await,
            1..4 => self.append(client, first, rng).await,
            4..7 => self.fork(client, first, rng).await,
            7 => self.live_on(client).await,
            _ if self.branches.len() > REMEMBERED => self.delete(client, rng).await,
            _ => {
                let at = rng.index(self.branches.len());
                if let Some(answer) = read(client, &self.branches[at].name).await {
                    self.compare(at, &answer, false);
                }
            }
        }
    }

    async fn found(&mut self, client: &Client, first: String) {
        let name = self.name("family");
        let answer = send(client, Method::PUT, &path(&name), &[("content-type", "text/plain")], &first).await;
        if answer.is_ok_and(|a| a.status == 201) {
            self.branches.push(Branch { name, holds: first, perhaps: None });
        }
    }

    async fn append(&mut self, client: &Client, more: String, rng: &mut Rng) {
        let at = rng.index(self.branches.len());
        let branch = &mut self.branches[at];
        if branch.perhaps.is_some() {
            return;
        }
        let target = path(&branch.name);
        match send(client, Method::POST, &target, &[("content-type", "text/plain")], &more).await {
            Ok(a) if a.status == 204 => branch.holds.push_str(&more),
            Ok(a) if a.status == 503 => {}
            Err(Failure::NotSent(_)) => {}
            Ok(a) if a.status == 504 => branch.perhaps = Some(more),
            Err(Failure::Cut(_) | Failure::Late) => branch.perhaps = Some(more),
            Ok(a) => self.broken.push(format!("POST {target}: {a:?}")),
        }
    }

    async fn fork(&mut self, client: &Client, own: String, rng: &mut Rng) {
        let source = self.branches[rng.index(self.branches.len())].clone();
        if source.perhaps.is_some() {
            return;
        }
        let (name, own) = (self.name("fork"), if rng.one_in(2) { own } else { String::new() });
        let at = if rng.one_in(2) { source.holds.len() } else { rng.index(source.holds.len() + 1) };
        let (from, offset) = (path(&source.name), format!("{at:020}"));
        let mut fields = vec![("stream-forked-from", from.as_str())];
        if at < source.holds.len() || rng.one_in(2) {
            fields.push(("stream-fork-offset", &offset));
        }
        let holds = format!("{}{own}", &source.holds[..at]);
        match send(client, Method::PUT, &path(&name), &fields, &own).await {
            Ok(a) if a.status == 201 => {
                if a.next() != Some(holds.len() as u64) {
                    self.broken.push(format!("a fork of {source:?} at {at} with {own:?}: {a:?}"));
                }
                self.branches.push(Branch { name, holds, perhaps: None });
            }
            Ok(a) if matches!(a.status, 503 | 504) => {}
            Ok(a) => self.broken.push(format!("a fork of {source:?} at {at}: {a:?}")),
            Err(_) => {}
        }
    }

    async fn delete(&mut self, client: &Client, rng: &mut Rng) {
        let gone = self.branches.swap_remove(rng.index(self.branches.len()));
        if let Ok(a) = send(client, Method::DELETE, &path(&gone.name), &[], "").await
            && !matches!(a.status, 204 | 503 | 504)
        {
            self.broken.push(format!("DELETE of {gone:?}: {a:?}"));
        }
    }

    /// Uses the stream with the TTL, or makes the next one.
    async fn live_on(&mut self, client: &Client) {
        let used = Instant::now();
        let Some(mortal) = self.mortal.take() else {
            let name = self.name("mortal");
            let fields = [("content-type", "text/plain"), ("stream-ttl", "1")];
            let answer = send(client, Method::PUT, &path(&name), &fields, "brief").await;
            self.mortal = answer.is_ok_and(|a| a.status == 201).then_some(Mortal { name, used });
            return;
        };
        let answer = send(client, Method::GET, &path(&mortal.name), &[], "").await;
        self.mortal = self.judge(&mortal, used, answer.ok());
    }

    /// What an answer says of the stream with the TTL; `None` once it has ended.
    fn judge(&mut self, mortal: &Mortal, used: Instant, answer: Option<Answer>) -> Option<Mortal> {
        match answer {
            Some(a) if a.status == 200 => {
                // Now and then it is left alone, so that it ends.
                (used.elapsed() < SHORT && !self.named.is_multiple_of(3))
                    .then(|| Mortal { used, ..mortal.clone() })
            }
            Some(a) if a.status == 404 => {
                let since = mortal.used.elapsed();
                if since < SHORT {
                    self.broken.push(format!("{mortal:?} ended {since:?} after a use"));
                }
                None
            }
            Some(a) if matches!(a.status, 503 | 504) => Some(mortal.clone()),
            None => Some(mortal.clone()),
            Some(a) => {
                self.broken.push(format!("GET of {mortal:?}: {a:?}"));
                None
            }
        }
    }

    /// `settled`: what has had no answer so far is there, or never will be: its process is dead.
    fn compare(&mut self, at: usize, answer: &Answer, settled: bool) {
        let branch = &mut self.branches[at];
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if let Some(more) = branch.perhaps.take()
            && (text == format!("{}{more}", branch.holds) || !settled)
        {
            if text == branch.holds {
                // It may yet come: a store that hangs has it perhaps.
                branch.perhaps = Some(more);
                return;
            }
            branch.holds.push_str(&more);
        }
        if answer.status != 200 || text != branch.holds {
            self.broken.push(format!("{branch:?} reads as {answer:?}"));
        }
    }

    /// Everything that is remembered is there, to the byte.
    pub(super) async fn verify(&mut self, client: &Client, patience: Duration) -> Result<()> {
        let reads = self.branches.iter().map(|branch| async {
            let what = format!("{} to be read", branch.name);
            wait::until(&what, patience, || async { Ok(read(client, &branch.name).await) }).await
        });
        let answers = try_join_all(reads).await?;
        for (at, answer) in answers.iter().enumerate() {
            self.compare(at, answer, true);
        }
        if let Some(mortal) = self.mortal.take() {
            let used = Instant::now();
            let answer = send(client, Method::GET, &path(&mortal.name), &[], "").await;
            self.mortal = self.judge(&mortal, used, answer.ok());
        }
        ensure!(self.broken.is_empty(), "of forks and ends:\n{}", self.broken.join("\n"));
        Ok(())
    }
}

impl Load {
    /// The node's wall clock is set: streams with a TTL that are not open may end by that.
    pub async fn clock_jumps(&self) {
        self.family.lock().await.mortal = None;
    }

    /// The worker.
    pub(super) async fn raise_family(&self, client: &Client, mut rng: Rng, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            self.family.lock().await.act(client, &mut rng).await;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn send(
    client: &Client,
    method: Method,
    target: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> Result<Answer, Failure> {
    client.send(method, target, fields, Bytes::copy_from_slice(body.as_bytes())).await
}

/// All of a stream, in as many answers as it takes; `None`: not now.
async fn read(client: &Client, name: &str) -> Option<Answer> {
    let mut body = Vec::new();
    let mut next = 0;
    loop {
        let target = format!("{}?offset={next:020}", path(name));
        let answer = send(client, Method::GET, &target, &[], "").await.ok()?;
        match answer.status {
            200 => body.extend_from_slice(&answer.body),
            503 | 504 => return None,
            _ => return Some(answer),
        }
        next = answer.next()?;
        if answer.flag("stream-up-to-date") {
            return Some(Answer { body: body.into(), ..answer });
        }
    }
}
