//! What the nodes write to their logs, line by line on stderr, each behind its node's name.
//!
//! Invariant: nodes write to files and never wait for whoever reads: a terminal that stands still stops nobody. A file
//! that grew large and was shown is emptied. Used by `up`.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::tasks::Tasks;

/// Between two looks at the files.
const LOOK: Duration = Duration::from_millis(100);
/// Read of one file before the next has its turn.
const CHUNK: usize = 64 << 10;
/// A file beyond this is emptied once it has been shown.
const FILE_MAX: u64 = 64 << 20;
/// For the last lines to be written to a terminal that stands still.
const LAST: Duration = Duration::from_secs(2);

/// A log from where it was read to.
#[derive(Debug)]
pub(super) struct Tail {
    name: String,
    path: PathBuf,
    file: Option<File>,
    at: u64,
    /// The beginning of a line whose end is not there yet.
    open: Vec<u8>,
}

impl Tail {
    #[cfg(test)]
    pub(super) fn new(name: String, path: PathBuf) -> Self {
        Self { name, path, file: None, at: 0, open: Vec::new() }
    }

    /// From what is written from now on.
    pub(super) fn at_end(name: String, path: PathBuf) -> Self {
        let at = std::fs::metadata(&path).map_or(0, |m| m.len());
        Self { name, path, file: None, at, open: Vec::new() }
    }

    /// Adds what is new, as whole lines, to `out`; says whether there may be more.
    pub(super) fn read(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => File::options().read(true).write(true).open(&self.path)?,
        };
        let length = file.metadata()?.len();
        if length < self.at {
            self.at = 0;
        }
        file.seek(SeekFrom::Start(self.at))?;
        let mut new = Vec::new();
        let read = (&mut file).take(CHUNK as u64).read_to_end(&mut new)?;
        self.at += read as u64;
        for piece in new.split_inclusive(|b| *b == b'\n') {
            self.open.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.open.len() > CHUNK {
                self.line(out);
            }
        }
        if read == 0 && self.at > FILE_MAX {
            // What is written in between is lost to whoever looks later, not to the node.
            file.set_len(0)?;
            self.at = 0;
        }
        self.file = Some(file);
        Ok(read == CHUNK)
    }

    /// Ends the open line.
    fn line(&mut self, out: &mut Vec<u8>) {
        let text = String::from_utf8_lossy(&self.open);
        let text = text.trim_end_matches(['\n', '\r']);
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(b" | ");
        // A log line is text; what is not must not take over the terminal.
        let shown = text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c });
        out.extend_from_slice(shown.collect::<String>().as_bytes());
        out.push(b'\n');
        self.open.clear();
    }
}

/// Follows files until it is told to stop.
pub(super) struct Following {
    stop: CancellationToken,
    done: oneshot::Receiver<()>,
}

impl Following {
    pub(super) fn start(tasks: &Tasks, mut tails: Vec<Tail>) -> Self {
        let (stop, (ended, done)) = (CancellationToken::new(), oneshot::channel::<()>());
        let (stopped, blocking) = (stop.clone(), tasks.clone());
        tasks.spawn(async move {
            loop {
                let last = stopped.is_cancelled();
                match blocking.blocking(move || show(tails)).await {
                    Ok(back) => tails = back,
                    Err(_panicked) => break,
                }
                if last {
                    break;
                }
                tokio::select! {
                    () = stopped.cancelled() => {}
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
            drop(ended);
        });
        Self { stop, done }
    }

    /// Shows what is left, and ends.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        drop(tokio::time::timeout(LAST, self.done).await);
    }
}

/// Shows all that is new. What cannot be read or written is not shown.
fn show(mut tails: Vec<Tail>) -> Vec<Tail> {
    loop {
        let (mut out, mut more) = (Vec::new(), false);
        for tail in &mut tails {
            more |= tail.read(&mut out).unwrap_or(false);
        }
        if out.is_empty() || io::stderr().lock().write_all(&out).is_err() || !more {
            return tails;
        }
    }
}
