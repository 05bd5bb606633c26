//! Heartbeats: a session's to the leader, and the leader's answer.
//!
//! Invariant (I3): a heartbeat is answered only by a leader whose leadership was confirmed after it came, whose view
//! then still held the session alive, and which is not fencing it: so no lease begins after the session's end was
//! committed. All heartbeats that come at once share one confirmation. Sent by the keeper; what the leader hears is
//! `duties`' to judge. It also carries how far the session's recoveries are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weir_api::SessionId;

use super::silence::Silence;
use crate::clock::Clock;
use crate::metadata::Metadata;
use crate::peers::{Call, Peers, Refusal, RefusalCode};

const HEARTBEAT: Call = Call::new("session/heartbeat").bounded(16 << 10, 4 << 10);
const VERSION: u8 = 1;
/// A leader that cannot confirm itself for so long answers that.
const CONFIRM: Duration = Duration::from_secs(5);
/// The pause before another attempt where no news of a leader comes sooner.
const RETRY: Duration = Duration::from_millis(50);
/// Recoveries that one heartbeat reports on.
pub(crate) const REPORTED: usize = 64;

/// What a session says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Beat {
    session: SessionId,
    /// Claims it works on, and a count that changes as they get on.
    recovering: Vec<(u64, u64)>,
}

/// What the asked node says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Said {
    Heard,
    NotLeading,
    /// The session has ended, or is about to be ended.
    Over,
    Failed(String),
}

/// Both ends. Clones share what was heard.
#[derive(Clone)]
pub struct Heartbeats {
    metadata: Metadata,
    peers: Peers,
    clock: Clock,
    book: Arc<Mutex<Book>>,
}

/// What a leader has heard.
pub(super) struct Book {
    pub(super) silence: Silence,
    /// By claim: the last count reported.
    pub(super) steps: BTreeMap<u64, u64>,
}

impl Heartbeats {
    /// Answers the heartbeats of others from now on, whenever this node leads.
    pub fn answer(metadata: &Metadata, peers: &Peers, clock: &Clock, node_timeout: Duration) -> Self {
        let book = Book { silence: Silence::new(node_timeout), steps: BTreeMap::new() };
        let this = Self {
            metadata: metadata.clone(),
            peers: peers.clone(),
            clock: clock.clone(),
            book: Arc::new(Mutex::new(book)),
        };
        let answering = this.clone();
        peers.handle(HEARTBEAT, move |_from, body| {
            let this = answering.clone();
            async move {
                let beat = decode::<Beat>(&body).map_err(|why| Refusal::new(RefusalCode::Malformed, why))?;
                Ok(encode(&this.hear(beat).await))
            }
        });
        this
    }

    pub(super) fn book(&self) -> &Mutex<Book> {
        &self.book
    }

    /// For how long each of these sessions has been silent, if this node leads and has looked.
    pub fn silent(&self, sessions: &[SessionId]) -> Vec<Option<Duration>> {
        let now = *self.metadata.leadership().borrow();
        let book = self.book.lock();
        sessions.iter().map(|s| book.silence.of(now.term, s).filter(|_| now.me)).collect()
    }

    /// One heartbeat, tried until a leader has answered it or `within` is over. When the answered one was sent.
    pub(super) async fn send(
        &self,
        session: &SessionId,
        recovering: Vec<(u64, u64)>,
        within: Duration,
    ) -> Result<Duration, String> {
        let beat = Beat { session: session.clone(), recovering };
        let mut leadership = self.metadata.leadership();
        let mut last = "the metadata log has no leader".to_owned();
        let tries = async {
            loop {
                leadership.mark_unchanged();
                let sent = self.clock.since_boot();
                let said = tokio::select! {
                    said = self.attempt(&beat, within) => said,
                    // Whoever was asked may be dead; an error only means that the log has stopped.
                    _ = leadership.changed() => continue,
                };
                match said {
                    Said::Heard => return Ok(sent),
                    Said::Over => return Err("this session is over".to_owned()),
                    Said::NotLeading => last = "who was taken for the leader does not lead".to_owned(),
                    Said::Failed(why) => last = why,
                }
                drop(tokio::time::timeout(RETRY, leadership.changed()).await);
            }
        };
        match tokio::time::timeout(within, tries).await {
            Ok(answered) => answered,
            Err(_late) => Err(last),
        }
    }

    async fn attempt(&self, beat: &Beat, within: Duration) -> Said {
        if self.metadata.leadership().borrow().me {
            return self.hear(beat.clone()).await;
        }
        let Some((_, address)) = self.metadata.leader_address() else {
            return Said::Failed("the metadata log has no leader".to_owned());
        };
        match self.peers.call(&address, &HEARTBEAT, encode(beat), within).await {
            Ok(answer) => decode(&answer).unwrap_or_else(Said::Failed),
            Err(e) => Said::Failed(e.to_string()),
        }
    }

    /// At the leader.
    async fn hear(&self, beat: Beat) -> Said {
        let leads = || {
            let now = *self.metadata.leadership().borrow();
            now.me.then_some(now.term)
        };
        let Some(term) = leads() else { return Said::NotLeading };
        {
            let mut book = self.book.lock();
            // Before it is confirmed: what counts is when it came.
            if !book.silence.hear(term, &beat.session) {
                return Said::Over;
            }
            for (claim, steps) in beat.recovering.into_iter().take(REPORTED) {
                book.steps.insert(claim, steps);
            }
        }
        match self.metadata.read_index(CONFIRM).await {
            Err(e) => Said::Failed(e.to_string()),
            Ok(_) if leads() != Some(term) => Said::NotLeading,
            Ok(_) if self.metadata.read(|state| state.is_current(&beat.session)) => Said::Heard,
            Ok(_) => Said::Over,
        }
    }
}

fn encode(message: &impl Serialize) -> Bytes {
    postcard::to_extend(message, vec![VERSION]).expect("plain values in memory always encode").into()
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match bytes.split_first() {
        Some((&VERSION, body)) => postcard::from_bytes(body).map_err(|e| e.to_string()),
        Some((version, _)) => Err(format!("version {version} is not {VERSION}, the one this build reads")),
        None => Err("there are no bytes".to_owned()),
    }
}
