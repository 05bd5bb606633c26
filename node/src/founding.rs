//! Which cluster this process belongs to: founds one, joins one, or finds that directory and bucket belong together.
//!
//! Invariant (I10): a second log is never founded for a bucket that has a cluster; a directory of one cluster is never
//! used with the bucket of another; a founding directory stays provisional until it has read its own uid in the
//! bucket, and until then nobody is served. Pure decision in [`decide`]; founding here, joining in `joining`; the steps'
//! order in `run`.

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
    /// Another process has founded this cluster in the bucket meanwhile, and this one may join it.
    #[error("another process has founded cluster {0} in the store meanwhile")]
    Outrun(ClusterUid),
    /// The node stopped first.
    #[error("stopped before the cluster was founded or joined")]
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

pub(crate) fn unanswered(e: ClusterFileError) -> Result<StoreError, ClusterFileError> {
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
    /// May join through others, whose addresses are known.
    pub may_join: bool,
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
    /// Join the bucket's cluster with this directory, which is new, or whose founding came too late.
    Join,
}

/// Decides from what the directory, the bucket and the configuration say. `has_log`: the directory's metadata log is there.
pub fn decide(
    dir: Option<&DirIdentity>,
    has_log: bool,
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
            // It holds nothing yet: another founder was faster.
            Some(bucket) if bucket.uid != dir.cluster && dir.provisional && wanted.may_join => {
                check_identity(Some(bucket), wanted)?;
                return Ok(Decision::Join);
            }
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
        if has_log || dir.provisional {
            return Ok(Decision::Continue(dir.clone()));
        }
        if wanted.may_join {
            return Ok(Decision::Join);
        }
        return foreign(format!(
            "the data directory belongs to cluster {}, but its metadata/log.redb is missing or empty: the metadata log \
             was lost, and founding another would lose every stream. Restore the data directory, or, if other nodes of \
             the cluster are there, name some with --join",
            dir.cluster
        ));
    }
    if wanted.may_join && (bucket.is_some() || !wanted.may_found) {
        check_identity(bucket, wanted)?;
        return Ok(Decision::Join);
    }
    if let Some(bucket) = bucket {
        return foreign(format!(
            "the store belongs to cluster {}, but the data directory has no identity.json, as an empty one has none: point \
             --data-dir at that cluster's directory, name nodes of it with --join, or point --store at an empty store",
            bucket.uid
        ));
    }
    if !wanted.may_found {
        return foreign(
            "the data directory is empty and this process may not found a cluster: pass --bootstrap to found one, or \
             --join with nodes of one"
                .to_owned(),
        );
    }
    Ok(Decision::Found)
}

pub(crate) fn check_identity(bucket: Option<&ClusterFile>, wanted: &Wanted) -> Result<(), FoundingError> {
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

/// Reads the bucket, decides, and writes a provisional identity where a cluster is to be founded. `None`: join.
pub async fn begin(
    dir: &DataDir,
    store: &Store,
    wanted: &Wanted,
    tasks: &Tasks,
    readiness: &Readiness,
) -> Result<Option<DirIdentity>, FoundingError> {
    let own = dir.identity()?;
    let bucket =
        until_answered(tasks, readiness, async || ClusterFile::read(store).await, unanswered).await?;
    match decide(own.as_ref(), dir.has_metadata_log(), bucket.as_ref(), wanted)? {
        Decision::Continue(identity) => {
            dir.joined()?;
            Ok(Some(identity))
        }
        Decision::Join => {
            if let Some(own) = own {
                set_aside(dir, own.raft_id)?;
            }
            Ok(None)
        }
        Decision::Found => {
            let identity = DirIdentity {
                cluster: ClusterUid(clock::random_nonce().0),
                node: wanted.node.clone(),
                raft_id: RaftId(1),
                provisional: true,
            };
            dir.set_identity(&identity)?;
            fault::point("founding.identity_written");
            Ok(Some(identity))
        }
    }
}

/// Makes the directory a new one, and says so.
pub fn set_aside(dir: &DataDir, raft_id: RaftId) -> Result<(), FoundingError> {
    let aside = dir.set_log_aside(raft_id)?;
    let aside = aside.map_or("there was none".to_owned(), |path| format!("it is kept as {}", path.display()));
    tracing::warn!(%raft_id, "this directory's metadata log is of no use any more ({aside}): joining anew");
    Ok(())
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
    if !identity.provisional {
        let logged = metadata.read(|state| state.cluster.as_ref().map(|cluster| cluster.uid));
        return match logged {
            Some(uid) if uid != identity.cluster => Err(FoundingError::Foreign(format!(
                "the directory says cluster {}, its metadata log says {uid}",
                identity.cluster
            ))),
            _ => Ok(identity),
        };
    }
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
    fault::point("founding.log_founded");
    let ours = ClusterFile::new(identity.cluster, wanted.identity.clone());
    let write_and_read = async || ours.write_and_read(store).await;
    let read = until_answered(tasks, readiness, write_and_read, unanswered).await?;
    if read.uid != identity.cluster && wanted.may_join {
        return Err(FoundingError::Outrun(read.uid));
    }
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
        Wanted {
            node: "node-0".parse().unwrap(),
            may_found: true,
            may_join: false,
            identity: None,
            adopt: None,
            size: 1,
        }
    }

    fn refusal(r: Result<Decision, FoundingError>) -> String {
        r.unwrap_err().to_string()
    }

    #[test]
    fn an_empty_directory_and_an_empty_bucket_found_a_cluster_if_told_so() {
        assert_eq!(decide(None, false, None, &wanted()).unwrap(), Decision::Found);
        let not_told = Wanted { may_found: false, ..wanted() };
        assert!(refusal(decide(None, false, None, &not_told)).contains("--bootstrap"));
    }

    #[test]
    fn a_used_directory_goes_on_with_its_own_bucket() {
        let d = dir(1, false);
        assert_eq!(decide(Some(&d), true, Some(&bucket(1, None)), &wanted()).unwrap(), Decision::Continue(d));
    }

    #[test]
    fn a_provisional_directory_goes_on_before_the_bucket_is_written() {
        let d = dir(1, true);
        assert_eq!(decide(Some(&d), false, None, &wanted()).unwrap(), Decision::Continue(d));
    }

    #[test]
    fn what_does_not_belong_together_is_refused_by_name() {
        let of = |d: Option<&DirIdentity>, b: Option<&ClusterFile>| refusal(decide(d, true, b, &wanted()));
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
        assert!(
            refusal(decide(Some(&dir(1, false)), true, Some(&theirs), &mine)).contains("--adopt-cluster-uid")
        );
        let adopting = Wanted { adopt: Some(ClusterUid(1)), ..mine };
        assert!(decide(Some(&dir(1, false)), true, Some(&theirs), &adopting).is_ok());
    }

    #[test]
    fn who_may_join_joins_what_is_there_and_founds_only_what_is_not() {
        let join = Wanted { may_join: true, may_found: false, ..wanted() };
        let both = Wanted { may_join: true, ..wanted() };
        assert_eq!(decide(None, false, Some(&bucket(1, None)), &join).unwrap(), Decision::Join);
        assert_eq!(decide(None, false, Some(&bucket(1, None)), &both).unwrap(), Decision::Join);
        // The founder is not there yet: it is waited for.
        assert_eq!(decide(None, false, None, &join).unwrap(), Decision::Join);
        assert_eq!(decide(None, false, None, &both).unwrap(), Decision::Found);
        let theirs = Wanted { identity: Some("mine".into()), ..join };
        assert!(refusal(decide(None, false, Some(&bucket(1, Some("theirs"))), &theirs)).contains("identity"));
    }

    #[test]
    fn a_founder_that_came_too_late_joins() {
        let late = dir(1, true);
        let both = Wanted { may_join: true, ..wanted() };
        assert_eq!(decide(Some(&late), true, Some(&bucket(2, None)), &both).unwrap(), Decision::Join);
        let used = dir(1, false);
        assert!(
            refusal(decide(Some(&used), true, Some(&bucket(2, None)), &both)).contains("belongs to cluster")
        );
    }

    #[test]
    fn a_lost_log_is_replaced_only_by_others() {
        let used = dir(1, false);
        let own = bucket(1, None);
        assert!(refusal(decide(Some(&used), false, Some(&own), &wanted())).contains("--join"));
        let join = Wanted { may_join: true, ..wanted() };
        assert_eq!(decide(Some(&used), false, Some(&own), &join).unwrap(), Decision::Join);
        assert_eq!(decide(Some(&used), true, Some(&own), &join).unwrap(), Decision::Continue(used));
    }
}
