//! Standard output of commands that write much.
//!
//! Invariant: what is put stays in memory, bounded, until it is flushed, and is written off the runtime's own threads;
//! a reader that went away ends the command quietly.

use std::io::{self, Write};

use super::ExitCode;
use super::stop::Stop;
use crate::tasks::Tasks;

/// Put beyond this is written without being asked.
const HELD_MAX: usize = 2 << 20;

/// See the file.
pub(super) struct Output {
    tasks: Tasks,
    held: Vec<u8>,
    written: u64,
}

impl Output {
    pub(super) fn new(tasks: &Tasks) -> Self {
        Self { tasks: tasks.clone(), held: Vec::new(), written: 0 }
    }

    /// Where to add text; [`Self::settle`] after each.
    pub(super) fn held(&mut self) -> &mut Vec<u8> {
        &mut self.held
    }

    /// Bytes that have left.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Writes if too much is held.
    pub(super) async fn settle(&mut self) -> Result<(), Stop> {
        if self.held.len() < HELD_MAX { Ok(()) } else { self.flush().await }
    }

    /// Writes all that is held.
    pub(super) async fn flush(&mut self) -> Result<(), Stop> {
        if self.held.is_empty() {
            return Ok(());
        }
        let mut text = std::mem::take(&mut self.held);
        self.written += text.len() as u64;
        let work = move || {
            let mut out = io::stdout().lock();
            out.write_all(&text).and_then(|()| out.flush()).map(|()| {
                text.clear();
                text
            })
        };
        match self.tasks.blocking(work).await {
            Ok(Ok(text)) => {
                self.held = text;
                Ok(())
            }
            Ok(Err(e)) if e.kind() == io::ErrorKind::BrokenPipe => Err(Stop::unread()),
            Ok(Err(e)) => Err(Stop::new(ExitCode::Failure, format!("cannot write to stdout: {e}"))),
            Err(e) => Err(Stop::new(ExitCode::Failure, format!("writing to stdout: {e}"))),
        }
    }
}
