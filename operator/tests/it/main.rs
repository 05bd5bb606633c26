//! The operator against an API server and nodes in memory, and its rules and renderings offline. One binary, for linking
//! takes longer than running.

mod crd_rules;
mod fixtures;
mod flows;
mod api;
mod chaos;
mod golden;
mod nodes;
mod world;
