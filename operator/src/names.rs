//! Names, labels, annotations and ports: whatever two parts of the operator, or a user, must spell alike.
//!
//! Invariant: what is written into objects is never renamed; a new name is a new constant beside the old one. Used
//! everywhere.

use std::collections::BTreeMap;

use weir_api::NodeId;

/// The one field manager, of every kind of object.
pub const MANAGER: &str = "weir-operator";

/// Label: the StreamCluster's name.
pub const CLUSTER: &str = "weir.dev/cluster";
/// Label: a node's number.
pub const ORDINAL: &str = "weir.dev/ordinal";

/// Annotation of pods: the weight to register with at the first start.
pub const SLOTS: &str = "weir.dev/slots";
/// Annotation of pods: whether an empty data directory may found the cluster.
pub const BOOTSTRAP: &str = "weir.dev/bootstrap";
/// Annotation of pods: how many nodes the cluster is meant to have at its founding.
pub const CLUSTER_SIZE: &str = "weir.dev/cluster-size";
/// Annotation of pods: which template they were made from.
pub const TEMPLATE: &str = "weir.dev/template";
/// Annotation of pods: which state of the object store's Secret they were started with.
pub const CREDENTIALS: &str = "weir.dev/credentials";
/// Annotation of objects that are applied: what was applied last.
pub const APPLIED: &str = "weir.dev/applied";
/// Annotation of volumes: the UID of the StreamCluster whose they are.
pub const RESOURCE_UID: &str = "weir.dev/resource-uid";
/// Annotation of volumes, of the operator or a user: never to be used again; the value says why.
pub const ABANDONED: &str = "weir.dev/abandoned";
/// Annotation of a StreamCluster: `true` makes the operator leave everything as it is.
pub const PAUSED: &str = "weir.dev/paused";
/// Annotation of a StreamCluster: another value restarts all pods, one by one.
pub const RESTARTED_AT: &str = "weir.dev/restarted-at";

/// The node's container.
pub const CONTAINER: &str = "weir";
/// The data volume in a pod.
pub const DATA: &str = "data";
/// Where it is.
pub const DATA_PATH: &str = "/var/lib/weir";
/// The volume with the admin tokens in a pod.
pub const TOKENS: &str = "tokens";
/// Where it is.
pub const TOKENS_PATH: &str = "/etc/weir/tokens";
/// Client listener.
pub const HTTP_PORT: u16 = 4437;
/// Peer listener.
pub const PEER_PORT: u16 = 4438;
/// Admin listener.
pub const ADMIN_PORT: u16 = 9090;

/// A pod's and its node's name. Valid for every name that the CRD admits.
pub fn pod(cluster: &str, ordinal: u32) -> String {
    format!("{cluster}-{ordinal}")
}

/// The node of that name; `None` for a cluster whose name the CRD would not admit.
pub fn node_id(cluster: &str, ordinal: u32) -> Option<NodeId> {
    pod(cluster, ordinal).parse().ok()
}

/// The ordinal in a node's name.
pub fn ordinal_of(cluster: &str, node: &str) -> Option<u32> {
    let text = node.strip_prefix(cluster)?.strip_prefix('-')?;
    text.parse().ok().filter(|n: &u32| n.to_string() == text)
}

/// The headless Service, in whose domain pods have their names.
pub fn headless(cluster: &str) -> String {
    format!("{cluster}-nodes")
}

/// The Secret with the admin tokens.
pub fn tokens(cluster: &str) -> String {
    format!("{cluster}-admin")
}

/// A node's volume; a node gets another when one is lost.
pub fn volume(cluster: &str, ordinal: u32, index: u32) -> String {
    match index {
        0 => format!("{DATA}-{cluster}-{ordinal}"),
        n => format!("{DATA}-{cluster}-{ordinal}-{n}"),
    }
}

/// Which of a node's volumes has this name.
pub fn volume_index(cluster: &str, ordinal: u32, name: &str) -> Option<u32> {
    let rest = name.strip_prefix(&volume(cluster, ordinal, 0))?;
    if rest.is_empty() {
        return Some(0);
    }
    let text = rest.strip_prefix('-')?;
    text.parse().ok().filter(|n: &u32| *n > 0 && n.to_string() == text)
}

/// What selects a cluster's objects.
pub fn selector(cluster: &str) -> String {
    format!("{CLUSTER}={cluster}")
}

/// Labels of every object of a cluster.
pub fn labels(cluster: &str) -> BTreeMap<String, String> {
    let pairs = [
        ("app.kubernetes.io/name", "weir"),
        ("app.kubernetes.io/instance", cluster),
        ("app.kubernetes.io/managed-by", MANAGER),
        (CLUSTER, cluster),
    ];
    pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}

/// A 64-bit FNV-1a hash as 16 hexadecimal digits. Not for secrets' sake: it tells states of one thing apart, and stays
/// the same over releases of Rust and of the operator.
pub fn digest(bytes: &[u8]) -> String {
    let fold = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_name_gives_its_ordinal_back() {
        assert_eq!(ordinal_of("demo", "demo-12"), Some(12));
        for other in ["demo-012", "demo", "demo-", "demo-a", "demo2-1", "other-1", "demo-1-1"] {
            assert_eq!(ordinal_of("demo", other), None, "{other}");
        }
    }

    #[test]
    fn a_volumes_name_gives_its_index_back() {
        assert_eq!(volume("demo", 3, 0), "data-demo-3");
        for index in [0, 1, 17] {
            assert_eq!(volume_index("demo", 3, &volume("demo", 3, index)), Some(index));
        }
        for other in ["data-demo-30", "data-demo-3-0", "data-demo-3-x", "data-demo-3-"] {
            assert_eq!(volume_index("demo", 3, other), None, "{other}");
        }
    }

    #[test]
    fn the_digest_is_fnv_1a() {
        assert_eq!(digest(b""), "cbf29ce484222325");
        assert_eq!(digest(b"a"), "af63dc4c8601ec8c");
    }
}
