//! Runs one vitest file on one version of Node, and reads vitest's own report of it.
//!
//! Invariant: what is not in the report did not run; callers demand exact numbers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use weir_tests::files::Scratch;

/// A run that takes longer is stuck; it takes about 20 s.
const DEADLINE: Duration = Duration::from_secs(300);

/// Tests by how they ended.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) passed: Vec<String>,
    /// With the first line of what was wrong.
    pub(crate) failed: Vec<String>,
    pub(crate) skipped: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Whole {
    test_results: Vec<File>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    assertion_results: Vec<Test>,
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Test {
    full_name: String,
    status: String,
    failure_messages: Vec<String>,
}

/// Runs `file` of this folder on Node `major` against the node at `address`.
pub(crate) async fn run(major: u32, file: &str, address: &str) -> Result<Report> {
    let modules = modules()?;
    let node = binary(major).await?;
    let scratch = Scratch::new();
    let root = scratch.path("root");
    fs::create_dir(&root)?;
    for name in ["package.json", "vitest.config.mjs", file] {
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance").join(name), root.join(name))?;
    }
    symlink(&modules, root.join("node_modules"))?;
    let report = root.join("report.json");
    let mut command = tokio::process::Command::new(&node);
    command
        .arg(modules.join("vitest/vitest.mjs"))
        .args(["run", file, "--reporter=json", "--outputFile"])
        .arg(&report)
        .current_dir(&root)
        .env("WEIR_URL", format!("http://{address}"))
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, command.output())
        .await
        .with_context(|| format!("{file} on Node {major} is still running after {DEADLINE:?}"))??;
    let said = || {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        format!("{file} on Node {major}: {}\n{out}\n{err}", output.status)
    };
    let text = fs::read(&report).with_context(said)?;
    let whole: Whole = serde_json::from_slice(&text).with_context(said)?;
    let found = sort(whole);
    ensure!(
        output.status.success() || !found.failed.is_empty(),
        "no test failed, and yet vitest did: {}",
        said()
    );
    Ok(found)
}

fn sort(whole: Whole) -> Report {
    let mut report = Report::default();
    for file in whole.test_results {
        // A file that could not even be loaded has no tests, but a message.
        if file.assertion_results.is_empty() && !file.message.is_empty() {
            report.failed.push(file.message);
        }
        for test in file.assertion_results {
            match test.status.as_str() {
                "passed" => report.passed.push(test.full_name),
                "skipped" | "pending" | "todo" => report.skipped.push(test.full_name),
                _ => {
                    let why = test.failure_messages.first().and_then(|m| m.lines().next()).unwrap_or("?");
                    report.failed.push(format!("{}: {why}", test.full_name));
                }
            }
        }
    }
    report
}

/// The installed packages.
fn modules() -> Result<PathBuf> {
    let folder = std::env::var("WEIR_NPM").context("WEIR_NPM is not set: `make conformance` sets it")?;
    let modules = Path::new(&folder).join("node_modules");
    ensure!(modules.is_dir(), "{} is not there: `.ci/setup tests` installs it", modules.display());
    Ok(modules.canonicalize()?)
}

/// The Node of that version, of this machine's kind.
pub(crate) async fn binary(major: u32) -> Result<PathBuf> {
    let modules = modules()?;
    let kind = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let binary = modules.join(format!("node{major}-{kind}/bin/node"));
    let version = tokio::process::Command::new(&binary).arg("--version").output().await;
    let version = String::from_utf8(version.with_context(|| binary.display().to_string())?.stdout)?;
    ensure!(version.starts_with(&format!("v{major}.")), "{} is Node {version}", binary.display());
    Ok(binary)
}
