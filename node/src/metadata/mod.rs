//! The metadata log's handle and the pure state machine behind it.

pub mod command;
pub mod state;
