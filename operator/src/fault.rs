//! Places where a test stops the operator: before each action.
//!
//! Invariant: outside tests nothing is ever set, and looking costs one atomic load.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::action::Action;
use crate::apply::Failure;

tokio::task_local! {
    /// Actions that this task may still carry out; below zero: the operator is dead.
    pub static LEFT: AtomicI64;
}

/// Fails if a test says that the operator dies before this action.
pub(crate) fn point(action: &Action) -> Result<(), Failure> {
    let alive = LEFT.try_with(|left| left.fetch_sub(1, Ordering::Relaxed) > 0).unwrap_or(true);
    match alive {
        true => Ok(()),
        false => {
            let what = format!("{action:?}").chars().take(40).collect();
            Err(Failure { what, why: "the operator dies here".to_owned(), passing: false })
        }
    }
}
