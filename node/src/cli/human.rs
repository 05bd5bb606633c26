//! Numbers, times and tables for people.
//!
//! Invariant: pure; what came from a server is shown without control characters.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat};

use crate::client::failure::printable;

const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/// Longest cell.
const CELL_MAX: usize = 1100;

/// `1.5 MiB`.
pub(super) fn bytes(n: u64) -> String {
    if n < 1024 {
        return format!("{n} {}", if n == 1 { "byte" } else { "bytes" });
    }
    let (mut tenths, mut unit) = (u128::from(n) * 10 / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        (tenths, unit) = (tenths / 1024, unit + 1);
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// `3 elements`.
pub(super) fn counted(n: u64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// `1h 02m`, `3m 20s`, `12s`.
pub(super) fn time(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m {:02}s", s / 60, s % 60),
        _ => format!("{}h {:02}m", s / 3600, s % 3600 / 60),
    }
}

/// Milliseconds since 1970 as a date.
pub(super) fn date(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(DateTime::from_timestamp_millis);
    at.map_or_else(|| format!("{ms} ms"), |t| t.to_rfc3339_opts(SecondsFormat::Millis, true))
}

/// `yes` or `no`.
pub(super) fn yes(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}

/// Rows in columns as wide as their widest cell. Numbers are aligned to the right.
pub(super) struct Table {
    widths: Vec<usize>,
    right: Vec<bool>,
}

impl Table {
    /// Column titles; one that begins with `>` is of numbers.
    pub(super) fn new(titles: &[&str]) -> Self {
        let right = titles.iter().map(|t| t.starts_with('>')).collect();
        Self { widths: vec![0; titles.len()], right }
    }

    /// The titles above `rows`, or only the rows if the titles stand above already. Columns only grow.
    pub(super) fn text(&mut self, titles: Option<&[&str]>, rows: &[Vec<String>]) -> String {
        let titles: Option<Vec<String>> =
            titles.map(|t| t.iter().map(|t| t.trim_start_matches('>').to_owned()).collect());
        let rows: Vec<Vec<String>> = titles
            .into_iter()
            .chain(rows.iter().map(|r| r.iter().map(|c| printable(c, CELL_MAX)).collect()))
            .collect();
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        rows.iter().map(|r| self.line(r)).collect()
    }

    fn line(&self, row: &[String]) -> String {
        let cells = row.iter().zip(&self.widths).zip(&self.right).map(|((cell, width), right)| {
            if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    }
}

/// Names and values, a line each.
pub(super) fn list(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:<width$}  {}\n", printable(value, CELL_MAX))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_times_and_counts_are_short() {
        for (n, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1 << 20, "1.0 MiB"),
            (u64::MAX, "16383.9 PiB"),
        ] {
            assert_eq!(bytes(n), text);
        }
        assert_eq!((counted(1, "element"), counted(2, "element")), ("1 element".into(), "2 elements".into()));
        let t = |s| time(Duration::from_secs(s));
        assert_eq!((t(12), t(200), t(3720)), ("12s".into(), "3m 20s".into(), "1h 02m".into()));
        assert_eq!(date(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(date(u64::MAX), format!("{} ms", u64::MAX));
    }

    #[test]
    fn columns_line_up_and_only_grow() {
        let titles = ["NAME", ">N"];
        let mut table = Table::new(&titles);
        let row = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        let first = table.text(Some(&titles), &[row("a", "1"), row("longer", "100")]);
        assert_eq!(first, "NAME      N\na         1\nlonger  100\n");
        assert_eq!(table.text(None, &[row("b\u{1b}", "2")]), "b\u{fffd}        2\n");
        assert_eq!(list(&[("a", "1".into()), ("bcd", "2".into())]), "a    1\nbcd  2\n");
    }
}
