//! JSON values as YAML, for people to read.
//!
//! Invariant: every text that is not a plain word is in double quotes with JSON's escapes, which are YAML's too; so what
//! is written reads back as what it was.

use std::fmt::Write as _;

use serde_json::Value;

/// The value as a YAML document.
pub(super) fn document(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

fn block(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                out.extend(std::iter::repeat_n("  ", depth));
                entry(&format!("{}:", text(key)), value, depth + 1, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                out.extend(std::iter::repeat_n("  ", depth));
                list_item(item, depth, out);
            }
        }
        scalar => out.push_str(&format!("{}\n", plain(scalar))),
    }
}

fn entry(head: &str, value: &Value, depth: usize, out: &mut String) {
    match is_flow(value) {
        true => writeln!(out, "{head} {}", plain(value)).expect("a String takes everything"),
        false => {
            writeln!(out, "{head}").expect("a String takes everything");
            block(value, depth, out);
        }
    }
}

/// A list's entry: its first line begins behind the dash.
fn list_item(item: &Value, depth: usize, out: &mut String) {
    if is_flow(item) {
        out.push_str(&format!("- {}\n", plain(item)));
        return;
    }
    let mut inner = String::new();
    block(item, depth + 1, &mut inner);
    let indent = "  ".repeat(depth + 1);
    out.push_str("- ");
    out.push_str(inner.strip_prefix(&indent).unwrap_or(&inner));
}

fn is_flow(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(s) => text(s),
        other => other.to_string(),
    }
}

fn text(s: &str) -> String {
    let word = s.starts_with(|c: char| c.is_ascii_alphabetic())
        && s.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
    let keyword = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    match word && !keyword.contains(&s.to_ascii_lowercase().as_str()) {
        true => s.to_owned(),
        false => Value::from(s).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_lists_and_texts_are_laid_out() {
        let value =
            json!({"a": {"b": [1, {"c": "x y", "d": []}, [true]], "e": {}}, "f": "no", "g": "a: b\n"});
        let expected = "a:\n  b:\n    - 1\n    - c: \"x y\"\n      d: []\n    - - true\n  e: {}\nf: \"no\"\ng: \"a: b\\n\"\n";
        assert_eq!(document(&value), expected);
    }
}
