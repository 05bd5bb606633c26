//! Which cluster this process belongs to: founds one, or finds that directory and bucket belong together.
//!
//! Invariant (I10): a second log is never founded for a bucket that has a cluster; a directory of one cluster is never
//! used with the bucket of another; a founding directory stays provisional until it has read its own uid in the
//! bucket, and until then nobody is served. Pure decision in [`decide`], steps in `run`.

use weir_api::{ClusterUid, NodeId, RaftId};

use crate::clock;
use crate::data_dir::{DataDir, DataDirError, DirIdentity};
use crate::fault;
use crate::metadata::command::{Answer, Command};
use crate::metadata::{Metadata, ProposeError};
use crate::readiness::Readiness;
use crate::storage::answered::{NoAnswer, until_answered};
use crate::storage::cluster_file::{ClusterFile, ClusterFileError};
use crate::storage::store::{Store, StoreError};
use crate::tasks::Tasks;

/// Why this process belongs nowhere.
#[derive(Debug, thiserror::Error)]
pub enum FoundingError {
    /// Directory, bucket and configuration do not belong together.
    #[error("{0}")]
    Foreign(String),
    /// The directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The bucket's `cluster.json` is not readable as one.
    #[error(transparent)]
    Bucket(ClusterFileError),
    /// The log refused to be founded.
    #[error("the metadata log could not be founded: {0}")]
    Log(ProposeError),
    /// The node stopped first.
    #[error("stopped before the cluster was founded")]
    Stopped,
}

impl From<NoAnswer<ClusterFileError>> for FoundingError {
    fn from(e: NoAnswer<ClusterFileError>) -> Self {
        match e {
            NoAnswer::Stopped => Self::Stopped,
            NoAnswer::Refused(e) => Self::Bucket(e),
        }
    }
}

fn unanswered(e: ClusterFileError) -> Result<StoreError, ClusterFileError> {
    match e {
        ClusterFileError::Store(e) => Ok(e),
        e @ ClusterFileError::Damaged(_) => Err(e),
    }
}

/// What the configuration says.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// This node.
    pub node: NodeId,
    /// May found a log on an empty directory.
    pub may_found: bool,
    /// The configured identity of the cluster.
    pub identity: Option<String>,
    /// Take over a bucket that belongs to this cluster, by name.
    pub adopt: Option<ClusterUid>,
    /// How many nodes the cluster is configured for.
    pub size: u32,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// Found a new cluster.
    Found,
    /// Go on with the directory's cluster; finish its founding if it is provisional.
    Continue(DirIdentity),
}

/// Decides from what the directory, the bucket and the configuration say.
pub fn decide(
    dir: Option<&DirIdentity>,
    bucket: Option<&ClusterFile>,
    wanted: &Wanted,
) -> Result<Decision, FoundingError> {
    let foreign = |text: String| Err(FoundingError::Foreign(text));
    if let Some(dir) = dir {
        if dir.node != wanted.node {
            return foreign(format!(
                "the data directory belongs to node {}, this is node {}: use that --node-id, or another --data-dir",
                dir.node, wanted.node
            ));
        }
        match bucket {
            Some(bucket) if bucket.uid != dir.cluster => {
                return foreign(format!(
                    "the data directory belongs to cluster {}, the store to cluster {}: use the store or the directory \
                     that belongs with the other",
                    dir.cluster, bucket.uid
                ));
            }
            None if !dir.provisional => {
                return foreign(format!(
                    "the data directory belongs to cluster {}, but the store has no cluster.json: is --store right? \
                     Nothing is written to a store that lost its cluster",
                    dir.cluster
                ));
            }
            _ => {}
        }
        check_identity(bucket, wanted)?;
        return Ok(Decision::Continue(dir.clone()));
    }
    if let Some(bucket) = bucket {
        return foreign(format!(
            "the store belongs to cluster {}, but the data directory has no identity.json, as an empty one has none: point \
             --data-dir at that cluster's directory, or --store at an empty store",
            bucket.uid
        ));
    }
    if !wanted.may_found {
        return foreign(
            "the data directory is empty and this process may not found a cluster: pass --bootstrap to found one"
                .to_owned(),
        );
    }
    Ok(Decision::Found)
}

fn check_identity(bucket: Option<&ClusterFile>, wanted: &Wanted) -> Result<(), FoundingError> {
    let Some(bucket) = bucket else { return Ok(()) };
    match (&bucket.identity, &wanted.identity) {
        (Some(theirs), Some(ours)) if theirs != ours && wanted.adopt != Some(bucket.uid) => {
            Err(FoundingError::Foreign(format!(
                "the store's cluster {} has identity {theirs:?}, --cluster-identity is {ours:?}: use the right one, or \
                 adopt the store with --adopt-cluster-uid {}",
                bucket.uid, bucket.uid
            )))
        }
        _ => Ok(()),
    }
}

/// Reads the bucket, decides, and writes a provisional identity where a cluster is to be founded.
pub async fn begin(
    dir: &DataDir,
    store: &Store,
    wanted: &Wanted,
    tasks: &Tasks,
    readiness: &Readiness,
) -> Result<DirIdentity, FoundingError> {
    let own = dir.identity()?;
    let bucket =
        until_answered(tasks, readiness, async || ClusterFile::read(store).await, unanswered).await?;
    match decide(own.as_ref(), bucket.as_ref(), wanted)? {
        Decision::Continue(identity) => Ok(identity),
        Decision::Found => {
            let identity = DirIdentity {
                cluster: ClusterUid(clock::random_nonce().0),
                node: wanted.node.clone(),
                raft_id: RaftId(1),
                provisional: true,
            };
            dir.set_identity(&identity)?;
            fault::point("founding.identity_written");
            Ok(identity)
        }
    }
}

/// Founds the log and the bucket of a provisional directory, each step repeatable.
pub async fn finish(
    dir: &DataDir,
    mut identity: DirIdentity,
    store: &Store,
    metadata: &Metadata,
    wanted: &Wanted,
    tasks: &Tasks,
    readiness: &Readiness,
) -> Result<DirIdentity, FoundingError> {
    let found =
        Command::Found { uid: identity.cluster, identity: wanted.identity.clone(), size: wanted.size };
    match metadata.propose_founding(found).await.map_err(FoundingError::Log)? {
        Answer::Founded { uid } if uid == identity.cluster => {}
        other => {
            return Err(FoundingError::Foreign(format!(
                "the directory says cluster {}, its metadata log says {other:?}",
                identity.cluster
            )));
        }
    }
    if identity.provisional {
        fault::point("founding.log_founded");
        let ours = ClusterFile::new(identity.cluster, wanted.identity.clone());
        let write_and_read = async || ours.write_and_read(store).await;
        let read = until_answered(tasks, readiness, write_and_read, unanswered).await?;
        if read.uid != identity.cluster {
            return Err(FoundingError::Foreign(format!(
                "another process has founded cluster {} in this store meanwhile: remove this data directory, which \
                 holds nothing yet, and join that cluster",
                read.uid
            )));
        }
        fault::point("founding.bucket_written");
        identity.provisional = false;
        dir.set_identity(&identity)?;
    }
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(cluster: u128, provisional: bool) -> DirIdentity {
        DirIdentity {
            cluster: ClusterUid(cluster),
            node: "node-0".parse().unwrap(),
            raft_id: RaftId(1),
            provisional,
        }
    }

    fn bucket(cluster: u128, identity: Option<&str>) -> ClusterFile {
        ClusterFile::new(ClusterUid(cluster), identity.map(str::to_owned))
    }

    fn wanted() -> Wanted {
        Wanted { node: "node-0".parse().unwrap(), may_found: true, identity: None, adopt: None, size: 1 }
    }

    fn refusal(r: Result<Decision, FoundingError>) -> String {
        r.unwrap_err().to_string()
    }

    #[test]
    fn an_empty_directory_and_an_empty_bucket_found_a_cluster_if_told_so() {
        assert_eq!(decide(None, None, &wanted()).unwrap(), Decision::Found);
        let not_told = Wanted { may_found: false, ..wanted() };
        assert!(refusal(decide(None, None, &not_told)).contains("--bootstrap"));
    }

    #[test]
    fn a_used_directory_goes_on_with_its_own_bucket() {
        let d = dir(1, false);
        assert_eq!(decide(Some(&d), Some(&bucket(1, None)), &wanted()).unwrap(), Decision::Continue(d));
    }

    #[test]
    fn a_provisional_directory_goes_on_before_the_bucket_is_written() {
        let d = dir(1, true);
        assert_eq!(decide(Some(&d), None, &wanted()).unwrap(), Decision::Continue(d));
    }

    #[test]
    fn what_does_not_belong_together_is_refused_by_name() {
        let of = |d: Option<&DirIdentity>, b: Option<&ClusterFile>| refusal(decide(d, b, &wanted()));
        assert!(of(Some(&dir(1, false)), Some(&bucket(2, None))).contains("belongs to cluster"));
        assert!(of(Some(&dir(1, true)), Some(&bucket(2, None))).contains("belongs to cluster"));
        assert!(of(Some(&dir(1, false)), None).contains("no cluster.json"));
        assert!(of(None, Some(&bucket(2, None))).contains("no identity.json"));
        let other_node = DirIdentity { node: "node-1".parse().unwrap(), ..dir(1, false) };
        assert!(of(Some(&other_node), Some(&bucket(1, None))).contains("node-1"));
    }

    #[test]
    fn another_identity_is_refused_unless_the_bucket_is_adopted_by_name() {
        let mine = Wanted { identity: Some("mine".into()), ..wanted() };
        let theirs = bucket(1, Some("theirs"));
        assert!(refusal(decide(Some(&dir(1, false)), Some(&theirs), &mine)).contains("--adopt-cluster-uid"));
        let adopting = Wanted { adopt: Some(ClusterUid(1)), ..mine };
        assert!(decide(Some(&dir(1, false)), Some(&theirs), &adopting).is_ok());
    }
}
