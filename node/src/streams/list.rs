//! Listing streams by name.
//!
//! Invariant: one answer costs a bounded number of looks at names, whatever lies in the range; it is made from the
//! state at a read index, and a stream whose birth was acknowledged stands in it: what the state does not know yet is
//! asked of the open stream, or waited for if the session that knows is being recovered. Called by `http`.

use std::ops::Bound;

use weir_api::{Offset, StreamId};

use super::error::StreamError;
use super::life::Now;
use super::{Inner, Streams};
use crate::metadata::query::Disposition;
use crate::metadata::state::{State, Stream};

/// The most streams in one answer.
pub const LIST_MAX: usize = 1000;
/// Names looked at for one answer. Those of unborn and deleted streams are passed over, and may be many.
const LOOKS: usize = 10_000;
const ATTEMPTS: usize = 8;

/// What to list.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Names that begin so.
    pub prefix: String,
    /// Names behind this one, by bytes.
    pub after: Option<String>,
    /// At most so many.
    pub limit: usize,
}

/// Some of the streams, ordered by the bytes of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// May be fewer than asked for, even none, although more follow.
    pub streams: Vec<Listed>,
    /// There may be more: ask for those after this name.
    pub next: Option<String>,
}

/// One stream of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// As it was created.
    pub content_type: String,
    /// The tail, if it is open at this node; else what is committed.
    pub next: Offset,
    /// Ended for good.
    pub closed: bool,
}

/// What one look over a range found.
enum Looked {
    Page(Page),
    /// Whether this stream was born is known once its session is recovered.
    Await(StreamId),
}

impl Streams {
    /// Streams whose names begin with a prefix.
    pub async fn list(&self, listing: &Listing) -> Result<Page, StreamError> {
        let inner = &self.inner;
        for _ in 0..ATTEMPTS {
            inner.read_index().await?;
            let (state, _) = inner.metadata.snapshot();
            let now = inner.now();
            match look_over(&state, listing, now.wall_ms, &|id| open_tail(inner, id, now)) {
                Looked::Await(id) => inner.recovered(id).await?,
                Looked::Page(page) => {
                    inner.check_lease()?;
                    return Ok(page);
                }
            }
        }
        Err(StreamError::unavailable("sessions with new streams keep ending"))
    }
}

/// What an open stream knows better than the state: tail, closed, and whether it is born and its time not over.
type Tail = (Offset, bool, bool);

fn open_tail(inner: &Inner, id: StreamId, now: Now) -> Option<Tail> {
    let stream = inner.registry.by_id(id)?;
    let durable = stream.durable();
    Some((durable.end, durable.closed, durable.born && !stream.is_over(now)))
}

fn look_over(
    state: &State,
    listing: &Listing,
    wall_ms: u64,
    open: &dyn Fn(StreamId) -> Option<Tail>,
) -> Looked {
    let prefix = listing.prefix.as_str();
    let from = match listing.after.as_deref() {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    let mut page = Page { streams: Vec::new(), next: None };
    let mut last = None;
    for (looks, (name, id)) in state.names.range::<_, str>((from, Bound::Unbounded)).enumerate() {
        if !name.starts_with(prefix) {
            break;
        }
        if page.streams.len() >= listing.limit || looks >= LOOKS {
            page.next = last;
            break;
        }
        last = Some(name.to_string());
        let Some(stream) = state.streams.get(id).filter(|s| !s.tombstone) else { continue };
        let disposition = state.disposition_of(stream);
        let tail = match (open(*id), &disposition) {
            (Some(tail), _) => tail,
            (None, Disposition::AwaitingRecovery(_)) if stream.unborn_since_ms.is_some() => {
                return Looked::Await(*id);
            }
            (None, _) => (stream.committed, stream.closed, idle_is_there(stream, &disposition, wall_ms)),
        };
        if let (next, closed, true) = tail {
            let content_type = stream.config.content_type.clone();
            page.streams.push(Listed { name: name.to_string(), content_type, next, closed });
        }
    }
    Looked::Page(page)
}

/// Born, and its recorded deadline not passed. (Of one that is open elsewhere only its owner knows the deadline.)
fn idle_is_there(stream: &Stream, disposition: &Disposition, wall_ms: u64) -> bool {
    let elsewhere = matches!(disposition, Disposition::OpenAt(..));
    let over = !elsewhere && stream.deadline_ms.is_some_and(|deadline| wall_ms >= deadline);
    stream.unborn_since_ms.is_none() && !over
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_api::StreamEpoch;

    use super::*;
    use crate::metadata::command::{Expiry, StreamConfig};
    use crate::metadata::state::Ownership;

    fn state(names: &[&str], change: impl Fn(&mut Stream)) -> State {
        let mut state = State::default();
        let config = Arc::new(StreamConfig { content_type: "text/plain".into(), expiry: Expiry::Never });
        for (number, name) in names.iter().enumerate() {
            let id = StreamId(number as u64 + 1);
            let mut stream = Stream {
                name: (*name).into(),
                config: config.clone(),
                epoch: StreamEpoch(0),
                ownership: Ownership::Released,
                start: Offset(0),
                committed: Offset(5),
                closed: false,
                unborn_since_ms: None,
                deadline_ms: None,
                extents: Vec::new(),
                dedupe: None,
                forked_from: None,
                forks: 0,
                tombstone: false,
            };
            change(&mut stream);
            state.names.insert(stream.name.clone(), id);
            state.streams.insert(id, Arc::new(stream));
        }
        state
    }

    fn page(state: &State, prefix: &str, after: Option<&str>, limit: usize) -> (Vec<String>, Option<String>) {
        let listing = Listing { prefix: prefix.into(), after: after.map(Into::into), limit };
        match look_over(state, &listing, 1000, &|_| None) {
            Looked::Page(page) => (page.streams.into_iter().map(|s| s.name).collect(), page.next),
            Looked::Await(id) => panic!("waits for {id}"),
        }
    }

    #[test]
    fn names_come_in_the_order_of_their_bytes_and_only_those_of_the_prefix() {
        let state = state(&["b", "a/2", "a", "é", "a/10", "a0", "B"], |_| {});
        let all = |prefix, after| page(&state, prefix, after, 100).0;
        assert_eq!(all("", None), ["B", "a", "a/10", "a/2", "a0", "b", "é"]);
        assert_eq!(all("a", None), ["a", "a/10", "a/2", "a0"]);
        assert_eq!(all("a/", None), ["a/10", "a/2"]);
        assert_eq!(all("a/", Some("a/10")), ["a/2"]);
        assert_eq!(all("a/", Some("a/11")), ["a/2"], "the name to go on after need not exist");
        assert_eq!(all("a/", Some("B")), ["a/10", "a/2"], "one before the prefix skips nothing");
        assert_eq!(all("a/", Some("zz")), Vec::<String>::new());
        assert_eq!(all("é", None), ["é"]);
        assert_eq!(all("nothing", None), Vec::<String>::new());
    }

    #[test]
    fn pages_follow_one_another_without_gap_or_repetition() {
        let names: Vec<String> = (0..25).map(|n| format!("s{n:02}")).collect();
        let state = state(&names.iter().map(String::as_str).collect::<Vec<_>>(), |_| {});
        for limit in [1, 7, 25, 26] {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let (some, next) = page(&state, "s", after.as_deref(), limit);
                assert!(some.len() <= limit);
                seen.extend(some);
                match next {
                    Some(name) => after = Some(name),
                    None => break,
                }
            }
            assert_eq!(seen, names, "{limit}");
        }
    }

    #[test]
    fn unborn_and_deleted_streams_are_not_listed_unless_the_open_stream_knows_better() {
        let tombs = state(&["a", "b"], |s| s.tombstone = true);
        assert_eq!(page(&tombs, "", None, 10), (vec![], None));
        let unborn = state(&["a", "b"], |s| s.unborn_since_ms = Some(1));
        assert_eq!(page(&unborn, "", None, 10), (vec![], None));
        let listing = Listing { prefix: String::new(), after: None, limit: 10 };
        let open = |id: StreamId| (id == StreamId(2)).then_some((Offset(9), true, true));
        let Looked::Page(page) = look_over(&unborn, &listing, 1000, &open) else {
            panic!("nothing to wait for")
        };
        let b = Listed { name: "b".into(), content_type: "text/plain".into(), next: Offset(9), closed: true };
        assert_eq!(page.streams, [b]);
    }

    #[test]
    fn a_stream_whose_deadline_has_passed_is_not_listed() {
        for (deadline_ms, listed) in [(None, 1), (Some(1001), 1), (Some(1000), 0), (Some(0), 0)] {
            let state = state(&["a"], |s| s.deadline_ms = deadline_ms);
            assert_eq!(page(&state, "", None, 10).0.len(), listed, "{deadline_ms:?}");
        }
    }

    #[test]
    fn one_answer_looks_at_a_bounded_number_of_names_and_says_where_to_go_on() {
        let names: Vec<String> = (0..LOOKS + 10).map(|n| format!("s{n:06}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let last = *names.last().expect("there are some");
        let state = state(&names, |s| s.tombstone = *s.name != *last);
        let (none, next) = page(&state, "", None, 10);
        assert_eq!((none.len(), next.as_deref()), (0, Some(names[LOOKS - 1])));
        assert_eq!(page(&state, "", next.as_deref(), 10), (vec![last.to_owned()], None));
    }
}
