//! The data directory: its lock, and the file that says whose it is.
//!
//! Invariant: one process at a time holds the directory (an exclusive file lock that the kernel drops with the
//! process); the identity file binds it to one node, one cluster and one raft id, is replaced atomically, and a
//! file that does not verify stops the start. A founding directory is provisional until its own uid was read back from
//! the bucket. Used by `run` alone.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_api::{ClusterUid, NodeId, Nonce, RaftId};

use crate::clock;
use crate::files::{self, File, Lock};

const VERSION: u32 = 1;
const IDENTITY: &str = "identity.json";
/// While a new directory joins: what makes its request for a raft id one request, however often it is made.
const JOINING: &str = "joining";

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The system refused.
    #[error("{path}: {error}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process has it.
    #[error("{0} is in use by another process: one data directory serves one `weir serve` at a time")]
    InUse(PathBuf),
    /// The identity file is damaged.
    #[error(
        "{path} does not verify ({why}): it says whose directory this is and is never guessed. Restore it, or move \
         the directory away and start with an empty one"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// Whose directory it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DirIdentity {
    /// The cluster.
    pub cluster: ClusterUid,
    /// The node that first used it.
    pub node: NodeId,
    /// Its number in the metadata log.
    pub raft_id: RaftId,
    /// Founding is not finished: the uid was not read back from the bucket yet.
    pub provisional: bool,
}

/// The file's envelope: version and checksum around the identity's own text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    version: u32,
    identity: Box<serde_json::value::RawValue>,
    crc32c: u32,
}

/// A locked data directory.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Holds the lock while it lives.
    _lock: Lock,
}

impl DataDir {
    /// Makes the directory if need be, and locks it.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        files::create_dir_all(path).map_err(|e| io_error(path, e))?;
        let lock_path = path.join("lock");
        match files::lock(&lock_path) {
            Ok(Some(lock)) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Ok(None) => Err(DataDirError::InUse(path.to_owned())),
            Err(e) => Err(io_error(&lock_path, e)),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is; `None` for a new one.
    pub fn identity(&self) -> Result<Option<DirIdentity>, DataDirError> {
        let path = self.path.join(IDENTITY);
        let text = match files::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return Err(DataDirError::Damaged { path, why: "not text".to_owned() });
            }
            Err(e) => return Err(io_error(&path, e)),
        };
        decode(&text).map(Some).map_err(|why| DataDirError::Damaged { path, why })
    }

    /// Replaces the identity atomically and durably.
    pub fn set_identity(&self, identity: &DirIdentity) -> Result<(), DataDirError> {
        self.replace(IDENTITY, encode(identity).as_bytes())
    }

    /// The nonce under which this directory asks for a raft id: the same until it has one.
    pub fn joining_nonce(&self) -> Result<Nonce, DataDirError> {
        let path = self.path.join(JOINING);
        match files::read_to_string(&path) {
            // One that does not parse was never used: it is written before it is.
            Ok(text) => {
                if let Ok(nonce) = text.trim().parse() {
                    return Ok(nonce);
                }
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => {}
            Err(e) => return Err(io_error(&path, e)),
        }
        let nonce = clock::random_nonce();
        self.replace(JOINING, format!("{nonce}\n").as_bytes())?;
        Ok(nonce)
    }

    /// Joining is over: the next one, if there ever is one, is another.
    pub fn joined(&self) -> Result<(), DataDirError> {
        let path = self.path.join(JOINING);
        match files::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error(&path, e)),
            _ => files::sync_dir(&self.path).map_err(|e| io_error(&self.path, e)),
        }
    }

    /// Makes the directory one that has never been in a cluster. A metadata log in it is kept beside, and its new name
    /// given: nothing reads it any more, but a person may want to.
    pub fn set_log_aside(&self, raft_id: RaftId) -> Result<Option<PathBuf>, DataDirError> {
        self.joined()?;
        let identity = self.path.join(IDENTITY);
        let log = self.path.join("metadata");
        let mut aside = self.path.join(format!("metadata.left-{raft_id}"));
        let mut n = 1;
        while files::exists(&aside) {
            n += 1;
            aside = self.path.join(format!("metadata.left-{raft_id}.{n}"));
        }
        // The log first: a directory with an identity and no log is known for what it is, the reverse is not.
        let moved = files::exists(&log);
        if moved {
            files::rename(&log, &aside).map_err(|e| io_error(&log, e))?;
            files::sync_dir(&self.path).map_err(|e| io_error(&self.path, e))?;
        }
        match files::remove_file(&identity) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io_error(&identity, e)),
            _ => {}
        }
        files::sync_dir(&self.path).map_err(|e| io_error(&self.path, e))?;
        Ok(moved.then_some(aside))
    }

    /// Replaces a small file of the directory: temporary file, sync, rename, sync of the folder.
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<(), DataDirError> {
        let path = self.path.join(name);
        let temporary = self.path.join(format!("{name}.tmp"));
        let write = || {
            let file = File::create(&temporary)?;
            (&file).write_all(content)?;
            file.sync_all()?;
            files::rename(&temporary, &path)?;
            files::sync_dir(&self.path)
        };
        write().map_err(|e| io_error(&path, e))
    }

    /// Where the metadata log is.
    pub fn metadata_log(&self) -> PathBuf {
        self.path.join("metadata").join("log.redb")
    }

    /// Whether there is a metadata log with something in it.
    pub fn has_metadata_log(&self) -> bool {
        File::open(&self.metadata_log()).and_then(|log| log.len()).is_ok_and(|length| length > 0)
    }
}

fn encode(identity: &DirIdentity) -> String {
    let text = serde_json::to_string(identity).expect("ids and flags are always representable");
    let crc32c = crc32c::crc32c(text.as_bytes());
    format!("{{\"version\":{VERSION},\"identity\":{text},\"crc32c\":{crc32c}}}\n")
}

fn decode(text: &str) -> Result<DirIdentity, String> {
    let envelope: Envelope = serde_json::from_str(text).map_err(|e| e.to_string())?;
    if envelope.version != VERSION {
        return Err(format!("version {} is not {VERSION}, the one this build reads", envelope.version));
    }
    let inner = envelope.identity.get();
    if crc32c::crc32c(inner.as_bytes()) != envelope.crc32c {
        return Err("its checksum does not match".to_owned());
    }
    serde_json::from_str(inner).map_err(|e| e.to_string())
}

fn io_error(path: &Path, error: io::Error) -> DataDirError {
    DataDirError::Io { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> DirIdentity {
        DirIdentity {
            cluster: ClusterUid(7),
            node: "node-0".parse().unwrap(),
            raft_id: RaftId(1),
            provisional: true,
        }
    }

    #[test]
    fn an_identity_survives_and_its_bytes_are_stable() {
        let text = encode(&identity());
        assert_eq!(decode(&text), Ok(identity()));
        assert_eq!(
            text,
            "{\"version\":1,\"identity\":{\"cluster\":\"00000000000000000000000000000007\",\"node\":\"node-0\",\
             \"raftId\":1,\"provisional\":true},\"crc32c\":578087955}\n"
        );
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_refused_or_harmless() {
        let good = encode(&identity());
        for cut in 0..good.len() - 1 {
            assert!(decode(&good[..cut]).is_err(), "cut at {cut}");
        }
        for i in 0..good.len() {
            for bit in 0..7 {
                let mut bytes = good.clone().into_bytes();
                bytes[i] ^= 1 << bit;
                let Ok(text) = String::from_utf8(bytes) else { continue };
                if let Ok(read) = decode(&text) {
                    assert_eq!(read, identity(), "byte {i} bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_directory_is_locked_while_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let held = DataDir::open(dir.path()).unwrap();
        assert!(matches!(DataDir::open(dir.path()), Err(DataDirError::InUse(_))));
        drop(held);
        assert!(DataDir::open(dir.path()).is_ok());
    }

    #[test]
    fn a_directory_asks_under_one_nonce_until_it_has_joined() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let nonce = data.joining_nonce().unwrap();
        assert_eq!(data.joining_nonce().unwrap(), nonce);
        data.joined().unwrap();
        let next = data.joining_nonce().unwrap();
        assert_ne!(next, nonce);
        std::fs::write(dir.path().join(JOINING), b"\xff").unwrap();
        assert_ne!(data.joining_nonce().unwrap(), next);
    }

    #[test]
    fn a_log_set_aside_is_kept_and_the_directory_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        for round in 0..3 {
            data.set_identity(&identity()).unwrap();
            std::fs::create_dir(dir.path().join("metadata")).unwrap();
            std::fs::write(data.metadata_log(), [round; 3]).unwrap();
            let nonce = data.joining_nonce().unwrap();
            let aside = data.set_log_aside(RaftId(7)).unwrap().unwrap();
            assert_eq!(std::fs::read(aside.join("log.redb")).unwrap(), [round; 3]);
            assert_eq!(data.identity().unwrap(), None);
            assert!(!data.has_metadata_log());
            assert_ne!(data.joining_nonce().unwrap(), nonce);
        }
        assert_eq!(data.set_log_aside(RaftId(7)).unwrap(), None);
    }

    #[test]
    fn a_new_directory_has_no_identity_and_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        assert_eq!(data.identity().unwrap(), None);
        data.set_identity(&identity()).unwrap();
        assert_eq!(data.identity().unwrap(), Some(identity()));
        std::fs::write(dir.path().join(IDENTITY), b"\xff\xfe").unwrap();
        assert!(matches!(data.identity(), Err(DataDirError::Damaged { .. })));
    }
}
