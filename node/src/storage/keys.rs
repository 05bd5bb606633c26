//! The names of all objects in the bucket, and back from a name to what it is.
//!
//! Invariant: numbers are written with 20 digits, so that names sort as numbers do, and no key is ever used for two
//! things. Pure. Called by everything under `storage` that names an object.

use weir_api::{NodeEpoch, NodeId, SessionId};

/// Who the bucket belongs to.
pub const CLUSTER: &str = "cluster.json";

/// `generation/<n>`: taken with put-if-absent by whoever restores the bucket.
pub fn generation(n: u64) -> String {
    format!("generation/{n:020}")
}

/// The folder of one session's WAL, without a trailing slash.
pub fn wal_folder(generation: u64, session: &SessionId) -> String {
    format!("g{generation}/wal/{}/{}", session.node, session.epoch)
}

/// One WAL object.
pub fn wal(generation: u64, session: &SessionId, seq: u64) -> String {
    format!("{}/{seq:020}", wal_folder(generation, session))
}

/// The folder of the segments that one session uploaded, without a trailing slash.
pub fn segment_folder(generation: u64, session: &SessionId) -> String {
    format!("g{generation}/segments/{}/{}", session.node, session.epoch)
}

/// One segment.
pub fn segment(generation: u64, session: &SessionId, number: u64) -> String {
    format!("{}/{number:020}", segment_folder(generation, session))
}

/// The folder of all WALs of a node, without a trailing slash.
pub fn wal_of(generation: u64, node: &NodeId) -> String {
    format!("g{generation}/wal/{node}")
}

/// The folder of all segments that a node uploaded, without a trailing slash.
pub fn segments_of(generation: u64, node: &NodeId) -> String {
    format!("g{generation}/segments/{node}")
}

/// The session in whose WAL folder a key lies, whatever kind of WAL made it.
pub fn wal_session(generation: u64, key: &str) -> Option<SessionId> {
    let rest = key.strip_prefix(&format!("g{generation}/wal/"))?;
    let mut parts = rest.split('/');
    let node = parts.next()?.parse().ok()?;
    let epoch = NodeEpoch(number(parts.next()?)?);
    parts.next()?;
    Some(SessionId { node, epoch })
}

/// What a key under `g<generation>/` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// A WAL object or seal of a session.
    Wal {
        /// The session.
        session: SessionId,
        /// Its place.
        seq: u64,
    },
    /// A segment.
    Segment {
        /// Who uploaded it.
        session: SessionId,
        /// Its number.
        number: u64,
    },
}

/// Reads a key of `generation` back; `None` for whatever else lies in the bucket (a local WAL's files, for example).
pub fn parse(generation: u64, key: &str) -> Option<Key> {
    let rest = key.strip_prefix('g')?;
    let mut parts = rest.split('/');
    (number(parts.next()?)? == generation).then_some(())?;
    let kind = parts.next()?;
    let node = parts.next()?.parse().ok()?;
    let epoch = NodeEpoch(number(parts.next()?)?);
    let last = parts.next().filter(|s| s.len() == 20)?;
    let last = last.bytes().all(|b| b.is_ascii_digit()).then(|| last.parse().ok())??;
    if parts.next().is_some() {
        return None;
    }
    let session = SessionId { node, epoch };
    match kind {
        "wal" => Some(Key::Wal { session, seq: last }),
        "segments" => Some(Key::Segment { session, number: last }),
        _ => None,
    }
}

/// A number exactly as `Display` writes it: no sign, no leading zero.
fn number(text: &str) -> Option<u64> {
    let n: u64 = text.parse().ok()?;
    (n.to_string() == text).then_some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionId {
        SessionId { node: "demo-0".parse().unwrap(), epoch: NodeEpoch(1700) }
    }

    #[test]
    fn keys_are_spelled_as_documented_and_read_back() {
        let s = session();
        let wal_key = wal(1, &s, 7);
        assert_eq!(wal_key, "g1/wal/demo-0/1700/00000000000000000007");
        assert_eq!(parse(1, &wal_key), Some(Key::Wal { session: s.clone(), seq: 7 }));
        let segment_key = segment(2, &s, u64::MAX);
        assert_eq!(segment_key, "g2/segments/demo-0/1700/18446744073709551615");
        assert_eq!(parse(2, &segment_key), Some(Key::Segment { session: s, number: u64::MAX }));
        assert_eq!(generation(3), "generation/00000000000000000003");
    }

    #[test]
    fn the_session_of_any_kind_of_wal_file_is_found() {
        let folder = wal_of(0, &session().node);
        assert_eq!(folder, "g0/wal/demo-0");
        assert_eq!(segments_of(0, &session().node), "g0/segments/demo-0");
        for file in ["00000000000000000007", "seal", "x.log"] {
            assert_eq!(wal_session(0, &format!("{folder}/1700/{file}")), Some(session()), "{file}");
        }
        for other in [
            "g0/wal/demo-0/1700",
            "g1/wal/demo-0/1700/seal",
            "g0/segments/demo-0/1700/x",
            "g0/wal/demo-0/x/y",
        ] {
            assert_eq!(wal_session(0, other), None, "{other}");
        }
    }

    #[test]
    fn other_names_are_not_taken_for_keys() {
        for key in [
            "",
            "g1",
            "g1/wal/demo-0/1700",
            "g1/wal/demo-0/1700/7",
            "g1/wal/demo-0/1700/seal",
            "g1/wal/demo-0/1700/00000000000000000007.log",
            "g1/wal/demo-0/01700/00000000000000000007",
            "g1/wal/demo-0/1700/+0000000000000000007",
            "g1/wal/Demo/1700/00000000000000000007",
            "g1/other/demo-0/1700/00000000000000000007",
            "g2/wal/demo-0/1700/00000000000000000007",
            "g+1/wal/demo-0/1700/00000000000000000007",
            "g1/wal/demo-0/1700/00000000000000000007/x",
            "g1/wal/demo-0/1700/99999999999999999999",
            "cluster.json",
        ] {
            assert_eq!(parse(1, key), None, "{key}");
        }
    }
}
