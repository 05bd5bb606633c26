//! Recoveries that have stopped on damage: what a person decides.
//!
//! Invariant: pure but for the order itself, which `Skips` checks. Used by `super`.

use weir_api::SessionId;
use weir_api::admin::{SkipDamage, Skipped};

use super::problem::Error;
use crate::storage::skips::Skips;

/// Orders the skip that the body names, if that is what the recovery has stopped on here.
pub(super) fn skip(body: SkipDamage, skips: &Skips) -> Result<Skipped, Error> {
    let SkipDamage { node, epoch, seq } = body;
    let session = SessionId { node: node.clone(), epoch };
    match skips.order(&session, seq) {
        Ok(stop) => Ok(Skipped { node, epoch, seq, why: stop.why }),
        Err(Some(stop)) => Err(Error::NotStoppedThere(format!(
            "seq: the recovery of session {session} has stopped on {}, not on {seq}: {}",
            stop.seq, stop.why
        ))),
        Err(None) => Err(Error::NotStoppedThere(format!(
            "no recovery of session {session} has stopped on an object that can be skipped, at this node; \
             GET /admin/cluster lists recoveries"
        ))),
    }
}
