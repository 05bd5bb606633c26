//! What the plan wants done.
//!
//! Invariant: each action is safe to repeat and carries what makes it void if the world has moved on (a UID, an epoch).
//! Made by `plan`, carried out by `apply`, in order.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use weir_api::{Incarnation, NodeEpoch, NodeId, Slots};

use crate::crd::StreamClusterStatus;
use crate::observed::Kind;

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Apply an object server-side.
    Apply {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// It was seen, and is this cluster's.
        exists: bool,
        /// Only the operator's fields.
        body: Value,
    },
    /// Delete an object that is not needed any more.
    Prune {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// Only this one.
        uid: String,
    },
    /// Make the Secret with the admin tokens.
    CreateTokens,
    /// Make a volume claim.
    CreateVolume {
        /// Its name.
        name: String,
        /// All of it.
        body: Value,
    },
    /// Change a volume claim.
    PatchVolume {
        /// Its name.
        name: String,
        /// Only this one.
        uid: String,
        /// A merge patch.
        patch: Value,
        /// It marks the claim never to be used again: what follows rests on that.
        gives_up: bool,
        /// For the log.
        why: String,
    },
    /// Delete a volume claim.
    DeleteVolume {
        /// Its name.
        name: String,
        /// Only this one.
        uid: String,
        /// Only if it has not changed since.
        version: Option<String>,
        /// For an event.
        why: String,
    },
    /// Make a pod.
    CreatePod {
        /// Its name.
        name: String,
        /// All of it.
        body: Value,
    },
    /// Set annotations of a pod.
    AnnotatePod {
        /// Its name.
        name: String,
        /// Only this one.
        uid: String,
        /// To be set.
        annotations: BTreeMap<String, String>,
    },
    /// Set a node's weight.
    SetSlots {
        /// The node.
        node: NodeId,
        /// Its weight.
        slots: Slots,
    },
    /// Let only this pod register, and end the session of any other.
    Pin {
        /// The node.
        node: NodeId,
        /// Its registered epoch.
        epoch: NodeEpoch,
        /// The pod's UID.
        incarnation: Incarnation,
    },
    /// Let a node take streams again.
    CancelDrain {
        /// The node.
        node: NodeId,
    },
    /// Make a node give its streams away.
    Drain {
        /// The node.
        node: NodeId,
        /// For an event.
        why: String,
    },
    /// End a session whose process cannot be reached.
    EndSession {
        /// The node.
        node: NodeId,
        /// The epoch to end.
        epoch: NodeEpoch,
        /// For an event.
        why: String,
    },
    /// Delete a pod.
    DeletePod {
        /// Its name.
        name: String,
        /// Only this one.
        uid: String,
        /// Without waiting for its host.
        force: bool,
        /// For an event.
        why: String,
    },
    /// Remove a node from the cluster's record.
    RemoveNode {
        /// The node.
        node: NodeId,
        /// For an event.
        why: String,
    },
}

impl Action {
    /// Its kind, as fault points are named after it.
    pub fn step(&self) -> &'static str {
        match self {
            Self::Apply { .. } => "apply",
            Self::Prune { .. } => "prune",
            Self::CreateTokens => "create-tokens",
            Self::CreateVolume { .. } => "create-volume",
            Self::PatchVolume { .. } => "patch-volume",
            Self::DeleteVolume { .. } => "delete-volume",
            Self::CreatePod { .. } => "create-pod",
            Self::AnnotatePod { .. } => "annotate-pod",
            Self::SetSlots { .. } => "set-slots",
            Self::Pin { .. } => "pin",
            Self::CancelDrain { .. } => "cancel-drain",
            Self::Drain { .. } => "drain",
            Self::EndSession { .. } => "end-session",
            Self::DeletePod { .. } => "delete-pod",
            Self::RemoveNode { .. } => "remove-node",
        }
    }

    /// Whether a node may still be disturbed where this is refused. A volume that cannot grow is no reason not to replace
    /// another node's.
    pub fn is_aside(&self) -> bool {
        match self {
            Self::PatchVolume { gives_up, .. } => !gives_up,
            Self::Prune { .. }
            | Self::DeleteVolume { .. }
            | Self::AnnotatePod { .. }
            | Self::SetSlots { .. }
            | Self::CancelDrain { .. } => true,
            Self::Apply { .. }
            | Self::CreateTokens
            | Self::CreateVolume { .. }
            | Self::CreatePod { .. }
            | Self::Pin { .. }
            | Self::Drain { .. }
            | Self::EndSession { .. }
            | Self::DeletePod { .. }
            | Self::RemoveNode { .. } => false,
        }
    }

    /// Whether it takes something away from a node that might be serving. One plan holds such actions for one node at
    /// most.
    pub fn is_disruptive(&self) -> bool {
        match self {
            Self::Drain { .. }
            | Self::EndSession { .. }
            | Self::DeletePod { .. }
            | Self::RemoveNode { .. } => true,
            Self::Apply { .. }
            | Self::Prune { .. }
            | Self::CreateTokens
            | Self::CreateVolume { .. }
            | Self::PatchVolume { .. }
            | Self::DeleteVolume { .. }
            | Self::CreatePod { .. }
            | Self::AnnotatePod { .. }
            | Self::SetSlots { .. }
            | Self::Pin { .. }
            | Self::CancelDrain { .. } => false,
        }
    }
}

/// Something to tell the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Not as it should be.
    pub warning: bool,
    /// CamelCase, stable.
    pub reason: &'static str,
    /// For people.
    pub text: String,
}

/// What a pass comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// To be done, in order.
    pub actions: Vec<Action>,
    /// What the status is to say; `None`: leave it.
    pub status: Option<StreamClusterStatus>,
    /// Events.
    pub notes: Vec<Note>,
    /// When to look again.
    pub again: Duration,
}
