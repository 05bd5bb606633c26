//! A line on the terminal that shows how far a long transfer has come.
//!
//! Invariant: nothing is shown unless stderr is a terminal, and nothing in the first second; the line is wiped before
//! anything else is said. Cosmetics: what cannot be written is not missed.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::time::Instant;

use super::human;
use crate::clock::Clock;

const QUIET: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(200);

/// See the file.
pub(super) struct Progress {
    clock: Clock,
    started: Instant,
    shown: Option<Instant>,
    total: Option<u64>,
    on: bool,
}

impl Progress {
    /// `total`: bytes to come, if that is known. `wanted`: whether there is anything to be said.
    pub(super) fn new(total: Option<u64>, wanted: bool) -> Self {
        let clock = Clock::default();
        let on = wanted && io::stderr().is_terminal();
        Self { started: clock.monotonic(), clock, shown: None, total, on }
    }

    /// So many bytes are through.
    pub(super) fn at(&mut self, bytes: u64) {
        if !self.on {
            return;
        }
        let now = self.clock.monotonic();
        let passed = now - self.started;
        if passed < QUIET || self.shown.is_some_and(|shown| now - shown < EVERY) {
            return;
        }
        self.shown = Some(now);
        self.say(&format!("\r\x1b[K{}", line(bytes, self.total, passed)));
    }

    /// Wipes the line.
    pub(super) fn clear(&mut self) {
        if self.shown.take().is_some() {
            self.say("\r\x1b[K");
        }
    }

    fn say(&self, text: &str) {
        let mut err = io::stderr().lock();
        drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn line(bytes: u64, total: Option<u64>, passed: Duration) -> String {
    let per_second = u128::from(bytes) * 1000 / passed.as_millis().max(1);
    let rate = u64::try_from(per_second).unwrap_or(u64::MAX);
    let mut text = human::bytes(bytes);
    if let Some(total) = total {
        text.push_str(&format!(" of {}", human::bytes(total)));
    }
    text.push_str(&format!(", {}/s", human::bytes(rate)));
    if let Some(left) = total.map(|t| t.saturating_sub(bytes)).and_then(|left| left.checked_div(rate)) {
        text.push_str(&format!(", {} left", human::time(Duration::from_secs(left))));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_bytes_rate_and_what_is_left_if_that_is_known() {
        let s = Duration::from_secs;
        assert_eq!(line(10 << 20, None, s(10)), "10.0 MiB, 1.0 MiB/s");
        assert_eq!(line(10 << 20, Some(130 << 20), s(10)), "10.0 MiB of 130.0 MiB, 1.0 MiB/s, 2m 00s left");
        assert_eq!(line(0, Some(5), s(2)), "0 bytes of 5 bytes, 0 bytes/s");
        assert_eq!(line(9, Some(5), Duration::ZERO), "9 bytes of 5 bytes, 8.7 KiB/s, 0s left");
    }
}
