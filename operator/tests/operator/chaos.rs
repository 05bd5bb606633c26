//! Random faults in any order, and then peace: nothing forbidden happens on the way (`world` and `nodes` look), and in
//! the end the cluster is as wanted and nothing is written any more.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::json;

use crate::api::Fault;
use crate::fixtures::minimal;
use crate::world::{STEP_MS, World};

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Steps(usize),
    Kill(u32),
    LosePod(u32),
    LoseVolume(u32),
    LoseHost(usize),
    CutHost(usize),
    HostReturns(usize),
    Cordon(usize, bool),
    StoreDown(bool),
    Replicas(u32),
    Slots(u32, u32),
    BehindTheBack(u32, u64),
    Image(bool),
    Restart(u32),
    Drain(u32, bool),
    Hang(u32, bool),
    ApiFaults(Option<u32>),
    Unreliable(u32),
    OperatorDies(i64),
    TwoOperators,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1usize..25).prop_map(Event::Steps),
        2 => (0u32..5).prop_map(Event::Kill),
        2 => (0u32..5).prop_map(Event::LosePod),
        2 => (0u32..5).prop_map(Event::LoseVolume),
        1 => (0usize..4).prop_map(Event::LoseHost),
        1 => (0usize..4).prop_map(Event::CutHost),
        2 => (0usize..4).prop_map(Event::HostReturns),
        1 => ((0usize..4), any::<bool>()).prop_map(|(h, on)| Event::Cordon(h, on)),
        1 => any::<bool>().prop_map(Event::StoreDown),
        3 => (1u32..6).prop_map(Event::Replicas),
        1 => ((0u32..5), (0u32..5)).prop_map(|(n, s)| Event::Slots(n, s)),
        1 => ((0u32..5), (0u64..5)).prop_map(|(n, s)| Event::BehindTheBack(n, s)),
        2 => any::<bool>().prop_map(Event::Image),
        2 => any::<u32>().prop_map(Event::Restart),
        1 => ((0u32..5), any::<bool>()).prop_map(|(n, on)| Event::Drain(n, on)),
        1 => ((0u32..5), any::<bool>()).prop_map(|(n, on)| Event::Hang(n, on)),
        1 => proptest::option::of(2u32..6).prop_map(Event::ApiFaults),
        1 => prop_oneof![Just(0u32), 2u32..6].prop_map(Event::Unreliable),
        3 => (0i64..6).prop_map(Event::OperatorDies),
        2 => Just(Event::TwoOperators),
    ]
}

/// Whether a volume may be lost now: a majority of voters must survive what is lost for good.
fn can_spare(world: &World, ordinal: u32) -> bool {
    let nodes = world.nodes.lock();
    let node = format!("demo-{ordinal}");
    let Some(process) = nodes.processes.values().find(|p| p.node == node) else { return false };
    // A process on a lost host goes on without its volume, for a while.
    let claims = world.api.store.lock().all("persistentvolumeclaims");
    let keeps = |id: &&u64| {
        let dir = nodes.members[*id].dir.as_str();
        dir != process.dir && claims.iter().any(|(_, c)| c["metadata"]["uid"] == dir)
    };
    let voters = nodes.voters();
    if voters.iter().filter(keeps).count() * 2 <= voters.len() {
        return false;
    }
    let settled = nodes.members.len() == nodes.records.len() && nodes.voters().len() >= 3;
    let up = nodes.records.keys().all(|n| nodes.serves(n));
    settled && up && nodes.has_quorum() && nodes.quorum_without(&process.pod_uid)
}

fn host(n: usize) -> String {
    format!("host-{n}")
}

async fn happen(world: &mut World, event: &Event) {
    match event {
        Event::Steps(n) => world.steps(*n).await,
        Event::Kill(n) => world.kill(*n),
        Event::LosePod(n) => world.lose_pod(*n),
        Event::LoseVolume(n) if can_spare(world, *n) => world.lose_volume(*n),
        Event::LoseVolume(_) => {}
        // One host at a time: the nodes' volumes are there for good, so two would take the majority.
        Event::LoseHost(n) if world.down.is_empty() => world.lose_host(&host(*n)),
        Event::LoseHost(_) => {}
        Event::CutHost(n) if world.down.contains_key(&host(*n)) => world.cut(&host(*n)),
        Event::CutHost(_) => {}
        Event::HostReturns(n) => world.host_returns(&host(*n)),
        Event::Cordon(n, on) => {
            world.api.store.lock().edit("nodes", &host(*n), |h| h["spec"]["unschedulable"] = json!(on));
        }
        Event::StoreDown(down) => world.nodes.lock().store_down = *down,
        Event::Replicas(n) => world.edit(|c| c["spec"]["replicas"] = json!(n)),
        Event::Slots(n, slots) => {
            world.edit(|c| c["spec"]["nodes"] = json!([{"ordinal": n, "slots": slots}]))
        }
        Event::BehindTheBack(n, slots) => {
            if let Some(r) = world.nodes.lock().records.get_mut(&format!("demo-{n}")) {
                r.slots = *slots;
            }
        }
        Event::Image(good) => {
            let image = if *good { "weir:good" } else { "weir:bad" };
            world.edit(|c| c["spec"]["image"] = json!(image));
        }
        Event::Restart(n) => {
            world.edit(|c| c["metadata"]["annotations"]["weir.dev/restarted-at"] = json!(n.to_string()));
        }
        Event::Drain(n, on) => world.edit(|c| c["spec"]["nodes"] = json!([{"ordinal": n, "drain": on}])),
        Event::Hang(n, on) => {
            for p in world.nodes.lock().processes.values_mut().filter(|p| p.node == format!("demo-{n}")) {
                p.hangs = *on;
            }
        }
        Event::ApiFaults(None) => world.api.store.lock().fault = None,
        Event::ApiFaults(Some(every)) => {
            let (every, mut n) = (*every, 0u32);
            world.api.store.lock().fault = Some(Box::new(move |_, _| {
                n += 1;
                let kinds = [
                    Fault::Conflict,
                    Fault::Internal,
                    Fault::LostReply,
                    Fault::Gone,
                    Fault::TooMany,
                    Fault::Hang,
                ];
                (n % every == 0).then(|| kinds[n as usize % kinds.len()])
            }));
        }
        Event::Unreliable(every) => world.nodes.lock().unreliable = *every,
        Event::OperatorDies(after) => {
            world.tick(STEP_MS);
            let context = world.another_operator();
            let _outcome = world.pass_by(&context, Some(*after)).await;
            world.context = context;
        }
        Event::TwoOperators => {
            world.tick(STEP_MS);
            let (a, b) = (world.context.clone(), world.another_operator());
            let (_a, _b) = tokio::join!(world.pass_by(&a, None), world.pass_by(&b, None));
        }
    }
    world.check();
}

pub(crate) async fn story(events: Vec<Event>) {
    let mut world = World::new(&minimal(), 4);
    world.until("ready", World::is_ready).await;
    world.give_streams(50);
    for event in &events {
        happen(&mut world, event).await;
    }
    // Peace.
    for n in 0..4 {
        world.host_returns(&host(n));
        world.api.store.lock().edit("nodes", &host(n), |h| h["spec"]["unschedulable"] = json!(false));
    }
    world.nodes.lock().store_down = false;
    world.nodes.lock().unreliable = 0;
    world.nodes.lock().processes.values_mut().for_each(|p| p.hangs = false);
    world.api.store.lock().fault = None;
    world.edit(|c| {
        c["spec"]["image"] = json!("weir:good");
        c["spec"]["nodes"] = json!([]);
    });
    world.at_rest().await;
    let replicas = world.value()["spec"]["replicas"].as_u64().unwrap_or(3);
    assert_eq!(world.pod_uids().len() as u64, replicas);
    // A member that came and never registered is let go after ten minutes of silence.
    world.until("no member but nodes", |w| w.nodes.lock().members.len() as u64 == replicas).await;
    let nodes = world.nodes.lock();
    assert_eq!((nodes.records.len() as u64, nodes.members.len() as u64), (replicas, replicas));
    assert_eq!(nodes.foundings, 1);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_happens_nothing_forbidden_is_done_and_peace_brings_rest(events in proptest::collection::vec(event(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(story(events));
    }
}

/// In the gate the same stories each time, as many as take half a minute; `CHAOS_CASES` other ones. What those find
/// becomes a test in `found`.
#[allow(clippy::disallowed_methods, reason = "a test's switch")]
fn config() -> ProptestConfig {
    let wanted: Option<u32> = std::env::var("CHAOS_CASES").ok().and_then(|n| n.parse().ok());
    ProptestConfig {
        cases: wanted.unwrap_or(64),
        rng_seed: if wanted.is_some() { RngSeed::Random } else { RngSeed::Fixed(6) },
        max_shrink_iters: 200,
        max_shrink_time: 120_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
