//! What is to be appended, in pieces of one request each.
//!
//! Invariant: memory is bounded whatever the input's size. With `exact`, where the cuts fall follows from the input and
//! the batch size alone, never from timing: an idempotent producer's piece *i* is the same in every run. Without it a
//! slow input is sent as it comes.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

use super::ExitCode;
use super::stop::Stop;
use crate::client::json::{self, Splitter};

/// Longest element or line.
const ELEMENT_MAX: usize = 16 << 20;
/// How much is read at once.
const READ: usize = 256 << 10;
/// How long a slow input may keep what it has given so far.
const LINGER: Duration = Duration::from_millis(10);

/// How input is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Anywhere.
    Bytes,
    /// Behind line ends.
    Lines,
    /// Between JSON values; arrays give their elements.
    Json,
    /// A JSON value each line.
    JsonLines,
}

/// What one request carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) data: Bytes,
    /// What it adds to the stream's offset: bytes, or elements.
    pub(super) units: u64,
    /// Bytes of input up to its end.
    pub(super) through: u64,
}

/// See the file.
pub(super) struct Input {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    cut: Cut,
    batch: usize,
    exact: bool,
    raw: BytesMut,
    ended: bool,
    splitter: Splitter,
    /// Elements found and not yet given.
    found: VecDeque<Vec<u8>>,
    /// Counted in messages.
    elements: u64,
    through: u64,
}

impl Input {
    /// `batch`: about how many bytes one piece has.
    pub(super) fn new(
        reader: Box<dyn AsyncRead + Send + Unpin>,
        cut: Cut,
        batch: usize,
        exact: bool,
    ) -> Self {
        Self {
            reader,
            cut,
            batch,
            exact,
            raw: BytesMut::new(),
            ended: false,
            splitter: Splitter::new(ELEMENT_MAX),
            found: VecDeque::new(),
            elements: 0,
            through: 0,
        }
    }

    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Piece>, Stop> {
        match self.cut {
            Cut::Bytes | Cut::Lines => self.next_bytes().await,
            Cut::Json | Cut::JsonLines => self.next_elements().await,
        }
    }

    async fn next_bytes(&mut self) -> Result<Option<Piece>, Stop> {
        loop {
            if let Some(end) = self.full()? {
                return Ok(Some(self.bytes(end)));
            }
            if self.ended {
                let rest = self.raw.len();
                return Ok((rest > 0).then(|| self.bytes(rest)));
            }
            if !self.read(self.raw.is_empty()).await?
                && let Some(end) = self.so_far()
            {
                return Ok(Some(self.bytes(end)));
            }
        }
    }

    fn bytes(&mut self, end: usize) -> Piece {
        let data = self.raw.split_to(end).freeze();
        self.through += data.len() as u64;
        Piece { units: data.len() as u64, data, through: self.through }
    }

    /// Where a full piece ends, if there is one.
    fn full(&self) -> Result<Option<usize>, Stop> {
        if self.raw.len() < self.batch {
            return Ok(None);
        }
        if self.cut == Cut::Bytes {
            return Ok(Some(self.batch));
        }
        let line_end = |part: &[u8]| part.iter().rposition(|&b| b == b'\n').map(|at| at + 1);
        if let Some(end) = line_end(&self.raw[..self.batch]) {
            return Ok(Some(end));
        }
        // A line that is longer than a batch goes alone.
        let end = self.raw[self.batch..].iter().position(|&b| b == b'\n').map(|at| self.batch + at + 1);
        match end {
            None if self.raw.len() > ELEMENT_MAX => Err(too_long("a line")),
            end => Ok(end),
        }
    }

    /// Where what a slow input has given so far may be cut.
    fn so_far(&self) -> Option<usize> {
        match self.cut {
            Cut::Lines => self.raw.iter().rposition(|&b| b == b'\n').map(|at| at + 1),
            _ => Some(self.raw.len()).filter(|n| *n > 0),
        }
    }

    async fn next_elements(&mut self) -> Result<Option<Piece>, Stop> {
        let mut array = vec![b'['];
        let mut units = 0;
        loop {
            while let Some(element) = self.found.front() {
                if units > 0 && array.len() + element.len() + 2 > self.batch {
                    return Ok(Some(self.array(array, units)));
                }
                if units > 0 {
                    array.push(b',');
                }
                array.extend_from_slice(element);
                units += 1;
                self.found.pop_front();
            }
            if self.ended {
                return Ok((units > 0).then(|| self.array(array, units)));
            }
            if !self.read(units == 0).await? {
                return Ok(Some(self.array(array, units)));
            }
            self.split()?;
        }
    }

    fn array(&self, mut array: Vec<u8>, units: u64) -> Piece {
        array.push(b']');
        Piece { data: array.into(), units, through: self.through }
    }

    /// Moves elements from the raw text to those found.
    fn split(&mut self) -> Result<(), Stop> {
        let raw = self.raw.split();
        self.through += raw.len() as u64;
        let (ended, cut) = (self.ended, self.cut);
        let mut new: Vec<Vec<u8>> = Vec::new();
        if cut == Cut::Json {
            let mut give = |element: &[u8]| new.push(element.to_vec());
            let fed = self.splitter.feed(&raw, &mut give);
            let done = fed.and_then(|()| if ended { self.splitter.finish(&mut give) } else { Ok(()) });
            done.map_err(|why| not_json("the input", &why))?;
        } else {
            let end = raw.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
            let end = if ended { raw.len() } else { end };
            new.extend(raw[..end].split(|&b| b == b'\n').map(|line| line.trim_ascii().to_vec()));
            if raw[..end].ends_with(b"\n") || end == 0 {
                new.pop();
            }
            self.raw.extend_from_slice(&raw[end..]);
            self.through -= (raw.len() - end) as u64;
            if self.raw.len() > ELEMENT_MAX {
                return Err(too_long("a line"));
            }
        }
        for element in new {
            self.elements += 1;
            // Blank lines are counted, so that messages name lines, and left out.
            if element.is_empty() {
                continue;
            }
            let what = if cut == Cut::Json { "element" } else { "line" };
            json::check(&element).map_err(|why| not_json(&format!("{what} {}", self.elements), &why))?;
            self.found.push_back(element);
        }
        Ok(())
    }

    /// Reads more. `false`: nothing came for a while, and the piece should not wait (`wait`: it must).
    async fn read(&mut self, wait: bool) -> Result<bool, Stop> {
        self.raw.reserve(READ);
        let reading = self.reader.read_buf(&mut self.raw);
        let read = if wait || self.exact {
            reading.await
        } else {
            match timeout(LINGER, reading).await {
                Ok(read) => read,
                Err(_slow) => return Ok(false),
            }
        };
        let read = read.map_err(|e| Stop::new(ExitCode::Failure, format!("cannot read the input: {e}")))?;
        self.ended = read == 0;
        Ok(true)
    }
}

fn too_long(what: &str) -> Stop {
    Stop::usage(format!("{what} of the input is over 16 MiB, the most that one request carries"))
}

pub(super) fn not_json(what: &str, why: &str) -> Stop {
    Stop::usage(format!("{what} is not JSON: {why}"))
        .hint("the stream is application/json; a text is written with quotes: '\"text\"'")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// All pieces of `text`, which comes in parts of `step` bytes.
    fn pieces(text: &[u8], step: usize, cut: Cut, batch: usize) -> Result<Vec<(String, u64, u64)>, Stop> {
        let (mut writer, reader) = tokio::io::duplex(step.max(1));
        let text = text.to_vec();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async move {
            let write = async move {
                // A reader that found an error does not take the rest.
                drop(writer.write_all(&text).await);
            };
            let read = async move {
                let mut input = Input::new(Box::new(reader), cut, batch, true);
                let mut all = Vec::new();
                while let Some(p) = input.next().await? {
                    all.push((String::from_utf8_lossy(&p.data).into_owned(), p.units, p.through));
                }
                Ok(all)
            };
            futures::join!(write, read).1
        })
    }

    fn texts(text: &str, cut: Cut, batch: usize) -> Vec<String> {
        pieces(text.as_bytes(), 3, cut, batch).unwrap().into_iter().map(|p| p.0).collect()
    }

    #[test]
    fn bytes_are_cut_by_size_and_lines_behind_their_ends() {
        assert_eq!(texts("abcdefgh", Cut::Bytes, 3), ["abc", "def", "gh"]);
        assert_eq!(texts("", Cut::Bytes, 3), [""; 0]);
        assert_eq!(texts("a\nb\nc\n", Cut::Lines, 4), ["a\nb\n", "c\n"]);
        assert_eq!(texts("a\nlonger than it\nb", Cut::Lines, 4), ["a\n", "longer than it\n", "b"]);
        assert_eq!(texts("a\n\n\nb\n", Cut::Lines, 1), ["a\n", "\n", "\n", "b\n"]);
    }

    #[test]
    fn elements_are_gathered_into_arrays_up_to_the_batch() {
        assert_eq!(texts("1 2 [3,[4]] {\"a\":\n5}", Cut::Json, 8), ["[1,2,3]", "[[4]]", "[{\"a\":\n5}]"]);
        assert_eq!(texts("1\n[2,3]\n\n \"x\" \r\n4", Cut::JsonLines, 100), ["[1,[2,3],\"x\",4]"]);
        assert_eq!(texts("1\n2\n", Cut::JsonLines, 1), ["[1]", "[2]"]);
        assert_eq!(texts("[]", Cut::Json, 9), [""; 0]);
        let units: Vec<u64> = pieces(b"1 2 3", 2, Cut::Json, 6).unwrap().iter().map(|p| p.1).collect();
        assert_eq!(units, [2, 1]);
    }

    #[test]
    fn what_is_not_json_is_named() {
        for (text, cut, says) in [
            ("1\nx\n", Cut::JsonLines, "line 2 is not JSON"),
            ("\n\n1 2\n", Cut::JsonLines, "line 3 is not JSON"),
            ("[1, tru]", Cut::Json, "element 2 is not JSON"),
            ("[1", Cut::Json, "the input is not JSON: the JSON text ends in the middle"),
            ("hello", Cut::Json, "element 1 is not JSON"),
        ] {
            let stop = pieces(text.as_bytes(), 2, cut, 100).unwrap_err();
            assert!(stop.message.contains(says), "{text}: {stop:?}");
            assert_eq!(stop.code, ExitCode::Usage);
        }
    }

    #[tokio::test]
    async fn a_slow_input_is_sent_as_it_comes_unless_cuts_must_be_exact() {
        let (mut writer, reader) = tokio::io::duplex(100);
        let mut input = Input::new(Box::new(reader), Cut::Lines, 1000, false);
        writer.write_all(b"one\ntw").await.unwrap();
        assert_eq!(input.next().await.unwrap().unwrap().data, "one\n");
        writer.write_all(b"o\n").await.unwrap();
        assert_eq!(input.next().await.unwrap().unwrap().data, "two\n");
        drop(writer);
        assert_eq!(input.next().await.unwrap(), None);
    }

    proptest! {
        #[test]
        fn cuts_do_not_depend_on_how_the_input_comes(
            lines in prop::collection::vec("[0-9]{1,6}", 0..20), batch in 1usize..30,
            a in 1usize..50, b in 1usize..50,
        ) {
            let text = lines.join("\n");
            for cut in [Cut::Bytes, Cut::Lines, Cut::Json, Cut::JsonLines] {
                // Numbers with leading zeros are not JSON.
                let text = if matches!(cut, Cut::Bytes | Cut::Lines) { text.clone() } else { text.replace('0', "1") };
                let one = pieces(text.as_bytes(), a, cut, batch).unwrap();
                let other = pieces(text.as_bytes(), b, cut, batch).unwrap();
                let data = |p: &[(String, u64, u64)]| p.iter().map(|p| (p.0.clone(), p.1)).collect::<Vec<_>>();
                prop_assert_eq!(data(&one), data(&other));
                if matches!(cut, Cut::Bytes | Cut::Lines) {
                    prop_assert_eq!(one.iter().map(|p| p.0.as_str()).collect::<String>(), text);
                }
            }
        }
    }
}
