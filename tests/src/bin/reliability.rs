//! Writes the figures of a run of `faults/` or `kubernetes/` into `docs/reliability.md`: lines of JSON in, a table between
//! two marks out.
//!
//! `reliability FIGURES PAGE DATE COMMIT`, called by `make soak`; with what the tests printed as a fifth argument it is
//! Kubernetes' table, called by `make test-cluster`.

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

const KUBERNETES_BEGIN: &str = "<!-- Kubernetes: written by `make test-cluster`. -->";
const KUBERNETES_END: &str = "<!-- End of Kubernetes. -->";

/// The beds of Kubernetes in the page's order: the gate's part, the family of addresses in the lines, and the bed in words.
const BEDS: [(&str, &str, &str); 2] = [
    ("kubernetes_long", "IPv4", "on the test bed."),
    ("kubernetes_ipv6", "IPv6", "On a bed that knows only IPv6, and whose cluster domain is `weir.test`:"),
];

/// The same for what happens on Kubernetes.
const KUBERNETES: [(&str, &str); 16] = [
    ("slots-edited", "A node's weight is edited"),
    ("pod-deleted", "A pod is deleted"),
    ("pod-deleted-by-force", "… by force, without grace"),
    ("container-killed", "A container is killed (SIGKILL)"),
    ("process-frozen", "A process is frozen until others have its streams, and wakes"),
    (
        "host-lost",
        "A host is cut off from all but the bucket, its kubelet silent; its node comes back on another",
    ),
    ("scaled-up", "From three nodes to five"),
    ("scaled-down", "From five nodes to three"),
    ("rolled", "A changed pod template is rolled over all nodes"),
    ("image-cannot-be-pulled", "An image that cannot be pulled is rolled out, and put right"),
    ("operator-killed", "All pods are restarted, and the operator killed three times meanwhile"),
    ("two-operators", "… and a second operator comes, and the first goes"),
    ("api-server-restarts", "… and the API server is killed and started again"),
    ("scale-down-in-roll", "From five nodes to three in the middle of a roll"),
    ("volume-lost", "A pod is deleted with its volume claim"),
    ("host-drained", "A host is drained with `kubectl drain`, and uncordoned"),
];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let read = |file: &String| fs::read_to_string(file).with_context(|| file.clone());
    let measured = |date: &str, commit: &str| format!("Measured on {date} at commit {commit}, debug build");
    match args.as_slice() {
        [figures, page, date, commit] => {
            let head = format!("{}, on a machine with other work.", measured(date, commit));
            replace(page, BEGIN, END, &format!("{head}\n\n{}", table(&read(figures)?)?))
        }
        [figures, page, date, commit, results] => {
            let found = kubernetes(&read(figures)?, &read(results)?)?;
            let with = format!("{}, {found}", measured(date, commit));
            replace(page, KUBERNETES_BEGIN, KUBERNETES_END, &with)
        }
        _ => anyhow::bail!("usage: reliability FIGURES PAGE DATE COMMIT [RESULTS]"),
    }
}

fn replace(page: &str, begin: &str, end: &str, with: &str) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| page.to_owned())?;
    let (before, rest) = text.split_once(begin).context("the page has no place for this")?;
    let (_, after) = rest.split_once(end).context("the place for it has no end")?;
    fs::write(page, format!("{before}{begin}\n{with}{end}{after}"))?;
    println!("{page} is written");
    Ok(())
}

/// What came of each bed.
fn kubernetes(figures: &str, results: &str) -> Result<String> {
    let lines: Vec<Value> = figures
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect::<Result<_>>()?;
    let mut out = String::new();
    for (part, family, bed) in BEDS {
        let of_it = lines.iter().filter(|l| l["family"] == family);
        out.push_str(&format!("{bed} {}\n\n{}", outcome(results, part)?, kubernetes_table(of_it)?));
    }
    Ok(out)
}

/// In a sentence, from what cargo's tests print at their end in a part of the gate.
fn outcome(results: &str, part: &str) -> Result<String> {
    let (mut passed, mut failed) = (0, 0);
    let mut of_it = false;
    for line in results.lines() {
        of_it = line.strip_prefix("=== ").map_or(of_it, |begun| begun == part);
        if !of_it || !line.starts_with("test result: ") {
            continue;
        }
        let words: Vec<_> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            match pair[1] {
                "passed;" => passed += pair[0].parse::<u64>()?,
                "failed;" => failed += pair[0].parse::<u64>()?,
                _ => {}
            }
        }
    }
    match passed + failed {
        0 => Ok("no test has run.".to_owned()),
        _ => Ok(format!("{passed} tests passed, {failed} failed.")),
    }
}

fn kubernetes_table<'a>(lines: impl Iterator<Item = &'a Value>) -> Result<String> {
    let mut rows: BTreeMap<(usize, u64), Vec<&Value>> = BTreeMap::new();
    for line in lines {
        let name = line["scenario"].as_str().context("a scenario")?;
        let place = KUBERNETES.iter().position(|(known, _)| *known == name);
        let place = place.with_context(|| format!("no scenario is called {name}"))?;
        rows.entry((place, line["nodes"].as_u64().context("nodes")?)).or_default().push(line);
    }
    if rows.is_empty() {
        return Ok(String::new());
    }
    let mut out = String::from(
        "| what happens | nodes | times | until all is as wanted, s: most | longest pause of a stream, s | requests \
         acknowledged | tries that failed | requests that failed after one retry | writes of the operator: most |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for ((place, nodes), lines) in rows {
        let sum = |field: &str| lines.iter().filter_map(|l| l[field].as_u64()).sum::<u64>();
        let most = |field: &str| lines.iter().filter_map(|l| l[field].as_f64()).fold(0.0, f64::max);
        // None where the operator was killed, which counts only what its present process wrote.
        let writes = lines.iter().filter_map(|l| l["operatorWrites"].as_u64()).max();
        out.push_str(&format!(
            "| {} | {nodes} | {} | {:.1} | {:.1} | {} | {} | {} | {} |\n",
            KUBERNETES[place].1,
            lines.len(),
            most("fullServiceS"),
            most("longestPauseS"),
            sum("acknowledged"),
            sum("failed"),
            sum("failedAfterRetry"),
            writes.map(|w| w.to_string()).unwrap_or_default(),
        ));
    }
    out.push('\n');
    Ok(out)
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
