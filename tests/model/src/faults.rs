//! What can be broken on purpose: each switch removes one rule of the design.
//!
//! All off is the design. The tests switch one on and show which invariant falls.

/// One rule removed per switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Recovery reads up to the first absent object and puts no seal there.
    pub no_seal: bool,
    /// Cleaning up after a recovery deletes the seal too.
    pub seal_deleted: bool,
    /// `CommitSegment` takes frames of any epoch of a stream that is open at the session.
    pub no_stream_epoch_check: bool,
    /// A record is acknowledged when its own object is stored, although an earlier one is not.
    pub ack_out_of_order: bool,
    /// Readers see a record as soon as it has an offset.
    pub read_before_durable: bool,
    /// `CommitSegment` and `Recovered` take any claim of the ended session.
    pub claim_not_checked: bool,
    /// `EndSession` forgets the session although streams are open at it.
    pub clean_end_with_open_streams: bool,
    /// A stream of an ended session is opened although its recovery is not done.
    pub open_before_recovered: bool,
    /// `Open` gives the epoch that the stream was last open at.
    pub epoch_not_bumped: bool,
    /// The owner releases at the committed end although puts are in flight, and acknowledges them later.
    pub release_without_settle: bool,
    /// A retry is answered "duplicate" although its original is not durable yet.
    pub duplicate_answered_before_durable: bool,
    /// The next owner starts without the producers' state.
    pub producer_state_forgotten: bool,
}
