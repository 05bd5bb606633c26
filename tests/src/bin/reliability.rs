//! Writes the figures of a run of `faults/` into `docs/reliability.md`: lines of JSON in, a table between two marks out.
//!
//! `reliability FIGURES PAGE DATE COMMIT`. Called by `make soak`.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the harness is test code and stands outside of the node's doors to time, sockets and tasks"
)]

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const BEGIN: &str = "<!-- Figures: written by `make soak`. -->";
const END: &str = "<!-- End of the figures. -->";

/// In the page's order: the name in the lines, and what it is for people.
const SCENARIOS: [(&str, &str); 18] = [
    ("killed-and-back", "A node is killed (SIGKILL) and started again at once; counted from its start"),
    ("lost-for-good", "A node is killed for good"),
    ("leader-lost-for-good", "… that leads the metadata log"),
    ("hung", "A node hangs (SIGSTOP) until others have its streams, and wakes"),
    ("leader-hung", "… that leads the metadata log"),
    (
        "cut-off",
        "A node hears no other, though clients and the bucket reach it; the longest pause of any stream",
    ),
    ("leader-cut-off", "… that leads the metadata log"),
    ("lost-disk", "A node is killed and comes back with an empty data directory"),
    ("claimed-twice", "A second process claims a node's id"),
    ("claimed-twice-while-hung", "… while the first hangs, which then wakes"),
    ("clock-off", "A node is killed and comes back with its wall clock an hour forward or back"),
    ("bucket-out-of-reach", "One node does not reach the bucket; counted from when it does again"),
    ("leader-killed-again-and-again", "The leader is killed, over and over, and comes back"),
    ("all-killed", "All nodes are killed at once and started again"),
    ("all-stopped", "All nodes are stopped at once (SIGTERM) and started again"),
    ("drain", "A node is drained"),
    (
        "killed-among-moves",
        "Streams move, by drains and transfers, and a node is killed meanwhile and comes back",
    ),
    ("upgrade", "A node is stopped and started as the next version, one after the other"),
];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [figures, page, date, commit] = args.as_slice() else {
        anyhow::bail!("usage: reliability FIGURES PAGE DATE COMMIT")
    };
    let lines = fs::read_to_string(figures).with_context(|| figures.clone())?;
    let text = fs::read_to_string(page).with_context(|| page.clone())?;
    let (before, rest) = text.split_once(BEGIN).context("the page has no place for figures")?;
    let (_, after) = rest.split_once(END).context("the place for figures has no end")?;
    let table = table(&lines)?;
    let head = format!("Measured on {date} at commit {commit}, debug build, on a machine with other work.");
    fs::write(page, format!("{before}{BEGIN}\n{head}\n\n{table}{END}{after}"))?;
    println!("{page} has the figures of {figures}");
    Ok(())
}

/// What one scenario came to in one size of cluster.
#[derive(Default)]
struct Row {
    again: Vec<f64>,
    others: Option<f64>,
    others_failed: Option<u64>,
    failed: u64,
    failed_after_retry: u64,
    acknowledged: u64,
}

fn table(lines: &str) -> Result<String> {
    let mut rows: BTreeMap<(usize, u64), Row> = BTreeMap::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let name = line["scenario"].as_str().context("a scenario")?;
        let place = SCENARIOS.iter().position(|(known, _)| *known == name);
        let place = place.with_context(|| format!("no scenario is called {name}"))?;
        let row = rows.entry((place, line["nodes"].as_u64().context("nodes")?)).or_default();
        row.again.push(line["appendsAgainS"].as_f64().context("a time")?);
        row.others = row.others.into_iter().chain(line["othersLongestGapS"].as_f64()).reduce(f64::max);
        if let Some(failed) = line["othersFailed"].as_u64() {
            *row.others_failed.get_or_insert_default() += failed;
        }
        let count = |name: &str| line[name].as_u64().with_context(|| name.to_owned());
        row.failed += count("failed")?;
        row.failed_after_retry += count("failedAfterRetry")?;
        row.acknowledged += count("acknowledged")?;
    }
    ensure!(!rows.is_empty(), "there are no figures");
    let mut out = String::from(
        "| what happens | nodes | times | every stream takes appends again, s: median, most | streams elsewhere: longest \
         pause, s; requests failed | requests acknowledged | tries that failed | requests that failed after one retry |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for ((place, nodes), mut row) in rows {
        row.again.sort_by(f64::total_cmp);
        let (median, most) = (row.again[row.again.len() / 2], row.again[row.again.len() - 1]);
        let others = match (row.others, row.others_failed) {
            (Some(gap), Some(failed)) => format!("{gap:.2}; {failed}"),
            (None, Some(failed)) => format!("; {failed}"),
            (Some(_) | None, None) => String::new(),
        };
        out.push_str(&format!(
            "| {} | {nodes} | {} | {median:.1}, {most:.1} | {others} | {} | {} | {} |\n",
            SCENARIOS[place].1,
            row.again.len(),
            row.acknowledged,
            row.failed,
            row.failed_after_retry
        ));
    }
    out.push('\n');
    Ok(out)
}
