//! Sandboxes that sleep when they are idle, with machines that are nothing but a switch.

use super::*;
use crate::{Activity, OnIdle};

/// A sandbox that sleeps when it is left alone.
fn sleepy(name: &str) -> Spec {
    let mut spec = spec(name);
    (spec.idle_ttl_ms, spec.on_idle) = (Some(60_000), Some(OnIdle::Pause));
    spec
}

async fn until_asleep(registry: &Registry, name: &str) {
    let mut shown = registry.watch(&which(name)).unwrap();
    shown.wait_for(|record| record.state.is_asleep()).await.unwrap();
}

async fn wake(registry: &Registry, name: &str) -> Result<Option<Activity>, SandboxError> {
    registry.order(&which(name), |reply| Order::Wake { reply }).await
}

fn counts(place: &TestRegistry) -> (usize, usize) {
    let naps = &place.machine.naps;
    (naps.pauses.load(Ordering::Relaxed), naps.resumes.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn one_left_alone_sleeps_and_a_hundred_that_want_it_wake_it_once() {
    let place = TestRegistry::new("sleeps");
    let registry = place.open().await;
    registry.create(sleepy("web")).await.unwrap();
    until_asleep(&registry, "web").await;
    assert!(registry.activity(&which("web")).is_none(), "work began in one that sleeps");
    let gate = Arc::new(Notify::new());
    *place.machine.naps.gate.lock().unwrap() = Some(Arc::clone(&gate));
    let mut waking = JoinSet::new();
    for _ in 0..100 {
        let registry = registry.clone();
        waking.spawn(async move { wake(&registry, "web").await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate.notify_one();
    let activities: Vec<_> =
        waking.join_all().await.into_iter().map(|woken| woken.unwrap()).collect();
    assert!(activities.iter().all(Option::is_some), "one was answered and has no activity");
    assert_eq!(counts(&place), (1, 1));
    assert_eq!(registry.get(&which("web")).unwrap().state, State::Running);
    // It is at work until the last of them is done.
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(registry.get(&which("web")).unwrap().state, State::Running);
    *place.machine.naps.gate.lock().unwrap() = None;
    let since = tokio::time::Instant::now();
    drop(activities);
    until_asleep(&registry, "web").await;
    assert!((60..70).contains(&since.elapsed().as_secs()), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_while_it_dozes_off_waits_and_is_not_lost() {
    let place = TestRegistry::new("dozes");
    let registry = place.open().await;
    registry.create(sleepy("web")).await.unwrap();
    let gate = Arc::new(Notify::new());
    *place.machine.naps.gate.lock().unwrap() = Some(Arc::clone(&gate));
    while registry.activity(&which("web")).is_some() {
        tokio::time::sleep(Duration::from_secs(70)).await;
    }
    // Its record says still that it runs.
    assert_eq!(registry.get(&which("web")).unwrap().state, State::Running);
    let waking = tokio::spawn({
        let registry = registry.clone();
        async move { wake(&registry, "web").await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waking.is_finished());
    gate.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(registry.get(&which("web")).unwrap().state.is_asleep());
    gate.notify_one();
    assert!(waking.await.unwrap().unwrap().is_some());
    assert_eq!(counts(&place), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_not_paused_after_all_stays_awake() {
    let place = TestRegistry::new("restless");
    let registry = place.open().await;
    registry.create(sleepy("web")).await.unwrap();
    place.machine.naps.restless.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(counts(&place).0, 1);
    assert_eq!(registry.get(&which("web")).unwrap().state, State::Running);
    assert!(registry.activity(&which("web")).is_some());
    place.machine.naps.restless.store(false, Ordering::Relaxed);
    until_asleep(&registry, "web").await;
}

#[tokio::test(start_paused = true)]
async fn one_that_was_paused_by_hand_is_woken_by_nobody() {
    let place = TestRegistry::new("by-hand");
    let registry = place.open().await;
    registry.create(sleepy("web")).await.unwrap();
    registry.pause(&which("web")).await.unwrap();
    let refused = wake(&registry, "web").await.unwrap_err();
    assert!(matches!(refused, SandboxError::Paused { .. }), "{refused}");
    registry.resume(&which("web")).await.unwrap();
    until_asleep(&registry, "web").await;
    // By hand it is put beyond the reach of requests.
    let record = registry.pause(&which("web")).await.unwrap();
    assert!(matches!(record.state, State::Paused { by_idle: false, .. }), "{}", record.state);
    let refused = wake(&registry, "web").await.unwrap_err();
    assert!(matches!(refused, SandboxError::Paused { .. }), "{refused}");
    registry.resume(&which("web")).await.unwrap();
    assert!(wake(&registry, "web").await.unwrap().is_some());
    assert_eq!(counts(&place), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn waiters_learn_of_the_end() {
    let place = TestRegistry::new("ends-asleep");
    let registry = place.open().await;
    registry.create(sleepy("web")).await.unwrap();
    until_asleep(&registry, "web").await;
    *place.machine.naps.gate.lock().unwrap() = Some(Arc::default());
    let waking = tokio::spawn({
        let registry = registry.clone();
        async move { wake(&registry, "web").await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    registry.kill(&which("web")).await.unwrap();
    let refused = waking.await.unwrap().unwrap_err();
    assert!(matches!(refused, SandboxError::NotRunning { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn its_age_ends_one_that_sleeps() {
    let place = TestRegistry::new("old-asleep");
    let registry = place.open().await;
    let mut spec = sleepy("web");
    spec.ttl_ms = Some(300_000);
    registry.create(spec).await.unwrap();
    until_asleep(&registry, "web").await;
    assert_eq!(end_of(&registry, "web").await, StopReason::Expired { kind: ExpiryKind::Age });
}

#[tokio::test]
async fn a_host_that_pauses_nothing_refuses_one_that_is_to_sleep() {
    let place = TestRegistry::new("sleepless");
    place.machine.naps.impossible.store(true, Ordering::Relaxed);
    let registry = place.open().await;
    let refused = registry.create(sleepy("web")).await.unwrap_err();
    assert!(matches!(refused, SandboxError::CannotSleep { .. }), "{refused}");
    assert_eq!(place.boxes(), 0);
    let mut endless = sleepy("web");
    endless.idle_ttl_ms = None;
    let refused = registry.create(endless).await.unwrap_err();
    assert!(matches!(refused, SandboxError::NeverIdle { .. }), "{refused}");
}
