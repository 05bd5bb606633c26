//! `weir serve`: configuration, logging, runtime, and the exit code of how it ended.

use super::{ExitCode, complain, logging};
use crate::config::{self, SettingArgs};
use crate::run::{self, RunError};

pub(super) fn run(settings: &SettingArgs) -> ExitCode {
    let config = match config::load(settings, &config::process_environment) {
        Ok(loaded) => loaded.config,
        Err(e) => return complain(&e.to_string(), ExitCode::Usage),
    };
    logging::start(&config.log);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("weir").build() {
        Ok(r) => r,
        Err(e) => return complain(&format!("cannot start threads: {e}"), ExitCode::Failure),
    };
    match runtime.block_on(Box::pin(run::serve(config))) {
        Ok(()) => ExitCode::Ok,
        Err(e) => {
            let code = code(&e);
            tracing::error!(exit_code = code as u8, "{e:#}");
            code
        }
    }
}

fn code(e: &RunError) -> ExitCode {
    match e {
        RunError::Config(_) => ExitCode::Usage,
        RunError::Foreign(_) => ExitCode::Foreign,
        RunError::Superseded(_) => ExitCode::Superseded,
        RunError::StoreUnfit(_) => ExitCode::StoreUnfit,
        RunError::InUse(_) => ExitCode::InUse,
        RunError::Failed(_) => ExitCode::Failure,
    }
}
