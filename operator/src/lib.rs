//! Runs Weir clusters on Kubernetes from `StreamCluster` resources.
//!
//! One reconcile is observe (reads only) → plan (pure: values in, values out) → apply (carries out what the plan says, the
//! status last). Arrows point down: main → run → controller → {observe, plan, apply}; plan → {facts, resources, epochs,
//! status} → {observed, action, crd, names}; observe and apply → admin. Kubernetes is spoken to in `observe`, `apply`,
//! `controller`, `lease` and `run` alone, nodes only through `admin`. `docs/operator.md` says what users see.

pub mod action;
pub mod admin;
pub mod apply;
pub mod controller;
pub mod crd;
pub mod epochs;
pub mod facts;
pub mod fault;
pub mod health;
pub mod lease;
pub mod metrics;
pub mod names;
pub mod observe;
pub mod observed;
pub mod plan;
pub mod resources;
pub mod run;
pub mod status;
