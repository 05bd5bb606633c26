//! Deliberate mistakes, to show that the proofs find them.
//!
//! Invariant: without the cargo feature `mutants` (never in a release) no mutant is ever on and the compiler drops
//! what it would do. With it, [`set`] switches one on for the calling thread, which is all of a simulation's nodes.
//! What each breaks and who finds it: `docs/mutants.md`.

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    // ---- the metadata log
    /// A commit takes records of any stream epoch, if the stream is open at the session.
    NoStreamEpochCheck,
    /// A commit takes records of whoever is a member, whoever has the stream.
    NoOwnerCheck,
    /// Another process may register at the epoch that is recorded.
    EqualEpochAccepted,
    /// A process that was replaced is told to mint again.
    RemintAfterSuperseded,
    /// A fence ends the session and lets any incarnation come back.
    FenceWithoutPin,
    /// A session that ends itself is forgotten though streams are open at it.
    CleanEndWithOpenStreams,
    /// Any claim of an ended session will do.
    ClaimNotChecked,
    /// A stream is opened though its last session is not recovered.
    OpenBeforeRecovered,
    /// An open gives the epoch that the stream was open at last.
    EpochNotBumped,
    /// A release does not compare the owner's tail with the committed end.
    ReleaseAtWrongTail,
    /// A command that comes again is applied again.
    RetryAppliedTwice,
    /// A node whose session has ended takes new streams.
    PlaceOnDeadNode,
    /// A node that drains takes new streams.
    PlaceOnDrainingNode,
    /// A change of a node's slots takes its placed streams away.
    SlotsMoveStreams,
    /// A transfer that was called off completes.
    AbortedTransferCompletes,
    /// A stream is deleted whoever has it open.
    DeleteByAnyone,
    /// A fork begins where its source is not committed yet.
    ForkBeyondCommitted,
    /// A fork does not count as needing the segments it begins with.
    ForkWithoutReference,

    // ---- the WAL, recovery and what is deleted
    /// Recovery reads up to the first absent object and puts no seal there.
    NoSeal,
    /// What is deleted after a recovery includes the seal.
    SealDeleted,
    /// An append is acknowledged when its object is sent.
    AckBeforePut,
    /// An append is acknowledged when its object is stored, whatever is before it.
    AckOutOfOrder,
    /// Recovery takes records of any epoch of a stream.
    RecoveryIgnoresStreamEpoch,
    /// A fenced session is called recovered while it may hold its lease.
    RecoveredWithinLease,
    /// An upload that no commit names is deleted though its session lives.
    SweepByAge,

    // ---- streams and sessions
    /// A duplicate is answered before its original is durable.
    DuplicateBeforeDurable,
    /// Readers see what is not durable.
    ReadPastDurable,
    /// The next owner starts without the producers' state.
    ProducersForgotten,
    /// 404 by the view, without a read index.
    MissingByTheView,
    /// Answers of a node that does not own the stream are by the view, without a read index.
    CurrentByTheView,
    /// An append whose outcome is unknown is answered as one that never entered.
    UnknownCalledFailure,
    /// Answers claim to be current without a lease.
    NoLease,
    /// The lease runs from when the heartbeat's answer came.
    LeaseFromArrival,

    // ---- routing
    /// Requests are sent to a session that has ended.
    RedirectToTheDead,
    /// A request may be sent on without end.
    HopsNotCounted,
}

impl Mutant {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::NoStreamEpochCheck,
        Self::NoOwnerCheck,
        Self::EqualEpochAccepted,
        Self::RemintAfterSuperseded,
        Self::FenceWithoutPin,
        Self::CleanEndWithOpenStreams,
        Self::ClaimNotChecked,
        Self::OpenBeforeRecovered,
        Self::EpochNotBumped,
        Self::ReleaseAtWrongTail,
        Self::RetryAppliedTwice,
        Self::PlaceOnDeadNode,
        Self::PlaceOnDrainingNode,
        Self::SlotsMoveStreams,
        Self::AbortedTransferCompletes,
        Self::DeleteByAnyone,
        Self::ForkBeyondCommitted,
        Self::ForkWithoutReference,
        Self::NoSeal,
        Self::SealDeleted,
        Self::AckBeforePut,
        Self::AckOutOfOrder,
        Self::RecoveryIgnoresStreamEpoch,
        Self::RecoveredWithinLease,
        Self::SweepByAge,
        Self::DuplicateBeforeDurable,
        Self::ReadPastDurable,
        Self::ProducersForgotten,
        Self::MissingByTheView,
        Self::CurrentByTheView,
        Self::UnknownCalledFailure,
        Self::NoLease,
        Self::LeaseFromArrival,
        Self::RedirectToTheDead,
        Self::HopsNotCounted,
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|m| format!("{m:?}") == name)
    }
}

/// Whether this mistake is to be made.
#[inline]
pub fn on(mutant: Mutant) -> bool {
    #[cfg(feature = "mutants")]
    return switch::on(mutant);
    #[cfg(not(feature = "mutants"))]
    {
        let _: Mutant = mutant;
        false
    }
}

#[cfg(feature = "mutants")]
pub use switch::{met, set};

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static NOW: Cell<Option<Mutant>> = const { Cell::new(None) };
        static MET: Cell<u64> = const { Cell::new(0) };
    }

    /// From now on this mistake is made on this thread, and no other.
    pub fn set(mutant: Option<Mutant>) {
        NOW.set(mutant);
        MET.set(0);
    }

    /// How often the place of the mistake was passed since [`set`]: a run that never came there shows nothing.
    pub fn met() -> u64 {
        MET.get()
    }

    pub(super) fn on(mutant: Mutant) -> bool {
        let on = NOW.get() == Some(mutant);
        if on {
            MET.set(MET.get() + 1);
        }
        on
    }
}
