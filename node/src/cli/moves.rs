//! `weir admin drain` and `weir admin transfer`: streams moved on purpose, and waited for.
//!
//! Invariant: `--wait` ends with what the log says, not with what was asked: a drain that gave up and a transfer that
//! was called off are failures. Waiting changes nothing; who interrupts it leaves drain or transfer under way.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::Method;
use weir_api::NodeId;
use weir_api::admin::{
    DrainState, DrainStatus, OwnershipState, StreamStatus, TransferState, TransferStatus, TransferStream,
};

use super::admin::parsed;
use super::stop::{Stop, quoted};
use super::{ExitCode, human, values};
use crate::client::admin::AdminClient;
use crate::streams::StreamName;

/// Between two looks at what is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Give all of a node's streams to the others
#[derive(Debug, Args)]
pub(super) struct Drain {
    /// The node
    #[arg(value_name = "NODE")]
    node: NodeId,
    /// Until it has none left; exits with 8 if the drain gives up or is cancelled
    #[arg(long, conflicts_with = "cancel")]
    wait: bool,
    /// Let it take streams again; what has left stays where it is
    #[arg(long)]
    cancel: bool,
    /// Only say how far it is
    #[arg(long, conflicts_with_all = ["wait", "cancel"])]
    status: bool,
}

/// Hand one stream over to a node
#[derive(Debug, Args)]
pub(super) struct Transfer {
    /// The stream
    #[arg(value_name = "NAME", value_parser = values::name)]
    name: StreamName,
    /// Who is to have it
    #[arg(value_name = "NODE")]
    node: NodeId,
    /// Until the node has it; exits with 8 if the transfer is called off
    #[arg(long, conflicts_with = "cancel")]
    wait: bool,
    /// Call it off, if it has not completed
    #[arg(long)]
    cancel: bool,
}

/// What there is to print: the server's last answer, and the same for people.
pub(super) type Told = (Bytes, String);

impl Drain {
    pub(super) async fn run(&self, client: &AdminClient) -> Result<Told, Stop> {
        let method = match (self.cancel, self.status) {
            (true, _) => Method::DELETE,
            (false, true) => Method::GET,
            (false, false) => Method::POST,
        };
        let id = self.node.as_str();
        let mut answer = client.drain(method, id).await.map_err(Stop::about_admin)?;
        let mut status: DrainStatus = parsed(&answer)?;
        let mut line = Line::default();
        while self.wait && status.state == DrainState::Draining {
            line.show(&format!("{id}: {} left", human::counted(status.remaining_streams, "stream")));
            tokio::time::sleep(LOOK_AGAIN).await;
            answer = client.drain(Method::GET, id).await.map_err(Stop::about_admin)?;
            status = parsed(&answer)?;
        }
        drop(line);
        if self.wait && status.state != DrainState::Drained {
            return Err(Stop::new(ExitCode::Refused, drain_text(&status)).hint(format!(
                "see why with: weir admin drain {id} --status; try again with: weir admin drain {id}; cancel with: weir admin drain {id} --cancel"
            )));
        }
        Ok((answer, format!("{}\n", drain_text(&status))))
    }
}

impl Transfer {
    pub(super) async fn run(&self, client: &AdminClient) -> Result<Told, Stop> {
        let body = TransferStream { stream: self.name.as_str().to_owned(), to_node: self.node.clone() };
        let method = if self.cancel { Method::DELETE } else { Method::POST };
        let mut answer = client.transfer(method, &body).await.map_err(Stop::about_admin)?;
        let status: TransferStatus = parsed(&answer)?;
        let mut text = transfer_text(&status);
        if self.wait && matches!(status.state, TransferState::Pending | TransferState::HandedOver) {
            (answer, text) = self.until_there(client).await?;
        }
        Ok((answer, format!("{text}\n")))
    }

    async fn until_there(&self, client: &AdminClient) -> Result<Told, Stop> {
        let mut line = Line::default();
        loop {
            let answer = client.stream(&self.name).await.map_err(Stop::about_admin)?;
            let s: StreamStatus = parsed(&answer)?;
            let there = s.ownership.node.as_ref() == Some(&self.node);
            let text = format!("{} is at {}", s.name, self.node);
            match s.ownership.state {
                OwnershipState::Open if there => return Ok((answer, text)),
                // Nobody else opens it: the first request does, if the node has not.
                OwnershipState::Placed if there => return Ok((answer, text)),
                _ if s.transfer.as_ref().is_some_and(|t| t.to_node == self.node) => {
                    line.show(&format!("{}: on its way to {}", s.name, self.node));
                }
                _ => {
                    let why = format!("the transfer of {} to {} was called off", s.name, self.node);
                    return Err(Stop::new(ExitCode::Refused, why)
                        .hint(format!("see who has it with: weir admin stream {}", quoted(&s.name))));
                }
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

fn drain_text(s: &DrainStatus) -> String {
    let left = human::counted(s.remaining_streams, "stream");
    let detail = s.detail.as_ref().map_or_else(String::new, |d| format!(": {d}"));
    match s.state {
        DrainState::NotDraining => format!("{}: not draining; it has {left}", s.node),
        DrainState::Draining => format!("{}: draining, {left} left{detail}", s.node),
        DrainState::Drained => format!("{}: drained", s.node),
        DrainState::GaveUp => format!("{}: the drain gave up, {left} left{detail}", s.node),
    }
}

fn transfer_text(s: &TransferStatus) -> String {
    let from = s.from_node.as_ref().map_or_else(String::new, |n| format!(" from {n}"));
    match s.state {
        TransferState::Pending => format!("{}: on its way{from} to {}", s.stream, s.to_node),
        TransferState::HandedOver => format!("{}: given to {}, which opens it", s.stream, s.to_node),
        TransferState::Done => format!("{} is at {}", s.stream, s.to_node),
        TransferState::Aborted => format!("{}: the transfer to {} was called off", s.stream, s.to_node),
    }
}

/// One line on a terminal that is written over, and wiped in the end.
#[derive(Default)]
struct Line(bool);

impl Line {
    fn show(&mut self, text: &str) {
        if io::stderr().is_terminal() {
            self.0 = true;
            self.say(&format!("\r\x1b[K{text}"));
        }
    }

    fn say(&self, text: &str) {
        let mut err = io::stderr().lock();
        drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.0 {
            self.say("\r\x1b[K");
        }
    }
}
