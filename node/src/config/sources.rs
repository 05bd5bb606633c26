//! Where values come from, and which of them holds: flag, environment, file, default, in this order.
//!
//! Invariant: the only precedence there is; every value keeps its origin, so that an error and `weir config` can name
//! it. Pure but for reading the file; the environment comes in as a function.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches};

use super::ConfigError;
use super::settings::{Fallback, Kind, SETTINGS, Setting, find};

/// Who said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A flag, as `--slots`.
    Flag(String),
    /// An environment variable, as `WEIR_SLOTS`.
    Environment(String),
    /// A key of the file.
    File(PathBuf, String),
    /// Nobody: the default of the setting named so.
    Default(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => f.write_str(flag),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::File(path, key) => write!(f, "{}: {key}", path.display()),
            Self::Default(flag) => write!(f, "default of {flag}"),
        }
    }
}

/// A value as text, with its origin. Lists are joined by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) origin: Origin,
}

/// The flags of one command line, as they were written. Flattened into the commands that take settings.
#[derive(Debug, Clone, Default)]
pub struct SettingArgs {
    file: Option<String>,
    flags: BTreeMap<&'static str, String>,
}

impl clap::FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut this = Self::default();
        this.update_from_arg_matches(matches)?;
        Ok(this)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        if let Some(file) = matches.get_one::<String>("config") {
            self.file = Some(file.clone());
        }
        for s in SETTINGS {
            if let Some(given) = matches.get_many::<String>(s.name) {
                let given: Vec<_> = given.map(String::as_str).collect();
                self.flags.insert(s.name, given.join(","));
            }
        }
        Ok(())
    }
}

impl clap::Args for SettingArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help("TOML file with settings; keys are the flags' names without the dashes [env: WEIR_CONFIG]");
        SETTINGS.iter().map(argument).fold(command.arg(file), clap::Command::arg)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

fn argument(s: &'static Setting) -> Arg {
    let default = match s.fallback {
        Fallback::Is(d) | Fallback::Follows(d) | Fallback::Unset(d) => d,
    };
    let help = format!("{} [default: {default}] [env: {}]", s.help, s.variable());
    let arg =
        Arg::new(s.name).long(s.name).value_name(s.value).help(help).help_heading(s.group).hide(s.hidden());
    match s.kind {
        Kind::Text | Kind::Number => arg.action(ArgAction::Set).allow_hyphen_values(true),
        Kind::List => arg.action(ArgAction::Append),
        Kind::Switch => {
            arg.action(ArgAction::Set).num_args(0..=1).require_equals(true).default_missing_value("true")
        }
    }
}

/// Everything that was said, with the winner per setting.
#[derive(Debug)]
pub(super) struct Sources {
    said: BTreeMap<&'static str, Said>,
}

impl Sources {
    pub(super) fn gather(
        args: &SettingArgs,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ConfigError> {
        let file = args.file.clone().map_or_else(|| variable(environment, "WEIR_CONFIG"), |f| Ok(Some(f)))?;
        let file = file.map_or_else(|| Ok(BTreeMap::new()), |path| read_file(Path::new(&path)))?;
        let mut said = file;
        for s in SETTINGS {
            if let Some(text) = variable(environment, &s.variable())? {
                said.insert(s.name, Said { text, origin: Origin::Environment(s.variable()) });
            }
            if let Some(text) = args.flags.get(s.name) {
                said.insert(s.name, Said { text: text.clone(), origin: Origin::Flag(s.flag()) });
            }
        }
        Ok(Self { said })
    }

    /// What was said, or the literal default.
    pub(super) fn get(&self, name: &str) -> Option<Said> {
        let setting = find(name).expect("every setting that is read stands in the table");
        self.said.get(name).cloned().or(match setting.fallback {
            Fallback::Is(d) => Some(Said { text: d.to_owned(), origin: Origin::Default(setting.flag()) }),
            Fallback::Follows(_) | Fallback::Unset(_) => None,
        })
    }

    /// Parsed, if said or by default; the error names the origin.
    pub(super) fn optional<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(Said { text, origin }) = self.get(name) else { return Ok(None) };
        match parse(&text) {
            Ok(v) => Ok(Some(v)),
            Err(allowed) => Err(ConfigError::Value { origin, value: shortened(&text), allowed }),
        }
    }

    /// The same for a setting that always has a value.
    pub(super) fn value<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        Ok(self.optional(name, parse)?.expect("the table gives this setting a default"))
    }

    /// Who said it, for an error that concerns several settings.
    pub(super) fn origin(&self, name: &'static str) -> Origin {
        let flag = || Origin::Default(format!("--{name}"));
        self.said.get(name).map_or_else(flag, |s| s.origin.clone())
    }
}

/// An environment variable; set but empty counts as not set, as charts and compose files leave it so.
pub(super) fn variable(
    environment: &dyn Fn(&str) -> Option<OsString>,
    name: &str,
) -> Result<Option<String>, ConfigError> {
    match environment(name).map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(text)) if text.is_empty() => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(raw)) => Err(ConfigError::Value {
            origin: Origin::Environment(name.to_owned()),
            value: shortened(&raw.to_string_lossy()),
            allowed: "UTF-8 text".to_owned(),
        }),
    }
}

fn read_file(path: &Path) -> Result<BTreeMap<&'static str, Said>, ConfigError> {
    let fail = |why: String| ConfigError::File { path: path.to_owned(), why };
    let text = std::fs::read_to_string(path).map_err(|e| fail(e.to_string()))?;
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| fail(e.to_string()))?;
    table.iter().map(|(key, value)| from_file(path, key, value)).collect()
}

fn from_file(path: &Path, key: &str, value: &toml::Value) -> Result<(&'static str, Said), ConfigError> {
    let Some(s) = find(key) else {
        return Err(ConfigError::UnknownKey {
            path: path.to_owned(),
            key: shortened(key),
            nearest: nearest(key),
        });
    };
    let origin = Origin::File(path.to_owned(), key.to_owned());
    match scalar(value, s.kind) {
        Some(text) => Ok((s.name, Said { text, origin })),
        None => Err(ConfigError::Value {
            origin,
            value: shortened(&value.to_string()),
            allowed: match s.kind {
                Kind::Text => "a string (sizes may be whole numbers of bytes)",
                Kind::Number => "a whole number",
                Kind::Switch => "true or false",
                Kind::List => "a list of strings",
            }
            .to_owned(),
        }),
    }
}

fn scalar(value: &toml::Value, kind: Kind) -> Option<String> {
    match (value, kind) {
        (toml::Value::Integer(n), Kind::Number | Kind::Text) => Some(n.to_string()),
        (toml::Value::Boolean(b), Kind::Switch) => Some(b.to_string()),
        (toml::Value::String(s), Kind::Text | Kind::List) => Some(s.clone()),
        (toml::Value::Array(all), Kind::List) => {
            let texts: Option<Vec<_>> = all.iter().map(toml::Value::as_str).collect();
            Some(texts?.join(","))
        }
        _ => None,
    }
}

/// The table's name with the fewest edits.
fn nearest(key: &str) -> &'static str {
    let visible = SETTINGS.iter().filter(|s| !s.hidden());
    visible.map(|s| s.name).min_by_key(|name| edits(key, name)).expect("the table is not empty")
}

/// Levenshtein distance, `_` counting as `-`.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().take(80).enumerate() {
        let ca = if ca == '_' { '-' } else { ca.to_ascii_lowercase() };
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let next = (diagonal + usize::from(ca != *cb)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row[b.len()]
}

/// A hostile or huge value must not fill the screen.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
