//! The simulated world: machines, network, bucket and clients in one thread, moved on step by step while a schedule
//! breaks and mends them.
//!
//! Invariant: everything that happens follows from the seed. A process that ends by itself is started again, as any
//! supervisor would; at the end all is mended, and what clients were promised is read back. Called by `run`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use turmoil::Sim;
use weir::config::RoutingMode;
use weir::metadata::codec;
use weir::metadata::state::State;
use weir::simulation;
use weir::witness::{self, Seen};
use weir_api::NodeId;
use weir_tests::rng::Rng;

use crate::bucket::{Bucket, Weather};
use crate::http::Client;
use crate::machine::{Hardware, Time};
use crate::ops::{Desk, Order};
use crate::place::{Place, Setup};
use crate::schedule::{Action, Habits, Schedule};
use crate::trace::{Disk, Fault, Host, Recorder, Trace, What};
use crate::workload::{Known, Worker};

/// A step of simulated time. In each the network looks at every link of every host: of many hosts that is most of a
/// run's cost.
const STEP: Duration = Duration::from_millis(2);
/// The same with many hosts.
const LONG_STEP: Duration = Duration::from_millis(10);
/// Machines with clients, and clients on each.
const CLIENTS: (usize, usize) = (2, 3);
/// The number of the client that looks at the end.
const JUDGE: usize = 99;
/// After all is mended, the cluster takes writes again within this time.
const ALIVE: Duration = Duration::from_secs(60);
/// And every name has a definite answer within this.
const READ_BACK: Duration = Duration::from_secs(60);

/// Up to so many streams, each state is hashed.
const HASHED: usize = 200;

type States = Rc<RefCell<BTreeMap<Host, (u64, State)>>>;

/// What a run came to.
pub struct Ran {
    /// All that happened.
    pub trace: Trace,
    /// What never came.
    pub stuck: Vec<String>,
}

/// See the module.
pub struct World {
    sim: Sim<'static>,
    time: Time,
    recorder: Recorder,
    bucket: Arc<Bucket>,
    known: Arc<Known>,
    desk: Arc<Desk>,
    places: Vec<Arc<Place>>,
    /// To be done, by when, and in the order of its making.
    agenda: BTreeMap<(u64, u64), Then>,
    made: u64,
    rng: Rng,
    schedule: Schedule,
    judged: Arc<Judged>,
    states: States,
    calm: bool,
    /// Tells the process's own clocks.
    tell: fn(u64),
}

/// What the judge, a client of its own, is to do and has found.
#[derive(Default)]
struct Judged {
    begin: tokio_util::sync::CancellationToken,
    alive: Mutex<Option<bool>>,
    read: tokio_util::sync::CancellationToken,
    silent: Mutex<Option<Vec<String>>>,
}

/// What is to be done later.
#[derive(Debug, Clone)]
enum Then {
    Do(Action),
    Start { place: usize, disk: Disk },
    GoOn { place: usize },
    Mend { a: String, b: String },
    Weather(Weather),
    Bucket { place: usize },
    Remove { place: usize },
    Order(Order),
}

impl World {
    /// Builds it, with all machines running.
    pub fn new(seed: u64, schedule: Schedule, tell: fn(u64)) -> Self {
        let mut rng = Rng::new(seed ^ 0x5157_2026);
        let time = Time::default();
        let clock = time.clone();
        let recorder = Recorder::new(seed, move || clock.us());
        let states = watch(&recorder, schedule.bulk > 0);
        let sim = turmoil::Builder::new()
            .rng_seed(seed)
            .tick_duration(if schedule.nodes > 10 { LONG_STEP } else { STEP })
            .epoch(std::time::SystemTime::UNIX_EPOCH)
            .simulation_duration(Duration::from_secs(3_600))
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(schedule.latency_ms))
            .tcp_capacity(4096)
            .enable_random_order()
            .build();
        let bucket = Bucket::new(&time, rng.fork(), &recorder);
        let known = Known::new(schedule.streams, schedule.bulk, &recorder);
        let mut this = Self {
            sim,
            time,
            recorder,
            bucket,
            known,
            desk: Arc::default(),
            places: Vec::new(),
            agenda: BTreeMap::new(),
            made: 0,
            rng,
            judged: Arc::default(),
            states,
            calm: false,
            schedule,
            tell,
        };
        for n in 0..this.schedule.nodes {
            this.add(n, n, &format!("n{n}"));
        }
        let each = if this.schedule.bulk > 0 { 250 } else { CLIENTS.1 };
        for c in 0..CLIENTS.0 {
            this.add_clients(c, each);
        }
        this.add_judge();
        this.add_desk();
        for (at, action) in this.schedule.actions.clone() {
            this.at(at * 1000, Then::Do(action));
        }
        this
    }

    fn at(&mut self, us: u64, then: Then) {
        self.made += 1;
        self.agenda.insert((us, self.made), then);
    }

    fn after(&mut self, ms: u64, then: Then) {
        let us = self.time.us() + ms * 1000;
        self.at(us, then);
    }

    /// A machine with a process of the node's. `like`: whose settings it has.
    fn add(&mut self, like: usize, node: usize, machine: &str) {
        let host = self.recorder.host(machine);
        let hardware = Hardware::new(machine, host, &self.time, self.rng.fork());
        let others = (0..self.schedule.nodes).filter(|n| *n != node || self.schedule.nodes == 1);
        let setup = Setup {
            node: format!("node-{node}"),
            machine: machine.to_owned(),
            join: if self.schedule.nodes == 1 && self.places.is_empty() {
                Vec::new()
            } else {
                others.map(|n| format!("n{n}")).collect()
            },
            founds: node == 0 && machine == "n0",
            size: self.schedule.nodes,
            voters: self.schedule.voters,
            slots: self.schedule.slots[like],
            bulk: self.schedule.bulk > 0,
            routing: if self.schedule.forwards[like] { RoutingMode::Forward } else { RoutingMode::Redirect },
        };
        let place = Place::new(hardware, setup.config(), &self.bucket, &self.recorder);
        self.places.push(place.clone());
        self.known.node(machine);
        self.desk.node(machine);
        self.recorder.record(What::Fault(Fault::Start { host, disk: Disk::Empty }));
        self.sim.host(machine, move || {
            let place = place.clone();
            async move {
                place.process().await;
                Ok(())
            }
        });
    }

    fn add_clients(&mut self, machine: usize, each: usize) {
        let workers: Vec<Worker> = (0..each).map(|n| self.worker(machine * each + n)).collect();
        self.sim.client(format!("c{machine}"), async move {
            futures::future::join_all(
                workers.into_iter().map(|mut worker| async move { worker.work().await }),
            )
            .await;
            Ok(())
        });
    }

    fn worker(&mut self, number: usize) -> Worker {
        Worker {
            number: u32::try_from(number).unwrap_or(u32::MAX),
            known: self.known.clone(),
            rng: self.rng.fork(),
            client: Client::default(),
            // The judge has time.
            habits: if number == JUDGE { Habits::USUAL } else { self.schedule.habits },
        }
    }

    fn add_desk(&mut self) {
        let (desk, rng, recorder) = (self.desk.clone(), self.rng.fork(), self.recorder.clone());
        self.sim.client("admin", async move {
            desk.work(rng, recorder).await;
            Ok(())
        });
    }

    fn add_judge(&mut self) {
        let (mut worker, judged) = (self.worker(JUDGE), self.judged.clone());
        self.sim.client("judge", async move {
            judged.begin.cancelled().await;
            let alive = worker.prove_alive(ALIVE).await;
            *judged.alive.lock() = Some(alive);
            judged.read.cancelled().await;
            let silent = worker.read_back(READ_BACK).await;
            *judged.silent.lock() = Some(silent);
            Ok(())
        });
    }

    /// Plays the schedule to its end, mends all, and reads everything back.
    pub fn run(mut self) -> Ran {
        let mut stuck = Vec::new();
        while self.time.us() < self.schedule.calm_ms * 1000 {
            self.step();
        }
        while !self.known.has_begun() {
            self.step();
        }
        self.mend_all();
        self.judged.begin.cancel();
        let alive = loop {
            self.step();
            if let Some(alive) = *self.judged.alive.lock() {
                break alive;
            }
        };
        if !alive {
            stuck.push(format!("no write was taken within {ALIVE:?} after all was mended"));
        }
        // Some more life, and then silence.
        let end = self.time.us() + 2_000_000;
        while self.time.us() < end {
            self.step();
        }
        self.known.end();
        self.desk.close();
        while !self.known.is_quiet() {
            self.step();
        }
        self.recorder.record(What::ReadBack);
        self.judged.read.cancel();
        let silent = loop {
            self.step();
            if let Some(silent) = self.judged.silent.lock().take() {
                break silent;
            }
        };
        stuck.extend(silent.into_iter().map(|s| format!("not read back within {READ_BACK:?}: {s}")));
        witness::watch(None);
        let running: Vec<Host> = self.places.iter().map(|p| p.hardware.host).collect();
        let states = self.states.borrow();
        let states = running.iter().filter_map(|h| states.get(h).map(|(i, s)| (*h, *i, s.clone()))).collect();
        let trace = self.recorder.finish(states, self.bucket.content());
        Ran { trace, stuck }
    }

    fn step(&mut self) {
        if let Err(e) = self.sim.step() {
            panic!("a part of the simulation has failed: {e}");
        }
        self.time.step(self.sim.elapsed());
        (self.tell)(self.time.us() * 1000);
        self.bucket.advance();
        self.places.iter().for_each(|place| place.hardware.catch_up());
        while let Some(entry) = self.agenda.first_entry().filter(|e| e.key().0 <= self.time.us()) {
            let then = entry.remove();
            self.then(then);
        }
        self.start_what_ended();
    }

    /// A process that ended by itself is started again after a while.
    fn start_what_ended(&mut self) {
        for place in 0..self.places.len() {
            let name = self.places[place].hardware.name.clone();
            let waits = |then: &Then| matches!(then, Then::Start { place: p, .. } if *p == place);
            let gone = name.starts_with('d') && self.calm;
            if !gone && !self.sim.is_host_running(&*name) && !self.agenda.values().any(waits) {
                let ms = self.rng.between(100, 1_500);
                self.after(ms, Then::Start { place, disk: Disk::Kept });
            }
        }
    }

    fn fault(&self, fault: Fault) {
        self.recorder.record(What::Fault(fault));
    }

    fn host(&self, place: usize) -> Host {
        self.places[place].hardware.host
    }

    fn name(&self, place: usize) -> String {
        self.places[place].hardware.name.clone()
    }

    fn then(&mut self, then: Then) {
        match then {
            Then::Do(action) => self.act(action),
            Then::Start { place, disk } => self.start(place, disk),
            Then::GoOn { place } => self.places[place].hardware.stand_still(false),
            Then::Mend { a, b } => self.mend(&a, &b),
            Then::Weather(weather) => self.bucket.weather(weather),
            Then::Order(order) => self.desk.order(order),
            Then::Bucket { place } => {
                self.bucket.reachable(self.host(place), true);
                self.fault(Fault::Bucket(self.host(place), true));
            }
            Then::Remove { place } => {
                self.crash(place, false);
                self.known.gone(&self.name(place));
                let starts = |then: &Then| matches!(then, Then::Start { place: p, .. } if *p == place);
                self.agenda.retain(|_, then| !starts(then));
                // Far away: it never comes back.
                self.at(u64::MAX, Then::Start { place, disk: Disk::Kept });
            }
        }
    }

    fn start(&mut self, place: usize, disk: Disk) {
        self.fault(Fault::Start { host: self.host(place), disk });
        let name = self.name(place);
        self.sim.bounce(&*name);
    }

    fn crash(&mut self, place: usize, power: bool) {
        self.fault(Fault::Crash(self.host(place)));
        let name = self.name(place);
        if power {
            // No last words: what a dropped socket says does not leave the machine.
            self.cut_all(place, true);
        }
        self.places[place].hardware.crash(power);
        self.sim.crash(&*name);
        if power {
            self.mend_place(place);
        }
    }

    fn crash_for(&mut self, place: usize, power: bool, down_ms: u64) {
        let starts = |then: &Then| matches!(then, Then::Start { place: p, .. } if *p == place);
        if self.agenda.values().any(starts) {
            return;
        }
        self.crash(place, power);
        self.after(down_ms, Then::Start { place, disk: Disk::Kept });
    }

    fn machines(&self) -> Vec<String> {
        let nodes = self.places.iter().map(|p| p.hardware.name.clone());
        nodes
            .chain((0..CLIENTS.0).map(|c| format!("c{c}")))
            .chain(["judge".to_owned(), "admin".to_owned()])
            .collect()
    }

    fn cut_all(&mut self, place: usize, clients: bool) {
        let me = self.name(place);
        for other in self.machines() {
            if other != me && (clients || !other.starts_with(['c', 'j', 'a'])) {
                self.sim.partition(&*me, &*other);
            }
        }
    }

    fn mend_place(&mut self, place: usize) {
        let me = self.name(place);
        for other in self.machines() {
            if other != me {
                self.sim.release(&*me, &*other);
            }
        }
    }

    fn mend(&mut self, a: &str, b: &str) {
        self.sim.release(a, b);
        let (a, b) = (self.recorder.host(a), self.recorder.host(b));
        self.fault(Fault::Mend(a, b));
        self.fault(Fault::Mend(b, a));
    }

    fn cut(&mut self, a: &str, b: &str, ms: u64) {
        self.sim.partition(a, b);
        let (from, to) = (self.recorder.host(a), self.recorder.host(b));
        self.fault(Fault::Cut(from, to));
        self.fault(Fault::Cut(to, from));
        self.after(ms, Then::Mend { a: a.to_owned(), b: b.to_owned() });
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Crash { node, power, down_ms } => self.crash_for(node, power, down_ms),
            Action::CrashAll { power, down_ms } => {
                for node in 0..self.places.len() {
                    let more = self.rng.below(400);
                    self.crash_for(node, power, down_ms + more);
                }
            }
            Action::CrashLeader { down_ms } => {
                // Whoever is furthest, as good a guess as any from outside.
                let furthest =
                    self.states.borrow().iter().max_by_key(|(_, (index, _))| *index).map(|(h, _)| *h);
                let place = self.places.iter().position(|p| Some(p.hardware.host) == furthest);
                self.crash_for(place.unwrap_or(0), false, down_ms);
            }
            Action::LoseDisk { node, down_ms } => {
                let starts = |then: &Then| matches!(then, Then::Start { place: p, .. } if *p == node);
                if self.agenda.values().any(starts) {
                    return;
                }
                self.crash(node, true);
                self.places[node].hardware.disk.replace();
                self.after(down_ms, Then::Start { place: node, disk: Disk::Empty });
            }
            Action::Stop { node } => {
                self.fault(Fault::Other(format!("{} is asked to stop", self.name(node))));
                self.places[node].stop();
            }
            Action::Pause { node, ms } => {
                self.fault(Fault::Pause(self.host(node), ms));
                self.places[node].hardware.stand_still(true);
                self.after(ms, Then::GoOn { place: node });
            }
            Action::Isolate { node, clients, ms } => {
                let me = self.name(node);
                for other in self.machines() {
                    if other != me && (clients || !other.starts_with(['c', 'j', 'a'])) {
                        self.cut(&me, &other, ms);
                    }
                }
            }
            Action::CutOneWay { from, to, ms } => {
                let (a, b) = (self.name(from), self.name(to));
                self.sim.partition_oneway(&*a, &*b);
                self.fault(Fault::Cut(self.host(from), self.host(to)));
                self.after(ms, Then::Mend { a, b });
            }
            Action::Stall { a, b, ms } => {
                let (a, b) = (self.name(a), self.name(b));
                self.fault(Fault::Other(format!("messages between {a} and {b} wait for {ms} ms")));
                self.sim.hold(&*a, &*b);
                self.after(ms, Then::Mend { a, b });
            }
            Action::Split { at, ms } => {
                for a in 0..at {
                    for b in at..self.schedule.nodes {
                        let (a, b) = (self.name(a), self.name(b));
                        self.cut(&a, &b, ms);
                    }
                }
            }
            Action::Weather { weather, ms } => {
                self.fault(Fault::Other(format!("the bucket: {weather:?} for {ms} ms")));
                self.bucket.weather(weather);
                self.after(ms, Then::Weather(Weather::CALM));
            }
            Action::NoBucket { node, ms } => {
                self.fault(Fault::Bucket(self.host(node), false));
                self.bucket.reachable(self.host(node), false);
                self.after(ms, Then::Bucket { place: node });
            }
            Action::Clock { node, by_ms } => {
                self.fault(Fault::Clock(self.host(node), by_ms));
                self.places[node].hardware.shift_wall_ms(by_ms);
            }
            Action::Double { of, ms } => {
                let machine = format!("d{}", self.places.len());
                let place = self.places.len();
                self.add(of, of, &machine);
                self.fault(Fault::Double { host: self.host(place), of: self.host(of) });
                self.after(ms, Then::Remove { place });
            }
            Action::Drain { node, ms } => {
                let target = format!("/admin/nodes/node-{node}/drain");
                self.order(Method::POST, &target, String::new(), 5);
                // Nobody stays drained: it is cancelled when all is mended at the latest.
                let cancel = Order { method: Method::DELETE, target, body: String::new(), tries: 20 };
                self.after(ms, Then::Order(cancel));
            }
            Action::Transfer { to } => {
                let Some(stream) = self.known.some_stream(&mut self.rng) else { return };
                let body = format!(r#"{{"stream":"{stream}","toNode":"node-{to}"}}"#);
                self.order(Method::POST, "/admin/transfer", body.clone(), 2);
                if self.rng.one_in(5) {
                    self.order(Method::DELETE, "/admin/transfer", body, 1);
                }
            }
            Action::Fence { node } => {
                let id: NodeId = format!("node-{node}").parse().expect("it is a good id");
                let newest = self.states.borrow().values().max_by_key(|(index, _)| *index).cloned();
                let Some(epoch) = newest.and_then(|(_, s)| s.nodes.get(&id).map(|n| n.epoch)) else { return };
                let body = format!(r#"{{"epoch":{}}}"#, epoch.0);
                self.order(Method::POST, &format!("/admin/nodes/{id}/fence"), body, 3);
            }
            Action::Slots { node, slots } => {
                let body = format!(r#"{{"slots":{slots}}}"#);
                self.order(Method::POST, &format!("/admin/nodes/node-{node}"), body, 3);
                if slots == 0 {
                    let method = Method::POST;
                    let (target, body) = (format!("/admin/nodes/node-{node}"), r#"{"slots":1}"#.to_owned());
                    self.after(4_000, Then::Order(Order { method, target, body, tries: 20 }));
                }
            }
            Action::Leave { node, down_ms } => {
                let starts = |then: &Then| matches!(then, Then::Start { place: p, .. } if *p == node);
                if self.agenda.values().any(starts) {
                    return;
                }
                self.fault(Fault::Other(format!("{} leaves", self.name(node))));
                self.places[node].stop();
                let down_ms = 7_000 + down_ms;
                self.after(down_ms, Then::Start { place: node, disk: Disk::Kept });
                let (method, target) = (Method::DELETE, format!("/admin/nodes/node-{node}"));
                self.after(6_500, Then::Order(Order { method, target, body: String::new(), tries: 3 }));
            }
            Action::Join => {
                let node = self.schedule.nodes + 1;
                let machine = format!("n{node}");
                self.add(node, node, &machine);
            }
        }
    }

    fn order(&self, method: Method, target: &str, body: String, tries: u32) {
        self.desk.order(Order { method, target: target.to_owned(), body, tries });
    }

    fn mend_all(&mut self) {
        self.calm = true;
        let due: Vec<Then> = std::mem::take(&mut self.agenda).into_values().collect();
        let machines = self.machines();
        for (i, a) in machines.iter().enumerate() {
            for b in &machines[i + 1..] {
                self.sim.release(&**a, &**b);
            }
        }
        self.bucket.weather(Weather::CALM);
        for place in 0..self.places.len() {
            self.bucket.reachable(self.host(place), true);
            self.places[place].hardware.stand_still(false);
        }
        for then in due {
            match then {
                Then::Start { place, disk } if !self.name(place).starts_with('d') => self.start(place, disk),
                then @ (Then::Remove { .. } | Then::Order(_)) => self.then(then),
                _ => {}
            }
        }
        self.recorder.record(What::Calm);
    }
}

/// Writes down what happens inside of nodes, and remembers each machine's newest state. In bulk only the latter: fifty
/// nodes apply each entry, and what each says of it is most of the memory.
fn watch(recorder: &Recorder, bulk: bool) -> States {
    let states = States::default();
    let (newest, recorder) = (states.clone(), recorder.clone());
    witness::watch(Some(Rc::new(move |seen: Seen<'_>| {
        let Some(machine) = simulation::machine() else { return };
        let host = Host(machine.number());
        match seen {
            Seen::Applied { index, state, .. } | Seen::Installed { index, state } => {
                newest.borrow_mut().insert(host, (index, state.clone()));
            }
            Seen::Acknowledged { .. } => {}
        }
        if bulk {
            return;
        }
        // A hash costs as much as the state is large.
        recorder.see(host, seen, |state| (state.streams.len() <= HASHED).then(|| codec::state_hash(state)));
    })));
    states
}
