//! Many runs: each in a process of its own, as many at a time as there are processors.
//!
//! Invariant: a run that breaks something, dies, or does not end is reported with its seed and what it printed. Called
//! by the tests.
// The harness is outside of what is simulated: its threads and its patience are the real ones.
#![allow(clippy::disallowed_methods)]

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A run takes seconds, one of fifty nodes a minute; what takes this long never ends.
const PATIENCE: Duration = Duration::from_secs(900);

/// What a run's process said.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Nothing was broken.
    pub good: bool,
    /// The trace's hash, if it came to an end.
    pub hash: Option<String>,
    /// What it printed.
    pub text: String,
}

impl Report {
    /// The invariants that were broken, by name.
    pub fn broken(&self) -> Vec<&str> {
        let broken = self.text.lines().filter_map(|line| line.strip_prefix("BROKEN "));
        broken.filter_map(|rest| rest.split(':').next()).collect()
    }
}

/// Plays one run by `program`.
pub fn play(program: &str, seed: u64, more: &[&str]) -> Report {
    let mut child = Command::new(program)
        .arg(seed.to_string())
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built with the tests");
    let mut out = child.stdout.take().expect("it is piped");
    let mut err = child.stderr.take().expect("it is piped");
    // Read apart: who waits for one pipe must not fill the other.
    let reading = std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = out.read_to_end(&mut text);
        (read.is_ok(), text)
    });
    let complaining = std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = err.read_to_end(&mut text);
        (read.is_ok(), text)
    });
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().expect("it is our child") {
            Some(status) => break Some(status),
            None if Instant::now() > end => {
                child.kill().expect("it is our child");
                child.wait().expect("it is our child");
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let (_, said) = reading.join().expect("reading does not panic");
    let (_, complained) = complaining.join().expect("reading does not panic");
    let mut text = String::from_utf8_lossy(&said).into_owned();
    let good = status.is_some_and(|s| s.success());
    if !good {
        text.push_str(&String::from_utf8_lossy(&complained));
    }
    if status.is_none() {
        text.push_str(&format!("\nBROKEN run: no end within {PATIENCE:?}\n"));
    }
    let start = format!("seed {seed} hash ");
    let hash = text.lines().find_map(|line| line.strip_prefix(&start)).map(str::to_owned);
    Report { seed, good, hash, text }
}

/// Plays all of `seeds`, and gives the reports of those that broke something.
pub fn play_all(program: &str, seeds: &[u64], more: &[&str]) -> Vec<Report> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let report = play(program, seed, more);
                    if !report.good {
                        failed.lock().push(report);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner();
    failed.sort_by_key(|report: &Report| report.seed);
    failed
}

/// For a person: what failed, and how to see it again.
pub fn tell(failed: &[Report]) -> String {
    let each = |report: &Report| format!("=== make sim SEED={}\n{}", report.seed, report.text);
    failed.iter().map(each).collect::<Vec<_>>().join("\n")
}
