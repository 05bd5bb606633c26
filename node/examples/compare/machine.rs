//! What the figures were taken on: cores, memory, file system, the cost of making a write last.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;
use weir::net;

const BLOCK: usize = 4096;
const WRITES: u64 = 500;

/// How many files a server may open.
pub(crate) fn files() -> u64 {
    net::raise_descriptor_limit()
}

/// One paragraph.
pub(crate) fn describe(dir: &Path) -> Result<String> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let memory = field("/proc/meminfo", "MemTotal").and_then(|m| m.split(' ').next()?.parse::<u64>().ok());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kind = said("stat", &["-f", "-c", "%T", &dir.display().to_string()]);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let (date, commit) =
        (said("date", &["-u", "+%Y-%m-%d"]), said("git", &["describe", "--always", "--dirty"]));
    let sync = sync_cost(dir)?;
    Ok(format!(
        "Taken on {date} at commit {commit}: {cores} cores ({cpu}), {} GiB, Linux {}, {kind}; one fdatasync of a \
         preallocated file {:.2} ms (p50) and {:.2} ms (p99). Load before: {}.",
        memory.unwrap_or(0).div_ceil(1 << 20),
        kernel.trim(),
        ms(sync.0),
        ms(sync.1),
        load.split(' ').next().unwrap_or_default()
    ))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn said(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().ok();
    out.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}

/// A block written into a preallocated file and synced: median and 99th percentile.
fn sync_cost(dir: &Path) -> Result<(Duration, Duration)> {
    let path = dir.join("sync-cost");
    let file = File::create(&path)?;
    let block = vec![7; BLOCK];
    for n in 0..WRITES {
        file.write_all_at(&block, n * BLOCK as u64)?;
    }
    file.sync_all()?;
    let mut times = Vec::new();
    for n in 0..WRITES {
        let begun = Instant::now();
        file.write_all_at(&block, n * BLOCK as u64)?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    fs::remove_file(&path)?;
    times.sort_unstable();
    Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
}
