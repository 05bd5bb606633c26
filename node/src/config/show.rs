//! The effective configuration, each value with its origin, as TOML that `--config` reads again, and as JSON.
//!
//! Invariant: no secret in it: credentials show only that they are set. Made by `super::load`, printed by `weir config`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::settings::{Fallback, Kind, SETTINGS, Setting};
use super::sources::{Origin, Said, Sources};
use super::{S3Env, ServeConfig};

/// What `weir config` prints.
#[derive(Debug)]
pub struct Shown {
    rows: Vec<Row>,
    aws: Vec<(String, Option<String>)>,
}

#[derive(Debug)]
struct Row {
    setting: &'static Setting,
    value: Option<Said>,
}

impl Shown {
    pub(super) fn of(config: &ServeConfig, sources: &Sources) -> Self {
        let rows = SETTINGS.iter().map(|setting| {
            let follows = || {
                let text = follows(setting, config)?;
                Some(Said { text, origin: Origin::Default(setting.flag()) })
            };
            Row { setting, value: sources.get(setting.name).or_else(follows) }
        });
        let shown = |row: &Row| {
            let said = row.value.as_ref().is_some_and(|v| !matches!(v.origin, Origin::Default(_)));
            said || !row.setting.hidden()
        };
        Self { rows: rows.filter(shown).collect(), aws: aws(&config.s3) }
    }

    /// TOML, the origin as a comment behind each value.
    pub fn toml(&self) -> String {
        let mut out = String::from(
            "# The configuration in force: flags over WEIR_ variables over the file over defaults.\n",
        );
        let mut group = "";
        for Row { setting, value } in &self.rows {
            if setting.group != group {
                group = setting.group;
                line(&mut out, &format!("\n# {group}"));
            }
            match (value, setting.fallback) {
                (Some(v), _) => {
                    let text = toml_value(setting.kind, &v.text);
                    line(&mut out, &format!("{} = {text}  # {}", setting.name, origin(&v.origin)));
                }
                (None, Fallback::Is(d) | Fallback::Follows(d) | Fallback::Unset(d)) => {
                    line(&mut out, &format!("# {} is not set: {d}", setting.name));
                }
            }
        }
        line(&mut out, "\n# S3, from the environment only");
        for (name, value) in &self.aws {
            line(&mut out, &format!("# {name}: {}", value.as_deref().unwrap_or("not set")));
        }
        out
    }

    /// `{"settings": {name: {"value", "origin"}}, "environment": {AWS_…: text or null}}`
    pub fn json(&self) -> Value {
        let settings = self.rows.iter().map(|Row { setting, value }| {
            let shown = match value {
                Some(v) => json!({"value": json_value(setting.kind, &v.text), "origin": origin(&v.origin)}),
                None => json!({"value": null, "origin": "default"}),
            };
            (setting.name.to_owned(), shown)
        });
        let aws = self.aws.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        json!({
            "settings": settings.collect::<serde_json::Map<_, _>>(),
            "environment": aws.collect::<serde_json::Map<_, _>>(),
        })
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

fn origin(o: &Origin) -> String {
    match o {
        Origin::Default(_) => "default".to_owned(),
        Origin::Flag(_) | Origin::Environment(_) | Origin::File(..) => o.to_string(),
    }
}

/// The value of a setting that follows from others. Ports of 0 are known only after binding.
fn follows(setting: &Setting, c: &ServeConfig) -> Option<String> {
    match setting.name {
        "advertise-url" if c.listen.port() != 0 => Some(c.advertised_url(c.listen)),
        "peer-advertise" if c.peer_listen.port() != 0 => Some(c.advertised_peer(c.peer_listen)),
        "bootstrap" => Some(c.bootstrap.to_string()),
        "store" => Some(c.store.to_string()),
        _ => None,
    }
}

fn toml_value(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Number => text.parse::<i64>().map_or_else(|_e| text.to_owned(), |n| n.to_string()),
        Kind::Switch => text.to_owned(),
        Kind::Text => toml::Value::from(text).to_string(),
        Kind::List => toml::Value::from(text.split(',').collect::<Vec<_>>()).to_string(),
    }
}

fn json_value(kind: Kind, text: &str) -> Value {
    match kind {
        Kind::Number => text.parse::<i64>().map_or_else(|_e| json!(text), Value::from),
        Kind::Switch => json!(text == "true"),
        Kind::Text => json!(text),
        Kind::List => json!(text.split(',').collect::<Vec<_>>()),
    }
}

fn aws(s3: &S3Env) -> Vec<(String, Option<String>)> {
    let S3Env { endpoint, region, access_key_id, secret_access_key, session_token, more } = s3;
    let masked = |secret: &Option<String>| secret.as_ref().map(|_| "(set, not shown)".to_owned());
    let own = [
        ("AWS_ENDPOINT_URL", endpoint.clone()),
        ("AWS_REGION", region.clone()),
        ("AWS_ACCESS_KEY_ID", masked(access_key_id)),
        ("AWS_SECRET_ACCESS_KEY", masked(secret_access_key)),
        ("AWS_SESSION_TOKEN", masked(session_token)),
    ];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
    own.chain(more.iter().map(|(name, value)| (name.clone(), Some(value.clone())))).collect()
}
