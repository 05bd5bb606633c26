//! Elements out of JSON text, as it comes in parts.
//!
//! Invariant: an element is given byte for byte as it stands in the text, whatever the cuts between parts; at most one
//! element is in memory, and none over the bound. Top-level arrays give their elements (one level); other top-level
//! values, divided by whitespace or not at all, are elements themselves. Elements are told apart, not checked: that is
//! [`check`]. Pure.

use serde::de::IgnoredAny;

/// See the file.
#[derive(Debug)]
pub struct Splitter {
    element: Vec<u8>,
    max: usize,
    place: Place,
    in_array: bool,
    /// Position in the text, for messages.
    at: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// An element, or in an array its end if nothing stood before.
    Begin,
    /// In an array, behind a comma.
    Needed,
    /// In an array, behind an element.
    Behind,
    /// In a number or word.
    Scalar,
    /// In a top-level string.
    Text { escaped: bool },
    /// In an object or array, so deep.
    Nested { depth: u64, text: bool, escaped: bool },
}

impl Splitter {
    /// Elements may be up to `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { element: Vec::new(), max, place: Place::Begin, in_array: false, at: 0 }
    }

    /// Takes more text and gives each element that ends in it.
    pub fn feed(&mut self, text: &[u8], give: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        for &b in text {
            self.at += 1;
            self.take(b, give)?;
        }
        Ok(())
    }

    /// The end of the text.
    pub fn finish(&mut self, give: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        match self.place {
            Place::Scalar if !self.in_array => self.give(give),
            Place::Begin if !self.in_array => {}
            _ => return Err(format!("the JSON text ends in the middle, after {} bytes", self.at)),
        }
        Ok(())
    }

    fn take(&mut self, b: u8, give: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        match self.place {
            Place::Begin | Place::Needed | Place::Behind => self.between(b),
            Place::Scalar if b.is_ascii_whitespace() || b",[]{}:\"".contains(&b) => {
                self.give(give);
                self.between(b)
            }
            Place::Scalar => self.push(b),
            Place::Text { escaped } => {
                self.push(b)?;
                match b {
                    b'"' if !escaped => self.give(give),
                    _ => self.place = Place::Text { escaped: b == b'\\' && !escaped },
                }
                Ok(())
            }
            Place::Nested { depth, text, escaped } => {
                self.push(b)?;
                let (depth, text, escaped) = match b {
                    b'"' if !escaped => (depth, !text, false),
                    b'\\' if text => (depth, true, !escaped),
                    b'[' | b'{' if !text => (depth + 1, false, false),
                    b']' | b'}' if !text => (depth - 1, false, false),
                    _ => (depth, text, false),
                };
                if depth == 0 {
                    self.give(give);
                } else {
                    self.place = Place::Nested { depth, text, escaped };
                }
                Ok(())
            }
        }
    }

    fn between(&mut self, b: u8) -> Result<(), String> {
        match (b, self.place) {
            (b' ' | b'\t' | b'\r' | b'\n', _) => return Ok(()),
            (b',', Place::Behind) => {
                self.place = Place::Needed;
                return Ok(());
            }
            (b']', Place::Behind | Place::Begin) if self.in_array => {
                (self.in_array, self.place) = (false, Place::Begin);
                return Ok(());
            }
            (b',' | b']' | b'}' | b':', _) | (_, Place::Behind) => return Err(self.unexpected(b)),
            (b'[', _) if !self.in_array => {
                (self.in_array, self.place) = (true, Place::Begin);
                return Ok(());
            }
            (b'[' | b'{', _) => self.place = Place::Nested { depth: 1, text: false, escaped: false },
            (b'"', _) => self.place = Place::Text { escaped: false },
            _ => self.place = Place::Scalar,
        }
        self.push(b)
    }

    fn push(&mut self, b: u8) -> Result<(), String> {
        if self.element.len() >= self.max {
            return Err(format!("an element is over {} bytes", self.max));
        }
        self.element.push(b);
        Ok(())
    }

    fn give(&mut self, give: &mut dyn FnMut(&[u8])) {
        give(&self.element);
        self.element.clear();
        self.place = if self.in_array { Place::Behind } else { Place::Begin };
    }

    fn unexpected(&self, b: u8) -> String {
        format!("the JSON text has an unexpected {:?} at byte {}", char::from(b), self.at)
    }
}

/// Whether an element is one JSON value.
pub fn check(element: &[u8]) -> Result<(), String> {
    serde_json::from_slice::<IgnoredAny>(element).map(|_fine| ()).map_err(|e| e.to_string())
}

/// An element on one line: line ends between its parts become spaces. (Within its texts there are none.)
pub fn one_line(element: &[u8], out: &mut Vec<u8>) {
    out.extend(element.iter().map(|&b| if matches!(b, b'\n' | b'\r') { b' ' } else { b }));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(parts: &[&[u8]], max: usize) -> Result<Vec<String>, String> {
        let mut splitter = Splitter::new(max);
        let mut found = Vec::new();
        let mut give = |e: &[u8]| found.push(String::from_utf8(e.to_vec()).unwrap());
        for part in parts {
            splitter.feed(part, &mut give)?;
        }
        splitter.finish(&mut give)?;
        Ok(found)
    }

    #[test]
    fn elements_keep_their_text() {
        for (text, elements) in [
            ("", &[][..]),
            ("[]", &[]),
            (" [ ] \n[]", &[]),
            ("1", &["1"]),
            ("[1, 1.0e2 ,12345678901234567890]", &["1", "1.0e2", "12345678901234567890"]),
            ("[[1,2],[]]", &["[1,2]", "[]"]),
            (r#"{"a": [1, {"b": "]}\"\\"}]}"#, &[r#"{"a": [1, {"b": "]}\"\\"}]}"#]),
            (r#"["a,b", "\"]", "\\"]"#, &[r#""a,b""#, r#""\"]""#, r#""\\""#]),
            ("1 2\n{}{}\"x\"true[3][4]null", &["1", "2", "{}", "{}", "\"x\"", "true", "3", "4", "null"]),
            ("{\n \"a\": 1\n}", &["{\n \"a\": 1\n}"]),
        ] {
            assert_eq!(split(&[text.as_bytes()], 100).unwrap(), elements, "{text}");
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(split(&bytes, 100).unwrap(), elements, "{text} byte by byte");
        }
    }

    #[test]
    fn text_that_cannot_be_split_says_where() {
        for (text, says) in [
            ("[1", "ends in the middle, after 2 bytes"),
            ("[1,", "ends in the middle"),
            ("{\"a\"", "ends in the middle"),
            ("\"a", "ends in the middle"),
            ("[1 2]", "unexpected '2' at byte 4"),
            ("[1,]", "unexpected ']' at byte 4"),
            ("[,1]", "unexpected ','"),
            ("1,2", "unexpected ','"),
            ("]", "unexpected ']' at byte 1"),
            ("}", "unexpected '}'"),
            ("\"aaaaaaaaaaaa\"", "over 10 bytes"),
        ] {
            let why = split(&[text.as_bytes()], 10).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        }
    }

    #[test]
    fn only_whole_values_pass_the_check() {
        for good in ["1", "{}", "\"a\"", "[1,[2]]"] {
            assert!(check(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in ["", "x", "tru", "1 2", "{1}", "\"a\nb\"", "01"] {
            assert!(check(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_array_comes_apart_into_its_elements(
            values in prop::collection::vec("[a-z\\[\\]{},\"\\\\ ]{0,8}", 0..6), cut in 1usize..9
        ) {
            let elements: Vec<String> = values.iter().map(|v| serde_json::to_string(&[v]).unwrap()).collect();
            let text = format!("[{}]", elements.join(" , "));
            let parts: Vec<&[u8]> = text.as_bytes().chunks(cut).collect();
            prop_assert_eq!(split(&parts, 1000).unwrap(), elements);
        }

        #[test]
        fn garbage_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut splitter = Splitter::new(20);
            let mut give = |_: &[u8]| {};
            if splitter.feed(&bytes, &mut give).is_ok() {
                drop(splitter.finish(&mut give));
            }
        }
    }
}
