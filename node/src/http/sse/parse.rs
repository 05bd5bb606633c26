//! A small reader of event streams, for tests: the rules of the HTML standard, and nothing of the encoder's.

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::http) struct Event {
    pub(in crate::http) name: String,
    pub(in crate::http) data: String,
}

/// The events of a whole stream; an event that is not ended does not count.
pub(in crate::http) fn events(text: &str) -> Vec<Event> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut event) = (Vec::new(), Event::default());
    let mut lines: Vec<&str> = text.split('\n').collect();
    // What stands behind the last break is no line yet.
    lines.pop();
    for line in lines {
        if line.is_empty() {
            let mut done = std::mem::take(&mut event);
            if !done.data.is_empty() {
                done.data.pop();
                events.push(done);
            }
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => event.name = value.to_owned(),
            "data" => event.data.extend([value, "\n"]),
            _ => {}
        }
    }
    events
}
