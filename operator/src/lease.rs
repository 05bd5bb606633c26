//! Which operator process acts: election by a Lease.
//!
//! Invariant: at most one process believes that it leads, if clocks run at about one speed; wall clocks are compared with
//! nothing: a lease has expired when this process has not seen it change for its duration, the holder's or its own, whichever
//! is longer. Who has not renewed within two thirds of that, counted from before the last attempt that succeeded, gives up at
//! that moment, whatever hangs, and its process ends. The lease fences nothing; what the operator does is safe when done
//! twice. [`judge`] is pure. Called by `run`.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The longest duration of a lease, in seconds: one of another's that says more is not waited for any longer.
pub const LONGEST: u64 = 300;

/// How an election is held.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// This process.
    pub identity: String,
    /// How long a lease holds.
    pub duration: Duration,
}

/// What to do about a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Take or renew it.
    Write,
    /// Another holds it.
    Wait,
}

/// A lease's state, as far as it counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// By whom; none: free.
    pub holder: Option<String>,
    /// Changes at each write.
    pub version: Option<String>,
    /// How long its holder has it hold, by what stands there.
    pub duration: Option<Duration>,
}

/// Whether this process may write the lease: it is free, its own, or has not changed for its duration. The holder may have
/// been started with another duration than this process, and gives up by its own.
pub fn judge(me: &str, held: &Held, unchanged_for: Duration, duration: Duration) -> Verdict {
    let theirs = held.duration.unwrap_or(duration).min(Duration::from_secs(LONGEST));
    match held.holder.as_deref() {
        None | Some("") => Verdict::Write,
        Some(holder) if holder == me => Verdict::Write,
        Some(_) if unchanged_for >= duration.max(theirs) => Verdict::Write,
        Some(_) => Verdict::Wait,
    }
}

/// An election.
#[derive(Debug, Clone)]
pub struct Election {
    api: Api<Lease>,
    terms: Terms,
}

/// Why an attempt failed; all are tried again.
#[derive(Debug, thiserror::Error)]
enum Miss {
    #[error("{0}")]
    Api(Box<kube::Error>),
    #[error("no answer in time")]
    Late,
    /// By another, or by an attempt of this process that was given up.
    #[error("it was changed meanwhile")]
    Changed,
}

impl Election {
    /// An election for these terms.
    pub fn new(client: Client, terms: Terms) -> Self {
        Self { api: Api::namespaced(client, &terms.namespace), terms }
    }

    fn pause(&self) -> Duration {
        self.terms.duration / 5
    }

    /// Resolves when this process leads: since before when. `None` if it is told to stop first.
    pub async fn won(&self, stop: &CancellationToken) -> Option<Instant> {
        let mut seen = (Held::default(), Instant::now());
        loop {
            let began = Instant::now();
            match self.attempt(&mut seen).await {
                Ok(true) => return Some(began),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "no word on the lease"),
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(self.pause()) => {}
            }
        }
    }

    /// Holds the lease, which was won at `renewed`, and resolves when it is lost: why.
    pub async fn hold(&self, mut renewed: Instant) -> String {
        let mut seen = (Held::default(), renewed);
        let mut last = Miss::Late;
        loop {
            let limit = renewed + self.terms.duration * 2 / 3;
            let next = async {
                tokio::time::sleep(self.pause()).await;
                let began = Instant::now();
                (began, self.attempt(&mut seen).await)
            };
            // What hangs does not put it off.
            match tokio::time::timeout_at(limit, next).await {
                Ok((began, Ok(true))) => renewed = began,
                Ok((_, Ok(false))) => return "another process holds the lease".to_owned(),
                Ok((_, Err(miss))) => {
                    tracing::warn!(error = %miss, "the lease was not renewed");
                    last = miss;
                }
                Err(_elapsed) => return format!("the lease could not be renewed: {last}"),
            }
        }
    }

    /// Lets go of the lease, so that another need not wait for its end.
    pub async fn release(&self) {
        let call = async {
            let Some(mut lease) = self.api.get_opt(&self.terms.name).await? else { return Ok(()) };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() == Some(self.terms.identity.as_str()) {
                spec.holder_identity = None;
                self.api.replace(&self.terms.name, &PostParams::default(), &lease).await?;
            }
            Ok::<(), kube::Error>(())
        };
        match tokio::time::timeout(Duration::from_secs(3), call).await {
            Ok(Ok(())) => tracing::info!("lease let go"),
            Ok(Err(error)) => tracing::warn!(%error, "the lease was not let go"),
            Err(_elapsed) => tracing::warn!("the lease was not let go in time"),
        }
    }

    /// One look, and one write if it may be.
    async fn attempt(&self, seen: &mut (Held, Instant)) -> Result<bool, Miss> {
        let once = self.look_and_write(seen);
        tokio::time::timeout(self.terms.duration / 3, once).await.map_err(|_elapsed| Miss::Late)?
    }

    async fn look_and_write(&self, seen: &mut (Held, Instant)) -> Result<bool, Miss> {
        let api = |e| Miss::Api(Box::new(e));
        let found = self.api.get_opt(&self.terms.name).await.map_err(api)?;
        let held = found.as_ref().map(held).unwrap_or_default();
        if held != seen.0 {
            *seen = (held.clone(), Instant::now());
        }
        if judge(&self.terms.identity, &held, seen.1.elapsed(), self.terms.duration) == Verdict::Wait {
            return Ok(false);
        }
        let now = MicroTime(jiff::Timestamp::now());
        let written = match found {
            None => {
                let meta = ObjectMeta { name: Some(self.terms.name.clone()), ..ObjectMeta::default() };
                let lease = Lease { metadata: meta, spec: Some(self.spec(&now, None)) };
                self.api.create(&PostParams::default(), &lease).await
            }
            Some(mut lease) => {
                lease.spec = Some(self.spec(&now, lease.spec.as_ref()));
                // Refused if it has changed since it was read.
                self.api.replace(&self.terms.name, &PostParams::default(), &lease).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Err(Miss::Changed),
            Err(e) => Err(api(e)),
        }
    }

    fn spec(&self, now: &MicroTime, before: Option<&LeaseSpec>) -> LeaseSpec {
        let mine = before.filter(|b| b.holder_identity.as_deref() == Some(self.terms.identity.as_str()));
        let transitions = before.and_then(|b| b.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.terms.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.terms.duration.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: mine.and_then(|b| b.acquire_time.clone()).or_else(|| Some(now.clone())),
            renew_time: Some(now.clone()),
            lease_transitions: Some(if mine.is_some() { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}

fn held(lease: &Lease) -> Held {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|s| u64::try_from(s.lease_duration_seconds?).ok());
    Held {
        holder: spec.and_then(|s| s.holder_identity.clone()),
        version: lease.metadata.resource_version.clone(),
        duration: seconds.map(Duration::from_secs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_if_free_own_or_unchanged_for_its_duration() {
        let (ttl, second) = (Duration::from_secs(15), Duration::from_secs(1));
        let minute = Duration::from_secs(60);
        for (holder, theirs, unchanged, verdict) in [
            (None, None, Duration::ZERO, Verdict::Write),
            (Some(""), Some(minute), Duration::ZERO, Verdict::Write),
            (Some("me"), Some(minute), Duration::ZERO, Verdict::Write),
            (Some("you"), None, ttl - second, Verdict::Wait),
            (Some("you"), None, ttl, Verdict::Write),
            // Its holder was started with more, and holds on as long.
            (Some("you"), Some(minute), minute - second, Verdict::Wait),
            (Some("you"), Some(minute), minute, Verdict::Write),
            (Some("you"), Some(second), ttl - second, Verdict::Wait),
            (Some("you"), Some(minute * 60), minute * 5, Verdict::Write),
        ] {
            let held = Held { holder: holder.map(str::to_owned), version: None, duration: theirs };
            assert_eq!(judge("me", &held, unchanged, ttl), verdict, "{held:?} {unchanged:?}");
        }
    }
}
