//! A simulated machine: clocks, chance, network and disk of one host.
//!
//! Invariant: everything a node asks of its machine follows from the run's seed and simulated time. While the machine
//! stands still no task of its node is polled, but time passes, messages arrive, and what the bucket was told goes on.
//! Used by `world`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use turmoil::net::{TcpListener, TcpStream};
use weir::simulation::{self, Disk};
use weir_api::Nonce;
use weir_tests::rng::Rng;

use crate::disk::{Mounted, SimDisk};
use crate::trace::Host;

/// Simulated time since the run's start, told by the world at each step and by turmoil within one.
#[derive(Debug, Clone, Default)]
pub struct Time(Arc<AtomicU64>);

impl Time {
    /// Microseconds.
    pub fn us(&self) -> u64 {
        if let Some(now) = turmoil::sim_elapsed() {
            let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
            // A host's own clock may lag behind the step by a part of it.
            return self.0.fetch_max(now, Ordering::Relaxed).max(now);
        }
        self.0.load(Ordering::Relaxed)
    }

    /// It is so late now.
    pub fn step(&self, now: Duration) {
        self.0.fetch_max(u64::try_from(now.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// As a duration.
    pub fn now(&self) -> Duration {
        Duration::from_micros(self.us())
    }
}

/// When runs begin: 2026-01-01.
const BEGIN_MS: u64 = 1_767_225_600_000;

/// What stays with the hardware while processes come and go.
pub struct Hardware {
    /// Its name in the network.
    pub name: String,
    /// Its number in the trace.
    pub host: Host,
    /// Its disk.
    pub disk: SimDisk,
    time: Time,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    wall_offset_ms: i64,
    up_since: Duration,
    boot_id: u128,
    still: bool,
    waiting: Vec<Waker>,
    /// Of a thread that is a moment behind the others when all goes on.
    behind: Vec<Waker>,
}

impl Hardware {
    /// A machine with an empty disk.
    pub fn new(name: &str, host: Host, time: &Time, mut rng: Rng) -> Arc<Self> {
        let boot_id = u128::from(rng.bits());
        let state = State {
            wall_offset_ms: 0,
            // Machines have been up for different times: clocks since boot say nothing to others.
            up_since: Duration::from_millis(rng.below(3_600_000)),
            boot_id,
            still: false,
            waiting: Vec::new(),
            behind: Vec::new(),
            rng,
        };
        Arc::new(Self {
            name: name.to_owned(),
            host,
            disk: SimDisk::default(),
            time: time.clone(),
            state: Mutex::new(state),
        })
    }

    /// Its wall clock jumps.
    pub fn shift_wall_ms(&self, by: i64) {
        self.state.lock().wall_offset_ms += by;
    }

    /// Nothing runs on it from now on, or all goes on: in which order, and which of its threads first, nobody knows.
    pub fn stand_still(&self, still: bool) {
        let first = {
            let mut state = self.state.lock();
            state.still = still;
            let State { waiting, behind, rng, .. } = &mut *state;
            let (first, late): (Vec<Waker>, Vec<Waker>) =
                std::mem::take(waiting).into_iter().partition(|_| rng.one_in(2));
            behind.extend(late);
            first
        };
        first.into_iter().for_each(Waker::wake);
    }

    /// A step of time is over: those behind go on.
    pub fn catch_up(&self) {
        let behind = std::mem::take(&mut self.state.lock().behind);
        behind.into_iter().for_each(Waker::wake);
    }

    /// It stands still.
    pub fn is_still(&self) -> bool {
        self.state.lock().still
    }

    /// Its process dies; with `power`, it loses its power and boots.
    pub fn crash(&self, power: bool) {
        let mut state = self.state.lock();
        self.disk.crash(power, &mut state.rng);
        state.still = false;
        state.waiting.clear();
        state.behind.clear();
        if power {
            state.boot_id = u128::from(state.rng.bits());
            state.up_since = Duration::ZERO;
        }
    }

    /// For the next process.
    pub fn start(self: &Arc<Self>) -> Arc<Machine> {
        Arc::new(Machine { disk: self.disk.mount(), hardware: self.clone() })
    }
}

/// The hardware as one process sees it.
pub struct Machine {
    hardware: Arc<Hardware>,
    disk: Mounted,
}

impl simulation::Machine for Machine {
    fn number(&self) -> u16 {
        self.hardware.host.0
    }

    fn wall_ms(&self) -> u64 {
        let now = BEGIN_MS + self.hardware.time.us() / 1000;
        now.saturating_add_signed(self.hardware.state.lock().wall_offset_ms)
    }

    fn since_boot(&self) -> Duration {
        self.hardware.time.now() + self.hardware.state.lock().up_since
    }

    fn boot_id(&self) -> Nonce {
        Nonce(self.hardware.state.lock().boot_id)
    }

    fn random(&self, bytes: &mut [u8]) {
        let mut state = self.hardware.state.lock();
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&state.rng.bits().to_le_bytes()[..piece.len()]);
        }
    }

    fn stands_still(&self, waker: &Waker) -> bool {
        let mut state = self.hardware.state.lock();
        if state.still {
            state.waiting.push(waker.clone());
        }
        state.still
    }

    fn bind(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn simulation::Listener>>> {
        async move {
            let listener = TcpListener::bind(address).await?;
            Ok(Box::new(Listening(listener)) as Box<dyn simulation::Listener>)
        }
        .boxed()
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Box<dyn simulation::Socket>>> {
        let address = address.to_owned();
        async move {
            let stream = TcpStream::connect(address).await?;
            Ok(Box::new(stream) as Box<dyn simulation::Socket>)
        }
        .boxed()
    }

    fn sync_time(&self) -> Duration {
        let mut state = self.hardware.state.lock();
        Duration::from_micros(match state.rng.below(20) {
            0 => state.rng.between(1_000, 20_000),
            _ => state.rng.between(50, 1_000),
        })
    }

    fn disk(&self) -> &dyn Disk {
        &self.disk
    }
}

struct Listening(TcpListener);

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listening")
    }
}

impl simulation::Listener for Listening {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn simulation::Socket>, SocketAddr)>> {
        async move {
            let (stream, from) = self.0.accept().await?;
            Ok((Box::new(stream) as Box<dyn simulation::Socket>, from))
        }
        .boxed()
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
