//! The metadata log's handle and the pure state machine behind it.

pub mod apply;
pub mod codec;
pub mod command;
pub mod consistency;
pub mod limits;
pub mod placement;
pub mod query;
pub mod state;
