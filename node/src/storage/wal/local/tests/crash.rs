//! Death of the writer and of the sealer at every step, with and without loss of power.

use super::*;
use crate::storage::record::Frame;
use crate::storage::wal::tests::rig::{frame, object, seal};

/// Sizes so chosen that records fill files, fit exactly, and need a file of their own.
fn size(seq: u64) -> usize {
    [100, 3000, 700, 9000, 0, 1800][(seq % 6) as usize]
}

/// What a writer managed to do before it died.
struct Done {
    acked: u64,
    start: u64,
}

/// Writes, trims, goes on, until the disk says no.
async fn write_until_dead(wals: Arc<dyn WalStore>) -> Done {
    let s = session(1);
    let mut done = Done { acked: 0, start: 1 };
    let Ok(writer) = wals.create(&s).await else { return done };
    for seq in 1..=24 {
        if writer.put(seq, object(&s, seq, size(seq))).await.is_err() {
            break;
        }
        done.acked = seq;
        if seq % 8 == 0 {
            // As after a commit: the recorded start first, then the trim.
            done.start = seq - 2;
            if wals.trim(&s, done.start).await.is_err() {
                break;
            }
        }
    }
    done
}

fn check(what: &str, done: &Done, end: u64, frames: &[Vec<Frame>]) {
    assert!(done.acked < end, "{what}: {} was acknowledged, the WAL ends at {end}", done.acked);
    assert!(end <= done.acked + 2, "{what}");
    for (frames, seq) in frames.iter().zip(done.start..) {
        assert_eq!(frames, &[frame(seq, size(seq))], "{what}");
    }
}

/// A stream of numbers from a seed.
fn random(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 11
    }
}

async fn steps_of_a_whole_life() -> u64 {
    let bench = Bench::new();
    let (wals, faults) = bench.process();
    let done = write_until_dead(wals).await;
    assert_eq!(done.acked, 24);
    until_dead(&faults);
    faults.steps()
}

/// When the power fails, if it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    Stays,
    /// With the writer, and with the sealer if that dies, too.
    Fails(u64),
    /// Only after the first sealer has died or is done.
    FailsLater(u64),
}

/// Kills the writer at `step`, then a sealer at `sealer_step` if that is given, then seals for good.
async fn one_life(step: u64, sealer_step: Option<u64>, power: Power) {
    let what = format!("writer dies at {step}, sealer at {sealer_step:?}, power {power:?}");
    let bench = Bench::new();
    let (wals, faults) = bench.process();
    faults.stop_at(step);
    let done = write_until_dead(wals).await;
    until_dead(&faults);
    let seed = match power {
        Power::Stays => 0,
        Power::Fails(seed) | Power::FailsLater(seed) => seed,
    };
    let mut random = random(seed ^ step);
    if matches!(power, Power::Fails(_)) {
        bench.kernel.cut_power(&mut random);
    }
    let mut promised = None;
    if let Some(step) = sealer_step {
        let (wals, faults) = bench.process();
        faults.stop_at(step);
        promised = seal(&wals, &session(1), done.start, 1).await.ok();
        drop(wals);
        until_dead(&faults);
        if power != Power::Stays {
            bench.kernel.cut_power(&mut random);
        }
    }
    let (wals, _) = bench.process();
    let sealed = seal(&wals, &session(1), done.start, 2).await;
    let (end, objects) = sealed.unwrap_or_else(|e| panic!("{what}: {e}; files {:?}", bench.names()));
    let frames: Vec<_> = objects.iter().map(|o| o.frames.clone()).collect();
    check(&what, &done, end, &frames);
    if let Some(promised) = promised {
        assert_eq!(promised, (end, objects.clone()), "{what}: sealers disagree");
    }
    assert_eq!(seal(&wals, &session(1), done.start, 3).await.unwrap(), (end, objects), "{what}");
    wals.trim(&session(1), end).await.unwrap();
    assert_eq!(seal(&wals, &session(1), end, 4).await.unwrap(), (end, vec![]), "{what}");
    // The owner's mark may have gone with the power; nobody asks for it any more.
    let names = bench.names();
    assert_eq!(names.iter().filter(|n| *n != "owner").collect::<Vec<_>>(), ["end", "seal"], "{what}");
}

#[tokio::test]
async fn a_writer_that_dies_at_any_step_loses_nothing_acknowledged() {
    for step in 0..=steps_of_a_whole_life().await {
        one_life(step, None, Power::Stays).await;
    }
}

#[tokio::test]
async fn power_lost_at_any_step_loses_nothing_acknowledged() {
    let steps = steps_of_a_whole_life().await;
    for seed in 1..=2 {
        for step in 0..=steps {
            one_life(step, None, Power::Fails(seed * 1000)).await;
        }
    }
}

#[tokio::test]
async fn sealers_that_die_at_any_step_leave_the_same_answer() {
    let steps = steps_of_a_whole_life().await;
    for sealer_step in 0..36 {
        for step in (sealer_step % 19..=steps).step_by(19) {
            one_life(step, Some(sealer_step), Power::Stays).await;
            one_life(step, Some(sealer_step), Power::Fails(sealer_step * 1000)).await;
            one_life(step, Some(sealer_step), Power::FailsLater(sealer_step * 1000)).await;
        }
    }
}
