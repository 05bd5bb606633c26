//! An exhaustive model of who may write a stream, and of how nothing acknowledged gets lost when that changes.
//!
//! The checker (stateright) visits every state that two nodes can reach within the bounds, and looks in each at the
//! invariants I1 to I4 of `docs/design.md`. `tests/holds.rs` shows that the design keeps them and that the situations
//! it is made for do occur; `tests/faults.rs` takes one rule away at a time and names the invariant that falls;
//! `tests/canonical.rs` shows that the reductions below lose nothing. Names are those of
//! `node/src/metadata/{command,state}.rs`.
//!
//! # What is modelled
//! - **The metadata log** (`apply`): `Register`, `Fence`, `EndSession`, `Claim`, `Recovered`, `Open`, `Release` and
//!   `CommitSegment` (own and under a claim, in parts of which only the last moves `wal_start`), each checked and
//!   applied as one step. A session that ends with open streams waits for recovery, any other is forgotten.
//! - **Processes** (`nodes`): a process knows its memory and what it reads in the bucket. It is not told that its session
//!   has ended: as a zombie it goes on taking appends, putting and acknowledging until it meets a seal. It may crash, be
//!   replaced by the next epoch while it still runs, or end its session whatever it has open.
//! - **The WAL**: objects put if absent, two in flight. A put may land at once, late, after its sender's death, or never;
//!   its reply may be lost and the put repeated, also after the object was committed and deleted. Acknowledged is what is
//!   stored together with all before it.
//! - **Recovery**: a claim may be passed on while its holder still works, so that two read, seal and commit at once, each
//!   from the WAL start of its own claim, beside deletions by the other; claimants may themselves be fenced or die.
//! - **Producers** retry every append without end, at any process that believes to own the stream. Two appends of a
//!   stream have two producers, so that they may come to stand in either order.
//! - **Readers** read at every process, zombies too, all that is durable there, as soon as it is; and all that is
//!   committed.
//! - **A stream's task that dies in a living process** (`Abandon`), before anything of it that segments do not hold was
//!   acknowledged. Its frames stay in the WAL of a session that goes on, and the session releases the stream at its
//!   committed end. This is what the stream epoch in a frame is for: every other way to lose a stream is either a release
//!   with everything settled, after which no frame of it is left above the committed end, or the session's end.
//!
//! # What is left out
//! - Raft: the log is one sequence that all agree on. A proposal under way is one that is applied later; a lost answer is
//!   a process that has not looked yet; the request numbers that make a retried proposal one are taken for granted.
//! - Time: anyone may be fenced at any moment, no claim ever waits. So leases, and with them every answer that claims
//!   to be current, are not covered (I3's second half).
//! - Placement: any live session may open a stream that is free. Creation, birth, closing, deletion, expiry, forks,
//!   transfer, compaction. Batching: one frame is one object. Damaged objects. Liveness: that a recovery ends.
//!
//! # How far
//! Two nodes with two epochs each, of which the first may crash or be ended (so one crash per node); two streams, each
//! opened at most twice; two appends to each stream, or two in all where a stream's task may die (`actions::Bounds`);
//! two claims per recovery; three objects that segments do not cover. Nothing is cut by depth or time: 11.0 and 8.8
//! million states, 80.9 and 55.6 million steps, about 105 s of processor time together on two threads.
//!
//! # How it stays small
//! - Who looks first decides whether a put has landed or an object is deleted: until then the slot is `Unseen`. A
//!   moment of landing that nobody can observe is not a state.
//! - A reader that reads everything as soon as it may makes reads steps of nobody's. Records below the committed end
//!   are compared once with what was told of them; they cannot change after.
//! - `canonical` forgets what nobody can observe (the WAL of a session recovered, a claimant that is too late, a writer
//!   that faces a seal), renumbers a WAL from its first uncovered object, and gives nodes, streams and appends, which are
//!   all alike, their names in a fixed order. So names may swap from one step of a printed schedule to the next.

pub mod actions;
pub mod apply;
pub mod canonical;
pub mod faults;
pub mod fork;
pub mod list;
pub mod nodes;
pub mod properties;
pub mod state;
pub mod told;
pub mod transfer;
