//! What a reader has of a stream, on its way to standard output: nothing twice, nothing left out.
//!
//! Invariant: a part of a stream that broke off is asked for again from its beginning, and what was put out of it
//! already is passed over. That holds for any server, whose offsets say nothing and whose parts may be cut anew, because
//! what stands behind an offset never changes.

use super::ExitCode;
use super::output::Output;
use super::stop::Stop;
use crate::client::json::{Splitter, one_line};
use crate::client::streams::is_json;
use crate::tasks::Tasks;

/// Longest JSON element that is put out.
const ELEMENT_MAX: usize = 256 << 20;

/// How content is put out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// As it is.
    Bytes,
    /// One array around all elements.
    Array,
    /// An element a line.
    Lines,
}

/// See the file.
pub(super) struct Sink {
    out: Output,
    lines: bool,
    /// `--json-lines` was said.
    insists: bool,
    shape: Option<Shape>,
    splitter: Splitter,
    /// Units of the part under way that came.
    came: u64,
    /// Units of it that were put out before it broke off.
    skip: u64,
    /// Units put out in all: bytes, or elements.
    units: u64,
}

impl Sink {
    /// `lines`: JSON is put out line by line, for it may have no end. `insists`: the stream must be JSON.
    pub(super) fn new(tasks: &Tasks, lines: bool, insists: bool) -> Self {
        let splitter = Splitter::new(ELEMENT_MAX);
        let (came, skip, units) = (0, 0, 0);
        Self { out: Output::new(tasks), lines, insists, shape: None, splitter, came, skip, units }
    }

    /// A part begins, of a stream of this type.
    pub(super) fn begin(&mut self, content_type: Option<&str>) -> Result<(), Stop> {
        self.came = 0;
        self.splitter = Splitter::new(ELEMENT_MAX);
        let Some(kind) = content_type else { return Ok(()) };
        let shape = match is_json(kind) {
            true if self.lines => Shape::Lines,
            true => Shape::Array,
            false if self.insists => {
                return Err(Stop::usage(format!(
                    "--json-lines: the stream is {kind}, which has no elements"
                ))
                .hint("leave --json-lines out: its bytes are put out as they are"));
            }
            false => Shape::Bytes,
        };
        if self.shape.is_none() && shape == Shape::Array {
            self.out.held().push(b'[');
        }
        self.shape = Some(shape);
        Ok(())
    }

    /// More of the part.
    pub(super) async fn feed(&mut self, text: &[u8]) -> Result<(), Stop> {
        let Self { out, shape, splitter, came, skip, units, .. } = self;
        match shape {
            Some(Shape::Bytes) | None => {
                let known = usize::try_from(skip.saturating_sub(*came)).unwrap_or(usize::MAX);
                let new = text.get(known..).unwrap_or_default();
                out.held().extend_from_slice(new);
                *came += text.len() as u64;
                *units += new.len() as u64;
            }
            Some(shape) => {
                let mut give = |element: &[u8]| {
                    *came += 1;
                    if *came <= *skip {
                        return;
                    }
                    let held = out.held();
                    if *shape == Shape::Array && *units > 0 {
                        held.extend_from_slice(b",\n");
                    }
                    one_line(element, held);
                    if *shape == Shape::Lines {
                        held.push(b'\n');
                    }
                    *units += 1;
                };
                splitter.feed(text, &mut give).map_err(garbled)?;
            }
        }
        out.settle().await
    }

    /// The part is whole: the next one begins behind it.
    pub(super) async fn end(&mut self) -> Result<(), Stop> {
        if matches!(self.shape, Some(Shape::Array | Shape::Lines)) {
            // Within the array of a part no element ends with the text.
            self.splitter.finish(&mut |_| {}).map_err(garbled)?;
        }
        self.out.flush().await?;
        // Only now, so that who is stopped in between knows what was put out.
        self.skip = self.skip.saturating_sub(self.came);
        self.came = 0;
        Ok(())
    }

    /// The part broke off: it will come again from its beginning.
    pub(super) fn broken(&mut self) {
        self.skip = self.skip.max(self.came);
        self.came = 0;
    }

    /// No more is to come. `whole`: an array that was begun is ended; after a failure it is left open.
    pub(super) async fn close(&mut self, whole: bool) -> Result<(), Stop> {
        if whole && self.shape == Some(Shape::Array) {
            self.out.held().extend_from_slice(b"]\n");
        }
        self.out.flush().await
    }

    /// Units put out behind the last whole part.
    pub(super) fn ahead(&self) -> u64 {
        self.skip.max(self.came)
    }

    /// Units put out in all, and what they are.
    pub(super) fn units(&self) -> (u64, bool) {
        (self.units, matches!(self.shape, Some(Shape::Array | Shape::Lines)))
    }

    /// Bytes that have left, for the progress line.
    pub(super) fn written(&self) -> u64 {
        self.out.written()
    }

    #[cfg(test)]
    pub(super) fn text(&mut self) -> String {
        String::from_utf8_lossy(self.out.held()).into_owned()
    }
}

fn garbled(why: String) -> Stop {
    Stop::new(ExitCode::Failure, format!("the server sends what is not a JSON array: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of a stream of `kind`, each with whether it comes to its end; nothing leaves, so that it can be looked at.
    async fn shown(kind: &str, lines: bool, parts: &[(&str, bool)]) -> String {
        let mut sink = Sink::new(&Tasks::default(), lines, false);
        for (text, whole) in parts {
            sink.begin(Some(kind)).unwrap();
            for byte in text.as_bytes().chunks(2) {
                sink.feed(byte).await.unwrap();
            }
            if *whole {
                sink.skip = sink.skip.saturating_sub(sink.came);
            } else {
                sink.broken();
            }
        }
        sink.text()
    }

    #[tokio::test]
    async fn what_came_before_a_break_is_not_put_out_again() {
        for parts in [
            &[("hello", true), ("world", true)][..],
            &[("hel", false), ("hello", true), ("world", true)],
            &[("hello", false), ("hello", true), ("wo", false), ("wor", false), ("world", true)],
            // Cut anew: shorter parts than the one that broke off, then a longer one.
            &[("hellowor", false), ("hel", true), ("lo", true), ("world", true)],
            &[("hel", false), ("helloworld", true)],
            &[("hello", false), ("", false), ("h", false), ("helloworld", true)],
        ] {
            assert_eq!(shown("text/plain", false, parts).await, "helloworld", "{parts:?}");
        }
    }

    #[tokio::test]
    async fn elements_are_put_out_once_each_on_a_line() {
        for parts in [
            &[("[1,{\"a\":\n2}]", true), ("[3]", true)][..],
            &[("[1,{\"a\"", false), ("[1,{\"a\":\n2}]", true), ("[3]", true)],
            &[("[1,{\"a\":\n2},3", false), ("[1]", true), ("[{\"a\":\n2},3]", true)],
            &[("[1,{\"a\":\n2},3]", false), ("[1]", true), ("[{\"a\":\n2}]", true), ("[3]", true)],
        ] {
            assert_eq!(shown("application/json", true, parts).await, "1\n{\"a\": 2}\n3\n", "{parts:?}");
        }
    }

    #[tokio::test]
    async fn without_lines_a_json_stream_is_one_array() {
        let text = shown("application/json; charset=utf-8", false, &[("[1,2]", true), ("[3]", true)]).await;
        assert_eq!(text, "[1,\n2,\n3");
        let mut sink = Sink::new(&Tasks::default(), true, true);
        let stop = sink.begin(Some("text/plain")).unwrap_err();
        assert_eq!(stop.code, ExitCode::Usage);
    }
}
