//! Weir on a real Kubernetes: the test bed of `tests/cluster`, with the operator installed by its chart.
//!
//! `make kubernetes` starts the bed, installs, and runs these tests inside its network (`bed run`); a bare `cargo test` passes them
//! over, and told to run they fail without a bed. One at a time (`--test-threads 1`): they share hosts and operator. Those
//! that take long have `::long::` in their path and are left to `make test-cluster`. By hand, once a bed is up
//! (`.ci/kubernetes start`): `.ci/kubernetes run FILTER…`.
//!
//! A scenario is a module. It starts a [`cluster::Cluster`] (a namespace, the bucket, a StreamCluster, ready), puts it
//! under load ([`cluster::Cluster::load`]: every request is written down), does something, waits for what the API comes to
//! show ([`cluster::Cluster::until`] and its like: watches, limited to minutes), measures ([`figures`]), and ends with
//! [`cluster::Cluster::end`]: nothing acknowledged is lost, doubled or out of order, and the operator never disturbed two
//! nodes at once ([`disruptions`]). What it breaks of the bed it breaks through [`bed::Bed::run_until`], which mends it
//! whatever happens. Times are written down, never asserted.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code stands outside of the node's doors to time, sockets and tasks"
)]

mod bed;
mod cluster;
mod disruptions;
mod figures;
mod requests;
mod watched;

mod addresses;
mod deleted;
mod host_drained;
mod install;
mod lost_host;
mod lost_volume;
mod mistakes;
mod namespaced;
mod operator_killed;
mod operators;
mod refused;
mod replaced;
mod reshaped;
mod rights;
mod roll;
mod scale;
mod shown;
mod slots;
mod yours;
