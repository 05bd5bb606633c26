//! The status of a StreamCluster that this operator cannot read.
//!
//! Invariant: pure. What stands there stays, above all the cluster uid, for an operator of another version goes by it;
//! only what would be taken for the present state is changed. Called by `apply`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

const UNKNOWN: &[&str] =
    &["Ready", "Progressing", "Degraded", "QuorumHealthy", "SlotsSynced", "StorageReady"];
/// Nothing goes on before a person has seen to it.
const STALLED: &[(&str, &str)] = &[("Reconciling", "False"), ("Stalled", "True")];
const REASON: &str = "Unreadable";

/// What it said before, with why nothing is done; and the conditions that say so.
pub(crate) fn unreadable(
    before: &Value,
    generation: Option<i64>,
    why: &str,
    now_ms: i64,
) -> (Value, Vec<Condition>) {
    let mut status = if before.is_object() { before.clone() } else { json!({}) };
    let message = crate::facts::cut(why);
    let now = Time(jiff::Timestamp::from_millisecond(now_ms / 1000 * 1000).unwrap_or_default());
    let had: Vec<Condition> = serde_json::from_value(before["conditions"].clone()).unwrap_or_default();
    let kinds = UNKNOWN.iter().map(|kind| (*kind, "Unknown")).chain(STALLED.iter().copied());
    let say = |(kind, status): (&str, &str)| {
        let same = had.iter().find(|c| c.type_ == kind && c.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: REASON.to_owned(),
            message: message.clone(),
            observed_generation: generation,
            last_transition_time: same.map_or(now.clone(), |c| c.last_transition_time.clone()),
        }
    };
    let said: Vec<Condition> = kinds.map(say).collect();
    let others = had.iter().filter(|c| said.iter().all(|s| s.type_ != c.type_));
    let all: Vec<&Condition> = said.iter().chain(others).collect();
    status["state"] = json!("Blocked");
    status["message"] = json!(message);
    status["conditions"] = json!(all);
    (status, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_version_goes_by_stays_and_the_same_is_said_in_the_same_bytes() {
        let before = json!({"state": "Ready", "clusterUid": "c1", "newer": {"a": 1}, "nodes": [{"name": "demo-0"}],
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "AllNodesReady", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "OfAnother", "status": "True", "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let (now, said) = unreadable(&before, Some(3), "unknown variant `Frozen`", 1_800_000_000_000);
        assert!(said.iter().all(|c| c.type_ != "OfAnother") && said.len() == 8);
        for field in ["clusterUid", "newer", "nodes"] {
            assert_eq!(now[field], before[field], "{field}");
        }
        let find = |kind: &str| {
            let all = now["conditions"].as_array().unwrap();
            all.iter().find(|c| c["type"] == kind).cloned().unwrap()
        };
        assert_eq!(
            (&find("Ready")["status"], &find("Ready")["reason"]),
            (&json!("Unknown"), &json!("Unreadable"))
        );
        assert_eq!(find("Stalled")["status"], "True");
        assert_eq!(find("OfAnother")["status"], "True");
        assert_eq!(now["message"], "unknown variant `Frozen`");
        assert_eq!(unreadable(&now, Some(3), "unknown variant `Frozen`", 1_900_000_000_000).0, now);
        // Whatever stands there.
        assert_eq!(unreadable(&json!("odd"), None, "why", 0).0["message"], "why");
    }
}
