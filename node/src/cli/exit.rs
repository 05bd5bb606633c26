//! The process's exit codes: the one list, for the help and for every command.
//!
//! Invariant: a code keeps its meaning for ever; scripts and the operator read it.

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    /// Done, or stopped as asked.
    Ok = 0,
    /// Failed; the message says at what.
    Failure = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The data directory or the bucket belongs to another cluster or node.
    Foreign = 3,
    /// Another process serves as this node now.
    Superseded = 4,
    /// The store lacks a property that Weir builds on.
    StoreUnfit = 5,
    /// Another process has the data directory.
    InUse = 6,
}

/// For the help.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0  done, or stopped as asked
  1  failed; the message says at what
  2  the command line or the configuration is wrong
  3  the data directory or the bucket belongs to another cluster or node
  4  superseded or fenced: another process serves as this node now
  5  the store lacks a property that Weir builds on; the message names it
  6  another process is using the data directory";

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}
