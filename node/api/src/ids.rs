//! Identifiers, epochs and offsets as types of their own. Parsed here and nowhere else.
//!
//! Node id, raft id and node epoch are three different things: a *node* is a member with a stable name, a *raft id*
//! is one data directory's number in the metadata log and is never reused, a *node epoch* is fresh at every process
//! start.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A text that is not a valid identifier: what it was meant to be, what it was, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdError {
    what: &'static str,
    got: String,
    allowed: &'static str,
}

impl IdError {
    fn new(what: &'static str, got: &str, allowed: &'static str) -> Self {
        // A hostile value must not fill the log with itself.
        let got = got.chars().take(80).collect();
        Self { what, got, allowed }
    }
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a {}: {}", self.got, self.what, self.allowed)
    }
}

impl std::error::Error for IdError {}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal, $ok:expr, $allowed:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(s: &str) -> Result<Self, IdError> {
                let ok: fn(&str) -> bool = $ok;
                if s.is_empty() || s.len() > $max || !ok(s) {
                    return Err(IdError::new($what, s, $allowed));
                }
                Ok(Self(s.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(s: String) -> Result<Self, IdError> {
                s.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

text_id!(
    /// A node's stable name, for example `demo-0`: a DNS label, at most 63 bytes. It appears in object keys.
    NodeId,
    "node id",
    63,
    |s| {
        let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let b = s.as_bytes();
        b.iter().all(|&c| edge(c) || c == b'-') && edge(b[0]) && edge(b[b.len() - 1])
    },
    "1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
);

text_id!(
    /// What tells two holders of one node id apart across restarts: the pod's UID on Kubernetes, else the nonce.
    Incarnation,
    "incarnation",
    128,
    |s| s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')),
    "1 to 128 of A-Z, a-z, 0-9, '-', '_' and '.'"
);

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The next higher value.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// Wall clock in milliseconds at one process start, raised above the recorded one where the clock is behind.
    NodeEpoch
);
number!(
    /// The number under which one data directory takes part in the metadata log. Never reused; the founder is 1.
    RaftId
);
number!(
    /// A stream's number. Never reused, so a name deleted and created anew is another stream.
    StreamId
);
number!(
    /// Grows by one at every open of a stream; 0 until it was opened first.
    StreamEpoch
);
number!(
    /// A position in a stream: payload bytes in byte streams, elements in JSON streams.
    Offset
);

/// A 128-bit number written as 32 hexadecimal digits.
macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub u128);

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(s: &str) -> Result<Self, IdError> {
                let bad = || IdError::new($what, s, "32 hexadecimal digits, lower case");
                let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
                if s.len() != 32 || !s.bytes().all(digit) {
                    return Err(bad());
                }
                u128::from_str_radix(s, 16).map(Self).map_err(|_e| bad())
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(s: String) -> Result<Self, IdError> {
                s.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self)
            }
        }
    };
}

hex_id!(
    /// Minted once when a cluster is founded; binds data directories and bucket to each other.
    ClusterUid,
    "cluster uid"
);
hex_id!(
    /// Drawn at random by one process (or for one request), so that its retries are recognised.
    Nonce,
    "nonce"
);

/// One process's life: a node id at a node epoch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId {
    /// The node.
    pub node: NodeId,
    /// Its epoch at this process start.
    pub epoch: NodeEpoch,
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.node, self.epoch)
    }
}

/// A node's capacity weight: 0 (takes no new streams) to [`Slots::MAX`], 1 by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Slots(u32);

impl Slots {
    /// The largest weight.
    pub const MAX: u32 = 1_000_000;
    /// The weight of a node that says nothing of it.
    pub const ONE: Self = Self(1);

    /// The weight as a number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u64> for Slots {
    type Error = IdError;
    fn try_from(n: u64) -> Result<Self, IdError> {
        match u32::try_from(n) {
            Ok(n) if n <= Self::MAX => Ok(Self(n)),
            _ => Err(IdError::new("slots value", &n.to_string(), "a whole number from 0 to 1000000")),
        }
    }
}

impl From<Slots> for u64 {
    fn from(s: Slots) -> u64 {
        u64::from(s.0)
    }
}

impl FromStr for Slots {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        let n: u64 =
            s.parse().map_err(|_e| IdError::new("slots value", s, "a whole number from 0 to 1000000"))?;
        Self::try_from(n)
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
