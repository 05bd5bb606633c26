//! An exhaustive model of ownership, WAL and recovery. (Doc follows.)

pub mod actions;
pub mod apply;
pub mod canonical;
pub mod faults;
pub mod list;
pub mod nodes;
pub mod properties;
pub mod state;
