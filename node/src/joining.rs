//! Joining a cluster with a new data directory.
//!
//! Invariant: the bucket says which cluster this is, the others confirm it, and the directory belongs to it only then; a
//! directory asks under one nonce, so that it has one raft id however often it asks, and the identity is written before
//! anything of the log is. Called by `run`.

use std::time::Duration;

use weir_api::ClusterUid;

use crate::clock;
use crate::data_dir::{DataDir, DirIdentity};
use crate::fault;
use crate::founding::{FoundingError, Wanted, check_identity, unanswered};
use crate::metadata;
use crate::peers::{PeerError, Peers, RefusalCode};
use crate::readiness::Readiness;
use crate::storage::answered::until_answered;
use crate::storage::cluster_file::ClusterFile;
use crate::storage::store::Store;
use crate::tasks::Tasks;

/// The pause between two rounds, drawn between half and all of it.
const PAUSE_MS: u64 = 500;

/// What joining takes besides directory and store.
pub struct Joining<'a> {
    /// Says why it takes so long.
    pub readiness: &'a Readiness,
    /// The node's tasks.
    pub tasks: &'a Tasks,
    /// Calls to others.
    pub peers: &'a Peers,
    /// Addresses of others, their names resolved anew at each try.
    pub seeds: &'a [String],
}

impl Joining<'_> {
    /// Asks the seeds, round by round, until one of the bucket's cluster has given this directory a raft id.
    pub async fn join(
        &self,
        dir: &DataDir,
        store: &Store,
        wanted: &Wanted,
    ) -> Result<DirIdentity, FoundingError> {
        let nonce = dir.joining_nonce()?;
        fault::point("joining.nonce_kept");
        loop {
            let read = async || ClusterFile::read(store).await;
            let bucket = until_answered(self.tasks, self.readiness, read, unanswered).await?;
            let why = match bucket {
                None => "the store has no cluster.json: waiting for the cluster to be founded".to_owned(),
                Some(bucket) => {
                    check_identity(Some(&bucket), wanted)?;
                    self.peers.set_cluster(Some(bucket.uid));
                    let joined = tokio::select! {
                        () = self.tasks.stopping().cancelled() => return Err(FoundingError::Stopped),
                        joined = metadata::join(self.peers, self.seeds, nonce) => joined,
                    };
                    // It is no member yet.
                    self.peers.set_cluster(None);
                    match joined {
                        Ok(joined) => {
                            let metadata::Joined { cluster, raft_id } = joined;
                            check_cluster(bucket.uid, cluster)?;
                            fault::point("joining.number_given");
                            let node = wanted.node.clone();
                            let identity = DirIdentity { cluster, node, raft_id, provisional: false };
                            dir.set_identity(&identity)?;
                            fault::point("joining.identity_written");
                            dir.joined()?;
                            tracing::info!(%cluster, %raft_id, "joined");
                            return Ok(identity);
                        }
                        Err(troubles) => trouble(bucket.uid, &troubles)?,
                    }
                }
            };
            tracing::warn!(why, "not joined yet");
            self.readiness.set("joining", format!("not joined yet: {why}"));
            let pause = PAUSE_MS / 2 + clock::random_u64() % (PAUSE_MS / 2);
            tokio::select! {
                () = self.tasks.stopping().cancelled() => return Err(FoundingError::Stopped),
                () = tokio::time::sleep(Duration::from_millis(pause)) => {}
            }
        }
    }
}

fn check_cluster(bucket: ClusterUid, seeds: ClusterUid) -> Result<(), FoundingError> {
    if bucket == seeds {
        return Ok(());
    }
    Err(FoundingError::Foreign(format!(
        "the store belongs to cluster {bucket}, the nodes of --join to cluster {seeds}: use the store or the nodes that \
         belong with the other"
    )))
}

/// What stands in the way. Waiting does not help if whoever answers is of another cluster.
fn trouble(bucket: ClusterUid, troubles: &[PeerError]) -> Result<String, FoundingError> {
    let is_other = |e: &&PeerError| matches!(e, PeerError::Refused { refusal, .. } if refusal.code == RefusalCode::OtherCluster);
    let text: Vec<String> = troubles.iter().map(ToString::to_string).collect();
    let text = text.join("; ");
    match !troubles.is_empty() && troubles.iter().all(|e| is_other(&e)) {
        true => Err(FoundingError::Foreign(format!(
            "the store belongs to cluster {bucket}, and the nodes of --join to another: {text}"
        ))),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Refusal;

    #[test]
    fn only_another_cluster_at_every_seed_ends_the_joining() {
        let refused =
            |code| PeerError::Refused { address: "a:1".to_owned(), refusal: Refusal::new(code, "because") };
        let silent = PeerError::Unreachable { address: "b:1".to_owned(), why: "nobody there".to_owned() };
        let bucket = ClusterUid(5);
        assert!(trouble(bucket, &[]).is_ok());
        assert!(
            trouble(bucket, &[refused(RefusalCode::OtherCluster), silent.clone()]).unwrap().contains("b:1")
        );
        assert!(trouble(bucket, &[refused(RefusalCode::NotReady)]).is_ok());
        let other = trouble(bucket, &[refused(RefusalCode::OtherCluster)]).unwrap_err().to_string();
        assert!(other.contains(&bucket.to_string()), "{other}");
        assert!(check_cluster(bucket, ClusterUid(6)).is_err());
    }
}
