//! The README's tour, command by command as it is written, with curl.
//!
//! Between its two markers every line of a `sh` block is run. A status at the end of a line (`# 201`) is demanded; where
//! none stands, any success is. Only addresses are replaced, and `PID` is the tour's own node.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weir_tests::files::Scratch;
use weir_tests::node::{Node, PATIENCE, Setup};

const BEGIN: &str = "<!-- tour:";
const END: &str = "<!-- end of the tour -->";
/// Longer than the long-poll that the tour waits for.
const DEADLINE: Duration = Duration::from_secs(60);

/// One line to type.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    status: Option<u16>,
}

/// The steps of the `sh` blocks between the markers.
fn steps(readme: &str) -> Vec<Step> {
    let tour =
        readme.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map_or("", |(tour, _)| tour);
    let mut steps = Vec::new();
    let (mut inside, mut open) = (false, String::new());
    for line in tour.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside && let Some(part) = line.strip_suffix('\\') {
            open.push_str(part);
        } else if inside && !line.trim().is_empty() && !line.starts_with('#') {
            let whole = std::mem::take(&mut open) + line;
            let (command, note) = whole.split_once(" # ").unwrap_or((&whole, ""));
            let status = note.get(..3).and_then(|digits| digits.parse().ok());
            steps.push(Step { command: command.trim().to_owned(), status });
        }
    }
    steps
}

/// Types one command into a shell; gives what it printed, without the status that our curl adds.
async fn run(step: &Step, variables: &str, place: &Path, node: &mut Node) -> Result<String> {
    let at = node.addresses().await?;
    let script = format!(
        "set -euo pipefail\ncurl() {{ command curl -sS -w '\\nstatus %{{http_code}}\\n' \"$@\"; }}\n\
         export PATH={}:$PATH WEIR_SERVER=http://127.0.0.1:4437 WEIR_ADMIN=http://127.0.0.1:9090\n{variables}PID={}\n{}\n",
        place.display(),
        node.pid().as_raw_nonzero(),
        step.command
    );
    let script = script.replace("127.0.0.1:4437", &at.client).replace("127.0.0.1:9090", &at.admin);
    let mut shell = tokio::process::Command::new("bash");
    shell.arg("-c").arg(&script).current_dir(place).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, shell.output()).await.context("no end")??;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}\n{out}\n{err}", output.status);
    let Some((printed, status)) = out.rsplit_once("\nstatus ") else {
        ensure!(!step.command.starts_with("curl"), "curl told no status: {out}");
        return Ok(out.into_owned());
    };
    let status: u16 = status.trim().parse()?;
    let right = step.status.map_or((200..300).contains(&status), |want| status == want);
    ensure!(right, "answered {status}, not {:?}:\n{printed}", step.status);
    Ok(printed.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs curl: make conformance"]
async fn the_tour_of_the_readme_goes_as_it_is_written() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let steps = steps(&std::fs::read_to_string(readme).unwrap());
    assert!(steps.len() >= 14, "the README's tour has {} steps: are its markers there?", steps.len());
    let scratch = Scratch::new();
    let setup = Setup::new(scratch.path("data")).flag("long-poll-timeout", "500ms");
    let place = scratch.path("terminal");
    std::fs::create_dir(&place).unwrap();
    std::os::unix::fs::symlink(weir_tests::node::binary(), place.join("weir")).unwrap();
    let mut node = setup.start().await.unwrap();
    let (mut variables, mut read, mut killed) = (String::new(), Vec::new(), 0);
    for step in &steps {
        let name = step.command.split('=').next().unwrap_or_default();
        if !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase()) {
            variables.push_str(&step.command);
            variables.push('\n');
            continue;
        }
        let printed = run(step, &variables, &place, &mut node).await;
        let printed = printed.with_context(|| format!("README: {}", step.command)).unwrap();
        if step.command.starts_with("kill -9") {
            node.exit(PATIENCE).await.unwrap();
            node = setup.start().await.unwrap();
            killed += 1;
        }
        if step.command.contains("$S?offset=-1") {
            read.push((killed, printed));
        }
    }
    assert!(
        killed > 0 && read.iter().any(|(after, _)| *after > 0),
        "the tour pulls the plug, and reads again"
    );
    for (after, printed) in &read {
        assert!(printed.contains("\r\n\r\nfirst second "), "after {after} kills: {printed}");
    }
}

#[test]
fn steps_are_lines_with_their_continuations_and_statuses() {
    let readme = "```sh\nno\n```\n<!-- tour: x -->\n```sh\nS=1\n# why\ncurl a \\\n  b   # 204: there\n\nls # none\n```\n\
                  ```text\nno\n```\n<!-- end of the tour -->\n```sh\nno\n```";
    let step = |command: &str, status| Step { command: command.to_owned(), status };
    assert_eq!(steps(readme), [step("S=1", None), step("curl a   b", Some(204)), step("ls", None)]);
}
