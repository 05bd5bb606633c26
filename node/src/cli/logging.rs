//! Log lines on stderr: text for people, JSON for collectors.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// Starts logging. A second start in one process changes nothing.
pub(super) fn start(log: &LogConfig) {
    let LogConfig { filter, format } = log;
    let filter = EnvFilter::try_new(filter).expect("config parsed the same text");
    // A line that cannot be written is lost: telling stderr so, with the disk below it full, would panic.
    let base =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    let started = match format {
        LogFormat::Text => base.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => base.json().flatten_event(true).try_init(),
    };
    // Only a test that starts twice in one process comes here with an error.
    drop(started);
}
