//! `weir read` and `weir tail`: a stream to standard output, once or for as long as it goes on.
//!
//! Invariant: nothing is lost and nothing doubled, whatever breaks in between: only what is whole moves the offset on,
//! and `sink` passes over what was put out already. Ends at the end of what there is, or with `--follow` when the stream
//! is closed or somebody says stop; the last line on stderr says where to go on.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connect::{self, ServerArgs};
use super::exit::CLIENT_CODES;
use super::progress::Progress;
use super::sink::Sink;
use super::stop::Stop;
use super::{ExitCode, note, values};
use crate::client::sse::Parser;
use crate::client::streams::Live;
use crate::client::{Client, Failure, retry_pause};
use crate::clock::{self, Clock};
use crate::streams::StreamName;

pub(super) const READ_HELP: &str = "\
Examples:
  weir read notes
      All of it; JSON as one array
  weir read events --json-lines | jq .user
      An element a line
  weir read notes --offset 00000000000000000013
      From where an earlier read ended
  weir read events --follow --offset -1
      All of it, and then what comes, until the stream is closed or Ctrl-C

Where to go on stands on stderr at the end: next offset 00000000000000000013. When a server is away while it follows, it
tries again for as long as it takes (--timeout bounds that), and goes on without losing or repeating anything.";

pub(super) const TAIL_HELP: &str = "\
Examples:
  weir tail notes
      What is appended from now on, until the stream is closed or Ctrl-C
  weir tail events -n 10
      The last ten elements first (of a stream of bytes: the last ten bytes)

It is weir read --follow --offset now. JSON is put out an element a line.";

/// For what is held when it is over to be written.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// How to wait for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// A request for each answer; byte for byte with every content type
    LongPoll,
    /// One answer with many events; streams of text lose the difference between kinds of line ends
    Sse,
}

#[derive(Debug, Args)]
struct Common {
    /// How to wait for more
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Transport::LongPoll)]
    transport: Transport,
    /// Say where to go on as JSON (on stderr)
    #[arg(long)]
    json: bool,
    /// Say nothing at the end
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Read a stream
#[derive(Debug, Args)]
#[command(after_help = format!("{READ_HELP}\n\n{CLIENT_CODES}"))]
pub(super) struct Read {
    /// The stream
    #[arg(value_name = "NAME", value_parser = values::name)]
    name: StreamName,
    /// Where to begin: -1 (the beginning), now (the end), or a next offset as it was printed
    #[arg(long, value_name = "OFFSET", value_parser = values::offset, default_value = "-1", allow_hyphen_values = true)]
    offset: String,
    /// Go on when the end is reached, as more comes
    #[arg(long, short)]
    follow: bool,
    /// Put out a JSON stream an element a line (with --follow it always is)
    #[arg(long)]
    json_lines: bool,
    #[command(flatten)]
    common: Common,
}

/// Follow a stream from its end on
#[derive(Debug, Args)]
#[command(after_help = format!("{TAIL_HELP}\n\n{CLIENT_CODES}"))]
pub(super) struct Tail {
    /// The stream
    #[arg(value_name = "NAME", value_parser = values::name)]
    name: StreamName,
    /// Begin so many elements (of a stream of bytes: bytes) before the end
    #[arg(long, short = 'n', value_name = "N")]
    last: Option<u64>,
    #[command(flatten)]
    common: Common,
}

pub(super) fn read(args: Read) -> ExitCode {
    connect::run(async move |tasks| {
        let Read { name, offset, follow, json_lines, common } = args;
        let client = common.server.client(tasks)?;
        let sink = Sink::new(tasks, follow || json_lines, json_lines);
        Box::pin(follow_up(client, name, offset, follow, &common, sink)).await
    })
}

pub(super) fn tail(args: Tail) -> ExitCode {
    connect::run(async move |tasks| {
        let Tail { name, last, common } = args;
        let client = common.server.client(tasks)?;
        let offset = match last {
            None => "now".to_owned(),
            Some(n) => before_the_end(&client, &name, n).await?,
        };
        let sink = Sink::new(tasks, true, false);
        Box::pin(follow_up(client, name, offset, true, &common, sink)).await
    })
}

/// Offsets of this server are counted in elements or bytes; of others nothing is known.
async fn before_the_end(client: &Client, name: &StreamName, n: u64) -> Result<String, Stop> {
    let found = client.head(name).await.map_err(|e| Stop::about(name.as_str(), e))?;
    let end: Option<u64> = found.next.parse().ok().filter(|_n| found.next.len() == 20);
    let end = end.ok_or_else(|| {
        Stop::new(
            ExitCode::Failure,
            format!("-n: this server's offsets ({}) cannot be counted back", found.next),
        )
    })?;
    Ok(format!("{:020}", end.saturating_sub(n)))
}

/// Reads, and afterwards says how far it came.
async fn follow_up(
    client: Client,
    name: StreamName,
    offset: String,
    follow: bool,
    common: &Common,
    sink: Sink,
) -> Result<(), Stop> {
    // Piped away and not followed: a transfer, which may be long.
    let transfer = !follow && !std::io::IsTerminal::is_terminal(&std::io::stdout());
    let clock = Clock::default();
    let mut reader = Reader {
        client,
        name,
        follow,
        transport: common.transport,
        outage: if follow { common.server.longest_outage() } else { Some(common.server.patience()) },
        trouble: None,
        tries: 0,
        at: offset,
        cursor: None,
        up_to_date: false,
        closed: false,
        progress: Progress::new(None, transfer),
        answered: false,
        moved: false,
        stop: CancellationToken::new(),
        clock,
        sink,
    };
    let ended = if follow {
        let stop = reader.stop.clone();
        let stopped = async move {
            told_to_stop().await;
            stop.cancel();
            tokio::time::sleep(LAST_WRITE).await;
        };
        tokio::select! {
            ended = reader.work() => ended,
            // It did not come to its end by itself: perhaps because nobody empties the pipe.
            () = stopped => Ok(()),
        }
    } else {
        reader.work().await
    };
    reader.progress.clear();
    let last = if follow { LAST_WRITE } else { Duration::MAX };
    let flushed = tokio::time::timeout(last, reader.sink.close(ended.is_ok())).await.unwrap_or(Ok(()));
    let told = (reader.moved && !common.quiet).then(|| reader.told(common.json));
    match (ended.and(flushed), told) {
        (Ok(()), Some(told)) => note(&told),
        (Ok(()), None) => {}
        (Err(stop), told) => return Err(Stop { last: told, ..stop }),
    }
    Ok(())
}

async fn told_to_stop() {
    let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        // Then the signals end the process by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
    }
}

struct Reader {
    client: Client,
    name: StreamName,
    follow: bool,
    transport: Transport,
    /// How long servers may be away; `None`: as long as they like.
    outage: Option<Duration>,
    /// Since when nothing has worked.
    trouble: Option<Instant>,
    tries: u32,
    at: String,
    cursor: Option<String>,
    up_to_date: bool,
    closed: bool,
    progress: Progress,
    clock: Clock,
    /// The server has answered: offsets mean something.
    answered: bool,
    /// It has read a part: there is something to say of where to go on.
    moved: bool,
    /// Comes to its end at the next whole part.
    stop: CancellationToken,
    sink: Sink,
}

/// How one step ended.
enum Step {
    On,
    Over,
    /// Why it broke off; worth another try.
    Broken(String),
}

impl Reader {
    async fn work(&mut self) -> Result<(), Stop> {
        while !self.stop.is_cancelled() {
            let step = match self.transport {
                Transport::Sse if self.follow && self.up_to_date => self.events().await?,
                Transport::Sse | Transport::LongPoll => self.chunk().await?,
            };
            match step {
                Step::Over => return Ok(()),
                Step::On => (self.trouble, self.tries) = (None, 0),
                Step::Broken(why) => self.wait(&why).await?,
            }
        }
        Ok(())
    }

    /// One answer: history, or what a long-poll waited for.
    async fn chunk(&mut self) -> Result<Step, Stop> {
        let live = if self.follow && self.up_to_date { Live::LongPoll } else { Live::No };
        let read = self.client.read(&self.name, &self.at, live, self.cursor.as_deref());
        let read = tokio::select! {
            read = read => read,
            () = self.stop.cancelled() => return Ok(Step::Over),
        };
        let mut chunk = match read {
            Ok(chunk) => chunk,
            Err(e) => return self.failed(e),
        };
        self.answered = true;
        self.sink.begin(chunk.content_type.as_deref())?;
        loop {
            match chunk.body.next().await {
                Ok(Some(part)) => self.sink.feed(&part).await?,
                Ok(None) => break,
                Err(why) => {
                    self.sink.broken();
                    return Ok(Step::Broken(why));
                }
            }
            self.progress.at(self.sink.written());
        }
        self.sink.end().await?;
        let moved = self.at != chunk.next;
        self.moved = true;
        self.at = chunk.next;
        self.up_to_date = chunk.up_to_date;
        self.closed = chunk.closed;
        if chunk.cursor.is_some() {
            self.cursor = chunk.cursor;
        }
        match () {
            () if self.closed || (self.up_to_date && !self.follow) => Ok(Step::Over),
            () if moved || live == Live::LongPoll => Ok(Step::On),
            () if self.up_to_date => Ok(Step::On),
            () => Ok(Step::Broken("the server has more, but does not give it".to_owned())),
        }
    }

    /// One answer of many events.
    async fn events(&mut self) -> Result<Step, Stop> {
        let mut events = match self.client.events(&self.name, &self.at).await {
            Ok(events) => events,
            Err(e) => return self.failed(e),
        };
        let mut parser = Parser::new(events.base64);
        let mut came = false;
        loop {
            let part = tokio::select! {
                part = events.body.next() => part,
                () = self.stop.cancelled() => return Ok(Step::Over),
            };
            let part = match part {
                Ok(Some(part)) => part,
                // Servers end events politely from time to time.
                Ok(None) if came => return Ok(Step::On),
                Ok(None) => return Ok(Step::Broken("the events ended at once".to_owned())),
                Err(why) => return Ok(Step::Broken(why)),
            };
            for step in parser.feed(&part).map_err(|why| Stop::new(ExitCode::Failure, why))? {
                came = true;
                (self.trouble, self.tries) = (None, 0);
                if !step.data.is_empty() {
                    self.sink.begin(None)?;
                    self.sink.feed(&step.data).await?;
                    self.sink.end().await?;
                }
                self.moved = true;
                self.at = step.next;
                self.up_to_date = step.up_to_date;
                self.closed = step.closed;
                if step.closed {
                    return Ok(Step::Over);
                }
            }
        }
    }

    /// What cannot be helped by trying again ends it; what can is trouble.
    fn failed(&self, failure: Failure) -> Result<Step, Stop> {
        match failure {
            Failure::Unavailable(why) | Failure::Unknown(why) if self.answered => Ok(Step::Broken(why)),
            e => Err(Stop::about(self.name.as_str(), e)),
        }
    }

    async fn wait(&mut self, why: &str) -> Result<(), Stop> {
        let now = self.clock.monotonic();
        let since = *self.trouble.get_or_insert(now);
        if self.outage.is_some_and(|longest| now.saturating_duration_since(since) >= longest) {
            return Err(Stop::about(self.name.as_str(), Failure::Unavailable(why.to_owned())));
        }
        let pause = retry_pause(self.tries, None, clock::random_u64());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.stop.cancelled() => {}
        }
        self.tries += 1;
        Ok(())
    }

    /// Where to go on.
    fn told(&self, json: bool) -> String {
        let ahead = self.sink.ahead();
        if json {
            let (units, elements) = self.sink.units();
            let value = serde_json::json!({
                "nextOffset": self.at, "ahead": ahead, "upToDate": self.up_to_date, "closed": self.closed,
                "units": units, "elements": elements,
            });
            return value.to_string();
        }
        let state = match (self.closed, self.up_to_date) {
            (true, _) => " (closed: there will be no more)",
            (false, true) => " (the end)",
            (false, false) => "",
        };
        let ahead =
            if ahead > 0 { format!("; {ahead} behind it are put out already") } else { String::new() };
        format!("next offset {}{state}{ahead}", self.at)
    }
}
