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
    /// No such stream or node.
    NotFound = 7,
    /// The server refuses the request, and would again.
    Refused = 8,
    /// The stream is closed.
    Closed = 9,
    /// No server, or none that could do it in time; nothing was changed.
    Unavailable = 10,
    /// Nobody knows whether it took effect.
    Unknown = 11,
    /// No valid token.
    Denied = 12,
}

/// For the help of the commands that run a node, and of `weir` itself.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0  done, or stopped as asked
  1  failed; the message says at what
  2  the command line or the configuration is wrong
  3  the data directory or the bucket belongs to another cluster or node
  4  superseded or fenced: another process serves as this node now
  5  the store lacks a property that Weir builds on; the message names it
  6  another process is using the data directory
  7  no such stream or node
  8  refused: the request does not fit what is there; the message says why
  9  the stream is closed
  10  unavailable: no server, or none that could do it in time; nothing was changed
  11  unknown: it may or may not have taken effect
  12  denied: the token is missing or not valid";

/// For the help of the commands that talk to a server.
pub(super) const CLIENT_CODES: &str = "\
Exit codes:
  0  done (or stopped as asked; or nobody reads the output any more)
  1  failed here: a file, a pipe, an answer that makes no sense
  2  the command line is wrong
  7  no such stream or node
  8  refused: the request does not fit what is there; the message says why
  9  the stream is closed
  10  unavailable: no server, or none that could do it in time; nothing was changed
  11  unknown: it may or may not have taken effect
  12  denied: the token is missing or not valid";

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}
