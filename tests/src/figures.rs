//! What a scenario came to: lines of JSON on stdout and, if `WEIR_FIGURES` names a file, there too.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::writers::Writers;

/// One scenario's figures.
#[derive(Debug)]
pub struct Figures(Map<String, Value>);

impl Figures {
    /// `what` happened to how many nodes' cluster.
    pub fn of(scenario: &str, nodes: usize) -> Self {
        let mut fields = Map::new();
        fields.insert("scenario".into(), scenario.into());
        fields.insert("nodes".into(), nodes.into());
        Self(fields)
    }

    /// A time.
    #[must_use]
    pub fn took(self, what: &str, time: Duration) -> Self {
        self.with(what, json!((time.as_secs_f64() * 1000.0).round() / 1000.0))
    }

    /// Anything else.
    #[must_use]
    pub fn with(mut self, what: &str, value: impl Into<Value>) -> Self {
        self.0.insert(what.into(), value.into());
        self
    }

    /// Adds the requests since the last line, and writes this one.
    pub fn write(self, writers: &Writers) {
        let count = writers.count_on();
        let this = self
            .with("acknowledged", count.acknowledged)
            .with("failed", count.failed)
            .with("failedAfterRetry", count.failed_twice);
        let line = Value::Object(this.0).to_string();
        println!("FIGURE {line}");
        if let Some(path) = std::env::var_os("WEIR_FIGURES") {
            let mut file = File::options().create(true).append(true).open(path).unwrap();
            writeln!(file, "{line}").unwrap();
        }
    }
}
