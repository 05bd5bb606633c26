//! `weir head`, `weir ls`, `weir close`, `weir rm`: what a stream is, which there are, and their ends.

use clap::Args;

use super::connect::{self, ServerArgs};
use super::exit::CLIENT_CODES;
use super::human::{self, Table};
use super::output::Output;
use super::stop::Stop;
use super::{ExitCode, answer, complain, values};
use crate::client::Failure;
use crate::client::failure::printable;
use crate::client::streams::{Described, Listed, is_gone};
use crate::streams::StreamName;

pub(super) const HEAD_HELP: &str = "\
Examples:
  weir head notes
  weir head notes --json | jq -r .nextOffset";

pub(super) const LS_HELP: &str = "\
Examples:
  weir ls
  weir ls events/
      Names that begin so
  weir ls --json | jq -r 'select(.closed).name'
      A JSON object a line

Names are ordered by their bytes. The next offset is at least what is committed; weir head knows the newest.";

pub(super) const CLOSE_HELP: &str = "\
Examples:
  weir close notes
      Readers learn that there will be no more. Closing what is closed is a success";

pub(super) const RM_HELP: &str = "\
Examples:
  weir rm notes
  weir rm job/1 job/2 --missing-ok
      What is not there is no error

It asks nothing, and there is no way back. With several names all are tried, and the exit code is that of the first
failure.";

/// Names asked for at once.
const PAGE: usize = 1000;

/// Show what a stream is
#[derive(Debug, Args)]
#[command(after_help = format!("{HEAD_HELP}\n\n{CLIENT_CODES}"))]
pub(super) struct Head {
    /// The stream
    #[arg(value_name = "NAME", value_parser = values::name)]
    name: StreamName,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// List streams
#[derive(Debug, Args)]
#[command(after_help = format!("{LS_HELP}\n\n{CLIENT_CODES}"))]
pub(super) struct Ls {
    /// Only names that begin so
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
    /// At most so many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Only names behind this one, by bytes
    #[arg(long, value_name = "NAME")]
    after: Option<String>,
    /// Print a JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Close a stream: nothing can be appended any more
#[derive(Debug, Args)]
#[command(after_help = format!("{CLOSE_HELP}\n\n{CLIENT_CODES}"))]
pub(super) struct Close {
    /// The stream
    #[arg(value_name = "NAME", value_parser = values::name)]
    name: StreamName,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Delete streams
#[derive(Debug, Args)]
#[command(after_help = format!("{RM_HELP}\n\n{CLIENT_CODES}"))]
pub(super) struct Rm {
    /// The streams
    #[arg(value_name = "NAME", required = true, value_parser = values::name)]
    names: Vec<StreamName>,
    /// A stream that is not there is no error
    #[arg(long)]
    missing_ok: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) fn head(args: Head) -> ExitCode {
    connect::run(async move |tasks| {
        let Head { name, json, server } = args;
        let found = server.client(tasks)?.head(&name).await.map_err(|e| Stop::about(name.as_str(), e))?;
        shown(&if json { head_json(&name, &found) } else { head_text(&name, &found) })
    })
}

fn head_json(name: &StreamName, found: &Described) -> String {
    let Described { content_type, next, ttl, expires_at, closed } = found;
    let ttl = ttl.as_deref().and_then(|t| t.parse::<u64>().ok());
    let value = serde_json::json!({
        "name": name.as_str(), "contentType": content_type, "nextOffset": next, "closed": closed,
        "ttlSeconds": ttl, "expiresAt": expires_at,
    });
    format!("{value}\n")
}

fn head_text(name: &StreamName, found: &Described) -> String {
    let Described { content_type, next, ttl, expires_at, closed } = found;
    let mut rows = vec![
        ("name", name.to_string()),
        ("content type", content_type.clone()),
        ("next offset", next.clone()),
        ("closed", human::yes(*closed)),
    ];
    rows.extend(ttl.iter().map(|t| ("time to live", format!("{t} s"))));
    rows.extend(expires_at.iter().map(|at| ("expires at", at.clone())));
    human::list(&rows)
}

pub(super) fn ls(args: Ls) -> ExitCode {
    connect::run(async move |tasks| {
        let Ls { prefix, limit, mut after, json, server } = args;
        let client = server.client(tasks)?;
        let titles = ["NAME", "CONTENT TYPE", "NEXT OFFSET", "CLOSED"];
        let (mut table, mut titled) = (Table::new(&titles), false);
        let mut out = Output::new(tasks);
        let mut left = limit.unwrap_or(u64::MAX);
        while left > 0 {
            let page = usize::try_from(left).map_or(PAGE, |n| n.min(PAGE));
            let page = client.list(&prefix, after.as_deref(), page).await.map_err(|e| no_list(&prefix, e))?;
            left = left.saturating_sub(page.streams.len() as u64);
            if json {
                for one in &page.streams {
                    let text =
                        serde_json::to_vec(one).map_err(|e| Stop::new(ExitCode::Failure, e.to_string()))?;
                    out.held().extend(text);
                    out.held().push(b'\n');
                }
            } else if !page.streams.is_empty() {
                let rows: Vec<_> = page.streams.iter().map(row).collect();
                let text = table.text((!titled).then_some(&titles), &rows);
                titled = true;
                out.held().extend(text.into_bytes());
            }
            out.flush().await?;
            match page.next {
                // A server that does not move on would be asked for ever.
                Some(next) if after.as_ref().is_none_or(|before| next > *before) => after = Some(next),
                _ => break,
            }
        }
        Ok(())
    })
}

fn row(one: &Listed) -> Vec<String> {
    vec![one.name.clone(), one.content_type.clone(), one.next_offset.clone(), human::yes(one.closed)]
}

fn no_list(prefix: &str, failure: Failure) -> Stop {
    match failure {
        Failure::Refused(r) if is_gone(&r) => {
            Stop::new(ExitCode::Refused, "this server does not list streams (it has no /v1/streams)")
        }
        e => Stop::about(prefix, e),
    }
}

pub(super) fn close(args: Close) -> ExitCode {
    connect::run(async move |tasks| {
        let Close { name, json, server } = args;
        let done =
            server.client(tasks)?.close(&name, None).await.map_err(|e| Stop::about(name.as_str(), e))?;
        if json {
            let value = serde_json::json!({"name": name.as_str(), "nextOffset": done.next, "closed": true});
            return shown(&format!("{value}\n"));
        }
        shown(&format!("closed {name}; final offset {}\n", done.next))
    })
}

pub(super) fn rm(args: Rm) -> ExitCode {
    connect::run(async move |tasks| {
        let Rm { names, missing_ok, server } = args;
        let client = server.client(tasks)?;
        let mut first = None;
        for (at, name) in names.iter().enumerate() {
            let stop = match client.delete(name).await {
                Ok(()) => {
                    shown(&format!("deleted {name}\n"))?;
                    continue;
                }
                Err(Failure::Refused(r)) if is_gone(&r) && missing_ok => continue,
                Err(Failure::Refused(r)) if is_gone(&r) => {
                    Stop::new(ExitCode::NotFound, format!("no such stream: {name}"))
                        .hint("to pass over what is not there: --missing-ok")
                }
                Err(e) => Stop::about(name.as_str(), e),
            };
            // The others are told of at once, the last one at the end; without a server none of them can be done.
            if at + 1 < names.len() && stop.code != ExitCode::Unavailable {
                complain(&printable(&stop.message, 2000), stop.code);
                first.get_or_insert(Stop { message: String::new(), ..stop });
                continue;
            }
            return Err(match first {
                None => stop,
                Some(Stop { code, .. }) => Stop { code, ..stop },
            });
        }
        match first {
            None => Ok(()),
            Some(stop) => Err(Stop { message: "not all of them are deleted".to_owned(), ..stop }),
        }
    })
}

/// Puts an answer out.
pub(super) fn shown(text: &str) -> Result<(), Stop> {
    match answer(text) {
        ExitCode::Ok => Ok(()),
        code => Err(Stop::new(code, "done, but it could not be shown")),
    }
}
