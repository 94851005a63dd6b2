//! Sandboxes whose memory goes to disk when they are idle, with machines that are nothing but a switch; and what a
//! bridge leaves that dies at each step of that.

use super::*;
use crate::caps::{Cap, Caps, Scope};
use crate::{Activity, MachineKind, OnIdle};

/// A sandbox that goes to disk when it is left alone.
fn sleepy(name: &str) -> Spec {
    let mut spec = spec(name);
    spec.machine = Some(MachineKind::Qemu);
    (spec.idle_ttl_ms, spec.on_idle) = (Some(60_000), Some(OnIdle::Snapshot));
    spec
}

async fn until_away(registry: &Registry, name: &str) {
    let mut shown = registry.watch(&which(name)).unwrap();
    let away = |record: &Record| record.state.is_asleep() && record.state.is_on_disk();
    shown.wait_for(away).await.unwrap();
}

async fn wake(registry: &Registry, name: &str) -> Result<Option<Activity>, SandboxError> {
    registry.order(&which(name), |reply| Order::Wake { reply }).await
}

fn counts(place: &TestRegistry) -> (usize, usize) {
    let naps = &place.machine.naps;
    (naps.written.load(Ordering::Relaxed), naps.restored.load(Ordering::Relaxed))
}

fn asleep(place: &TestRegistry, registry: &Registry) -> PathBuf {
    let id = registry.get(&which("web")).unwrap().id;
    place.paths.state_boxes().join(id.as_str()).join("asleep")
}

#[tokio::test(start_paused = true)]
async fn a_hundred_that_want_one_on_disk_restore_it_once() {
    let place = TestRegistry::new("away");
    let registry = place.open().await;
    let before = registry.create(sleepy("web")).await.unwrap();
    let machine = place.last();
    until_away(&registry, "web").await;
    let record = registry.get(&which("web")).unwrap();
    assert_eq!((record.id, record.pid), (before.id, None));
    assert!(asleep(&place, &registry).join(MANIFEST).is_file());
    // Nobody wakes it before its processes are gone.
    let mut waking = JoinSet::new();
    for _ in 0..100 {
        let registry = registry.clone();
        waking.spawn(async move { wake(&registry, "web").await });
    }
    let activities: Vec<_> =
        waking.join_all().await.into_iter().map(|woken| woken.unwrap()).collect();
    assert!(machine.was_killed(), "its first machine still runs");
    assert!(activities.iter().all(Option::is_some), "one was answered and has no activity");
    assert_eq!(counts(&place), (1, 1));
    assert_eq!(registry.get(&which("web")).unwrap().state, State::Running);
    assert!(!asleep(&place, &registry).exists(), "its memory is still on disk");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(registry.get(&which("web")).unwrap().state, State::Running);
    drop(activities);
    until_away(&registry, "web").await;
    assert_eq!(counts(&place), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_while_it_is_written_keeps_its_machine() {
    let place = TestRegistry::new("written");
    let registry = place.open().await;
    registry.create(sleepy("web")).await.unwrap();
    let gate = Arc::new(Notify::new());
    *place.machine.naps.gate.lock().unwrap() = Some(Arc::clone(&gate));
    while registry.activity(&which("web")).is_some() {
        tokio::time::sleep(Duration::from_secs(70)).await;
    }
    let waking = tokio::spawn({
        let registry = registry.clone();
        async move { wake(&registry, "web").await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waking.is_finished());
    gate.notify_one();
    assert!(waking.await.unwrap().unwrap().is_some());
    assert_eq!(counts(&place), (1, 0));
    assert!(!place.last().was_killed());
    assert!(!asleep(&place, &registry).exists());
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_written_stays_awake_and_is_tried_again() {
    let place = TestRegistry::new("unwritten");
    let registry = place.open().await;
    registry.create(sleepy("web")).await.unwrap();
    place.machine.naps.restless.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(75)).await;
    assert_eq!(counts(&place), (1, 0));
    assert!(registry.activity(&which("web")).is_some());
    assert!(!asleep(&place, &registry).exists());
    place.machine.naps.restless.store(false, Ordering::Relaxed);
    until_away(&registry, "web").await;
}

/// A registry with a cap on disk space, and what it reports.
async fn capped(place: &TestRegistry, disk_bytes: u64) -> (Registry, Arc<Mutex<Vec<String>>>) {
    let machine: Arc<dyn Machine> = Arc::clone(&place.machine) as _;
    let reports = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&reports);
    let events: EventSink = Arc::new(move |event: &Event| {
        if let Event::Trouble { what, .. } = event {
            kept.lock().unwrap().push(what.clone());
        }
    });
    let cap = Cap { disk_bytes: Some(disk_bytes), ..Cap::default() };
    let caps = Caps { per_namespace: cap, ..Caps::default() };
    let means = RegistryOptions { caps, ..RegistryOptions::default() };
    let machines = Machines::all(&machine);
    let opened = Registry::open_with(place.paths.clone(), machines, events, means).await;
    (opened.unwrap(), reports)
}

fn disk_used(registry: &Registry) -> u64 {
    let scope = Scope::Namespace("default".to_owned());
    registry.caps(&scope).unwrap().0.disk_bytes
}

#[tokio::test(start_paused = true)]
async fn memory_on_disk_counts_for_the_cap_until_it_is_gone() {
    let place = TestRegistry::new("counted");
    let (registry, _) = capped(&place, 1 << 40).await;
    registry.create(sleepy("web")).await.unwrap();
    let awake = disk_used(&registry);
    until_away(&registry, "web").await;
    let record = registry.get(&which("web")).unwrap();
    assert!(record.asleep_bytes > 0, "its memory takes nothing");
    assert_eq!(disk_used(&registry), awake + record.asleep_bytes);
    // The next bridge knows it, too.
    registry.leave().await;
    drop(registry);
    let (registry, _) = capped(&place, 1 << 40).await;
    assert_eq!(disk_used(&registry), awake + record.asleep_bytes);
    assert!(wake(&registry, "web").await.unwrap().is_some());
    assert_eq!(disk_used(&registry), awake);
    until_away(&registry, "web").await;
    registry.stop(&which("web"), Duration::ZERO).await.unwrap();
    assert!(disk_used(&registry) < awake, "a stopped one has no memory");
}

#[tokio::test(start_paused = true)]
async fn one_without_room_under_the_cap_is_paused_instead_and_says_so() {
    let place = TestRegistry::new("paused_instead");
    let (registry, _) = capped(&place, 1 << 40).await;
    registry.create(sleepy("web")).await.unwrap();
    let awake = disk_used(&registry);
    registry.remove(&which("web"), true).await.unwrap();
    registry.leave().await;
    drop(registry);
    let (registry, reports) = capped(&place, awake + (1 << 20)).await;
    registry.create(sleepy("web")).await.unwrap();
    let mut shown = registry.watch(&which("web")).unwrap();
    shown.wait_for(|record| record.state.is_asleep()).await.unwrap();
    let record = registry.get(&which("web")).unwrap();
    assert!(!record.state.is_on_disk(), "{}", record.state);
    assert_eq!((record.asleep_bytes, counts(&place)), (0, (0, 0)));
    let said = reports.lock().unwrap().join("; ");
    assert!(said.contains("paused instead of written to disk") && said.contains("disk"), "{said}");
    assert!(wake(&registry, "web").await.unwrap().is_some());
    assert_eq!(disk_used(&registry), awake);
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_restored_stays_on_disk_for_the_next_request() {
    let place = TestRegistry::new("unrestored");
    let registry = place.open().await;
    registry.create(sleepy("web")).await.unwrap();
    until_away(&registry, "web").await;
    place.machine.fails.store(true, Ordering::Relaxed);
    let refused = wake(&registry, "web").await.unwrap_err();
    assert!(matches!(refused, SandboxError::NotWoken { .. }), "{refused}");
    assert!(registry.get(&which("web")).unwrap().state.is_asleep());
    assert!(asleep(&place, &registry).join(MANIFEST).is_file());
    place.machine.fails.store(false, Ordering::Relaxed);
    assert!(wake(&registry, "web").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn one_on_disk_is_paused_resumed_stopped_killed_and_removed_as_ever() {
    let place = TestRegistry::new("orders-away");
    let registry = place.open().await;
    for name in ["web", "stopped", "killed", "removed", "old"] {
        let mut spec = sleepy(name);
        spec.ttl_ms = (name == "old").then_some(300_000);
        registry.create(spec).await.unwrap();
    }
    for name in ["web", "stopped", "killed", "removed", "old"] {
        until_away(&registry, name).await;
    }
    let kept = registry.remove(&which("removed"), false).await.unwrap_err();
    assert!(matches!(kept, SandboxError::StillRunning { .. }), "{kept}");
    registry.remove(&which("removed"), true).await.unwrap();
    assert!(registry.get(&which("removed")).is_err());
    let stopped = registry.stop(&which("stopped"), Duration::ZERO).await.unwrap();
    assert_eq!(stopped.state.phase(), Phase::Stopped);
    let killed = registry.kill(&which("killed")).await.unwrap();
    assert!(matches!(killed.state, State::Stopped { why: StopReason::Killed, .. }));
    registry.update(&which("web"), times(Some(900_000), None)).await.unwrap();
    // By hand it is put beyond the reach of requests, and stays on disk.
    let paused = registry.pause(&which("web")).await.unwrap();
    assert!(paused.state.is_on_disk() && !paused.state.is_asleep(), "{}", paused.state);
    let refused = wake(&registry, "web").await.unwrap_err();
    assert!(matches!(refused, SandboxError::Paused { .. }), "{refused}");
    let resumed = registry.resume(&which("web")).await.unwrap();
    assert_eq!(resumed.state, State::Running);
    let (ended, restored) = (until_over(&registry, "old").await, counts(&place).1);
    assert!(
        matches!(ended, State::Stopped { why: StopReason::Expired { kind: ExpiryKind::Age }, .. }),
        "{ended}"
    );
    assert_eq!(restored, 1, "one was restored only to end it");
    for name in ["stopped", "killed", "old"] {
        registry.remove(&which(name), false).await.unwrap();
    }
}

/// A bridge is gone without a word. Its machines live on, or do not.
async fn crash(place: &TestRegistry, registry: Registry, lives: bool) -> Registry {
    drop(registry);
    place.machine.lives.store(lives, Ordering::Relaxed);
    // The clock moves only when nothing else does: its owners have noticed.
    tokio::time::sleep(Duration::from_millis(1)).await;
    place.open().await
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_it_is_written_leaves_the_machine_and_nothing_on_disk() {
    let place = TestRegistry::new("crash-written");
    let registry = place.open().await;
    registry.create(sleepy("web")).await.unwrap();
    let draft = asleep(&place, &registry);
    *place.machine.naps.gate.lock().unwrap() = Some(Arc::default());
    while registry.activity(&which("web")).is_some() {
        tokio::time::sleep(Duration::from_secs(70)).await;
    }
    while !draft.is_dir() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fs::write(draft.join("memory"), "half").unwrap();
    let registry = crash(&place, registry, true).await;
    // It is adopted; these machines have no agent that could answer.
    let found = registry.get(&which("web")).unwrap().state;
    assert_eq!(found.phase(), Phase::Lost, "{found}");
    assert!(!draft.exists(), "what was half written is still there");
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_record_leaves_the_snapshot_whatever_is_left_of_the_machine() {
    let place = TestRegistry::new("crash-away");
    let registry = place.open().await;
    registry.create(sleepy("web")).await.unwrap();
    let memory = asleep(&place, &registry);
    until_away(&registry, "web").await;
    // Before its processes have ended.
    let cleaned = place.machine.cleaned.load(Ordering::Relaxed);
    let registry = crash(&place, registry, true).await;
    assert!(registry.get(&which("web")).unwrap().state.is_asleep());
    assert!(place.machine.cleaned.load(Ordering::Relaxed) > cleaned, "its processes may live");
    // While it is restored.
    *place.machine.gate.lock().unwrap() = Some(Arc::default());
    let waking = tokio::spawn({
        let registry = registry.clone();
        async move { wake(&registry, "web").await.map(drop) }
    });
    while place.machine.naps.restored.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    waking.abort();
    let _ = waking.await;
    let registry = crash(&place, registry, true).await;
    *place.machine.gate.lock().unwrap() = None;
    assert!(registry.get(&which("web")).unwrap().state.is_asleep());
    // The host was restarted.
    fs::remove_dir_all(&place.paths.runtime).unwrap();
    place.paths.prepare().unwrap();
    let registry = crash(&place, registry, false).await;
    assert!(wake(&registry, "web").await.unwrap().is_some());
    // When it runs again, its memory on disk is nothing that could be restored.
    fs::create_dir_all(&memory).unwrap();
    fs::write(memory.join(MANIFEST), "old").unwrap();
    let registry = crash(&place, registry, true).await;
    let found = registry.get(&which("web")).unwrap().state;
    assert_eq!(found.phase(), Phase::Lost, "{found}");
    assert!(!memory.exists(), "its old memory would be restored");
    registry.remove(&which("web"), true).await.unwrap();
    assert_eq!(place.boxes(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_whose_memory_on_disk_is_gone_has_ended() {
    let place = TestRegistry::new("no-memory");
    let registry = place.open().await;
    registry.create(sleepy("web")).await.unwrap();
    until_away(&registry, "web").await;
    fs::remove_file(asleep(&place, &registry).join(MANIFEST)).unwrap();
    let registry = crash(&place, registry, false).await;
    let State::Stopped { why, .. } = registry.get(&which("web")).unwrap().state else { panic!() };
    assert_eq!(why, StopReason::BridgeAway);
}

#[tokio::test]
async fn a_kind_without_memory_snapshots_refuses_and_names_what_it_has() {
    let place = TestRegistry::new("no-disk");
    let registry = place.open().await;
    let mut process = sleepy("web");
    process.machine = Some(MachineKind::Process);
    let refused = registry.create(process).await.unwrap_err();
    let SandboxError::Unsupported { what: "on_idle", hint, .. } = refused else {
        panic!("{refused}")
    };
    assert!(hint.contains("pause"), "{hint}");
    assert_eq!(place.boxes(), 0);
}
