//! Label values: enums, so that no label ever takes its value from a client.
//!
//! Invariant: a label has a fixed, short list of values (a status is one of HTTP's), so the number of series is bounded
//! whatever clients do. Used by `meters`, which keeps one cell per value, and by `catalog`.

use super::catalog::Label;

/// A value of a label.
pub trait LabelValue: Copy + 'static {
    /// The label.
    const LABEL: Label;

    /// Its place in [`Label::values`].
    fn index(self) -> usize;

    /// As it is shown.
    fn as_str(self) -> &'static str {
        Self::LABEL.values[self.index()]
    }
}

macro_rules! label {
    ($(#[$doc:meta])* $type:ident, $name:literal, $help:literal { $($(#[$each:meta])* $variant:ident = $value:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $type {
            $($(#[$each])* $variant,)+
        }

        impl LabelValue for $type {
            const LABEL: Label = Label { name: $name, values: &[$($value),+], help: $help };

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

label! {
    /// What a client asked for.
    Operation, "operation", "What a client asked for. `read-live` is a long-poll or an event stream, `other` any other \
    method, `OPTIONS` among them" {
        /// PUT.
        Create = "create",
        /// POST.
        Append = "append",
        /// GET, catching up.
        Read = "read",
        /// GET, waiting for more.
        ReadLive = "read-live",
        /// HEAD.
        Head = "head",
        /// DELETE.
        Delete = "delete",
        /// The list of streams.
        List = "list",
        /// Anything else.
        Other = "other",
    }
}

label! {
    /// How a live reader reads.
    LiveKind, "kind", "How a reader waits for more" {
        /// One answer.
        LongPoll = "long-poll",
        /// An event stream.
        Sse = "sse",
    }
}

label! {
    /// How forwarding a request to the node that serves its stream went.
    Forwarded, "outcome", "How forwarding went: `answered` by the owner, whatever it said; `unreachable` and `busy`: \
    nothing was sent; `unknown`: sent, and no answer came; `abandoned` by the client or at this node's stop; `bad-body`: \
    the client's body was too large, too slow or broke off; `cut`, counted besides `answered`: the answer broke off" {
        /// The owner answered, whatever it said.
        Answered = "answered",
        /// No connection: nothing was sent.
        Unreachable = "unreachable",
        /// Too many at a time: nothing was sent.
        Busy = "busy",
        /// Sent, and no answer came.
        Unknown = "unknown",
        /// The client, or this node's stop, ended it first.
        Abandoned = "abandoned",
        /// The client's body was too large, too slow or broke off.
        BadBody = "bad-body",
        /// Counted besides `Answered`: the owner's answer broke off.
        Cut = "cut",
    }
}

label! {
    /// How an append ended.
    AppendOutcome, "outcome", "How an append ended: durable now; durable before (a retry of a producer); refused for \
    what it was (closed, wrong type, sequence, fenced producer); not taken at the moment, so nothing was stored; or not \
    known, because it was cut short, or this node was fenced, while it waited to become durable" {
        /// Durable.
        Accepted = "accepted",
        /// Durable before.
        Duplicate = "duplicate",
        /// Will never be taken as it is.
        Refused = "refused",
        /// Not now.
        Unavailable = "unavailable",
        /// May or may not become durable.
        Unknown = "unknown",
    }
}

label! {
    /// How one try to put a WAL object ended.
    PutOutcome, "outcome", "How one try to put a WAL object ended: stored; not confirmed, so it is tried again with the \
    same bytes; refused for lack of room, and tried again; refused by a seal, which fences this process; or failed for \
    good, which ends it" {
        /// Stored.
        Stored = "stored",
        /// Nobody knows.
        Unknown = "unknown",
        /// The disk is full.
        NoRoom = "no-room",
        /// Somebody recovers this session.
        Sealed = "sealed",
        /// The WAL cannot go on.
        Failed = "failed",
    }
}

label! {
    /// What became of a command that places a stream.
    Placement, "outcome", "What became of a command that may place a stream: `created` with a new stream; `opened` here; \
    `elsewhere`: it is another node's now, or was; `no-node`: none takes new streams" {
        /// A new stream was placed.
        Created = "created",
        /// The proposer has it open.
        Opened = "opened",
        /// Another node has it.
        Elsewhere = "elsewhere",
        /// Nobody takes it.
        NoNode = "no-node",
    }
}

label! {
    /// Why a session was fenced.
    FencedBy, "by", "Who said so: this node as the leader, because of silence, or somebody by its admin API" {
        /// The leader.
        Silence = "silence",
        /// A person or the operator.
        Admin = "admin",
    }
}

label! {
    /// Whose streams a recovery brought back.
    RecoveredOf, "of", "Whose session was recovered: an earlier one of this node, or another node's" {
        /// This node's own.
        Own = "own",
        /// Another's.
        Other = "other",
    }
}

label! {
    /// How a transfer ended at its source.
    TransferOutcome, "outcome", "How a transfer ended at its source: the stream was let go for its target, or the transfer \
    was called off and the source keeps it" {
        /// The target may open it.
        HandedOver = "handed-over",
        /// Called off.
        Aborted = "aborted",
    }
}

label! {
    /// How a drain of this node ended.
    DrainOutcome, "outcome", "How a drain of this node ended: nothing was left, it was cancelled, or it gave up because \
    nothing could be committed" {
        /// Nothing is left.
        Drained = "drained",
        /// Somebody cancelled it.
        Cancelled = "cancelled",
        /// Nothing could be committed.
        GaveUp = "gave-up",
    }
}

label! {
    /// Who made a segment.
    Committer, "by", "What a segment was made from: this node's own WAL, or that of a session it recovers" {
        /// The owner.
        Flush = "flush",
        /// A recovery.
        Recovery = "recovery",
    }
}

label! {
    /// A call to the store.
    StoreCall, "operation", "A call to the object store, its own repetitions included" {
        /// Put if absent.
        Put = "put",
        /// Get, whole or in ranges.
        Get = "get",
        /// Delete.
        Delete = "delete",
        /// List.
        List = "list",
    }
}

label! {
    /// Why a call to the store failed.
    StoreFault, "kind", "Why a call failed: an error or no connection; no answer within its deadline; or refused, which \
    only new credentials, policies or configuration change" {
        /// Try again.
        Unavailable = "unavailable",
        /// The deadline passed.
        TimedOut = "timed-out",
        /// Somebody has to do something.
        Denied = "denied",
    }
}

/// The status of an answer.
pub(super) const STATUS: Label = Label { name: "status", values: &[], help: "The status of the answer" };
/// The program's version.
pub(super) const VERSION: Label = Label { name: "version", values: &[], help: "The program's version" };
