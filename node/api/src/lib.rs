//! Identifiers and admin API types that nodes and the operator share.
//!
//! A leaf crate: serde only, so that the operator never compiles the metadata log. Invariant: a value of any type
//! here is valid; text is parsed once, at the edge, by `FromStr` or serde, and never checked again.

#![warn(missing_docs)]

pub mod admin;
mod ids;

pub use ids::{
    ClusterUid, IdError, Incarnation, NodeEpoch, NodeId, Nonce, Offset, RaftId, SessionId, Slots,
    StreamEpoch, StreamId,
};
