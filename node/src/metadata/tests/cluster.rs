//! Several logs over loopback sockets: who is cut off, stopped or replaced loses nothing and doubles nothing.

mod changes;
mod proposals;
mod rig;
mod snapshots;
