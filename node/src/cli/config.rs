//! `weir config`: prints what `serve` would run with.

use super::{ExitCode, answer, complain};
use crate::config::{self, SettingArgs};

pub(super) fn run(settings: &SettingArgs, json: bool) -> ExitCode {
    match config::load(settings, &config::process_environment) {
        Ok(loaded) if json => answer(&format!("{:#}\n", loaded.shown.json())),
        Ok(loaded) => answer(&loaded.shown.toml()),
        Err(e) => complain(&e.to_string(), ExitCode::Usage),
    }
}
