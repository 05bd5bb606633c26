//! What happens inside a node, told to whoever runs it: for simulations only.
//!
//! Invariant: without the cargo feature `mutants` (never in a release) nothing is told. With it, [`watch`] sets one
//! eye per thread: a simulation runs all its nodes on one, and knows which of them is at work. The eye only looks; a
//! run with it goes exactly as one without.

use weir_api::SessionId;

use crate::metadata::command::{Batch, Outcome};
use crate::metadata::state::State;
use crate::storage::record::Frame;

/// One thing seen.
#[derive(Debug, Clone, Copy)]
pub enum Seen<'a> {
    /// The view holds one more entry.
    Applied {
        /// Its index.
        index: u64,
        /// What it was. `None`: the log's own business.
        batch: Option<&'a Batch>,
        /// One per command.
        outcomes: &'a [Outcome],
        /// The state after it.
        state: &'a State,
    },
    /// The view was replaced by a snapshot.
    Installed {
        /// The last entry in it.
        index: u64,
        /// The state.
        state: &'a State,
    },
    /// Appends are acknowledged from here on.
    Acknowledged {
        /// By whom.
        session: &'a SessionId,
        /// The WAL object they are in.
        seq: u64,
        /// What was acknowledged.
        frames: &'a [Frame],
    },
}

/// Tells it.
#[inline]
pub fn tell(seen: Seen<'_>) {
    #[cfg(feature = "mutants")]
    eye::tell(seen);
    #[cfg(not(feature = "mutants"))]
    let _: Seen<'_> = seen;
}

#[cfg(feature = "mutants")]
pub use eye::{Eye, watch};

#[cfg(feature = "mutants")]
mod eye {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::Seen;

    /// Who looks.
    pub type Eye = Rc<dyn Fn(Seen<'_>)>;

    thread_local! {
        static EYE: RefCell<Option<Eye>> = const { RefCell::new(None) };
    }

    /// From now on `eye` sees what happens on this thread.
    pub fn watch(eye: Option<Eye>) {
        EYE.set(eye);
    }

    pub(super) fn tell(seen: Seen<'_>) {
        let eye = EYE.with_borrow(Clone::clone);
        if let Some(eye) = eye {
            eye(seen);
        }
    }
}
