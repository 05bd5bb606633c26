//! Every condition with every value and reason that it can have.
//!
//! Invariant: a condition is made from a row of this table and from nothing else, and a row that no code says is a
//! compiler's warning. Two pages have the same rows for people, and tests compare: `docs/operator.md` has all of them,
//! `docs/operations.md` what to do about those that call for somebody. Used by `status`.

/// What a condition says, but for its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reason {
    /// The condition's type.
    pub(super) kind: &'static str,
    /// Its status: True, False or Unknown.
    pub(super) status: &'static str,
    /// Its reason.
    pub(super) reason: &'static str,
}

/// A constant for each row, and for tests the list of them, which so has them all.
macro_rules! reasons {
    ($($name:ident = $kind:literal $status:literal $reason:literal;)*) => {
        $(pub(super) const $name: Reason = Reason { kind: $kind, status: $status, reason: $reason };)*
        #[cfg(test)]
        const ALL: &[Reason] = &[$($name),*];
    };
}

reasons! {
    ALL_NODES_READY = "Ready" "True" "AllNodesReady";
    NODES_NOT_READY = "Ready" "False" "NodesNotReady";
    STORAGE_NOT_READY = "Ready" "False" "StorageNotReady";
    VOTERS_MISSING = "Ready" "False" "VotersMissing";
    NO_QUORUM = "Ready" "False" "NoQuorum";
    READY_NO_ANSWER = "Ready" "Unknown" "NoAnswer";
    READY_NOT_OBSERVED = "Ready" "Unknown" "NotObserved";

    SCALING_DOWN = "Progressing" "True" "ScalingDown";
    ROLLING = "Progressing" "True" "Rolling";
    REPLACING = "Progressing" "True" "Replacing";
    DRAINING = "Progressing" "True" "Draining";
    STARTING_NODES = "Progressing" "True" "StartingNodes";
    GATHERING_VOTERS = "Progressing" "True" "GatheringVoters";
    SETTLED = "Progressing" "False" "Settled";
    PAUSED = "Progressing" "False" "Paused";
    PROGRESSING_NOT_OBSERVED = "Progressing" "Unknown" "NotObserved";

    BLOCKED = "Degraded" "True" "Blocked";
    HOST_LOST = "Degraded" "True" "HostLost";
    ROLLOUT_FAILED = "Degraded" "True" "RolloutFailed";
    NODE_BROKEN = "Degraded" "True" "NodeBroken";
    REPLACEMENT_WAITS = "Degraded" "True" "ReplacementWaits";
    VOLUME_LOST = "Degraded" "True" "VolumeLost";
    RESIZE_FAILED = "Degraded" "True" "ResizeFailed";
    ACTION_FAILED = "Degraded" "True" "ActionFailed";
    AS_EXPECTED = "Degraded" "False" "AsExpected";
    DEGRADED_NOT_OBSERVED = "Degraded" "Unknown" "NotObserved";

    ALL_VOTERS_HEARD = "QuorumHealthy" "True" "AllVotersHeard";
    MAJORITY_HEARD = "QuorumHealthy" "True" "MajorityHeard";
    NO_MAJORITY = "QuorumHealthy" "False" "NoMajority";
    NO_NODES = "QuorumHealthy" "False" "NoNodes";
    NO_LEADER = "QuorumHealthy" "Unknown" "NoLeader";
    QUORUM_NO_ANSWER = "QuorumHealthy" "Unknown" "NoAnswer";
    NOT_FOUNDED = "QuorumHealthy" "Unknown" "NotFounded";
    QUORUM_NOT_OBSERVED = "QuorumHealthy" "Unknown" "NotObserved";

    APPLIED = "SlotsSynced" "True" "Applied";
    APPLYING = "SlotsSynced" "False" "Applying";
    SLOTS_NO_ANSWER = "SlotsSynced" "Unknown" "NoAnswer";
    SLOTS_NOT_OBSERVED = "SlotsSynced" "Unknown" "NotObserved";

    PROBED = "StorageReady" "True" "Probed";
    CREDENTIALS_MISSING = "StorageReady" "False" "CredentialsMissing";
    PROPERTY_MISSING = "StorageReady" "False" "PropertyMissing";
    OTHER_CLUSTER = "StorageReady" "False" "OtherCluster";
    STORE_TROUBLE = "StorageReady" "False" "StoreTrouble";
    NOT_PROBED = "StorageReady" "Unknown" "NotProbed";
    STORAGE_NOT_OBSERVED = "StorageReady" "Unknown" "NotObserved";

    RECONCILING = "Reconciling" "True" "Progressing";
    RECONCILING_NOT_OBSERVED = "Reconciling" "True" "NotObserved";
    RECONCILED = "Reconciling" "False" "Settled";
    STALLED = "Stalled" "True" "Blocked";
    NOT_STALLED = "Stalled" "False" "NotBlocked";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The rows of the table below this head, cell by cell, each the list of what stands in backticks.
    fn table(page: &str, head: &str) -> Vec<Vec<Vec<String>>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
        let text = std::fs::read_to_string(path).unwrap();
        let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let lines =
            text.lines().skip_while(|line| *line != head).skip(2).take_while(|line| line.starts_with('|'));
        let rows: Vec<Vec<Vec<String>>> =
            lines.map(|line| line.trim_matches('|').split('|').map(words).collect()).collect();
        assert!(!rows.is_empty(), "{page} has no table {head}");
        rows
    }

    #[test]
    fn the_reference_names_every_reason_and_no_other() {
        let mut documented: Vec<(String, String, String)> = Vec::new();
        for row in table("operator.md", "| condition | `True` | `False` | `Unknown` |") {
            let [kinds, values @ ..] = row.as_slice() else { continue };
            assert_eq!((kinds.len(), values.len()), (1, 3), "{row:?}");
            for (status, reasons) in ["True", "False", "Unknown"].iter().zip(values) {
                let of = |reason: &String| (kinds[0].clone(), (*status).to_owned(), reason.clone());
                documented.extend(reasons.iter().map(of));
            }
        }
        let said = ALL.iter().map(|r| (r.kind.to_owned(), r.status.to_owned(), r.reason.to_owned()));
        let (said, once): (BTreeSet<_>, BTreeSet<_>) = (said.collect(), documented.iter().cloned().collect());
        assert_eq!(once.len(), documented.len(), "a row stands there twice");
        assert_eq!(said.len(), ALL.len(), "a row stands in the code twice");
        assert_eq!(once, said);
    }

    /// Whether somebody may have to do something.
    fn calls_for_somebody(r: &Reason) -> bool {
        match r.kind {
            "Degraded" | "Stalled" => r.status != "False",
            "Progressing" => r.status == "Unknown" || *r == PAUSED,
            "Reconciling" => false,
            _ => r.status != "True" || *r == MAJORITY_HEARD,
        }
    }

    #[test]
    fn there_is_something_to_do_about_every_reason_that_calls_for_it() {
        let mut helped: BTreeSet<(String, String)> = BTreeSet::new();
        for row in table("operations.md", "| condition | reason | what it means | what to do |") {
            let [kinds, reasons, ..] = row.as_slice() else { continue };
            assert!(!kinds.is_empty() && !reasons.is_empty(), "{row:?}");
            helped.extend(kinds.iter().flat_map(|k| reasons.iter().map(|r| (k.clone(), r.clone()))));
        }
        let calling = ALL.iter().filter(|r| calls_for_somebody(r));
        let calling: BTreeSet<_> = calling.map(|r| (r.kind.to_owned(), r.reason.to_owned())).collect();
        assert_eq!(helped, calling);
    }
}
