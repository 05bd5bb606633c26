//! What both kinds of WAL promise, by one table of tests over both; then each kind's own.

mod alone;
mod both;
mod bucket;
mod pace;
mod proxied;
mod race;
pub(super) mod rig;
