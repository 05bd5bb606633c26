//! Named points between two steps, at which a test ends the process.
//!
//! Invariant: without the cargo feature `fault-points` (never in a release) a point is nothing. With it,
//! `WEIR_FAULT_POINT=name` or `name:n` aborts the process at the n-th pass of that point, exactly as a power cut
//! between the lines around it would.

/// Marks a place between two steps.
#[inline]
pub fn point(name: &'static str) {
    #[cfg(feature = "fault-points")]
    armed::pass(name);
    #[cfg(not(feature = "fault-points"))]
    let _: &str = name;
}

#[cfg(feature = "fault-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ARMED: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static PASSES: AtomicU64 = AtomicU64::new(0);

    #[allow(clippy::disallowed_methods, reason = "a test switch, not configuration")]
    fn read() -> Option<(String, u64)> {
        let text = std::env::var("WEIR_FAULT_POINT").ok()?;
        match text.split_once(':') {
            Some((name, n)) => Some((name.to_owned(), n.parse().ok()?)),
            None => Some((text, 1)),
        }
    }

    pub(super) fn pass(name: &'static str) {
        let Some((armed, nth)) = ARMED.get_or_init(read) else { return };
        if armed == name && PASSES.fetch_add(1, Ordering::SeqCst) + 1 == *nth {
            tracing::warn!(name, "fault point: aborting");
            std::process::abort();
        }
    }
}
