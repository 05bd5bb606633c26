//! Elections in trouble: calls that hang, answers that are lost, terms that differ. Never two that lead at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use weir_operator::lease::{Election, Terms};

use crate::api::{Api, Fault};

/// What an operator's calls come to once it is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// They reach nobody.
    Lost,
    /// They are carried out, and nobody hears of it.
    Unheard,
}

fn terms(who: &str, seconds: u64) -> Terms {
    Terms {
        namespace: "streams".to_owned(),
        name: "weir-operator".to_owned(),
        identity: who.to_owned(),
        duration: Duration::from_secs(seconds),
    }
}

/// One whose calls hang from when the flag is set.
fn cut_off(api: &Api, who: &str, seconds: u64, how: Cut) -> (Election, Arc<AtomicBool>) {
    let (inner, off) = (api.client(), Arc::new(AtomicBool::new(false)));
    let flag = off.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, flag) = (inner.clone(), flag.clone());
        async move {
            let off = flag.load(Ordering::Relaxed);
            if off && how == Cut::Lost {
                std::future::pending::<()>().await;
            }
            let answer = inner.send(request).await.map_err(std::io::Error::other);
            if off {
                std::future::pending::<()>().await;
            }
            answer
        }
    });
    (Election::new(Client::new(service, "streams"), terms(who, seconds)), off)
}

/// How long after a gave up, being cut off, b led.
async fn handed_over(a_term: u64, b_term: u64, how: Cut, after: Duration, b_later: Duration) -> Duration {
    let api = Api::new();
    let (a, off) = cut_off(&api, "a", a_term, how);
    let b = Election::new(api.client(), terms("b", b_term));
    let go_on = CancellationToken::new();
    let since = a.won(&go_on).await.unwrap();
    let holding = async {
        let why = a.hold(since).await;
        assert!(why.contains("could not be renewed"), "{why}");
        Instant::now()
    };
    let standing_by = async {
        sleep(b_later).await;
        assert!(b.won(&go_on).await.is_some());
        Instant::now()
    };
    let cutting = async {
        sleep(after).await;
        off.store(true, Ordering::Relaxed);
    };
    let (lost, won, ()) = tokio::join!(holding, standing_by, cutting);
    let case = format!("terms of {a_term} s and {b_term} s, {how:?} after {after:?}, b {b_later:?} later");
    assert!(lost < won, "{case}: a led for {:?} beside b", lost - won);
    won - lost
}

#[tokio::test(start_paused = true)]
async fn who_hears_nothing_has_given_up_before_another_leads() {
    for how in [Cut::Lost, Cut::Unheard] {
        for after in (0..20).map(|n| Duration::from_millis(n * 700)) {
            for b_later in (0..6).map(|n| Duration::from_millis(n * 500 + 1)) {
                handed_over(15, 15, how, after, b_later).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_term_that_is_changed_in_a_rolling_update_makes_no_second_leader() {
    for (old, new) in [(300, 15), (15, 300), (60, 5)] {
        for how in [Cut::Lost, Cut::Unheard] {
            for after in (0..8).map(|n| Duration::from_secs(n * 20)) {
                handed_over(old, new, how, after, Duration::from_millis(1)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_longer_term_than_can_be_set_is_taken_all_the_same() {
    let api = Api::new();
    let go_on = CancellationToken::new();
    assert!(Election::new(api.client(), terms("a", 86_400)).won(&go_on).await.is_some());
    let b = Election::new(api.client(), terms("b", 15));
    let began = Instant::now();
    assert!(b.won(&go_on).await.is_some());
    assert!((300..330).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_another_came_before_is_tried_again() {
    let api = Api::new();
    let a = Election::new(api.client(), terms("a", 15));
    let go_on = CancellationToken::new();
    let since = a.won(&go_on).await.unwrap();
    // As where an attempt that was given up is carried out late.
    let mut once = true;
    api.store.lock().fault = Some(Box::new(move |method: &Method, _| {
        let due = *method == Method::PUT && std::mem::take(&mut once);
        due.then_some(Fault::Conflict)
    }));
    let held = tokio::time::timeout(Duration::from_secs(120), a.hold(since)).await;
    assert!(held.is_err(), "{held:?}");
}
