//! `weir create` and `weir fork`: a new stream, or the confirmation that it is there as asked for.

use bytes::Bytes;
use clap::Args;
use tokio::io::AsyncReadExt as _;

use super::connect::{self, ServerArgs};
use super::exit::CLIENT_CODES;
use super::stop::{Stop, quoted};
use super::{ExitCode, answer, input, source, values};
use crate::client::Failure;
use crate::client::json;
use crate::client::streams::{Described, ForkOf, NewStream, is_json};
use crate::streams::StreamName;

/// The most first bytes: what a server takes in one request by default.
const FIRST_MAX: u64 = 16 << 20;

pub(super) const CREATE_HELP: &str = "\
Examples:
  weir create notes --content-type text/plain
  weir create events --content-type application/json --ttl 7d
      An idle stream is gone after a week; reads and writes renew it
  weir create greeting --content-type text/plain --data 'hello ' --closed
      Created, filled and closed in one step
  weir create config/site-1 --content-type application/json --file site-1.json
      First bytes from a file; - is stdin

A stream that exists with the same settings is left as it is, and that is a success; first bytes are then ignored.";

pub(super) const FORK_HELP: &str = "\
Examples:
  weir fork events events-test
      A stream of its own that begins with all that events holds now
  weir fork events replay --offset 00000000000000001000
      As it was at that offset; later records of events do not show

The source must be on the same server.";

/// Settings that create and fork share.
#[derive(Debug, Args)]
struct Settings {
    /// As text/plain or application/json [default: application/octet-stream, or the source's]
    #[arg(long, value_name = "TYPE", value_parser = values::content_type)]
    content_type: Option<String>,
    /// Delete it when it was neither read nor written for so long (90, 10m, 7d)
    #[arg(long, value_name = "TIME", value_parser = values::ttl, conflicts_with = "expires_at")]
    ttl: Option<u64>,
    /// Delete it at this time (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = values::expires_at)]
    expires_at: Option<String>,
    /// Closed from the start: nothing can be appended
    #[arg(long)]
    closed: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Create a stream
#[derive(Debug, Args)]
#[command(after_help = format!("{CREATE_HELP}\n\n{CLIENT_CODES}"))]
pub(super) struct Create {
    /// The stream
    #[arg(value_name = "NAME", value_parser = values::name)]
    name: StreamName,
    #[command(flatten)]
    settings: Settings,
    /// First bytes
    #[arg(long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    data: Option<String>,
    /// First bytes from a file; - is stdin. At most 16 MiB
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Create a stream that begins as another one does
#[derive(Debug, Args)]
#[command(after_help = format!("{FORK_HELP}\n\n{CLIENT_CODES}"))]
pub(super) struct Fork {
    /// The stream that is there
    #[arg(value_name = "SOURCE", value_parser = values::name)]
    source: StreamName,
    /// The new stream
    #[arg(value_name = "NAME", value_parser = values::name)]
    name: StreamName,
    /// Where it leaves the source [default: the source's end]
    #[arg(long, value_name = "OFFSET", value_parser = values::position)]
    offset: Option<String>,
    /// So many bytes (JSON: elements) behind --offset
    #[arg(long, value_name = "N", requires = "offset")]
    sub_offset: Option<u64>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) fn create(args: Create) -> ExitCode {
    connect::run(async move |tasks| {
        let Create { name, settings, data, file, server } = args;
        let data = match (data, file) {
            (Some(text), _) => Bytes::from(text),
            (None, Some(file)) => first_bytes(&file).await?,
            (None, None) => Bytes::new(),
        };
        if settings.content_type.as_deref().is_some_and(is_json) && !data.is_empty() {
            json::check(&data).map_err(|why| input::not_json("the first data", &why))?;
        }
        let Settings { content_type, ttl, expires_at, closed, json } = settings;
        let new = NewStream { content_type, ttl_s: ttl, expires_at, closed, data, fork: None };
        let created = server.client(tasks)?.create(&name, &new).await;
        let (new, stream) = created.map_err(|e| refused(&name, e))?;
        tell(&name, new, &stream, json, "created")
    })
}

pub(super) fn fork(args: Fork) -> ExitCode {
    connect::run(async move |tasks| {
        let Fork { source, name, offset, sub_offset, settings, server } = args;
        let Settings { content_type, ttl, expires_at, closed, json } = settings;
        let fork = Some(ForkOf { source: source.clone(), offset, sub_offset });
        let new = NewStream { content_type, ttl_s: ttl, expires_at, closed, data: Bytes::new(), fork };
        let created = server.client(tasks)?.create(&name, &new).await;
        // What is not there is the source.
        let (new, stream) = created.map_err(|e| match e {
            Failure::Refused(ref r) if r.status == http::StatusCode::NOT_FOUND => {
                Stop::about(source.as_str(), e)
            }
            e => refused(&name, e),
        })?;
        tell(&name, new, &stream, json, "forked")
    })
}

fn refused(name: &StreamName, failure: Failure) -> Stop {
    let taken = matches!(&failure, Failure::Refused(r) if r.status == http::StatusCode::CONFLICT);
    let stop = Stop::about(name.as_str(), failure);
    if !taken {
        return stop;
    }
    Stop { code: ExitCode::Refused, ..stop }
        .hint(format!("see what is there with: weir head {}", quoted(name.as_str())))
}

fn tell(name: &StreamName, new: bool, stream: &Described, json: bool, done: &str) -> Result<(), Stop> {
    let Described { content_type, next, closed, .. } = stream;
    let text = if json {
        let value = serde_json::json!({
            "name": name.as_str(), "created": new, "contentType": content_type, "nextOffset": next, "closed": closed,
        });
        format!("{value}\n")
    } else {
        let what = if new { done } else { "exists as asked for:" };
        let closed = if *closed { "; closed" } else { "" };
        format!("{what} {name} ({content_type}); next offset {next}{closed}\n")
    };
    match answer(&text) {
        ExitCode::Ok => Ok(()),
        code => Err(Stop::new(code, "the stream is there, but could not be shown")),
    }
}

async fn first_bytes(file: &str) -> Result<Bytes, Stop> {
    let (reader, _size) = source::open(file).await?;
    let mut all = Vec::new();
    let read = reader.take(FIRST_MAX + 1).read_to_end(&mut all).await;
    read.map_err(|e| Stop::new(ExitCode::Failure, format!("{file}: {e}")))?;
    if all.len() as u64 > FIRST_MAX {
        return Err(Stop::usage(format!("{file}: over 16 MiB, the most that a stream can be created with"))
            .hint(format!("create it empty, then: weir append NAME --file {}", quoted(file))));
    }
    Ok(all.into())
}
