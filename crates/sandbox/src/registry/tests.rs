//! The rules of the registry, with machines that are nothing but a switch.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

mod away;
mod held;
mod sleep;

use super::found::subdirectories;
use super::*;
use crate::record::RECORD_FILE;
use crate::{ExpiryKind, Filter, Name, Phase, State, StopReason};
use agent_client::guest::Guest;
use agent_client::link::Address;
use machine::vmm::MANIFEST;
use machine::{
    Adoption, BoxFuture, Machine, MachineError, MachineExit, MachineSpec, ProcessIdentity, Resumed,
    Running, Suspend, Trace,
};

/// A machine that starts, lives and dies as the test says, and has no agent.
#[derive(Default)]
struct Fake {
    fails: AtomicBool,
    /// Whether an adoption finds the machine alive.
    lives: AtomicBool,
    /// A machine that ignores being killed.
    immortal: AtomicBool,
    /// A start waits for this when it is set.
    gate: Mutex<Option<Arc<Notify>>>,
    cleaned: AtomicUsize,
    naps: Naps,
    last: Mutex<Option<Arc<FakeRunning>>>,
}

/// How machines are paused, and how often they were.
#[derive(Clone, Default)]
struct Naps {
    /// Pausing fails.
    restless: Arc<AtomicBool>,
    /// No machine can be paused.
    impossible: Arc<AtomicBool>,
    /// A pause, and a resumption, wait for this when it is set.
    gate: Arc<Mutex<Option<Arc<Notify>>>>,
    /// How often a machine was written to disk, and started from there.
    written: Arc<AtomicUsize>,
    restored: Arc<AtomicUsize>,
    pauses: Arc<AtomicUsize>,
    resumes: Arc<AtomicUsize>,
}

struct FakeRunning {
    naps: Naps,
    paused: AtomicBool,
    exit: watch::Sender<Option<MachineExit>>,
    immortal: bool,
    stops_when_asked: bool,
}

impl FakeRunning {
    fn new(immortal: bool, naps: &Naps) -> Arc<Self> {
        let (exit, naps) = (watch::Sender::new(None), naps.clone());
        let paused = AtomicBool::new(false);
        Arc::new(Self { naps, paused, exit, immortal, stops_when_asked: true })
    }

    fn end(&self, exit: MachineExit) {
        self.exit.send_replace(Some(exit));
    }
}

impl Machine for Fake {
    fn start(&self, spec: MachineSpec) -> BoxFuture<'_, Result<Arc<dyn Running>, MachineError>> {
        Box::pin(async move {
            if let Some(from) = &spec.restore {
                assert!(from.join(MANIFEST).is_file(), "there is nothing to restore");
                assert!(spec.env.is_empty(), "its environment is in its memory");
                self.naps.restored.fetch_add(1, Ordering::Relaxed);
            }
            let gate = self.gate.lock().unwrap().clone();
            if let Some(gate) = gate {
                gate.notified().await;
            }
            if self.fails.load(Ordering::Relaxed) {
                return Err(MachineError::BootFailed { message: "no namespaces".to_owned() });
            }
            let running = FakeRunning::new(self.immortal.load(Ordering::Relaxed), &self.naps);
            *self.last.lock().unwrap() = Some(Arc::clone(&running));
            Ok(running as Arc<dyn Running>)
        })
    }

    fn adopt(&self, _: SandboxId, _: Directories, trace: Trace) -> BoxFuture<'_, Adoption> {
        Box::pin(async move {
            assert!(trace.process.is_some(), "the trace was not kept");
            if self.lives.load(Ordering::Relaxed) {
                Adoption::Alive(FakeRunning::new(false, &self.naps))
            } else {
                Adoption::Dead
            }
        })
    }

    fn clean(&self, _: SandboxId, _: Option<Directories>) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.cleaned.fetch_add(1, Ordering::Relaxed);
        })
    }
}

impl Running for FakeRunning {
    fn guest(&self) -> Option<Guest> {
        None
    }

    fn trace(&self) -> Trace {
        let (pid, started_ticks, boot_id) = (4711, 1, "boot".to_owned());
        let address = Some(Address::Unix { path: PathBuf::from("/nowhere/agent.sock") });
        Trace {
            process: Some(ProcessIdentity { pid, started_ticks, boot_id }),
            address,
            paused: self.paused.load(Ordering::Relaxed),
        }
    }

    fn suspend(&self) -> Option<&dyn Suspend> {
        (!self.naps.impossible.load(Ordering::Relaxed)).then_some(self as &dyn Suspend)
    }

    fn stop(&self, _: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if self.stops_when_asked {
                self.end(MachineExit::Exited { code: 0 });
            }
        })
    }

    fn kill(&self) {
        if !self.immortal {
            self.end(MachineExit::Signaled { signal: 9 });
        }
    }

    fn was_killed(&self) -> bool {
        *self.exit.borrow() == Some(MachineExit::Signaled { signal: 9 })
    }

    fn exited(&self) -> BoxFuture<'static, MachineExit> {
        let mut exit = self.exit.subscribe();
        Box::pin(async move {
            let ended = exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
            match ended {
                Some(exit) => exit,
                None => std::future::pending().await,
            }
        })
    }
}

impl Naps {
    async fn wait(&self) {
        let gate = self.gate.lock().unwrap().clone();
        if let Some(gate) = gate {
            gate.notified().await;
        }
    }
}

impl Suspend for FakeRunning {
    fn pause(&self) -> BoxFuture<'_, Result<(), MachineError>> {
        Box::pin(async {
            self.naps.wait().await;
            self.naps.pauses.fetch_add(1, Ordering::Relaxed);
            if self.naps.restless.load(Ordering::Relaxed) {
                return Err(MachineError::Monitor { reason: "it is restless".to_owned() });
            }
            self.paused.store(true, Ordering::Relaxed);
            Ok(())
        })
    }

    fn resume(&self) -> BoxFuture<'_, Result<Resumed, MachineError>> {
        Box::pin(async {
            self.naps.wait().await;
            self.naps.resumes.fetch_add(1, Ordering::Relaxed);
            self.paused.store(false, Ordering::Relaxed);
            Ok(Resumed::default())
        })
    }

    fn set_right(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.paused.store(false, Ordering::Relaxed) })
    }

    fn may_snapshot(&self) -> Result<(), MachineError> {
        Ok(())
    }

    fn put_down<'a>(&'a self, into: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async {
            self.naps.wait().await;
            self.naps.written.fetch_add(1, Ordering::Relaxed);
            if self.naps.restless.load(Ordering::Relaxed) {
                return Err(MachineError::Monitor { reason: "it is restless".to_owned() });
            }
            fs::write(into.join(MANIFEST), "{}").unwrap();
            Ok(())
        })
    }

    fn snapshot<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async { Err(MachineError::Monitor { reason: "it takes none".to_owned() }) })
    }
}

struct TestRegistry {
    paths: Paths,
    machine: Arc<Fake>,
}

impl TestRegistry {
    fn new(name: &str) -> Self {
        let base = format!("burrow-registry-{}-{name}", std::process::id());
        let base = std::env::temp_dir().join(base);
        let _ = fs::remove_dir_all(&base);
        let paths = Paths { runtime: base.join("run"), state: base.join("state") };
        paths.prepare().unwrap();
        Self { paths, machine: Arc::new(Fake::default()) }
    }

    async fn open(&self) -> Registry {
        let machine: Arc<dyn Machine> = Arc::clone(&self.machine) as _;
        let machines = Machines::all(&machine);
        let events = crate::event::nobody();
        Registry::open(self.paths.clone(), machines, events).await.unwrap()
    }

    fn boxes(&self) -> usize {
        let count = |path| subdirectories(path).unwrap().len();
        count(&self.paths.state_boxes()) + count(&self.paths.runtime_boxes())
    }

    fn last(&self) -> Arc<FakeRunning> {
        self.machine.last.lock().unwrap().clone().unwrap()
    }
}

impl Drop for TestRegistry {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.paths.runtime.parent().unwrap());
    }
}

fn spec(name: &str) -> Spec {
    Spec::new(which(name))
}

fn which(text: &str) -> SandboxRef {
    text.parse().unwrap()
}

async fn until_over(registry: &Registry, name: &str) -> State {
    let mut shown = registry.0.seats().taken[&which(name)].shown.clone();
    let record = shown.wait_for(|record| record.state.is_over()).await.unwrap();
    record.state.clone()
}

#[tokio::test]
async fn a_name_has_one_owner_from_creation_to_removal() {
    let place = TestRegistry::new("one-owner");
    let gate = Arc::new(Notify::new());
    *place.machine.gate.lock().unwrap() = Some(Arc::clone(&gate));
    let registry = place.open().await;
    let creating = tokio::spawn({
        let registry = registry.clone();
        async move { registry.create(spec("web")).await }
    });
    while registry.get(&which("web")).is_err() {
        tokio::task::yield_now().await;
    }
    let taken = registry.create(spec("web")).await.unwrap_err();
    assert!(matches!(taken, SandboxError::NameTaken { state: State::Creating, .. }), "{taken}");
    gate.notify_one();
    let record = creating.await.unwrap().unwrap();
    let taken = registry.create(spec("web")).await.unwrap_err();
    let SandboxError::NameTaken { id, state: State::Running, .. } = taken else {
        panic!("{taken}")
    };
    assert_eq!(id, record.id);
    registry.stop(&which("web"), Duration::ZERO).await.unwrap();
    let taken = registry.create(spec("web")).await.unwrap_err();
    assert!(taken.to_string().contains("stopped"), "{taken}");
    registry.remove(&which("web"), false).await.unwrap();
    gate.notify_one();
    registry.create(spec("web")).await.unwrap();
}

#[tokio::test]
async fn namespaces_keep_names_apart() {
    let place = TestRegistry::new("namespaces");
    let registry = place.open().await;
    for name in ["web", "team/web", "team/db"] {
        registry.create(spec(name)).await.unwrap();
    }
    let names = |namespace: Option<&str>| -> Vec<String> {
        let namespace: Option<Name> = namespace.map(|name| name.parse().unwrap());
        let records = registry.list(namespace.as_ref());
        records.iter().map(|record| record.which().to_string()).collect()
    };
    assert_eq!(names(None), ["web", "team/db", "team/web"]);
    assert_eq!(names(Some("team")), ["team/db", "team/web"]);
    assert!(names(Some("other")).is_empty());
}

#[tokio::test]
async fn a_failed_start_leaves_nothing_and_frees_the_name() {
    let place = TestRegistry::new("failed");
    let registry = place.open().await;
    place.machine.fails.store(true, Ordering::Relaxed);
    let error = registry.create(spec("web")).await.unwrap_err();
    assert!(error.to_string().contains("no namespaces"), "{error}");
    assert_eq!(place.boxes(), 0);
    place.machine.fails.store(false, Ordering::Relaxed);
    registry.create(spec("web")).await.unwrap();
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_undo_the_creation() {
    let place = TestRegistry::new("gone-caller");
    let gate = Arc::new(Notify::new());
    *place.machine.gate.lock().unwrap() = Some(Arc::clone(&gate));
    let registry = place.open().await;
    let creating = tokio::time::timeout(Duration::from_millis(20), registry.create(spec("web")));
    assert!(creating.await.is_err());
    gate.notify_one();
    let mut shown = registry.0.seats().taken[&which("web")].shown.clone();
    shown.wait_for(|record| record.state == State::Running).await.unwrap();
}

#[tokio::test]
async fn the_end_of_a_machine_is_reported_as_it_was() {
    let place = TestRegistry::new("ends");
    let registry = place.open().await;
    for (name, order) in [("a", "stop"), ("b", "kill"), ("c", "exit")] {
        registry.create(spec(name)).await.unwrap();
        match order {
            "stop" => drop(registry.stop(&which(name), Duration::ZERO).await.unwrap()),
            "kill" => drop(registry.kill(&which(name)).await.unwrap()),
            _ => place.last().end(MachineExit::Exited { code: 7 }),
        }
        let State::Stopped { why, .. } = until_over(&registry, name).await else { panic!() };
        match order {
            "stop" => assert_eq!(why, StopReason::Requested),
            "kill" => assert_eq!(why, StopReason::Killed),
            _ => {
                assert_eq!(why, StopReason::Ended { detail: "its agent exited with 7".to_owned() });
            }
        }
        // Again is fine, and changes nothing.
        registry.kill(&which(name)).await.unwrap();
        assert_eq!(until_over(&registry, name).await.to_string(), format!("stopped ({why})"));
    }
}

#[tokio::test]
async fn a_running_sandbox_is_removed_only_by_force() {
    let place = TestRegistry::new("force");
    let registry = place.open().await;
    registry.create(spec("web")).await.unwrap();
    let refused = registry.remove(&which("web"), false).await.unwrap_err();
    assert!(matches!(refused, SandboxError::StillRunning { .. }), "{refused}");
    registry.remove(&which("web"), true).await.unwrap();
    assert!(matches!(registry.get(&which("web")), Err(SandboxError::NotFound { .. })));
    assert_eq!(place.boxes(), 0);
    let missing = registry.remove(&which("web"), true).await.unwrap_err();
    assert!(matches!(missing, SandboxError::NotFound { .. }), "{missing}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_does_not_die_is_reported_and_stays_lost() {
    let place = TestRegistry::new("immortal");
    place.machine.immortal.store(true, Ordering::Relaxed);
    let registry = place.open().await;
    registry.create(spec("web")).await.unwrap();
    let error = registry.kill(&which("web")).await.unwrap_err();
    assert!(matches!(error, SandboxError::WillNotDie { .. }), "{error}");
    assert_eq!(registry.get(&which("web")).unwrap().state.name(), "lost");
    place.last().end(MachineExit::Signaled { signal: 9 });
    until_over(&registry, "web").await;
}

#[tokio::test]
async fn the_next_registry_adopts_living_sandboxes_and_cleans_up_dead_ones() {
    let place = TestRegistry::new("adopt");
    {
        let registry = place.open().await;
        for name in ["lives", "stopped"] {
            registry.create(spec(name)).await.unwrap();
        }
        registry.stop(&which("stopped"), Duration::ZERO).await.unwrap();
        assert_eq!(registry.leave().await, 1);
        assert!(matches!(registry.create(spec("late")).await, Err(SandboxError::Stopping)));
    }
    place.machine.lives.store(true, Ordering::Relaxed);
    {
        let registry = place.open().await;
        let stopped = registry.get(&which("stopped")).unwrap().state;
        assert!(matches!(stopped, State::Stopped { why: StopReason::Requested, .. }), "{stopped}");
        // The machine lives, but there is no agent to answer.
        assert_eq!(registry.get(&which("lives")).unwrap().state.name(), "lost");
        registry.leave().await;
    }
    place.machine.lives.store(false, Ordering::Relaxed);
    let registry = place.open().await;
    let dead = registry.get(&which("lives")).unwrap();
    assert!(
        matches!(dead.state, State::Stopped { why: StopReason::BridgeAway, .. }),
        "{}",
        dead.state
    );
    assert_eq!((dead.pid, dead.address), (None, None));
    assert_eq!(subdirectories(&place.paths.runtime_boxes()).unwrap().len(), 0);
}

#[tokio::test]
async fn half_made_sandboxes_are_removed_and_damaged_ones_are_held() {
    let place = TestRegistry::new("half-made");
    let boxes = place.paths.state_boxes();
    let record = Record::new("00000000000a".parse().unwrap(), &spec("half"), 0);
    let half = StoredRecord::new(record);
    for name in ["00000000000a", "00000000000b", "00000000000c", "not-an-id"] {
        fs::create_dir_all(boxes.join(name)).unwrap();
    }
    half.write(&boxes.join("00000000000a")).unwrap();
    fs::write(boxes.join("00000000000c").join(RECORD_FILE), "{ torn").unwrap();
    fs::create_dir_all(place.paths.runtime_boxes().join("00000000000d")).unwrap();
    let registry = place.open().await;
    let listed = registry.list(None);
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].name.as_str(), listed[0].state.name()), ("00000000000c", "damaged"));
    assert_eq!(place.boxes(), 2, "the unreadable record and the stranger stay");
    assert!(boxes.join("00000000000c").exists() && boxes.join("not-an-id").exists());
    registry.create(spec("half")).await.unwrap();
    registry.remove(&which("00000000000c"), false).await.unwrap();
    assert!(!boxes.join("00000000000c").exists());
}

#[tokio::test]
async fn every_sandbox_is_found_by_its_id_in_its_namespace_and_in_no_other() {
    let place = TestRegistry::new("by-id");
    let registry = place.open().await;
    let made = registry.create(spec("team/web")).await.unwrap();
    let by_id = |namespace: &str| which(&format!("{namespace}/{}", made.id));
    assert_eq!(registry.get(&by_id("team")).unwrap().name, made.name);
    assert!(matches!(registry.get(&by_id("other")), Err(SandboxError::NotFound { .. })));
    registry.remove(&by_id("team"), true).await.unwrap();
    assert!(registry.list(None).is_empty());
}

#[tokio::test]
async fn pages_follow_one_another_and_hold_what_matches() {
    let place = TestRegistry::new("pages");
    let registry = place.open().await;
    for (name, team) in [("d", "x"), ("a", "x"), ("c", "y"), ("team/b", "x"), ("b", "x")] {
        let mut spec = spec(name);
        spec.labels.insert("team".to_owned(), team.to_owned());
        registry.create(spec).await.unwrap();
    }
    registry.kill(&which("b")).await.unwrap();
    let names = |filter: &Filter| -> (Vec<String>, Option<SandboxRef>) {
        let page = registry.page(filter);
        (page.records.iter().map(|record| record.which().to_string()).collect(), page.next)
    };
    let mut filter = Filter { limit: Some(3), ..Filter::default() };
    assert_eq!(names(&filter), (vec!["a".into(), "b".into(), "c".into()], Some(which("c"))));
    // The cursor's sandbox may be gone when the next page is requested.
    registry.remove(&which("c"), true).await.unwrap();
    filter.after = Some(which("c"));
    assert_eq!(names(&filter), (vec!["d".into(), "team/b".into()], None));
    let labelled = Filter { labels: vec!["team=x".parse().unwrap()], ..Filter::default() };
    assert_eq!(names(&labelled).0, ["a", "b", "d", "team/b"]);
    let narrow = Filter {
        namespace: Some(Name::default_namespace()),
        labels: vec!["team".parse().unwrap(), "team=x".parse().unwrap()],
        phases: vec![Phase::Running, Phase::Lost],
        ..Filter::default()
    };
    assert_eq!(names(&narrow), (vec!["a".into(), "d".into()], None));
}

/// Waits until a sandbox's creation has been followed by its end, and says why it ended.
async fn end_of(registry: &Registry, name: &str) -> StopReason {
    let record = registry.wait(&which(name), Until::Stopped).await.unwrap();
    let State::Stopped { why, .. } = record.state else { panic!("{}", record.state) };
    why
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_left_alone_expires_and_one_at_work_does_not() {
    let place = TestRegistry::new("idle");
    let registry = place.open().await;
    let mut spec = spec("web");
    spec.idle_ttl_ms = Some(60_000);
    registry.create(spec).await.unwrap();
    let activity = registry.activity(&which("web")).unwrap();
    assert_eq!(registry.get(&which("web")).unwrap().idle_since_ms, None);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(registry.get(&which("web")).unwrap().state, State::Running);
    drop(activity);
    let idle = registry.get(&which("web")).unwrap();
    assert_eq!(idle.idle_expires_at_ms, idle.idle_since_ms.map(|since_ms| since_ms + 60_000));
    let since = tokio::time::Instant::now();
    let why = end_of(&registry, "web").await;
    assert_eq!(why, StopReason::Expired { kind: ExpiryKind::Idle });
    let took = since.elapsed();
    assert!((60..70).contains(&took.as_secs()), "{took:?}");
    assert!(registry.activity(&which("web")).is_none());
    assert_eq!(registry.get(&which("web")).unwrap().idle_since_ms, None);
}

#[tokio::test(start_paused = true)]
async fn an_absolute_time_to_live_ends_what_is_at_work_too() {
    let place = TestRegistry::new("age");
    let registry = place.open().await;
    let mut spec = spec("web");
    spec.ttl_ms = Some(60_000);
    spec.keep_stopped_ms = Some(5_000);
    let record = registry.create(spec).await.unwrap();
    assert_eq!(record.expires_at_ms, Some(record.created_at_ms + 60_000));
    let _at_work = registry.activity(&which("web")).unwrap();
    assert_eq!(end_of(&registry, "web").await, StopReason::Expired { kind: ExpiryKind::Age });
    registry.wait(&which("web"), Until::Removed).await.unwrap();
    assert!(matches!(registry.get(&which("web")), Err(SandboxError::NotFound { .. })));
    assert_eq!(place.boxes(), 0);
}

pub(super) fn times(ttl_ms: Option<u64>, idle_ttl_ms: Option<u64>) -> Update {
    Update { ttl_ms, idle_ttl_ms, egress: None }
}

#[tokio::test(start_paused = true)]
async fn a_life_is_lengthened_and_freed_of_its_end() {
    let place = TestRegistry::new("extend");
    let registry = place.open().await;
    let mut spec = spec("web");
    (spec.ttl_ms, spec.idle_ttl_ms) = (Some(60_000), Some(30_000));
    registry.create(spec).await.unwrap();
    let record = registry.update(&which("web"), times(Some(300_000), Some(0))).await.unwrap();
    assert_eq!((record.idle_ttl_ms, record.idle_expires_at_ms), (None, None));
    tokio::time::sleep(Duration::from_secs(200)).await;
    registry.update(&which("web"), times(Some(0), None)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(200)).await;
    let record = registry.get(&which("web")).unwrap();
    assert_eq!((record.state, record.expires_at_ms), (State::Running, None));
    let refused = registry.update(&which("web"), times(Some(u64::MAX), None)).await.unwrap_err();
    assert!(matches!(refused, SandboxError::OutOfRange { .. }), "{refused}");
    registry.kill(&which("web")).await.unwrap();
    let refused = registry.update(&which("web"), times(Some(1), None)).await.unwrap_err();
    assert!(matches!(refused, SandboxError::NotRunning { .. }), "{refused}");
}

#[tokio::test]
async fn times_to_live_outlive_the_bridge() {
    let place = TestRegistry::new("ttl-kept");
    {
        let registry = place.open().await;
        let mut stopped = spec("stopped");
        stopped.keep_stopped_ms = Some(1);
        registry.create(stopped).await.unwrap();
        for (name, ttl_ms) in [("short", 50), ("long", 3_600_000)] {
            let mut spec = spec(name);
            spec.ttl_ms = Some(ttl_ms);
            registry.create(spec).await.unwrap();
        }
        registry.leave().await;
    }
    place.machine.lives.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(60)).await;
    let registry = place.open().await;
    let why = end_of(&registry, "short").await;
    assert_eq!(why, StopReason::Expired { kind: ExpiryKind::Age });
    let long = registry.get(&which("long")).unwrap();
    assert_eq!(long.expires_at_ms, Some(long.created_at_ms + 3_600_000));
    registry.kill(&which("stopped")).await.unwrap();
    registry.wait(&which("stopped"), Until::Removed).await.unwrap();
}

#[tokio::test]
async fn a_removal_ends_every_wait() {
    let place = TestRegistry::new("waits");
    let registry = place.open().await;
    registry.create(spec("web")).await.unwrap();
    let wait = |until| {
        let registry = registry.clone();
        tokio::spawn(async move { registry.wait(&which("web"), until).await })
    };
    let (stopped, removed) = (wait(Until::Stopped), wait(Until::Removed));
    assert_eq!(registry.wait(&which("web"), Until::Created).await.unwrap().state, State::Running);
    registry.remove(&which("web"), true).await.unwrap();
    for waiting in [stopped, removed] {
        let record = waiting.await.unwrap().unwrap();
        assert!(record.state.is_over(), "{}", record.state);
    }
    let missing = registry.wait(&which("web"), Until::Stopped).await.unwrap_err();
    assert!(matches!(missing, SandboxError::NotFound { .. }), "{missing}");
}

#[tokio::test]
async fn of_callers_that_remove_at_once_one_does_it_and_the_name_is_free() {
    let place = TestRegistry::new("racing");
    let registry = place.open().await;
    for _ in 0..20 {
        registry.create(spec("web")).await.unwrap();
        let mut removals = JoinSet::new();
        for _ in 0..ORDERS_WAITING_MAX * 2 {
            let registry = registry.clone();
            removals.spawn(async move { registry.remove(&which("web"), true).await });
        }
        let answers = removals.join_all().await;
        assert!(answers.iter().any(Result::is_ok));
        for answer in answers {
            assert!(matches!(answer, Ok(_) | Err(SandboxError::NotFound { .. })), "{answer:?}");
        }
    }
    assert_eq!(place.boxes(), 0);
}

#[tokio::test]
async fn the_log_of_a_sandbox_stays_where_it_is_when_it_has_stopped() {
    let place = TestRegistry::new("log-directory");
    let registry = place.open().await;
    registry.create(spec("web")).await.unwrap();
    let running = registry.log_directory(&which("web")).unwrap();
    let missing = registry.guest(&which("web")).unwrap_err();
    assert!(matches!(missing, SandboxError::NotRunning { .. }), "{missing}");
    registry.kill(&which("web")).await.unwrap();
    assert_eq!(registry.log_directory(&which("web")).unwrap(), running);
    assert!(running.is_dir());
}

#[tokio::test]
async fn a_log_is_found_by_name_without_a_daemon() {
    let place = TestRegistry::new("find-log");
    let registry = place.open().await;
    let record = registry.create(spec("team/web")).await.unwrap();
    registry.kill(&which("team/web")).await.unwrap();
    drop(registry);
    let directory = crate::find_log(&place.paths, &which("team/web")).unwrap();
    assert!(directory.starts_with(place.paths.state_boxes().join(record.id.as_str())));
    let mut reader = crate::log::Reader::open(&directory, crate::log::From::Start).unwrap();
    let last = std::iter::from_fn(|| reader.next().unwrap()).last().unwrap();
    assert_eq!(last.event, crate::log::Event::Closed { why: "killed".to_owned() });
    let missing = crate::find_log(&place.paths, &which("web")).unwrap_err();
    assert!(matches!(missing, SandboxError::NotFound { .. }), "{missing}");
}

#[tokio::test]
async fn a_record_that_the_disk_does_not_take_is_written_again() {
    let place = TestRegistry::new("unsynced");
    let registry = place.open().await;
    let record = registry.create(spec("web")).await.unwrap();
    // A link to itself cannot be opened, and so not be given to the disk.
    let state = crate::directories::directories(&place.paths, &record.id).state;
    std::os::unix::fs::symlink(RECORD_FILE, state.join("loop")).unwrap();
    fs::rename(state.join("loop"), state.join(RECORD_FILE)).unwrap();
    let mut shown = registry.0.seats().taken[&which("web")].shown.clone();
    let is_told =
        |record: &Record| record.warnings.iter().any(|warning| warning.contains("to disk"));
    shown.wait_for(|record| is_told(record)).await.unwrap();
    shown.wait_for(|record| !is_told(record)).await.unwrap();
    let stored = StoredRecord::read(&state).unwrap();
    assert_eq!((stored.record.id, stored.record.state), (record.id, State::Running));
    assert_eq!(stored.record.warnings, record.warnings, "the warning is no part of the record");
}
