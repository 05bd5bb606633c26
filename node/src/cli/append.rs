//! `weir append`: data from arguments, a file or stdin to a stream, in requests of bounded size.
//!
//! Invariant: with a producer, request *i* of an input is number *i*, in every run: what an earlier run has appended is
//! recognised by the server and passed over. What does not fit that earlier run is noticed before anything is appended,
//! as far as the stream's length tells. Without a producer nothing is sent twice whose outcome is not known.

use std::collections::VecDeque;

use clap::Args;

use super::connect::{self, ServerArgs};
use super::exit::CLIENT_CODES;
use super::human;
use super::input::{Cut, Input, Piece, not_json};
use super::progress::Progress;
use super::stop::{Stop, quoted, says_closed};
use super::{ExitCode, answer, source, values};
use crate::client::json::{self, Splitter};
use crate::client::streams::{self, Appended, Stamp};
use crate::client::{Client, Failure};
use crate::streams::StreamName;

pub(super) const HELP: &str = "\
Examples:
  weir append notes 'first ' 'second '
      One request each
  weir append events '{\"kind\": \"login\", \"user\": 7}'
      A stream of application/json takes one JSON value, or an array of them
  tail -F access.log | weir append logs --lines
      Line by line, as they come
  weir append backup --file dump.bin
      In requests of 1 MiB; --batch-size changes that
  weir append events --file day.jsonl --producer import-2027-01-31
      Exactly once: run it again after a crash, and it goes on where it stopped
  weir append notes --close 'the end'
      Then close the stream for good

A JSON stream takes JSON values from files and stdin, one behind another (JSON lines, for instance); arrays give their
elements. With --lines each line is one value, arrays too.

Exactly once: with --producer ID the requests of one input are numbered 0, 1, 2, …, and the server takes each number
once. The same command, run again with the same input and --batch-size after a crash, a cut or a kill, skips what is
there and appends the rest; after a success it appends nothing. So take a new ID for each input (the name of the job, or
of the file), and do not change a file in between: what was added to it since may be taken for what is there. To append
an input once more on purpose, raise --producer-epoch. Requests are then cut by size alone: a slow pipe is not sent
before a batch is full; --batch-size 1 with --lines sends every line at once.";

/// Append to a stream
#[derive(Debug, Args)]
#[command(after_help = format!("{HELP}\n\n{CLIENT_CODES}"))]
pub(super) struct AppendArgs {
    /// The stream
    #[arg(value_name = "NAME", value_parser = values::name)]
    name: StreamName,
    /// What to append, a request each; without any, stdin
    #[arg(value_name = "DATA", conflicts_with = "file")]
    data: Vec<String>,
    /// Append a file; - is stdin
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    /// Cut behind line ends; for a JSON stream, take each line as one value
    #[arg(long, conflicts_with = "data")]
    lines: bool,
    /// How much one request carries at most (a line or value may be longer): 1 to 16MiB
    #[arg(long, value_name = "SIZE", value_parser = values::batch, default_value = "1MiB")]
    batch_size: usize,
    /// Append exactly once: number the requests in the name of this producer
    #[arg(long, value_name = "ID", value_parser = values::field)]
    producer: Option<String>,
    /// The producer's epoch: a higher one begins anew and shuts the lower ones out
    #[arg(long, value_name = "N", default_value_t = 0, requires = "producer",
          value_parser = clap::value_parser!(u64).range(..=9_007_199_254_740_991))]
    producer_epoch: u64,
    /// Stream-Seq: refused unless it is above the last one, by bytes. Goes with one request
    #[arg(long, value_name = "TEXT", value_parser = values::field)]
    seq: Option<String>,
    /// Close the stream behind it, for good
    #[arg(long)]
    close: bool,
    /// The stream's content type, if it is known: saves asking for it
    #[arg(long, value_name = "TYPE", value_parser = values::content_type)]
    content_type: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) fn run(args: AppendArgs) -> ExitCode {
    connect::run(async move |tasks| {
        let client = args.server.client(tasks)?;
        let name = args.name.clone();
        let (content_type, next) = match &args.content_type {
            Some(kind) => (kind.clone(), None),
            None => {
                let found = client.head(&name).await.map_err(|e| Stop::about(name.as_str(), e))?;
                (found.content_type, Some(found.next))
            }
        };
        let pieces = pieces(&args, &content_type).await?;
        let done = Done { next, ..Done::default() };
        let json = args.json;
        let mut job = Job { client, args, content_type, pieces, done };
        let ended = job.work().await;
        job.pieces.progress.clear();
        match ended {
            Ok(()) => tell(&name, &job, json),
            Err(stop) => Err(job.left_off(stop)),
        }
    })
}

/// What was done so far.
#[derive(Debug, Default)]
struct Done {
    /// Pieces taken from the input.
    taken: u64,
    requests: u64,
    bytes: u64,
    units: u64,
    /// Those that were there before.
    known: u64,
    known_units: u64,
    /// The input up to the last one that is in the stream.
    through: u64,
    next: Option<String>,
    closed: bool,
    /// What the server knows of the producer: its highest number, and the stream's end when it said so.
    highest: Option<(u64, Option<u64>)>,
}

struct Job {
    client: Client,
    args: AppendArgs,
    content_type: String,
    pieces: Pieces,
    done: Done,
}

impl Job {
    async fn work(&mut self) -> Result<(), Stop> {
        let mut piece = self.pieces.next().await?;
        while let Some(this) = piece {
            // One ahead, for `--seq` goes with one alone.
            let following = match &self.args.seq {
                Some(_) => self.pieces.next().await?,
                None => None,
            };
            if following.is_some() {
                return Err(Stop::usage("--seq goes with one request, and this input takes several")
                    .hint("append less at once, or raise --batch-size"));
            }
            let number = self.done.taken;
            self.done.taken += 1;
            self.pieces.progress.at(this.through);
            if self.done.highest.is_some_and(|(highest, _)| number <= highest) {
                self.passed_over(&this);
            } else {
                self.fits()?;
                if self.append(this, number).await? == Went::ClosedByUs {
                    return Ok(());
                }
            }
            piece = self.pieces.next().await?;
        }
        self.fits()?;
        self.whole()?;
        if self.args.close && !self.done.closed {
            self.close().await?;
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Stop> {
        let stamp = self.stamp(self.done.taken);
        let produced = stamp.is_some();
        let closed = self.client.close(&self.args.name, stamp).await;
        let closed = closed.map_err(|e| Stop::about(self.args.name.as_str(), e))?;
        // The number was an append's in the earlier run: the server repeats the answer to that and closes nothing.
        if produced && !closed.closed {
            return Err(self.another_input(&format!(
                "{} of this producer are in the stream, and this input makes {}",
                human::counted(closed.highest.unwrap_or(self.done.taken) + 1, "request"),
                self.done.taken
            )));
        }
        self.done.next = Some(closed.next);
        self.done.closed = true;
        Ok(())
    }

    async fn append(&mut self, piece: Piece, number: u64) -> Result<Went, Stop> {
        let stamp = self.stamp(number);
        let produced = stamp.is_some();
        let append = streams::Append {
            content_type: self.content_type.clone(),
            data: piece.data.clone(),
            stamp,
            seq: self.args.seq.clone(),
        };
        match self.client.append(&self.args.name, append).await {
            Ok(Appended { next, highest, duplicate, .. }) => {
                if duplicate {
                    let highest = highest.unwrap_or(number).max(number);
                    self.done.highest = Some((highest, next.parse().ok()));
                    self.passed_over(&piece);
                } else {
                    self.done.requests += 1;
                    self.done.bytes += piece.data.len() as u64;
                    self.done.units += piece.units;
                    self.done.through = piece.through;
                }
                self.done.next = Some(next);
                Ok(Went::On)
            }
            // Perhaps an earlier run of this very command came to its end.
            Err(Failure::Refused(r)) if says_closed(&r) && produced && self.args.close => {
                self.passed_over(&piece);
                while let Some(more) = self.pieces.next().await? {
                    self.done.taken += 1;
                    self.passed_over(&more);
                }
                self.close().await?;
                Ok(Went::ClosedByUs)
            }
            Err(e) => Err(Stop::about_append(self.args.name.as_str(), e, produced)),
        }
    }

    fn stamp(&self, seq: u64) -> Option<Stamp> {
        let epoch = self.args.producer_epoch;
        self.args.producer.clone().map(|id| Stamp { id, epoch, seq })
    }

    fn passed_over(&mut self, piece: &Piece) {
        self.done.known += 1;
        self.done.known_units += piece.units;
        self.done.through = piece.through;
    }

    /// What is passed over is in the stream, so the stream is no shorter than that.
    fn fits(&self) -> Result<(), Stop> {
        let Some((highest, Some(end))) = self.done.highest else { return Ok(()) };
        if self.done.known_units <= end {
            return Ok(());
        }
        Err(self.another_input(&format!(
            "{} of this producer are in the stream, which is shorter than the same requests of this input",
            human::counted(highest + 1, "request")
        )))
    }

    /// An earlier run cannot have made more of the same input.
    fn whole(&self) -> Result<(), Stop> {
        match self.done.highest {
            Some((highest, _)) if highest >= self.done.taken => Err(self.another_input(&format!(
                "{} of this producer are in the stream, and this input makes {}",
                human::counted(highest + 1, "request"),
                self.done.taken
            ))),
            _ => Ok(()),
        }
    }

    fn another_input(&self, why: &str) -> Stop {
        let epoch = self.args.producer_epoch + 1;
        Stop::new(ExitCode::Refused, format!("not the input of the earlier run: {why}")).hint(format!(
            "use the same input and --batch-size; for another input another --producer ID, or --producer-epoch {epoch}"
        ))
    }

    /// What a failure half way leaves behind.
    fn left_off(&self, stop: Stop) -> Stop {
        let Done { requests, through, next, known, .. } = &self.done;
        if *requests + *known == 0 || stop.code == ExitCode::Ok {
            return stop;
        }
        let next = next.as_deref().unwrap_or("unknown");
        let message = format!(
            "{}; the first {} of the input are in the stream (next offset {next})",
            stop.message,
            human::bytes(*through)
        );
        let hint = match &self.args.producer {
            Some(_) if matches!(stop.code, ExitCode::Unavailable | ExitCode::Unknown) => {
                Some("run the same command again: it goes on from there".to_owned())
            }
            _ => stop.hint,
        };
        Stop { message, hint, ..stop }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Went {
    On,
    /// All of the input was there, and the stream closed behind it.
    ClosedByUs,
}

/// What is appended, piece by piece.
struct Pieces {
    from: From,
    progress: Progress,
}

enum From {
    Args(VecDeque<Piece>),
    Input(Box<Input>),
}

impl Pieces {
    async fn next(&mut self) -> Result<Option<Piece>, Stop> {
        match &mut self.from {
            From::Args(pieces) => Ok(pieces.pop_front()),
            From::Input(input) => input.next().await,
        }
    }
}

async fn pieces(args: &AppendArgs, content_type: &str) -> Result<Pieces, Stop> {
    let is_json = streams::is_json(content_type);
    if !args.data.is_empty() {
        let from = From::Args(of_args(&args.data, is_json)?);
        return Ok(Pieces { from, progress: Progress::new(None, false) });
    }
    // To close is something to do: nobody waits for input then.
    if args.file.is_none() && args.close {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
        if terminal {
            return Ok(Pieces { from: From::Args(VecDeque::new()), progress: Progress::new(None, false) });
        }
    }
    let (reader, size) = match &args.file {
        Some(file) => source::open(file).await?,
        None => source::stdin().await?,
    };
    let cut = match (is_json, args.lines) {
        (false, false) => Cut::Bytes,
        (false, true) => Cut::Lines,
        (true, false) => Cut::Json,
        (true, true) => Cut::JsonLines,
    };
    let exact = args.producer.is_some() || size.is_some();
    let from = From::Input(Box::new(Input::new(reader, cut, args.batch_size, exact)));
    Ok(Pieces { from, progress: Progress::new(size, true) })
}

fn of_args(data: &[String], is_json: bool) -> Result<VecDeque<Piece>, Stop> {
    let mut through = 0;
    let piece = |(at, text): (usize, &String)| {
        if text.is_empty() {
            return Err(Stop::usage(format!("DATA {} is empty: there is nothing to append", at + 1)));
        }
        through += text.len() as u64;
        let mut units = text.len() as u64;
        if is_json {
            let wrong = |why: String| not_json(&format!("DATA {}", at + 1), &why);
            json::check(text.as_bytes()).map_err(wrong)?;
            units = 0;
            let mut splitter = Splitter::new(text.len());
            let mut count = |_: &[u8]| units += 1;
            let split = splitter.feed(text.as_bytes(), &mut count);
            split.and_then(|()| splitter.finish(&mut count)).map_err(wrong)?;
        }
        Ok(Piece { data: text.clone().into(), units, through })
    };
    data.iter().enumerate().map(piece).collect()
}

fn tell(name: &StreamName, job: &Job, json: bool) -> Result<(), Stop> {
    let Done { requests, bytes, units, known, known_units, next, closed, .. } = &job.done;
    let next = next.as_deref();
    let text = if json {
        let value = serde_json::json!({
            "name": name.as_str(), "requests": requests, "bytes": bytes, "units": units,
            "knownRequests": known, "knownUnits": known_units, "nextOffset": next, "closed": closed,
        });
        format!("{value}\n")
    } else {
        let is_json = streams::is_json(&job.content_type);
        let amount = |n: u64| if is_json { human::counted(n, "element") } else { human::bytes(n) };
        let mut text = match (requests, known) {
            (0, 0) => format!("nothing to append to {name}"),
            (0, _) => format!("all of it is in {name} already: {}", amount(*known_units)),
            _ => format!("appended {} to {name} in {}", amount(*units), human::counted(*requests, "request")),
        };
        if *requests > 0 && *known > 0 {
            text.push_str(&format!("; {} were there already", amount(*known_units)));
        }
        if let Some(next) = next {
            text.push_str(&format!("; next offset {next}"));
        }
        if *closed {
            text.push_str("; closed");
        }
        text + "\n"
    };
    match answer(&text) {
        ExitCode::Ok => Ok(()),
        code => Err(Stop::new(
            code,
            format!("appended to {}, but that could not be shown", quoted(name.as_str())),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked_before_anything_is_sent() {
        let args = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let units = |all: &[&str], json| {
            of_args(&args(all), json).map(|p| p.iter().map(|p| p.units).collect::<Vec<_>>())
        };
        assert_eq!(units(&["ab", "[1,2"], false).unwrap(), [2, 4]);
        assert_eq!(units(&["[1,[2,3]]", "{}", "[]"], true).unwrap(), [2, 1, 0]);
        assert!(units(&["a", ""], false).unwrap_err().message.contains("DATA 2 is empty"));
        let stop = units(&["1", "hello"], true).unwrap_err();
        assert!(stop.message.starts_with("DATA 2 is not JSON: "), "{stop:?}");
    }
}
