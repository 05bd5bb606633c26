//! Live reading: readers wait at the tails of streams, a writer for each stream appends at a steady rate.
//!
//! Invariant: a record's latency runs from the moment its append is sent to the moment a reader has its mark, on one clock;
//! each reader follows the numbers of its stream, so that what is lost or doubled is counted record by record. Writers
//! are producers: a record whose outcome was unknown is there once. Called by `cli::bench`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::append::is_json;
use super::content::{self, Maker};
use super::meter::{Meter, Patience, name_of};
use super::report::Delivered;
use super::setup::{self, SMALL};
use super::wire::{Conn, Look};
use super::{BenchError, Common, Report};

/// How readers follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Live {
    /// Server-sent events.
    Sse,
    /// One request for each answer.
    LongPoll,
}

/// What to follow.
#[derive(Debug, Clone)]
pub struct Tail {
    /// How.
    pub live: Live,
    /// Streams; readers (the load's connections) are shared out among them.
    pub streams: usize,
    /// Records a second on each stream.
    pub rate: f64,
    /// Bytes of one record.
    pub size: usize,
    /// The streams' content type.
    pub content_type: String,
}

/// Per reader: there may be ten thousand.
const BUFFER: usize = 8 << 10;
/// After the last append, for what is still under way.
const GRACE: Duration = Duration::from_secs(10);
/// How often it is looked whether they are through.
const LOOK: Duration = Duration::from_millis(10);

/// One stream: when each record was sent.
#[derive(Debug, Default)]
struct Board {
    sent: Mutex<Vec<Instant>>,
    acknowledged: AtomicU64,
}

/// What the tasks of a run share.
struct Shared {
    common: Common,
    load: Tail,
    names: Arc<[String]>,
    boards: Vec<Board>,
    delivery: Meter,
    appends: Meter,
    /// How far each reader has come.
    progress: Vec<AtomicU64>,
    /// Readers are to go.
    end: CancellationToken,
    delivered: Mutex<Delivered>,
}

/// Runs the load.
pub async fn run(common: &Common, load: &Tail) -> Result<Report, BenchError> {
    check(common, load)?;
    let run = setup::run_name();
    let names: Arc<[String]> = (0..load.streams).map(|n| format!("{run}-{n}")).collect();
    setup::create(common, &names, &load.content_type).await?;
    let mut readers = Vec::with_capacity(common.connections);
    for n in 0..common.connections {
        readers.push(Reader::begin(common, load, &names, n % load.streams).await?);
    }
    let shared = Arc::new(Shared {
        common: common.clone(),
        load: load.clone(),
        boards: (0..load.streams).map(|_| Board::default()).collect(),
        names: names.clone(),
        delivery: Meter::start(&Common { count: None, ..common.clone() }),
        appends: Meter::start(common),
        progress: (0..common.connections).map(|_| AtomicU64::new(0)).collect(),
        end: CancellationToken::new(),
        delivered: Mutex::default(),
    });
    let mut reading = JoinSet::new();
    for (at, reader) in readers.into_iter().enumerate() {
        reading.spawn(reader.run(at, shared.clone()));
    }
    let mut writing = JoinSet::new();
    for stream in 0..load.streams {
        writing.spawn(write(shared.clone(), stream));
    }
    setup::joined(writing).await?;
    wait_for_readers(&shared).await;
    shared.end.cancel();
    setup::joined(reading).await?;
    let shared =
        Arc::into_inner(shared).ok_or_else(|| BenchError::Server("a task of the client is left".into()))?;
    let mut report = Report::new("tail", common);
    report.set("live", if load.live == Live::Sse { "sse" } else { "long-poll" });
    report.set("streams", load.streams);
    report.set("recordsPerSecondAndStream", load.rate);
    report.set("size", load.size);
    report.set("contentType", load.content_type.as_str());
    report.part("delivery", shared.delivery.finish());
    report.part("append", shared.appends.finish());
    let mut delivered = shared.delivered.into_inner();
    delivered.sent = shared.boards.iter().map(|b| b.acknowledged.load(Ordering::Relaxed)).sum();
    report.delivered = Some(delivered);
    setup::delete(common, &names).await;
    Ok(report)
}

fn check(common: &Common, load: &Tail) -> Result<(), BenchError> {
    let usage = |why: String| Err(BenchError::Usage(why));
    if load.size < content::LEAST {
        return usage(format!("--size must be at least {}: a record says which it is", content::LEAST));
    }
    if load.streams > common.connections {
        let (streams, readers) = (load.streams, common.connections);
        return usage(format!(
            "--streams {streams} is more than --subscribers {readers}: some would have no reader"
        ));
    }
    let text = load.content_type.trim_start().get(..5).is_some_and(|t| t.eq_ignore_ascii_case("text/"));
    if !text && !is_json(&load.content_type) {
        let kind = &load.content_type;
        return usage(format!(
            "--content-type {kind} must be text/… or application/json: records are found in the text"
        ));
    }
    Ok(())
}

/// Until every reader has everything, or the grace is over: who has not got it by then has lost it.
async fn wait_for_readers(shared: &Shared) {
    let end = Instant::now() + GRACE;
    let due =
        |reader: usize| shared.boards[reader % shared.load.streams].acknowledged.load(Ordering::Acquire);
    let complete = |(reader, next): (usize, &AtomicU64)| next.load(Ordering::Acquire) >= due(reader);
    while Instant::now() < end && !shared.progress.iter().enumerate().all(complete) {
        tokio::time::sleep(LOOK).await;
    }
}

/// One stream's writer.
async fn write(shared: Arc<Shared>, stream: usize) -> Result<(), BenchError> {
    let Shared { common, load, boards, appends, names, .. } = &*shared;
    let maker = Maker::new(load.size, is_json(&load.content_type));
    let mut conn = Some(setup::connect(common, SMALL).await?);
    let mut patience = Patience::default();
    let every = Duration::from_secs_f64(1.0 / load.rate);
    // Writers of many streams do not beat in step.
    #[allow(clippy::cast_precision_loss, reason = "a share of one interval")]
    let mut due = Instant::now() + every.mul_f64(stream as f64 / load.streams as f64);
    for number in 0u64.. {
        sleep_until(due.min(appends.until())).await;
        due += every;
        if !appends.may_start(Instant::now()) {
            break;
        }
        let fields = format!(
            "Content-Type: {}\r\nContent-Length: {}\r\nProducer-Id: writer\r\nProducer-Epoch: 0\r\nProducer-Seq: {number}\r\n",
            load.content_type, load.size
        );
        let mut request = common.target.request("POST", &names[stream], "", &fields);
        request.extend_from_slice(&maker.make(u32::try_from(stream).unwrap_or(u32::MAX), number));
        let begun = Instant::now();
        boards[stream].sent.lock().push(begun);
        loop {
            let why = match super::create::exchange(common, &mut conn, &request).await {
                Ok(200 | 204) => break,
                Ok(status) => status.to_string(),
                Err(e) => name_of(&e),
            };
            if !patience.failed(appends, &why).await {
                return Ok(());
            }
        }
        patience.succeeded();
        appends.done(begun, Instant::now(), load.size as u64);
        boards[stream].acknowledged.store(number + 1, Ordering::Release);
    }
    Ok(())
}

/// One reader.
struct Reader {
    stream: usize,
    live: Live,
    conn: Option<Conn>,
    offset: String,
    cursor: Option<String>,
    /// The number that is due.
    next: u64,
    found: Delivered,
    events: Events,
}

impl Reader {
    /// Connects; an SSE reader is answered before the first record is sent.
    async fn begin(
        common: &Common,
        load: &Tail,
        names: &[String],
        stream: usize,
    ) -> Result<Self, BenchError> {
        let mut reader = Self {
            stream,
            live: load.live,
            conn: None,
            offset: "-1".to_owned(),
            cursor: None,
            next: 0,
            found: Delivered::default(),
            events: Events::default(),
        };
        if load.live == Live::Sse {
            let opened = reader.open_sse(common, &names[stream]).await;
            opened.map_err(|e| BenchError::Server(format!("following {} failed: {e}", names[stream])))?;
        } else {
            reader.conn = Some(setup::connect(common, BUFFER).await?);
        }
        Ok(reader)
    }

    fn request(&self, common: &Common, name: &str) -> Vec<u8> {
        let live = if self.live == Live::Sse { "sse" } else { "long-poll" };
        let cursor = self.cursor.as_ref().map_or(String::new(), |c| format!("&cursor={c}"));
        common.target.request("GET", name, &format!("?offset={}&live={live}{cursor}", self.offset), "")
    }

    async fn open_sse(&mut self, common: &Common, name: &str) -> io::Result<()> {
        let mut conn = Conn::open(&common.target, BUFFER, common.timeout.max(PATIENT)).await?;
        conn.send(&self.request(common, name)).await?;
        let answer = conn.answer(Look::Progress).await?;
        if answer.status != 200 {
            return Err(io::Error::other(answer.status.to_string()));
        }
        self.events.restart();
        self.conn = Some(conn);
        Ok(())
    }

    async fn run(mut self, at: usize, shared: Arc<Shared>) -> Result<(), BenchError> {
        let mut patience = Patience::default();
        loop {
            let read = tokio::select! {
                biased;
                () = shared.end.cancelled() => break,
                read = self.read(&shared) => read,
            };
            shared.progress[at].store(self.next, Ordering::Release);
            match read {
                Ok(()) => patience.succeeded(),
                Err(e) => {
                    self.conn = None;
                    if !patience.failed(&shared.delivery, &name_of(&e)).await {
                        break;
                    }
                }
            }
        }
        let due = shared.boards[self.stream].acknowledged.load(Ordering::Acquire);
        self.found.lost += due.saturating_sub(self.next);
        let mut all = shared.delivered.lock();
        all.received += self.found.received;
        all.lost += self.found.lost;
        all.doubled += self.found.doubled;
        all.reconnects += self.found.reconnects;
        Ok(())
    }

    async fn read(&mut self, shared: &Shared) -> io::Result<()> {
        if self.live == Live::Sse { self.read_event(shared).await } else { self.poll(shared).await }
    }

    /// The next piece of an event stream.
    async fn read_event(&mut self, shared: &Shared) -> io::Result<()> {
        let Some(conn) = &mut self.conn else {
            self.found.reconnects += 1;
            return self.open_sse(&shared.common, &shared.names[self.stream]).await;
        };
        let Some(piece) = conn.piece().await? else {
            // The server ends streams politely from time to time.
            self.conn = None;
            return Ok(());
        };
        let now = Instant::now();
        let mut heard =
            Heard { shared, stream: self.stream, next: &mut self.next, found: &mut self.found, now };
        self.events.feed(piece, &mut |number| heard.record(number));
        if let Some(offset) = self.events.offset.take() {
            self.offset = offset;
        }
        Ok(())
    }

    /// One long-poll.
    async fn poll(&mut self, shared: &Shared) -> io::Result<()> {
        let request = self.request(&shared.common, &shared.names[self.stream]);
        let conn = match &mut self.conn {
            Some(conn) => conn,
            None => {
                self.found.reconnects += 1;
                let open = Conn::open(&shared.common.target, BUFFER, shared.common.timeout.max(PATIENT));
                self.conn.insert(open.await?)
            }
        };
        let mut heard = Heard {
            shared,
            stream: self.stream,
            next: &mut self.next,
            found: &mut self.found,
            now: Instant::now(),
        };
        let marks = &mut self.events.marks;
        let answer = conn
            .exchange_with(&request, Look::Progress, |piece| {
                heard.now = Instant::now();
                marks.feed(piece, &mut |number| heard.record(number));
            })
            .await?;
        if !conn.reusable() {
            self.conn = None;
        }
        match (answer.status, answer.next) {
            (200 | 204, Some(next)) => self.offset = next,
            (200 | 204, None) => return Err(io::Error::other("no Stream-Next-Offset")),
            (status, _) => return Err(io::Error::other(status.to_string())),
        }
        self.cursor = answer.cursor;
        Ok(())
    }
}

/// Live answers take as long as nothing happens.
const PATIENT: Duration = Duration::from_secs(90);

/// Takes what a reader hears.
struct Heard<'a> {
    shared: &'a Shared,
    stream: usize,
    next: &'a mut u64,
    found: &'a mut Delivered,
    now: Instant,
}

impl Heard<'_> {
    fn record(&mut self, number: u64) {
        if number < *self.next {
            self.found.doubled += 1;
            return;
        }
        self.found.lost += number - *self.next;
        self.found.received += 1;
        *self.next = number + 1;
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let sent = self.shared.boards[self.stream].sent.lock().get(at).copied();
        if let Some(sent) = sent {
            self.shared.delivery.observed(sent, self.now, self.shared.load.size as u64);
        }
    }
}

/// Reads an event stream: the records' numbers, and where to go on.
#[derive(Debug, Default)]
struct Events {
    /// The line that is being read.
    line: Vec<u8>,
    control: bool,
    marks: Marks,
    offset: Option<String>,
}

impl Events {
    fn restart(&mut self) {
        self.line.clear();
        self.control = false;
    }

    fn feed(&mut self, mut piece: &[u8], each: &mut impl FnMut(u64)) {
        while let Some(end) = piece.iter().position(|b| *b == b'\n') {
            if self.line.is_empty() {
                self.whole_line(&piece[..end], each);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&piece[..end]);
                self.whole_line(&line, each);
                line.clear();
                self.line = line;
            }
            piece = &piece[end + 1..];
        }
        self.line.extend_from_slice(piece);
    }

    fn whole_line(&mut self, line: &[u8], each: &mut impl FnMut(u64)) {
        if let Some(event) = line.strip_prefix(b"event:") {
            self.control = event.trim_ascii() == b"control";
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if self.control {
                self.offset = next_offset(data).or(self.offset.take());
            } else {
                self.marks.feed(data.strip_prefix(b" ").unwrap_or(data), each);
            }
        }
    }
}

/// `streamNextOffset` of a control event.
fn next_offset(data: &[u8]) -> Option<String> {
    let control: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(data).ok()?;
    control.get("streamNextOffset")?.as_str().map(str::to_owned)
}

/// Finds the marks in content that comes in pieces.
#[derive(Debug, Default)]
struct Marks {
    /// The beginning of a mark.
    begun: Vec<u8>,
}

impl Marks {
    fn feed(&mut self, mut piece: &[u8], each: &mut impl FnMut(u64)) {
        if !self.begun.is_empty() {
            let take = piece.len().min(content::MARK - self.begun.len());
            self.begun.extend_from_slice(&piece[..take]);
            piece = &piece[take..];
            if self.begun.len() < content::MARK {
                return;
            }
            if let Some((_, number)) = content::mark(&self.begun) {
                each(number);
            }
            self.begun.clear();
        }
        while let Some(at) = piece.iter().position(|b| *b == b'@') {
            piece = &piece[at..];
            if piece.len() < content::MARK {
                self.begun.extend_from_slice(piece);
                return;
            }
            if let Some((_, number)) = content::mark(piece) {
                each(number);
            }
            piece = &piece[content::MARK..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_wherever_they_are_cut() {
        let maker = Maker::new(40, false);
        let record = |n| String::from_utf8(maker.make(0, n)).unwrap();
        let text = format!(
            "event: data\ndata: {}{}\n\nevent: control\ndata: {{\"streamNextOffset\":\"0_80\",\"upToDate\":true}}\n\n\
             event: data\ndata:{}\ndata:\n\n: a comment with @ in it\n\n",
            record(0),
            record(1),
            record(2)
        );
        for cut in 0..text.len() {
            let (mut events, mut numbers) = (Events::default(), Vec::new());
            for piece in [&text.as_bytes()[..cut], &text.as_bytes()[cut..]] {
                events.feed(piece, &mut |n| numbers.push(n));
            }
            assert_eq!(numbers, [0, 1, 2], "cut at {cut}");
            assert_eq!(events.offset.as_deref(), Some("0_80"), "cut at {cut}");
        }
    }

    #[test]
    fn a_record_cut_between_two_events_counts_once() {
        let maker = Maker::new(40, true);
        let record = maker.make(7, 5);
        for cut in 1..record.len() {
            let (mut marks, mut numbers) = (Marks::default(), Vec::new());
            marks.feed(&record[..cut], &mut |n| numbers.push(n));
            marks.feed(&record[cut..], &mut |n| numbers.push(n));
            assert_eq!(numbers, [5], "cut at {cut}");
        }
    }
}
