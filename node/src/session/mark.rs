//! The mark that a replaced process leaves in its data directory, so that two siblings with one node id do not duel.
//!
//! Invariant (I1): whoever was replaced waits at its next start, twice as long each time in a row. A process that learnt
//! only that its WAL was sealed does not know whether it was replaced or fenced; the next start does, from the log, and waits
//! only for the former. Used by `session`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_api::{NodeEpoch, NodeId};

use super::SessionError;
use crate::files;
use crate::metadata::Metadata;
use crate::readiness::Readiness;
use crate::tasks::Tasks;

/// How long a replaced process's next start waits before it registers; doubles each time in a row.
const WAIT: Duration = Duration::from_secs(60);
/// The longest such wait.
const WAIT_MAX: Duration = Duration::from_secs(3_600);
/// For one read index, and between two tries of it.
const LOOK: Duration = Duration::from_secs(1);

/// The file.
pub(super) struct SupersededMark {
    path: PathBuf,
}

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Said {
    /// How many times in a row this directory's process was replaced.
    times: u32,
    /// The last of them counts only if somebody registered above this epoch.
    unsure: Option<NodeEpoch>,
}

impl Said {
    /// The number, and behind it an epoch; a mark that cannot be understood counts as one.
    fn read(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let times = words.next().and_then(|w| w.parse().ok()).unwrap_or(1);
        Self { times, unsure: words.next().and_then(|w| w.parse().ok()).map(NodeEpoch) }
    }

    fn text(self) -> String {
        match self.unsure {
            Some(epoch) => format!("{} {}", self.times, epoch.0),
            None => self.times.to_string(),
        }
    }

    /// Once it is known which epoch the log has recorded for this node.
    fn settled(self, recorded: Option<NodeEpoch>) -> Self {
        let replaced = self.unsure.is_none_or(|epoch| recorded.is_some_and(|recorded| recorded > epoch));
        Self { times: if replaced { self.times } else { self.times.saturating_sub(1) }, unsure: None }
    }

    fn wait(self) -> Duration {
        match self.times {
            0 => Duration::ZERO,
            times => WAIT.saturating_mul(1 << (times - 1).min(16)).min(WAIT_MAX),
        }
    }
}

impl SupersededMark {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join("superseded") }
    }

    fn read(&self) -> Result<Said, SessionError> {
        match files::read_to_string(&self.path) {
            Ok(text) => Ok(Said::read(&text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Said::default()),
            Err(e) => Err(self.failed(e)),
        }
    }

    fn write(&self, said: Said) -> Result<(), SessionError> {
        if said == Said::default() {
            return self.clear();
        }
        files::write(&self.path, said.text().as_bytes()).map_err(|e| self.failed(e))
    }

    fn failed(&self, error: io::Error) -> SessionError {
        SessionError::DataDir { path: self.path.clone(), error }
    }

    /// This process was replaced.
    pub(super) fn set(&self) -> Result<(), SessionError> {
        let times = self.read()?.times.saturating_add(1);
        self.write(Said { times, unsure: None })
    }

    /// This process's session, of this epoch, is over; perhaps it was replaced.
    pub(super) fn set_unsure(&self, epoch: NodeEpoch) -> Result<(), SessionError> {
        let times = self.read()?.times.saturating_add(1);
        self.write(Said { times, unsure: Some(epoch) })
    }

    pub(super) fn clear(&self) -> Result<(), SessionError> {
        match files::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(self.failed(e)),
            _ => Ok(()),
        }
    }

    /// Waits as long as the mark says, once the log has said whether it counts.
    pub(super) async fn wait_out(
        &self,
        node: &NodeId,
        metadata: &Metadata,
        tasks: &Tasks,
        readiness: &Readiness,
    ) -> Result<(), SessionError> {
        let mut said = self.read()?;
        let stopped = || SessionError::Stopped;
        if said.unsure.is_some() {
            let known = async {
                while let Err(why) = metadata.read_index(LOOK).await {
                    readiness
                        .set("session", format!("waiting for word whether this node was replaced: {why}"));
                    tokio::time::sleep(LOOK).await;
                }
            };
            tasks.stopping().run_until_cancelled(known).await.ok_or_else(stopped)?;
            said = said.settled(metadata.read(|state| state.nodes.get(node).map(|n| n.epoch)));
            self.write(said)?;
        }
        let wait = said.wait();
        if wait == Duration::ZERO {
            return Ok(());
        }
        let why = format!(
            "this data directory's last process was replaced by another of the same node id; waiting {wait:?} before registering"
        );
        tracing::warn!("{why}");
        readiness.set("session", why);
        tasks.stopping().run_until_cancelled(tokio::time::sleep(wait)).await.ok_or_else(stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_process_waits_a_minute_and_twice_as_long_each_time_in_a_row() {
        let dir = tempfile::tempdir().unwrap();
        let mark = SupersededMark::new(dir.path());
        let wait = || mark.read().unwrap().settled(None).wait().as_secs();
        assert_eq!(wait(), 0);
        for expected in [60, 120, 240] {
            mark.set().unwrap();
            assert_eq!(wait(), expected);
        }
        for _ in 0..20 {
            mark.set().unwrap();
        }
        assert_eq!(wait(), 3_600);
        mark.clear().unwrap();
        assert_eq!(wait(), 0);
        std::fs::write(&mark.path, "?").unwrap();
        assert_eq!(wait(), 60);
    }

    #[test]
    fn who_was_only_fenced_does_not_wait() {
        let dir = tempfile::tempdir().unwrap();
        let mark = SupersededMark::new(dir.path());
        let (own, higher) = (NodeEpoch(7), NodeEpoch(8));
        let wait = |recorded| mark.read().unwrap().settled(recorded).wait().as_secs();
        mark.set_unsure(own).unwrap();
        assert_eq!((wait(Some(own)), wait(None), wait(Some(higher))), (0, 0, 60));
        // What was before it still counts.
        mark.clear().unwrap();
        mark.set().unwrap();
        mark.set_unsure(own).unwrap();
        assert_eq!((wait(Some(own)), wait(Some(higher))), (60, 120));
    }
}
