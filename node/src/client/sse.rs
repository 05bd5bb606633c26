//! Server-sent events out of text, as it comes in parts, and what the protocol says with them.
//!
//! Invariant: data counts only with the control event behind it, which says where to go on: what was cut off in between
//! is asked for again and was given to nobody. At most one event is in memory, and none over the bound. Pure.

use serde::Deserialize;

/// Longest event, bytes.
const EVENT_MAX: usize = 64 << 20;

/// Data, and where to go on behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// May be empty.
    pub data: Vec<u8>,
    /// Where to go on.
    pub next: String,
    /// At the tail.
    pub up_to_date: bool,
    /// The stream has ended.
    pub closed: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Control {
    stream_next_offset: String,
    #[serde(default)]
    up_to_date: bool,
    #[serde(default)]
    stream_closed: bool,
}

/// See the file.
#[derive(Debug, Default)]
pub struct Parser {
    base64: bool,
    line: Vec<u8>,
    after_cr: bool,
    kind: Vec<u8>,
    data: Option<Vec<u8>>,
    pending: Vec<u8>,
}

impl Parser {
    /// `base64`: data events are encoded so.
    pub fn new(base64: bool) -> Self {
        Self { base64, ..Self::default() }
    }

    /// Takes more text and gives the steps that are complete.
    pub fn feed(&mut self, text: &[u8]) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        for &b in text {
            let behind_cr = std::mem::replace(&mut self.after_cr, b == b'\r');
            match b {
                b'\n' if behind_cr => {}
                b'\n' | b'\r' => steps.extend(self.line_ends()?),
                _ if self.line.len() + self.pending.len() >= EVENT_MAX => {
                    return Err(format!("an event is over {EVENT_MAX} bytes"));
                }
                _ => self.line.push(b),
            }
        }
        Ok(steps)
    }

    fn line_ends(&mut self) -> Result<Option<Step>, String> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.event_ends();
        }
        let colon = line.iter().position(|&b| b == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"event" => self.kind = value.to_vec(),
            b"data" => match &mut self.data {
                None => self.data = Some(value.to_vec()),
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                    if data.len() > EVENT_MAX {
                        return Err(format!("an event is over {EVENT_MAX} bytes"));
                    }
                }
            },
            // Comments, ids and retry times: this reader goes by offsets.
            _ => {}
        }
        Ok(None)
    }

    fn event_ends(&mut self) -> Result<Option<Step>, String> {
        let kind = std::mem::take(&mut self.kind);
        let Some(data) = self.data.take() else { return Ok(None) };
        match kind.as_slice() {
            b"data" if self.base64 => {
                let bytes = decode_base64(&data).ok_or("an event's data is not base64")?;
                self.pending.extend(bytes);
                Ok(None)
            }
            b"data" => {
                self.pending.extend(data);
                Ok(None)
            }
            b"control" => {
                let control: Control = serde_json::from_slice(&data)
                    .map_err(|e| format!("a control event is malformed: {e}"))?;
                Ok(Some(Step {
                    data: std::mem::take(&mut self.pending),
                    next: control.stream_next_offset,
                    up_to_date: control.up_to_date,
                    closed: control.stream_closed,
                }))
            }
            _ => Ok(None),
        }
    }
}

/// Standard base64 with padding; line ends within are passed over. A text may hold several, one behind another.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let digits: Vec<u8> = text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    if !digits.len().is_multiple_of(4) {
        return None;
    }
    for four in digits.chunks(4) {
        let padding = four.iter().rev().take_while(|&&b| b == b'=').count();
        if padding > 2 {
            return None;
        }
        let mut bits = 0u32;
        for &b in &four[..4 - padding] {
            bits = bits << 6 | u32::from(digit(b)?);
        }
        bits <<= 6 * padding;
        out.extend_from_slice(&bits.to_be_bytes()[1..4 - padding]);
    }
    Some(out)
}

fn digit(b: u8) -> Option<u8> {
    match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps(text: &str, base64: bool, cut: usize) -> Vec<(String, String, bool, bool)> {
        let mut parser = Parser::new(base64);
        let mut all = Vec::new();
        for part in text.as_bytes().chunks(cut) {
            all.extend(parser.feed(part).unwrap());
        }
        let shown = |s: Step| (String::from_utf8(s.data).unwrap(), s.next, s.up_to_date, s.closed);
        all.into_iter().map(shown).collect()
    }

    #[test]
    fn data_is_given_with_the_control_behind_it() {
        let text = ": hello\n\nevent: data\ndata: [1,\ndata: 2]\n\nevent: control\ndata: {\"streamNextOffset\":\"5\"}\n\n\
                    event: data\r\ndata:x\r\n\r\nevent: control\r\n\
                    data: {\"streamNextOffset\":\"6\",\"upToDate\":true,\"streamClosed\":true,\"more\":1}\r\n\r\n\
                    event: data\ndata: cut off\n\n";
        let expected = [("[1,\n2]".into(), "5".into(), false, false), ("x".into(), "6".into(), true, true)];
        for cut in [1, 2, 3, 7, 1000] {
            assert_eq!(steps(text, false, cut), expected, "{cut}");
        }
    }

    #[test]
    fn binary_data_is_decoded() {
        let text =
            "event: data\ndata: aGVs\ndata: bG8=\n\nevent: control\ndata: {\"streamNextOffset\":\"5\"}\n\n";
        assert_eq!(steps(text, true, 5), [("hello".into(), "5".into(), false, false)]);
        for (text, bytes) in [("", &b""[..]), ("/+8=", &[255, 239]), ("AA==", &[0]), ("AAAA", &[0, 0, 0])] {
            assert_eq!(decode_base64(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
        for bad in ["A", "AA", "A===", "====", "A*AA", "AA=A"] {
            assert_eq!(decode_base64(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_malformed_control_event_is_an_error() {
        for bad in ["x", "{}", "{\"streamNextOffset\":1}"] {
            assert!(Parser::new(false).feed(format!("event: control\ndata: {bad}\n\n").as_bytes()).is_err());
        }
    }

    proptest! {
        #[test]
        fn garbage_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), base64: bool) {
            drop(Parser::new(base64).feed(&bytes));
        }
    }
}
