//! Giving the leadership away before this node stops, so that the log is without a leader for as short as can be.
//!
//! Invariant: nothing is lost by it: from its beginning nothing enters the log here, the successor has all of it, and
//! what others propose meanwhile is tried again at whoever leads. openraft has no transfer of leadership: the leader falls
//! silent, and a voter that has everything is told to ask for votes. The old leader's own vote is free at once; the
//! others' are when the silence has outlasted their lease. Called by `run` through the handle.

use std::time::Duration;

use super::{Metadata, forward};
use crate::fault;

/// How often a successor is asked again: between two elections of its own there is time for votes to come.
const AGAIN: Duration = Duration::from_millis(400);
/// For one call.
const CALL: Duration = Duration::from_secs(1);
/// How often it is looked whether a voter has all of the log by now.
const LOOK: Duration = Duration::from_millis(20);

pub(super) async fn hand_over(metadata: &Metadata, deadline: Duration) -> Result<(), String> {
    let log = &metadata.shared.log;
    let Some(peers) = &metadata.shared.peers else { return Ok(()) };
    let mut leadership = metadata.leadership();
    if !leadership.borrow().me || log.is_sole_voter() {
        return Ok(());
    }
    log.set_yielding(true);
    fault::point("lead.yielding");
    let told = async {
        loop {
            let Some((id, address)) = log.successors().into_iter().next() else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            match forward::elect(peers, &address, CALL).await {
                Ok(()) => {
                    fault::point("lead.handed");
                    tracing::info!(raft_id = id, address, "handing the metadata log's leadership over");
                }
                Err(e) => tracing::warn!(error = %e, "a successor did not take the leadership"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    let lost = leadership.wait_for(|l| !l.me);
    let outcome = tokio::select! {
        lost = lost => lost.map(drop).map_err(|e| e.to_string()),
        () = told => Ok(()),
        () = tokio::time::sleep(deadline) => {
            Err(format!("no voter has taken the leadership of the metadata log within {deadline:?}"))
        }
    };
    log.set_yielding(false);
    outcome
}
