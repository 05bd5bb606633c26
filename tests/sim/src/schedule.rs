//! What is broken in a run, and when: drawn from the seed before the run begins.
//!
//! Invariant: a schedule breaks only what the design says a cluster survives: the bucket stays, and of the voters'
//! disks a majority does. What is broken for a time is mended after it, and all is at the end. Played by `world`.

use weir_tests::rng::Rng;

use crate::bucket::Weather;

/// What happens to the cluster. Nodes are named by their places, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The process dies, or the machine loses its power; another starts after so long.
    Crash { node: usize, power: bool, down_ms: u64 },
    /// All at once.
    CrashAll { power: bool, down_ms: u64 },
    /// Whoever leads the metadata log dies.
    CrashLeader { down_ms: u64 },
    /// The data directory is gone with the process; the next joins anew.
    LoseDisk { node: usize, down_ms: u64 },
    /// SIGTERM; another starts once it has ended.
    Stop { node: usize },
    /// It stands still.
    Pause { node: usize, ms: u64 },
    /// Nothing passes between it and all other machines, clients' too if `clients`.
    Isolate { node: usize, clients: bool, ms: u64 },
    /// Nothing passes from the first to the second.
    CutOneWay { from: usize, to: usize, ms: u64 },
    /// Messages between the two wait.
    Stall { a: usize, b: usize, ms: u64 },
    /// The nodes below `at` and the others do not hear each other.
    Split { at: usize, ms: u64 },
    /// The bucket behaves so.
    Weather { weather: Weather, ms: u64 },
    /// The bucket does not hear the node.
    NoBucket { node: usize, ms: u64 },
    /// The wall clock jumps.
    Clock { node: usize, by_ms: i64 },
    /// A second process claims the node's id, on another machine with an empty disk, for so long.
    Double { of: usize, ms: u64 },
    /// One more node joins.
    Join,
    /// An administrator drains a node, and cancels that after a while.
    Drain { node: usize, ms: u64 },
    /// An administrator moves some stream.
    Transfer { to: usize },
    /// An administrator fences a node.
    Fence { node: usize },
    /// An administrator changes a node's slots.
    Slots { node: usize, slots: u32 },
    /// A node is asked to stop, and removed once it has ended. What starts there later is a new one.
    Leave { node: usize, down_ms: u64 },
}

/// A run.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Nodes at the beginning.
    pub nodes: usize,
    /// Of them that vote.
    pub voters: u32,
    /// Stream names.
    pub streams: usize,
    /// Streams that are created once, appended to once and read back, and nothing else.
    pub bulk: usize,
    /// How clients go about it.
    pub habits: Habits,
    /// A message takes at most so long.
    pub latency_ms: u64,
    /// Which nodes forward.
    pub forwards: Vec<bool>,
    /// Their slots.
    pub slots: Vec<u32>,
    /// When what happens, in milliseconds.
    pub actions: Vec<(u64, Action)>,
    /// When all is mended.
    pub calm_ms: u64,
}

/// How clients go about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Habits {
    /// For so long a client waits for an answer; then it tries again elsewhere.
    pub patience_ms: u64,
    /// What was done at one node is often looked at through another at once.
    pub nosy: bool,
}

impl Habits {
    /// Nothing special.
    pub const USUAL: Self = Self { patience_ms: 8_000, nosy: false };
    /// Those that notice most of a node that says more than it knows.
    const NOSY: Self = Self { patience_ms: 700, nosy: true };
}

/// A schedule made by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// Nodes that redirect and, in turns, two of them that hear nothing of the log while streams move.
    StaleViews,
    /// So many nodes, and so many streams that are created and appended to once.
    Many(usize, usize),
    /// Nodes that are fenced while clients still reach them, over a bucket that is slow to say what became of a put.
    Zombies,
    /// Nodes that clients reach and that reach nobody: neither bucket nor log, or only one of them; and then they die.
    Islands,
    /// Nodes that stand still for longer than it takes to fence them, and then are islands.
    Sleepers,
}

impl Scenario {
    /// By its name: `stale-views`, `zombies`, `islands`, `sleepers`, or `many:NODES:STREAMS`.
    pub fn named(name: &str) -> Option<Self> {
        let mut parts = name.split(':');
        match (parts.next()?, parts.next(), parts.next()) {
            ("stale-views", None, None) => Some(Self::StaleViews),
            ("zombies", None, None) => Some(Self::Zombies),
            ("islands", None, None) => Some(Self::Islands),
            ("sleepers", None, None) => Some(Self::Sleepers),
            ("many", Some(nodes), Some(streams)) => {
                Some(Self::Many(nodes.parse().ok()?, streams.parse().ok()?))
            }
            _ => None,
        }
    }

    /// What is broken in it.
    pub fn schedule(self, rng: &mut Rng) -> Schedule {
        match self {
            Self::StaleViews => stale_views(rng),
            Self::Zombies => zombies(rng),
            Self::Islands => islands(rng),
            Self::Sleepers => sleepers(rng),
            Self::Many(nodes, bulk) => Schedule {
                nodes,
                voters: 3,
                streams: 0,
                bulk,
                habits: Habits::USUAL,
                latency_ms: LATENCY_MS,
                forwards: vec![false; nodes + 2],
                slots: vec![1; nodes + 2],
                actions: Vec::new(),
                calm_ms: FORMED_MS,
            },
        }
    }
}

/// The nodes 1 and 2 are cut off from the log by turns, for less than it takes to fence them, and clients go on asking
/// them; streams are moved all the time, so that views that lag name owners that are none any more.
fn stale_views(rng: &mut Rng) -> Schedule {
    let calm_ms = 20_000;
    let mut actions = Vec::new();
    let mut at = FORMED_MS;
    while at < calm_ms {
        let node = 1 + rng.index(2);
        let ms = rng.between(300, 2_400);
        actions.push((at, Action::Isolate { node, clients: false, ms }));
        for _ in 0..rng.between(2, 5) {
            let when = at + rng.below(ms);
            actions.push((when, Action::Transfer { to: rng.index(3) }));
        }
        if rng.one_in(4) {
            actions.push((at + ms / 2, Action::Crash { node: 3 - node, power: false, down_ms: 50 }));
        }
        at += ms + rng.between(50, 700);
    }
    actions.sort_by_key(|(at, _)| *at);
    let (forwards, slots) = (vec![false; 5], vec![1; 5]);
    let habits = Habits { nosy: true, ..Habits::USUAL };
    Schedule {
        nodes: 3,
        voters: 3,
        streams: 10,
        bulk: 0,
        habits,
        latency_ms: LATENCY_MS,
        forwards,
        slots,
        actions,
        calm_ms,
    }
}

/// One node at a time is cut off from all but clients and bucket, or stands still, for longer than it takes to fence it;
/// or it is fenced as it works. Puts are lost and late meanwhile.
fn zombies(rng: &mut Rng) -> Schedule {
    let calm_ms = 24_000;
    let mut actions = Vec::new();
    let mut at = FORMED_MS;
    while at < calm_ms {
        let node = rng.index(3);
        let mut share = |most: u64| if rng.one_in(2) { 0 } else { rng.below(most) };
        let weather = Weather { lost: share(300), late: share(200), slow: share(100), ..Weather::CALM };
        let ms = match rng.below(8) {
            0..3 => {
                let ms = rng.between(2_500, 6_000);
                actions.push((at, Action::Isolate { node, clients: false, ms }));
                ms
            }
            3 => {
                let ms = rng.between(3_200, 5_000);
                actions.push((at, Action::Pause { node, ms }));
                ms
            }
            4 | 5 => {
                actions.push((at, Action::Fence { node }));
                1_500
            }
            6 => {
                actions.push((at, Action::Crash { node, power: rng.one_in(2), down_ms: 100 }));
                500
            }
            _ => {
                actions.push((at, Action::Transfer { to: node }));
                300
            }
        };
        actions.push((at, Action::Weather { weather, ms }));
        at += ms + rng.between(100, 1_200);
    }
    let (forwards, slots) = (vec![false; 5], vec![1; 5]);
    let habits = Habits::USUAL;
    Schedule {
        nodes: 3,
        voters: 3,
        streams: 8,
        bulk: 0,
        habits,
        latency_ms: LATENCY_MS,
        forwards,
        slots,
        actions,
        calm_ms,
    }
}

/// One node at a time is an island for clients: what they do there never leaves it.
fn islands(rng: &mut Rng) -> Schedule {
    let calm_ms = 26_000;
    let mut actions = Vec::new();
    let mut at = FORMED_MS;
    while at < calm_ms {
        let node = rng.index(3);
        let ms = match rng.below(4) {
            // Its session lives, and nothing of what it takes is stored.
            0 => {
                let ms = rng.between(1_500, 4_000);
                actions.push((at, Action::NoBucket { node, ms }));
                ms
            }
            // Its session ends, and nobody tells it.
            1 => {
                let ms = rng.between(4_500, 7_000);
                actions.push((at, Action::NoBucket { node, ms }));
                actions.push((at, Action::Isolate { node, clients: false, ms }));
                ms
            }
            // It is fenced at once, and does not hear of it: until its lease is over it may say how things are.
            2 => {
                let ms = rng.between(1_800, 3_000);
                actions.push((at, Action::NoBucket { node, ms }));
                actions.push((at, Action::Isolate { node, clients: false, ms }));
                actions.push((at + rng.between(50, 400), Action::Fence { node }));
                ms
            }
            // It is told, and does not know what became of what it had sent.
            _ => {
                let weather = Weather { silent: rng.between(300, 800), ..Weather::CALM };
                actions.push((at, Action::Weather { weather, ms: 600 }));
                actions.push((at + rng.between(50, 500), Action::Fence { node }));
                1_500
            }
        };
        // What it has in flight dies with it.
        if rng.one_in(2) {
            actions.push((at + ms - 20, Action::Crash { node, power: true, down_ms: 300 }));
        }
        at += ms + rng.between(300, 1_500);
    }
    actions.sort_by_key(|(at, _)| *at);
    let (forwards, slots) = (vec![false; 5], vec![1; 5]);
    let habits = Habits::NOSY;
    Schedule {
        nodes: 3,
        voters: 3,
        streams: 8,
        bulk: 0,
        habits,
        latency_ms: LATENCY_MS,
        forwards,
        slots,
        actions,
        calm_ms,
    }
}

/// Nodes sleep, and wake up where nobody but clients hears them, once others have their streams.
fn sleepers(rng: &mut Rng) -> Schedule {
    let calm_ms = 30_000;
    let mut actions = Vec::new();
    let mut at = FORMED_MS;
    while at < calm_ms {
        let node = rng.index(3);
        let still = rng.between(3_500, 4_300);
        // By then what it was asked and told last has arrived.
        let cut = rng.between(150, 400);
        let ms = still + rng.between(700, 1_600);
        actions.push((at, Action::Pause { node, ms: still }));
        actions.push((at + cut, Action::NoBucket { node, ms: ms - cut }));
        actions.push((at + cut, Action::Isolate { node, clients: false, ms: ms - cut }));
        at += ms + rng.between(1_000, 2_000);
    }
    let (forwards, slots, habits) = (vec![false; 5], vec![1; 5], Habits::NOSY);
    // Much is on its way when one falls asleep.
    let latency_ms = 40;
    Schedule {
        nodes: 3,
        voters: 3,
        streams: 8,
        bulk: 0,
        habits,
        latency_ms,
        forwards,
        slots,
        actions,
        calm_ms,
    }
}

/// A message takes at most so long, if nothing else is said.
const LATENCY_MS: u64 = 12;
/// Until here the cluster forms undisturbed.
const FORMED_MS: u64 = 3_000;

impl Schedule {
    /// By chance.
    pub fn draw(rng: &mut Rng) -> Self {
        let nodes = match rng.below(10) {
            0 => 1,
            1..7 => 3,
            7 | 8 => 4,
            _ => 5,
        };
        let voters = match (nodes, rng.below(6)) {
            (1, _) | (_, 0) => 1,
            (5, 1..4) => 5,
            _ => 3,
        };
        let calm_ms = rng.between(15_000, 26_000);
        let mut schedule = Self {
            nodes,
            voters,
            streams: usize::try_from(rng.between(4, 10)).unwrap_or(4),
            bulk: 0,
            habits: Habits::USUAL,
            latency_ms: LATENCY_MS,
            forwards: (0..nodes + 2).map(|_| rng.one_in(2)).collect(),
            slots: (0..nodes + 2).map(|_| u32::try_from(rng.between(1, 3)).unwrap_or(1)).collect(),
            actions: Vec::new(),
            calm_ms,
        };
        // Some runs have one kind of trouble, others all of them.
        let kinds: Vec<u64> = match rng.below(4) {
            0 => vec![rng.below(KINDS), rng.below(KINDS)],
            1 => (0..4).map(|_| rng.below(KINDS)).collect(),
            _ => (0..KINDS).collect(),
        };
        // Now and then the cluster is disturbed while it forms, when one voter holds all there is.
        let early = rng.one_in(5);
        let mut at = if early { rng.below(500) } else { FORMED_MS + rng.below(1_500) };
        let mut spared = Spared { disks: voters == 1 || early, members: early, joined: false };
        while at < calm_ms {
            let kind = kinds[rng.index(kinds.len())];
            if let Some(action) = schedule.action(kind, rng)
                && spared.allows(&action)
            {
                schedule.actions.push((at, action));
            }
            at += match rng.below(5) {
                0 => rng.between(10, 300),
                _ => rng.between(300, 3_000),
            };
        }
        schedule
    }

    fn action(&self, kind: u64, rng: &mut Rng) -> Option<Action> {
        let node = rng.index(self.nodes);
        let several = self.nodes > 1;
        let other = (node + 1 + rng.index(self.nodes.saturating_sub(1).max(1))) % self.nodes;
        let down_ms = match rng.below(4) {
            0 => rng.between(4_000, 9_000),
            _ => rng.between(20, 2_500),
        };
        let ms = match rng.below(4) {
            0 => rng.between(3_000, 8_000),
            _ => rng.between(50, 3_000),
        };
        let power = rng.one_in(2);
        Some(match kind {
            0 => Action::Crash { node, power, down_ms },
            1 => Action::CrashLeader { down_ms },
            2 if rng.one_in(3) => Action::CrashAll { power, down_ms },
            2 if several => Action::LoseDisk { node, down_ms },
            3 => Action::Stop { node },
            4 => Action::Pause { node, ms },
            5 if several => Action::Isolate { node, clients: rng.one_in(2), ms },
            6 if several => Action::CutOneWay { from: node, to: other, ms },
            7 if several => Action::Stall { a: node, b: other, ms },
            8 if several => Action::Split { at: 1 + rng.index(self.nodes - 1), ms },
            9 => Action::Weather { weather: weather(rng), ms: ms * 2 },
            10 => Action::NoBucket { node, ms },
            11 => {
                let by_ms = [-3_600_000, -5_000, -50, 50, 5_000, 3_600_000][rng.index(6)];
                Action::Clock { node, by_ms }
            }
            12 => Action::Double { of: node, ms },
            13 if several => Action::Join,
            14 if several => Action::Drain { node, ms: ms * 2 },
            15 | 16 => Action::Transfer { to: node },
            17 => Action::Fence { node },
            18 => Action::Slots { node, slots: u32::try_from(rng.below(4)).unwrap_or(0) },
            19 if several => Action::Leave { node, down_ms },
            _ => return None,
        })
    }
}

/// What must not be broken any more, because something else was.
struct Spared {
    /// One disk is lost at most: no log survives the loss of most of its voters' disks.
    disks: bool,
    /// While nodes leave there are few voters, perhaps one, and then its disk counts for all.
    members: bool,
    joined: bool,
}

impl Spared {
    fn allows(&mut self, action: &Action) -> bool {
        match action {
            // The second process of an id takes the first one's vote with it when it goes.
            Action::LoseDisk { .. } | Action::Double { .. } => {
                self.members = true;
                !std::mem::replace(&mut self.disks, true)
            }
            Action::Leave { .. } => {
                if !self.members {
                    self.disks = true;
                }
                !self.members
            }
            Action::Join => !std::mem::replace(&mut self.joined, true),
            _ => true,
        }
    }
}

const KINDS: u64 = 20;

fn weather(rng: &mut Rng) -> Weather {
    let mut share = |most: u64| if rng.one_in(2) { 0 } else { rng.below(most) };
    Weather {
        slow: share(200),
        lost: share(200),
        silent: share(40),
        late: share(150),
        ambiguous: share(200),
        doubled: share(200),
        conflict: share(100),
    }
}
