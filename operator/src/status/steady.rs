//! Texts that count on.
//!
//! Invariant: a text that differs from the one before in nothing but its numbers is taken over but when counts are
//! refreshed, so that trouble which tells how long it lasts is no write per pass. A number that is part of a name
//! (`demo-1`) is not one of these. Called by `status`.

use crate::crd::StreamClusterStatus;

/// Keeps the texts of `before` that `now` only counts on from.
pub(super) fn steady(now: &mut StreamClusterStatus, before: &StreamClusterStatus) {
    keep(&mut now.message, Some(&before.message));
    for node in &mut now.nodes {
        keep(&mut node.message, before.nodes.iter().find(|n| n.name == node.name).map(|n| &n.message));
    }
    if let Some(operation) = &mut now.operation {
        let had = before.operation.as_ref().filter(|o| o.kind == operation.kind && o.node == operation.node);
        keep(&mut operation.step, had.map(|o| &o.step));
    }
    for condition in &mut now.conditions {
        let had = before.conditions.iter().find(|c| c.type_ == condition.type_);
        keep(&mut condition.message, had.map(|c| &c.message));
    }
}

fn keep(now: &mut String, before: Option<&String>) {
    if let Some(before) = before.filter(|b| words(b).eq(words(now))) {
        now.clone_from(before);
    }
}

/// A text's words, without those numbers, and their fractions, that begin one.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    text.split_ascii_whitespace().map(move |word| {
        let start = word.trim_start_matches('(');
        match start.starts_with(|c: char| c.is_ascii_digit()) {
            true => start.trim_start_matches(is_number),
            false => word,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_counts_on_is_kept_and_names_are_not_counts() {
        let kept = |before: &str, now: &str| {
            let mut text = now.to_owned();
            keep(&mut text, Some(&before.to_owned()));
            text == before
        };
        assert!(kept("3 streams to give away", "2 streams to give away"));
        assert!(kept(
            "store: no answer for 9.5s (2 appends wait)",
            "store: no answer for 10.25s (17 appends wait)"
        ));
        assert!(!kept("demo-1: no answer for 3 s", "demo-2: no answer for 3 s"));
        assert!(!kept("no answer for 3 s", "no answer for 3 minutes"));
        assert!(!kept("no answer", "no answer for 3 s"));
    }
}
