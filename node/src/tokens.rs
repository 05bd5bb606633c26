//! The cluster's secret: bearer tokens from a file, for the admin API and between nodes.
//!
//! Invariant: tokens are compared in constant time and shown nowhere; a file that cannot be used lets nobody in. Two
//! tokens are valid at once, so that one can be replaced without a gap. Used by `admin` and `peers` for each request.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use http::HeaderValue;
use parking_lot::Mutex;
use subtle::{Choice, ConstantTimeEq as _};

/// A token file larger than this is none.
const FILE_MAX: u64 = 4096;
const TOKEN_MIN: usize = 16;
const TOKEN_MAX: usize = 512;

/// Why a request may not pass.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// No token, or a wrong one.
    Unauthorized,
    /// The file cannot be used.
    File(String),
}

/// The token file, read again when it changes.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    read: Mutex<Read>,
}

/// Which state of the file was read, and what it held.
struct Read {
    stamp: Stamp,
    tokens: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Read {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens", self.tokens.len())
    }
}

/// Modification time, inode and size: a rotation by rename changes the inode even within one tick of the clock.
type Stamp = (i64, i64, u64, u64);

impl Tokens {
    /// Reads the file a first time. The error says what is wrong with it.
    pub fn open(path: PathBuf) -> Result<Self, String> {
        let read = read(&path)?;
        Ok(Self { path, read: Mutex::new(read) })
    }

    /// Lets a request with this `Authorization` pass, or says why not.
    pub(crate) fn check(&self, authorization: Option<&HeaderValue>) -> Result<(), Denied> {
        let mut held = self.read.lock();
        self.refresh(&mut held)?;
        let given = authorization.map(HeaderValue::as_bytes).and_then(bearer).ok_or(Denied::Unauthorized)?;
        // No early exit: the time taken must not tell which token was nearly met.
        let met = held.tokens.iter().fold(Choice::from(0), |met, token| met | token.as_slice().ct_eq(given));
        if bool::from(met) { Ok(()) } else { Err(Denied::Unauthorized) }
    }

    /// What this node shows others: the first token.
    pub(crate) fn first(&self) -> Result<HeaderValue, Denied> {
        let mut held = self.read.lock();
        self.refresh(&mut held)?;
        let first = held.tokens.first().map(|token| [b"Bearer ".as_slice(), token].concat());
        let value = HeaderValue::from_bytes(&first.unwrap_or_default());
        let mut value = value.map_err(|_e| Denied::File("the first token is no header value".to_owned()))?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn refresh(&self, held: &mut Read) -> Result<(), Denied> {
        let stamp = stamp(&self.path).map_err(Denied::File)?;
        if stamp != held.stamp {
            *held = read(&self.path).map_err(Denied::File)?;
            tracing::info!(path = %self.path.display(), tokens = held.tokens.len(), "tokens read again");
        }
        Ok(())
    }
}

/// The token of `Bearer TOKEN`, the scheme in any case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
}

fn stamp(path: &PathBuf) -> Result<Stamp, String> {
    let m = fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?;
    if m.len() > FILE_MAX {
        return Err(format!("{}: {} bytes are more than the {FILE_MAX} allowed", path.display(), m.len()));
    }
    Ok((m.mtime(), m.mtime_nsec(), m.ino(), m.len()))
}

fn read(path: &PathBuf) -> Result<Read, String> {
    // The stamp first: a change in between is then seen as one at the next request.
    let stamp = stamp(path)?;
    let text = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let tokens = parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Read { stamp, tokens })
}

/// One or two lines; empty ones do not count.
fn parse(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let lines = text.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|l| !l.is_empty());
    let tokens: Vec<Vec<u8>> = lines.map(<[u8]>::to_vec).collect();
    let fine = |t: &Vec<u8>| (TOKEN_MIN..=TOKEN_MAX).contains(&t.len()) && t.iter().all(u8::is_ascii_graphic);
    match tokens.len() {
        1 | 2 if tokens.iter().all(fine) => Ok(tokens),
        1 | 2 => {
            Err(format!("a token is {TOKEN_MIN} to {TOKEN_MAX} printable ASCII characters without spaces"))
        }
        n => Err(format!("one or two tokens are allowed, a line each, not {n}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const OLD: &str = "an-old-token-0123456789";
    const NEW: &str = "a-new-token-0123456789";

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut f = tempfile::NamedTempFile::new().unwrap();
        f.write_all(text.as_bytes()).unwrap();
        f
    }

    fn with(tokens: &Tokens, authorization: &str) -> Result<(), Denied> {
        tokens.check(Some(&HeaderValue::from_str(authorization).unwrap()))
    }

    #[test]
    fn either_of_two_tokens_lets_in_and_nothing_else_does() {
        let f = file(&format!("{OLD}\n{NEW}\n"));
        let tokens = Tokens::open(f.path().to_owned()).unwrap();
        assert_eq!(with(&tokens, &format!("Bearer {OLD}")), Ok(()));
        assert_eq!(with(&tokens, &format!("bearer {NEW}")), Ok(()));
        assert_eq!(tokens.check(None), Err(Denied::Unauthorized));
        let longer = format!("Bearer {OLD}x");
        let shorter = format!("Bearer {}", &OLD[1..]);
        for wrong in ["", "Bearer", "Bearer ", OLD, &format!("Basic {OLD}"), &longer, &shorter] {
            assert_eq!(with(&tokens, wrong), Err(Denied::Unauthorized), "{wrong:?}");
        }
    }

    #[test]
    fn a_changed_file_counts_from_the_next_request_on() {
        let f = file(OLD);
        let tokens = Tokens::open(f.path().to_owned()).unwrap();
        let next = file(NEW);
        fs::rename(next.path(), f.path()).unwrap();
        assert_eq!(with(&tokens, &format!("Bearer {OLD}")), Err(Denied::Unauthorized));
        assert_eq!(with(&tokens, &format!("Bearer {NEW}")), Ok(()));
    }

    #[test]
    fn a_file_that_went_away_or_bad_lets_nobody_in() {
        let f = file(OLD);
        let tokens = Tokens::open(f.path().to_owned()).unwrap();
        fs::write(f.path(), "short").unwrap();
        assert!(matches!(with(&tokens, &format!("Bearer {OLD}")), Err(Denied::File(_))));
        fs::remove_file(f.path()).unwrap();
        assert!(matches!(with(&tokens, &format!("Bearer {OLD}")), Err(Denied::File(_))));
    }

    #[test]
    fn a_file_needs_one_or_two_good_tokens() {
        let long = "x".repeat(TOKEN_MAX + 1);
        for bad in ["", "\n\n", "short", &long, &format!("{OLD} {NEW}"), &format!("{OLD}\n{NEW}\n{OLD}")] {
            assert!(Tokens::open(file(bad).path().to_owned()).is_err(), "{bad:?}");
        }
        assert!(Tokens::open(file(&"\n".repeat(5000)).path().to_owned()).is_err());
        assert!(Tokens::open("/nowhere/tokens".into()).unwrap_err().starts_with("/nowhere/tokens: "));
    }

    #[test]
    fn tokens_show_in_no_debug_text() {
        let tokens = Tokens::open(file(OLD).path().to_owned()).unwrap();
        assert!(!format!("{tokens:?}").contains(OLD));
    }
}
