//! Builds the parts, binds listeners, spawns every task in one set, orders shutdown.

use crate::config::{ConfigError, ServeConfig};

/// Why a node ended other than by being asked to. Each says what the caller should do.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Change the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory or the bucket belongs to another cluster or node: point elsewhere, or adopt.
    #[error("{0}")]
    Foreign(String),
    /// Another process serves as this node now: do not restart at once.
    #[error("{0}")]
    Superseded(String),
    /// The store lacks a property: use another.
    #[error("{0}")]
    StoreUnfit(String),
    /// Another process has the data directory: stop it first.
    #[error("{0}")]
    InUse(String),
    /// Anything else: look at the message, start again.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

/// Serves until told to stop.
pub async fn serve(config: ServeConfig) -> Result<(), RunError> {
    drop(config);
    Err(RunError::Failed(anyhow::anyhow!("not built yet")))
}
