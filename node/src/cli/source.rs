//! Files and standard input as sources of data.

use std::io::IsTerminal as _;
use std::os::fd::AsFd as _;

use tokio::fs::File;
use tokio::io::AsyncRead;

use super::ExitCode;
use super::stop::Stop;

/// What is read, and its size if that is known.
pub(super) type Source = (Box<dyn AsyncRead + Send + Unpin>, Option<u64>);

/// A file by name; `-` is stdin.
pub(super) async fn open(file: &str) -> Result<Source, Stop> {
    if file == "-" {
        return stdin().await;
    }
    let opened = File::open(file).await.map_err(|e| wrong(file, &e))?;
    source(file, opened).await
}

/// Standard input. Whoever sits at a terminal is told what is waited for.
pub(super) async fn stdin() -> Result<Source, Stop> {
    let input = std::io::stdin();
    if input.is_terminal() {
        super::note("reading from the terminal; end with Ctrl-D");
    }
    let own = input.as_fd().try_clone_to_owned().map_err(|e| wrong("stdin", &e))?;
    source("stdin", File::from_std(own.into())).await
}

async fn source(what: &str, opened: File) -> Result<Source, Stop> {
    let meta = opened.metadata().await.map_err(|e| wrong(what, &e))?;
    if meta.is_dir() {
        return Err(Stop::new(ExitCode::Failure, format!("{what}: is a directory")));
    }
    let size = meta.is_file().then_some(meta.len());
    Ok((Box::new(opened), size))
}

fn wrong(what: &str, e: &std::io::Error) -> Stop {
    Stop::new(ExitCode::Failure, format!("{what}: {e}"))
}
