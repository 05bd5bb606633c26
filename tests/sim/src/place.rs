//! A place where a node runs: hardware, configuration, and the process that is there now, if one is.
//!
//! Invariant: what runs is the node's own `serve_until`, nothing of it left out or replaced but its doors. Used by
//! `world`.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use weir::config::{self, RoutingMode, ServeConfig, SettingArgs};
use weir::run::{self, Doors, RunError};
use weir::simulation::On;
use weir::storage::store::Store;

use crate::bucket::{Bucket, Door};
use crate::machine::Hardware;
use crate::trace::{Exit, Recorder, What};

/// Where every node listens.
pub const CLIENT: u16 = 4437;
const PEER: u16 = 4438;
/// Where every node's admin listener is.
pub const ADMIN: u16 = 4439;

/// See the module.
pub struct Place {
    /// The machine.
    pub hardware: Arc<Hardware>,
    /// What the next process is started with.
    pub config: Mutex<ServeConfig>,
    bucket: Arc<Bucket>,
    recorder: Recorder,
    stop: Mutex<CancellationToken>,
}

/// What nodes are started with; times are scaled down, so that a run of a minute sees many of each.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The node's id.
    pub node: String,
    /// The machine's name in the network.
    pub machine: String,
    /// Machines of other nodes.
    pub join: Vec<String>,
    /// May found the cluster.
    pub founds: bool,
    /// How many nodes the cluster has.
    pub size: usize,
    /// How many may vote.
    pub voters: u32,
    /// Its weight.
    pub slots: u32,
    /// What it does with a request for another's stream.
    pub routing: RoutingMode,
    /// Very many streams: snapshots and releases of idle streams come as rarely as outside of simulations.
    pub bulk: bool,
}

impl Setup {
    /// As the node takes it.
    pub fn config(&self) -> ServeConfig {
        let join: Vec<_> = self.join.iter().map(|machine| format!("{machine}:{PEER}")).collect();
        let say = |name: &str| -> Option<OsString> {
            let text = match name {
                "WEIR_NODE_ID" => self.node.clone(),
                "WEIR_DATA_DIR" => "/data".to_owned(),
                "WEIR_STORE" => "s3://simulated".to_owned(),
                "WEIR_JOIN" => join.join(","),
                "WEIR_BOOTSTRAP" => self.founds.to_string(),
                "WEIR_CLUSTER_SIZE" => self.size.to_string(),
                "WEIR_METADATA_VOTERS" => self.voters.to_string(),
                "WEIR_SLOTS" => self.slots.to_string(),
                "WEIR_ADVERTISE_URL" => format!("http://{}:{CLIENT}", self.machine),
                "WEIR_PEER_ADVERTISE" => format!("{}:{PEER}", self.machine),
                "WEIR_NODE_TIMEOUT" => "3s".to_owned(),
                "WEIR_LEASE" => "1500ms".to_owned(),
                "WEIR_LONG_POLL_TIMEOUT" => "2s".to_owned(),
                "WEIR_REQUEST_TIMEOUT" => "4s".to_owned(),
                "WEIR_SHUTDOWN_GRACE" => "6s".to_owned(),
                "WEIR_IDLE_RELEASE" if !self.bulk => "3s".to_owned(),
                "WEIR_SEGMENT_OBJECTS" if !self.bulk => "12".to_owned(),
                "WEIR_SEGMENT_AGE" if !self.bulk => "1s".to_owned(),
                "WEIR_TEST_SNAPSHOT_LOG_BYTES" if !self.bulk => "8KiB".to_owned(),
                "WEIR_CACHE_BYTES" => "4MiB".to_owned(),
                _ => return None,
            };
            Some(text.into())
        };
        let loaded =
            config::load(&SettingArgs::default(), &say).expect("the simulation's own settings are good");
        let everywhere = |port: u16| ([0, 0, 0, 0], port).into();
        // The settings ask for a token where others can connect; the simulated network has no strangers.
        ServeConfig {
            listen: everywhere(CLIENT),
            peer_listen: everywhere(PEER),
            admin_listen: everywhere(ADMIN),
            wal_interval: Some(Duration::from_millis(5)),
            ..loaded.config
        }
    }
}

impl Place {
    /// For a node.
    pub fn new(
        hardware: Arc<Hardware>,
        config: ServeConfig,
        bucket: &Arc<Bucket>,
        recorder: &Recorder,
    ) -> Arc<Self> {
        Arc::new(Self {
            hardware,
            config: Mutex::new(config),
            bucket: bucket.clone(),
            recorder: recorder.clone(),
            stop: Mutex::default(),
        })
    }

    /// SIGTERM.
    pub fn stop(&self) {
        self.stop.lock().cancel();
    }

    /// A process, from its start to its end.
    pub async fn process(self: Arc<Self>) {
        let machine = self.hardware.start();
        let stop = CancellationToken::new();
        *self.stop.lock() = stop.clone();
        let store = Store::over(Arc::new(Door::new(&self.bucket, self.hardware.host)), "");
        let doors = Doors { store: Some(store), ..Doors::default() };
        let asked = async move {
            stop.cancelled().await;
            "the simulation"
        };
        let config = self.config.lock().clone();
        let ended = On::new(machine, run::serve_until(asked, config, doors)).await;
        let exit = match ended {
            Ok(()) => Exit { code: 0, why: "asked to".to_owned() },
            Err(e) => Exit { code: code(&e), why: format!("{e:#}") },
        };
        self.recorder.record(What::Exited { host: self.hardware.host, exit });
    }
}

fn code(e: &RunError) -> i32 {
    match e {
        RunError::Failed(_) => 1,
        RunError::Config(_) => 2,
        RunError::Foreign(_) => 3,
        RunError::Superseded(_) => 4,
        RunError::StoreUnfit(_) => 5,
        RunError::InUse(_) => 6,
    }
}
