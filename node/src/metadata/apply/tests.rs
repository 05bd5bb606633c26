//! Facts about applying commands, by idea; `world` is what they stand on, `properties` holds for any sequence.

mod ending;
mod forks;
mod moves;
mod nodes;
mod ownership;
pub(crate) mod player;
mod properties;
mod recovery;
mod requests;
mod rules;
mod segments;
mod sessions;
mod streams;
pub(crate) mod world;
