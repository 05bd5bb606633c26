//! The table, and where it goes: between two marks of `docs/benchmarks.md`; what stands outside of them is left alone.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use weir::bench::plot::{Series, svg};

use super::loads::{Goal, Load, Measured, What};
use super::servers::Side;

const BEGIN: &str = "<!-- What follows is written by `make bench`. -->";
const END: &str = "<!-- What `make bench` writes ends here. -->";

/// Both servers' median rounds of one load.
struct Row {
    load: &'static Load,
    theirs: Option<Measured>,
    ours: Option<Measured>,
    why: Option<String>,
}

pub(crate) struct Page {
    machine: String,
    rounds: usize,
    rows: Vec<Row>,
    /// The part about the cluster, if it was measured.
    pub(crate) cluster: Option<String>,
}

impl Page {
    pub(crate) fn new(machine: String, rounds: usize) -> Self {
        Self { machine, rounds, rows: Vec::new(), cluster: None }
    }

    pub(crate) fn machine(&self) -> &str {
        &self.machine
    }

    pub(crate) fn add(
        &mut self,
        load: &'static Load,
        rounds: Vec<(Side, Vec<Measured>)>,
        why: Option<String>,
    ) {
        let mut row = Row { load, theirs: None, ours: None, why };
        for (side, mut measured) in rounds {
            let key = |m: &Measured| match load.what {
                What::Sse { .. } => m.tally.percentile_ms(50.0),
                _ => m.tally.rate(),
            };
            measured.sort_by(|a, b| key(a).total_cmp(&key(b)));
            let median = measured.get(measured.len() / 2).cloned();
            match side {
                Side::Ours => row.ours = median,
                Side::Theirs | Side::Noop => row.theirs = median,
            }
        }
        self.rows.push(row);
    }

    pub(crate) fn generated(&self) -> String {
        let mut out = String::new();
        let mut line = |text: &str| writeln!(out, "{text}").expect("a String takes what it is given");
        line(&self.machine);
        line("");
        line(&format!(
            "Each figure is the median of {} rounds of 2.5 s, the two servers taking turns. The client takes one of the \
             cores.",
            self.rounds
        ));
        line("");
        line("| load | theirs | ours | ratio | bar | aim |");
        line("| --- | --- | --- | --- | --- | --- |");
        for row in &self.rows {
            line(&row.text());
        }
        line("");
        line("Processor time of the server, set-up included, and its memory after the load:");
        line("");
        line("| load | theirs | ours |");
        line("| --- | --- | --- |");
        for Row { load, theirs, ours, .. } in &self.rows {
            let cell = |m: &Option<Measured>| {
                m.as_ref()
                    .map_or("–".to_owned(), |m| format!("{:.1} µs each, {:.0} MiB", m.cpu_us, m.memory))
            };
            line(&format!("| {} | {} | {} |", load.name, cell(theirs), cell(ours)));
        }
        if let Some(cluster) = &self.cluster {
            line("");
            line(cluster.trim_end());
        }
        out
    }

    /// Replaces what is between the marks, and the pictures beside the page.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let page = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let lacks = || format!("{} lacks the line {BEGIN} or {END}", path.display());
        let (before, rest) = page.split_once(BEGIN).with_context(lacks)?;
        let (_, after) = rest.split_once(END).with_context(lacks)?;
        let mut pictures = String::new();
        for row in &self.rows {
            let (Some(theirs), Some(ours), Some(file)) = (&row.theirs, &row.ours, picture(row.load)) else {
                continue;
            };
            let series = [
                Series { name: "durable-streams 0.1.5", latency: &theirs.tally.latency },
                Series { name: "weir", latency: &ours.tally.latency },
            ];
            fs::write(path.with_file_name(file), svg(row.load.name, &series))?;
            writeln!(pictures, "\n![Latency: {}]({file})", row.load.name)?;
        }
        let text = format!("{before}{BEGIN}\n\n{}{pictures}\n{END}{after}", self.generated());
        Ok(fs::write(path, text)?)
    }
}

fn picture(load: &Load) -> Option<&'static str> {
    match load.what {
        What::Append { streams: 64, producers: false, .. } if !matches!(load.goal, Goal::Noop { .. }) => {
            Some("bench-append.svg")
        }
        What::Sse { .. } => Some("bench-sse.svg"),
        _ => None,
    }
}

fn met(met: bool) -> &'static str {
    if met { "met" } else { "**not met**" }
}

impl Row {
    fn text(&self) -> String {
        let name = self.load.name;
        let (Some(theirs), Some(ours)) = (&self.theirs, &self.ours) else {
            return format!("| {name} | not measured: {} | | | | |", self.why.as_deref().unwrap_or_default());
        };
        let [a, b, ratio, bar, aim] = judged(self.load.goal, theirs, ours);
        format!("| {name} | {a} | {b} | {ratio} | {bar} | {aim} |")
    }
}

/// Theirs, ours, ratio, bar, aim.
#[allow(clippy::cast_precision_loss, reason = "for people")]
fn judged(goal: Goal, theirs: &Measured, ours: &Measured) -> [String; 5] {
    let (a, b) = (&theirs.tally, &ours.tally);
    let p = |m: &Measured, at| m.tally.percentile_ms(at);
    let stall = |m: &Measured| m.tally.longest_stall.as_secs_f64() * 1e3;
    match goal {
        Goal::Rate { bar, aim, p99, stall_ms } => {
            let ratio = b.rate() / a.rate();
            let cell = |m: &Measured| {
                let volume = match stall_ms {
                    Some(_) => {
                        format!("{:.0} MB/s, longest stall {:.0} ms", m.tally.byte_rate() / 1e6, stall(m))
                    }
                    None => format!("{}/s", thousands(m.tally.rate())),
                };
                format!("{volume}, p50 {:.2} ms, p99 {:.2} ms", p(m, 50.0), p(m, 99.0))
            };
            let calm = stall_ms.is_none_or(|most| stall(ours) <= most);
            let low = !p99 || p(ours, 99.0) <= p(theirs, 99.0);
            let also = match (p99, stall_ms) {
                (true, _) => ", p99 no higher".to_owned(),
                (_, Some(most)) => format!(", no stall over {most:.0} ms"),
                _ => String::new(),
            };
            [
                cell(theirs),
                cell(ours),
                format!("{ratio:.2}×"),
                format!("{bar}×: {}", met(ratio >= bar)),
                format!("{aim}×{also}: {}", met(ratio >= aim && calm && low)),
            ]
        }
        Goal::Bytes { bar, aim } => {
            let ratio = b.byte_rate() / a.byte_rate();
            let cell = |m: &Measured| format!("{:.1} GB/s", m.tally.byte_rate() / 1e9);
            [
                cell(theirs),
                cell(ours),
                format!("{ratio:.2}×"),
                format!("{:.1} GB/s: {}", bar / 1e9, met(b.byte_rate() >= bar)),
                format!("{aim}×: {}", met(ratio >= aim)),
            ]
        }
        Goal::Latency { bar, aim } => {
            let (p50, p99) = (p(ours, 50.0) / p(theirs, 50.0), p(ours, 99.0) / p(theirs, 99.0));
            let whole = ours.faults == 0;
            let cell = |m: &Measured| {
                format!("p50 {:.1} ms, p99 {:.1} ms, {} lost or doubled", p(m, 50.0), p(m, 99.0), m.faults)
            };
            [
                cell(theirs),
                cell(ours),
                format!("p50 {p50:.2}×, p99 {p99:.2}×"),
                format!("{bar}×, nothing lost: {}", met(p50 <= bar && p99 <= bar && whole)),
                format!("{aim}×: {}", met(p50 <= aim && p99 <= aim && whole)),
            ]
        }
        Goal::Figure { bar, aim } => {
            let cell = |m: &Measured| format!("{}/s, p99 {:.2} ms", thousands(m.tally.rate()), p(m, 99.0));
            [
                cell(theirs),
                cell(ours),
                format!("{:.2}×", b.rate() / a.rate()),
                format!("{}/s: {}", thousands(bar), met(b.rate() >= bar)),
                format!("{}/s: {}", thousands(aim), met(b.rate() >= aim)),
            ]
        }
        Goal::Idle { bar, aim } => {
            let cell =
                |m: &Measured| format!("{:.0} MiB, ready after {:.2} s", m.memory, m.ready.as_secs_f64());
            let within = |(memory, ready): (f64, f64)| {
                format!(
                    "{memory:.0} MiB, {ready} s: {}",
                    met(ours.memory <= memory && ours.ready.as_secs_f64() <= ready)
                )
            };
            let time = theirs.ready.as_secs_f64() / ours.ready.as_secs_f64().max(1e-3);
            let ratio = format!("memory {:.2}×, {time:.0} times as fast", ours.memory / theirs.memory);
            [cell(theirs), cell(ours), ratio, within(bar), within(aim)]
        }
        Goal::Noop { aim } => {
            let share = b.rate() / a.rate();
            [
                format!("{}/s, doing nothing", thousands(a.rate())),
                format!("{}/s, appending", thousands(b.rate())),
                format!("{share:.2}×"),
                "–".to_owned(),
                format!("{aim}×: {}", met(share >= aim)),
            ]
        }
    }
}

pub(crate) fn thousands(n: f64) -> String {
    let digits = format!("{n:.0}");
    let mut out = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
