//! Named points before and after each step of a pass, at which a test ends the operator.
//!
//! Invariant: without the cargo feature `fault-points` (never in a release) no process is ended here; a task's own
//! [`WATCH`] is set by tests alone. With the feature, `WEIR_OPERATOR_FAULT=name` or `name:n` ends the process at the n-th
//! pass of that point, with exit code 86 and the lease not let go, as a kill between the lines around it would. Called
//! by `apply`.

use std::sync::Arc;

/// Every step that has a point before and one after it: the kinds of actions, and the status.
pub const STEPS: &[&str] = &[
    "apply",
    "prune",
    "create-tokens",
    "create-volume",
    "patch-volume",
    "delete-volume",
    "create-pod",
    "annotate-pod",
    "set-slots",
    "pin",
    "cancel-drain",
    "drain",
    "end-session",
    "delete-pod",
    "remove-node",
    "write-status",
];

/// Told each point that is passed; false: the operator is dead.
pub type Watch = Arc<dyn Fn(&str) -> bool + Send + Sync>;

tokio::task_local! {
    /// A test's own.
    pub static WATCH: Watch;
}

/// On which side of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It is decided and not begun.
    Before,
    /// It is done, and nobody was told.
    After,
}

/// The name of a point.
pub fn name(side: Side, step: &str) -> String {
    match side {
        Side::Before => format!("before-{step}"),
        Side::After => format!("after-{step}"),
    }
}

/// The names of all points.
pub fn all() -> Vec<String> {
    STEPS.iter().flat_map(|step| [name(Side::Before, step), name(Side::After, step)]).collect()
}

/// Passes a point. True if a test says that the operator is dead: nothing more may be done then.
pub(crate) fn dies(side: Side, step: &str) -> bool {
    #[cfg(feature = "fault-points")]
    armed::pass(&name(side, step));
    WATCH.try_with(|watch| !watch(&name(side, step))).unwrap_or(false)
}

/// Says at the start which point is armed, and refuses a name that there is not: a test would wait for ever.
#[cfg(feature = "fault-points")]
pub(crate) fn check() -> anyhow::Result<()> {
    armed::check()
}

#[cfg(feature = "fault-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use anyhow::{Context as _, ensure};

    const VARIABLE: &str = "WEIR_OPERATOR_FAULT";
    const EXIT: i32 = 86;

    static ARMED: OnceLock<(String, u64)> = OnceLock::new();
    static PASSES: AtomicU64 = AtomicU64::new(0);

    #[allow(clippy::disallowed_methods, reason = "a test switch, not configuration")]
    pub(super) fn check() -> anyhow::Result<()> {
        let Ok(text) = std::env::var(VARIABLE) else { return Ok(()) };
        let (name, nth) = text.split_once(':').unwrap_or((&text, "1"));
        ensure!(
            super::all().iter().any(|n| n == name),
            "{VARIABLE}: no point {name:?}; there are: {}",
            super::all().join(", ")
        );
        let nth = nth.parse().with_context(|| format!("{VARIABLE}: {nth:?} is no count"))?;
        tracing::warn!(name, nth, "fault point: armed");
        drop(ARMED.set((name.to_owned(), nth)));
        Ok(())
    }

    pub(super) fn pass(name: &str) {
        let Some((armed, nth)) = ARMED.get() else { return };
        if armed == name && PASSES.fetch_add(1, Ordering::SeqCst) + 1 == *nth {
            tracing::warn!(name, "fault point: ending the process");
            std::process::exit(EXIT);
        }
    }
}
