//! The warm pool with real agents on the process machine: filled, claimed once, kept healthy, and
//! never left behind, however the bridge ends.
//!
//! Every test is skipped, with its reason, where there is no agent binary or this host cannot make
//! namespaces.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_client::guest::Guest;
use agent_client::guest::contexts::{RunCode, open};
use agent_client::program::collect;
use control::Client;
use host::agent::find_agent;
use host::paths::Paths;
use machine::process::ProcessMachine;
use machine::{Machine, MachineKind, Machines};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::repl::ContextState;
use protocol::requests::{GroupLimits, Program, SpoolSpec, Start, Stdio as SessionStdio};
use protocol::{Cause, ContextName, Text};
use sandbox::limits::POOL_REFILL_QUIET;
use sandbox::pool::{Entry, Options, PoolEvent, ShelfStatus};
use sandbox::record::RECORD_FILE;
use sandbox::{Event, EventSink, Record, Registry, RegistryOptions, Spec, State};
use serde_json::Value;
use tokio::task::JoinSet;

use super::place::{until, which};

/// Long enough for the slowest machine; a test that waits so long fails.
const DEADLINE: Duration = Duration::from_secs(60);
/// The name of the pool's entry in these tests.
const IMAGE: &str = "host";
/// Measurements of which the best counts.
const BEST_OF: usize = 5;
const POOL_FILE: &str = "pool.json";
const CLAIMED_FILE: &str = "claimed.json";

/// Directories of a test with their own agent, which identifies its processes. Everything is
/// removed with it.
struct PoolScene {
    base: PathBuf,
    events: Arc<Mutex<Vec<Event>>>,
}

impl PoolScene {
    fn new(name: &str) -> Self {
        let base = PathBuf::from(format!("/tmp/burrow-pool-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let place = Self { base, events: Arc::default() };
        place.paths().prepare().unwrap();
        fs::copy(find_agent().unwrap().file().unwrap(), place.agent()).unwrap();
        place
    }

    fn paths(&self) -> Paths {
        Paths { runtime: self.base.join("run"), state: self.base.join("state") }
    }

    fn agent(&self) -> PathBuf {
        self.base.join("agent")
    }

    async fn open(&self, options: Options) -> Registry {
        let process: Arc<dyn Machine> = Arc::new(ProcessMachine::new(self.agent()));
        // It stands for a virtual machine too: the pool sees no difference.
        let machines = Machines::default()
            .with(MachineKind::Qemu, Arc::clone(&process))
            .with(MachineKind::Process, process);
        let events = Arc::clone(&self.events);
        let sink: EventSink = Arc::new(move |event| events.lock().unwrap().push(event.clone()));
        // As a serving bridge hides them, so that its machines match.
        let private = settings::Settings::default().private_files();
        let files = sandbox::HostFiles { private, ..sandbox::HostFiles::default() };
        let options = RegistryOptions { pool: options, files, ..RegistryOptions::default() };
        Registry::open_with(self.paths(), machines, sink, options).await.unwrap()
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// A daemon with a pool, in its own process.
    fn serve(&self, entry: Option<&str>) -> Daemon {
        let log = fs::File::options().create(true).append(true).open(self.base.join("log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_host-bridge"));
        command.args(["serve", "--listen", "off"]);
        if let Some(entry) = entry {
            command.args(["--set", &format!("pool.entries={entry}")]);
        }
        let paths = self.paths();
        command
            .env("BURROW_RUNTIME_DIR", paths.runtime)
            .env("BURROW_STATE_DIR", paths.state)
            .env("BURROW_AGENT", self.agent())
            .stdin(Stdio::null())
            .stderr(log.unwrap());
        Daemon(command.spawn().unwrap())
    }

    async fn client(&self) -> Client {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Ok(client) = Client::connect(&self.paths()).await {
                return client;
            }
            assert!(Instant::now() < deadline, "the daemon does not serve");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The machines that live: each has one process that runs our agent as its supervisor.
    fn machines(&self) -> Vec<u32> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            let is_ours = words.next() == Some(self.agent().to_string_lossy().as_bytes());
            // Its init is another process with the same name.
            is_ours && words.next() == Some(b"launch") && !is_child_of_ours(*pid, &self.agent())
        })
        .collect()
    }

    /// The directories of sandboxes that have this file.
    fn with_file(&self, name: &str) -> Vec<PathBuf> {
        let boxes = fs::read_dir(self.paths().state_boxes());
        let boxes = boxes.into_iter().flatten().flatten().map(|entry| entry.path());
        boxes.filter(|directory| directory.join(name).exists()).collect()
    }

    fn boxes(&self) -> usize {
        let count = |path: PathBuf| fs::read_dir(path).map_or(0, Iterator::count);
        count(self.paths().state_boxes()) + count(self.paths().runtime_boxes())
    }
}

impl Drop for PoolScene {
    fn drop(&mut self) {
        for pid in self.machines() {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        let _ = fs::remove_dir_all(&self.base);
    }
}

fn is_child_of_ours(pid: u32, agent: &Path) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
    let line = fs::read(format!("/proc/{}/cmdline", parent.unwrap_or_default()));
    line.unwrap_or_default().starts_with(agent.to_string_lossy().as_bytes())
}

/// A daemon that ends with the test.
struct Daemon(Child);

impl Daemon {
    /// Like a crash.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn end(mut self) {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn options(count: usize) -> Options {
    Options { entries: vec![Entry::new(IMAGE, count)], starts_at_once: 4, ..Options::none() }
}

fn with_contexts(count: usize, languages: &[&str]) -> Options {
    let mut options = options(count);
    options.entries[0].contexts = languages.iter().map(|name| name.parse().unwrap()).collect();
    options
}

fn spec(name: &str) -> Spec {
    Spec::new(which(name))
}

fn shelf(registry: &Registry) -> ShelfStatus {
    registry.pool().into_iter().next().unwrap()
}

async fn full(registry: &Registry) {
    until("a full pool", || registry.pool().iter().all(|it| it.ready == it.wanted).then_some(()))
        .await;
}

/// The ids of the machines that are ready, from their records.
fn ready_ids(place: &PoolScene) -> HashSet<String> {
    let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    place.with_file(POOL_FILE).into_iter().map(name).collect()
}

fn script(text: &str) -> Start {
    Start {
        session: "look".parse().unwrap(),
        program: Program::Script { script: Text::from(text), shell: None },
        cwd: None,
        env: Vec::new(),
        user: None,
        stdio: SessionStdio::Pipes { stdin: false },
        deadline_ms: None,
        spool: SpoolSpec::default(),
        holders: Vec::new(),
        tied: false,
        limits: GroupLimits::default(),
    }
}

async fn output_of(guest: &Guest, text: &str) -> String {
    let mut out = Vec::new();
    let start = script(text);
    let finished = collect(guest, &start, &[], |bytes| out.extend_from_slice(bytes), |_| {});
    let finished = tokio::time::timeout(DEADLINE, finished).await.unwrap().unwrap();
    assert_eq!(finished.record.cause, Cause::Exited { code: 0 });
    String::from_utf8(out).unwrap()
}

async fn remove_all(registry: &Registry) {
    for record in registry.list(None) {
        registry.remove(&record.which(), true).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_ready_machines_and_sixty_four_creations_share_no_machine() {
    needs_agent!();
    let place = PoolScene::new("once");
    let registry = place.open(options(8)).await;
    full(&registry).await;
    let ready = ready_ids(&place);
    assert_eq!(ready.len(), 8);
    let mut creations = JoinSet::new();
    for number in 0..64 {
        let registry = registry.clone();
        creations.spawn(async move { registry.create(spec(&format!("box-{number}"))).await });
    }
    let records: Vec<Record> = creations.join_all().await.into_iter().map(Result::unwrap).collect();
    let ids: HashSet<_> = records.iter().map(|record| record.id.to_string()).collect();
    let pids: HashSet<_> = records.iter().map(|record| record.pid.unwrap()).collect();
    assert_eq!((records.len(), ids.len(), pids.len()), (64, 64, 64));
    assert!(ready.is_subset(&ids), "a ready machine was left while others were started");
    let counts = shelf(&registry).counts;
    assert!(counts.claimed >= 8 && counts.claimed + counts.missed == 64, "{counts:?}");
    let names: HashSet<String> = {
        let mut names = HashSet::new();
        for record in &records {
            assert_eq!(record.state, State::Running);
            assert!(
                place.paths().state_boxes().join(record.id.as_str()).join(RECORD_FILE).exists()
            );
            let guest = registry.guest(&record.which()).unwrap();
            names.insert(output_of(&guest, "touch /tmp/mine; ls /tmp | wc -l; hostname").await);
        }
        names
    };
    assert_eq!(names.len(), 64, "two sandboxes are one: {names:?}");
    assert!(place.with_file(CLAIMED_FILE).is_empty());
    remove_all(&registry).await;
    registry.leave().await;
    assert_eq!((place.machines().len(), place.boxes()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn claimed_machines_are_replaced_and_never_beyond_the_limit() {
    needs_agent!();
    let place = PoolScene::new("refill");
    let registry = place.open(options(3)).await;
    full(&registry).await;
    let mut seen = ready_ids(&place);
    for number in 0..6 {
        registry.create(spec(&format!("box-{number}"))).await.unwrap();
        let shelf = shelf(&registry);
        assert!(shelf.ready + shelf.starting <= 3, "{shelf:?}");
        assert!(place.with_file(POOL_FILE).len() <= 3);
        full(&registry).await;
        seen.extend(ready_ids(&place));
    }
    assert_eq!(shelf(&registry).counts.claimed, 6);
    assert_eq!(seen.len(), 9, "each machine has an id of its own, and each was used once");
    // The ready machines, and the sandboxes.
    assert_eq!(place.machines().len(), 3 + 6);
    let listed = registry.list(None);
    assert_eq!(listed.len(), 6, "a pooled machine is no sandbox");
    assert_eq!(registry.leave().await, 6);
    assert_eq!(place.machines().len(), 6, "sandboxes run on, and nothing else");
    assert!(place.with_file(POOL_FILE).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimed_place_stays_empty_until_nobody_claims_and_its_machine_has_run_one_program() {
    needs_agent!();
    let place = PoolScene::new("quiet");
    let registry = place.open(options(2)).await;
    full(&registry).await;
    let guests = [spec("a"), spec("b")].map(|spec| async {
        let which = spec.which();
        registry.create(spec).await.unwrap();
        registry.guest(&which).unwrap()
    });
    let [first, second] = guests;
    let (first, claimed) = (first.await, Instant::now());
    let second = second.await;
    full(&registry).await;
    assert!(claimed.elapsed() >= POOL_REFILL_QUIET, "{:?}", claimed.elapsed());
    for guest in [first, second] {
        let started = guest.sessions(0).await.unwrap();
        assert_eq!(started.sessions.len(), 0, "nothing is left of what it ran: {started:?}");
        assert!(started.version > 0, "and it did run something");
    }
    remove_all(&registry).await;
    registry.leave().await;
}

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, behind)| !behind.starts_with(['Z', 'X']))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_machine_that_was_killed_is_given_to_nobody() {
    needs_agent!();
    let place = PoolScene::new("killed");
    let registry = place.open(options(2)).await;
    full(&registry).await;
    let ready = ready_ids(&place);
    for supervisor in place.machines() {
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let init = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        kill(Pid::from_raw(supervisor as i32), Signal::SIGKILL).unwrap();
        // It answers until the kernel has killed it.
        while is_alive(init) {
            std::thread::yield_now();
        }
    }
    // At once, so that the claim itself has to find it.
    let record = registry.create(spec("web")).await.unwrap();
    assert!(!ready.contains(record.id.as_str()));
    let guest = registry.guest(&which("web")).unwrap();
    assert_eq!(output_of(&guest, "echo here").await, "here\n");
    full(&registry).await;
    assert_eq!(shelf(&registry).counts.replaced, 2);
    assert!(ready_ids(&place).is_disjoint(&ready));
    let events = place.events().into_iter().filter(|event| {
        matches!(event, Event::Pool(PoolEvent::Replaced { id, .. }) if ready.contains(id.as_str()))
    });
    assert_eq!(events.count(), 2);
    for id in &ready {
        assert!(!place.paths().state_boxes().join(id).exists(), "{id} has left something");
    }
    registry.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_hangs_is_found_and_replaced() {
    needs_agent!();
    let place = PoolScene::new("hangs");
    let options = Options { check_every: Duration::from_millis(50), ..options(1) };
    let registry = place.open(options).await;
    full(&registry).await;
    let ready = ready_ids(&place);
    let supervisor = place.machines()[0];
    let children = format!("/proc/{supervisor}/task/{supervisor}/children");
    let init = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(init), Signal::SIGSTOP).unwrap();
    until("a replacement", || (shelf(&registry).counts.replaced == 1).then_some(())).await;
    full(&registry).await;
    assert!(ready_ids(&place).is_disjoint(&ready));
    registry.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimed_sandbox_is_what_was_asked_for() {
    needs_agent!();
    let place = PoolScene::new("personal");
    let registry = place.open(options(2)).await;
    full(&registry).await;
    let ready = ready_ids(&place);
    let mut wanted = spec("team/web");
    wanted.hostname = Some("blue".to_owned());
    wanted.env = vec![("COLOUR".to_owned(), "blue sky".to_owned())];
    wanted.labels.insert("team".to_owned(), "a".to_owned());
    wanted.workdir = Some("/usr".to_owned());
    (wanted.ttl_ms, wanted.idle_ttl_ms) = (Some(3_600_000), Some(1_800_000));
    let record = registry.create(wanted).await.unwrap();
    assert!(ready.contains(record.id.as_str()));
    assert_eq!(
        (record.hostname.as_str(), record.env_names.as_slice()),
        ("blue", &["COLOUR".to_owned()][..])
    );
    assert_eq!(record.labels.get("team").map(String::as_str), Some("a"));
    assert_eq!((record.ttl_ms, record.idle_ttl_ms), (Some(3_600_000), Some(1_800_000)));
    assert!(record.expires_at_ms.is_some() && record.workdir.as_deref() == Some("/usr"));
    let guest = registry.guest(&which("team/web")).unwrap();
    assert_eq!(output_of(&guest, "hostname; echo $COLOUR").await, "blue\nblue sky\n");
    let plain = registry.create(spec("plain")).await.unwrap();
    assert!(ready.contains(plain.id.as_str()));
    let guest = registry.guest(&which("plain")).unwrap();
    assert_eq!(output_of(&guest, "hostname; echo ${COLOUR-none}").await, "plain\nnone\n");
    let written =
        fs::read_to_string(place.paths().state_boxes().join(record.id.as_str()).join(RECORD_FILE));
    assert!(!written.unwrap().contains("blue sky"), "a value of the environment is on disk");
    assert_eq!(registry.leave().await, 2);

    // The next bridge finds them like any others.
    let registry = place.open(Options::none()).await;
    assert_eq!(registry.get(&which("team/web")).unwrap().state, State::Running);
    let guest = registry.guest(&which("team/web")).unwrap();
    assert_eq!(output_of(&guest, "echo $COLOUR").await, "blue sky\n");
    remove_all(&registry).await;
    assert_eq!((place.machines().len(), place.boxes()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn unchangeable_options_start_a_cold_machine_and_harm_nobody() {
    needs_agent!();
    let place = PoolScene::new("cold");
    let registry = place.open(options(1)).await;
    full(&registry).await;
    let ready = ready_ids(&place);
    let mut other = spec("other");
    other.hide = Some(vec!["/opt".to_owned()]);
    let record = registry.create(other).await.unwrap();
    assert!(!ready.contains(record.id.as_str()));
    let counts = shelf(&registry).counts;
    assert_eq!((counts.claimed, counts.missed), (0, 0));
    // A taken name costs no machine either.
    assert!(registry.create(spec("other")).await.is_err());
    assert_eq!(ready_ids(&place), ready);
    remove_all(&registry).await;
    registry.leave().await;
}

/// A pool of virtual machines of one image.
fn virtual_options(image: &str) -> Options {
    let mut options = Options { check_every: Duration::from_millis(50), ..options(1) };
    let entry = &mut options.entries[0];
    (entry.machine, entry.image) = (MachineKind::Qemu, Some(image.to_owned()));
    options
}

fn virtual_spec(name: &str) -> Spec {
    Spec { machine: Some(MachineKind::Qemu), ..spec(name) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_an_image_gets_the_default_image() {
    needs_agent!();
    let place = PoolScene::new("virtual");
    let registry = place.open(virtual_options("full")).await;
    full(&registry).await;
    let ready = ready_ids(&place);
    let mut other = virtual_spec("other");
    other.hide = Some(vec!["/opt".to_owned()]);
    let record = registry.create(other).await.unwrap();
    assert!(!ready.contains(record.id.as_str()), "it hides what was asked for");
    let record = registry.create(virtual_spec("web")).await.unwrap();
    assert!(ready.contains(record.id.as_str()));
    remove_all(&registry).await;
    registry.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_of_an_image_that_was_built_again_is_nobodys() {
    needs_agent!();
    let place = PoolScene::new("rebuilt");
    let image = place.base.join("image");
    fs::write(&image, "one").unwrap();
    let image_path = image.to_str().unwrap().to_owned();
    let registry = place.open(virtual_options(&image_path)).await;
    full(&registry).await;
    let ready = ready_ids(&place);
    fs::write(&image, "another").unwrap();
    let wanted = Spec { image: Some(image_path), ..virtual_spec("web") };
    let record = registry.create(wanted).await.unwrap();
    assert!(!ready.contains(record.id.as_str()), "it has the old image");
    until("a replacement", || (shelf(&registry).counts.replaced == 1).then_some(())).await;
    full(&registry).await;
    assert!(ready_ids(&place).is_disjoint(&ready));
    assert_eq!(shelf(&registry).counts.failed, 0);
    remove_all(&registry).await;
    registry.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_that_fail_are_reported_and_retried_ever_less_often() {
    needs_agent!();
    let place = PoolScene::new("fails");
    let root = place.base.join("image");
    let mut options = options(2);
    options.entries[0].image = Some(root.to_string_lossy().into_owned());
    let begun = Instant::now();
    let registry = place.open(options).await;
    until("three failures", || (shelf(&registry).counts.failed >= 3).then_some(())).await;
    // One second after the first, two after the second; those that began together count each.
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    assert!(shelf(&registry).counts.failed <= 4);
    assert!(shelf(&registry).failure.unwrap().contains("no such directory"));
    let failures = place.events();
    let failures = failures.iter().filter(|event| event.is_trouble());
    assert!(failures.count() as u64 >= 3);
    // The next try may be under way.
    until("nothing is left of them", || {
        (place.machines().is_empty() && place.boxes() == 0).then_some(())
    })
    .await;
    registry.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_nobody_wants_is_replaced_at_its_age() {
    needs_agent!();
    let place = PoolScene::new("age");
    let options = Options { age_max: Some(Duration::from_millis(500)), ..options(1) };
    let registry = place.open(options).await;
    full(&registry).await;
    let mut seen = ready_ids(&place);
    until("three replacements", || {
        seen.extend(ready_ids(&place));
        (shelf(&registry).counts.replaced >= 3).then_some(())
    })
    .await;
    assert!(seen.len() >= 3, "{seen:?}");
    let counts = shelf(&registry).counts;
    assert_eq!(counts.failed, 0, "age is no failure");
    registry.leave().await;
    assert_eq!((place.machines().len(), place.boxes()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_run_in_a_context_that_was_opened_ahead_is_warm() {
    needs_agent!();
    let place = PoolScene::new("warm");
    let registry = place.open(with_contexts(2, &["python"])).await;
    full(&registry).await;
    let python: ContextName = "python".parse().unwrap();
    let first_run = async |name: &str| {
        let guest = registry.guest(&which(name)).unwrap();
        let begun = Instant::now();
        let run = guest.run_code_now(RunCode::new(open(python.clone(), "python"), "print(6 * 7)"));
        let ran = run.unwrap().collect(1024).await.unwrap();
        assert_eq!(ran.stdout(), b"42\n");
        (begun.elapsed(), guest.contexts().await.unwrap())
    };
    // The best of several, because other tests want the same processors.
    let (mut warm, mut cold) = (DEADLINE, DEADLINE);
    for number in 0..BEST_OF {
        full(&registry).await;
        let (name, ready) = (format!("warm-{number}"), ready_ids(&place));
        let record = registry.create(spec(&name)).await.unwrap();
        assert!(ready.contains(record.id.as_str()));
        let contexts = registry.guest(&which(&name)).unwrap().contexts().await.unwrap();
        assert_eq!((contexts[0].state, contexts[0].runs), (ContextState::Idle, 0));
        full(&registry).await;
        let (took, contexts) = first_run(&name).await;
        assert_eq!((contexts[0].interpreters, contexts[0].runs), (1, 1));
        warm = warm.min(took);

        let mut other = spec(&format!("cold-{number}"));
        other.hide = Some(Vec::new());
        let name = other.which().to_string();
        registry.create(other).await.unwrap();
        cold = cold.min(first_run(&name).await.0);
    }
    println!("first run: {warm:?} from the pool, {cold:?} without");
    assert!(warm < cold, "{warm:?} from the pool, {cold:?} without");

    // Another directory means another interpreter, and the same name as ever.
    full(&registry).await;
    let mut elsewhere = spec("elsewhere");
    elsewhere.workdir = Some("/usr".to_owned());
    registry.create(elsewhere).await.unwrap();
    let guest = registry.guest(&which("elsewhere")).unwrap();
    // It exists already: nobody else can create one with its name first.
    let contexts = guest.contexts().await.unwrap();
    assert_eq!(contexts[0].cwd, Some("/usr".into()));
    let mut ask = open(python.clone(), "python");
    ask.cwd = Some("/usr".into());
    let run = guest.run_code_now(RunCode::new(ask, "import os; print(os.getcwd())")).unwrap();
    assert_eq!(run.collect(1024).await.unwrap().stdout(), b"/usr\n");

    // One that cannot exist is reported.
    full(&registry).await;
    let mut nowhere = spec("nowhere");
    nowhere.workdir = Some("/not/there".to_owned());
    let warnings = registry.create(nowhere).await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("/not/there")), "{warnings:?}");

    // And so does an environment.
    full(&registry).await;
    let mut coloured = spec("coloured");
    coloured.env = vec![("COLOUR".to_owned(), "blue".to_owned())];
    registry.create(coloured).await.unwrap();
    let guest = registry.guest(&which("coloured")).unwrap();
    let code = "import os; print(os.environ['COLOUR'])";
    let run = guest.run_code_now(RunCode::new(open(python.clone(), "python"), code)).unwrap();
    assert_eq!(run.collect(1024).await.unwrap().stdout(), b"blue\n");
    remove_all(&registry).await;
    registry.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_is_asked_to_end_leaves_no_pooled_machine() {
    needs_agent!();
    let place = PoolScene::new("end");
    let daemon = place.serve(Some("/=3 memory_mib=off cpus=off"));
    let mut client = place.client().await;
    until_served(&mut client, 3).await;
    client.start(spec("stays")).await.unwrap();
    assert_eq!(client.list(control::List::default()).await.unwrap().len(), 1);
    daemon.end();
    assert_eq!(place.machines().len(), 1, "the sandbox runs on, alone");
    assert!(place.with_file(POOL_FILE).is_empty());
}

async fn until_served(client: &mut Client, ready: usize) {
    let deadline = Instant::now() + DEADLINE;
    let shelves = control::Request::Pool {};
    while client.ask::<Vec<ShelfStatus>>(&shelves).await.unwrap()[0].ready < ready {
        assert!(Instant::now() < deadline, "the pool is not filled");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What a bridge leaves that is killed at any of these points, and what the next one does with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_names_the_owner_of_a_machine_after_a_kill() {
    needs_agent!();
    let place = PoolScene::new("points");
    let daemon = place.serve(Some("/=5 memory_mib=off cpus=off"));
    let mut client = place.client().await;
    until_served(&mut client, 5).await;
    let own = client.start(spec("own")).await.unwrap();
    until_served(&mut client, 5).await;
    daemon.kill();
    assert_eq!(place.machines().len(), 6, "a crash ends no machine");
    let mut ready = place.with_file(POOL_FILE);
    ready.sort();
    let id = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    // Before its record: a machine that was starting.
    fs::remove_file(ready[0].join(POOL_FILE)).unwrap();
    // While its record was written.
    fs::rename(ready[1].join(POOL_FILE), ready[1].join("pool.json.new")).unwrap();
    // Between the claim and the sandbox's record.
    fs::rename(ready[2].join(POOL_FILE), ready[2].join(CLAIMED_FILE)).unwrap();
    // Between the sandbox's record and the removal of the claim's.
    let claimed = place.paths().state_boxes().join(own.id.as_str());
    fs::copy(ready[3].join(POOL_FILE), claimed.join(CLAIMED_FILE)).unwrap();
    // The others were ready and unused: one fits no entry any more.
    let text = fs::read_to_string(ready[4].join(POOL_FILE)).unwrap();
    let mut pooled: Value = serde_json::from_str(&text).unwrap();
    pooled["release"] = Value::from("0.0.0");
    fs::write(ready[4].join(POOL_FILE), pooled.to_string()).unwrap();

    let registry = place.open(options(1)).await;
    let status = shelf(&registry);
    assert_eq!((status.ready, status.starting), (1, 0), "{status:?}");
    assert_eq!(ready_ids(&place), HashSet::from([id(&ready[3])]));
    for gone in [0, 1, 2, 4] {
        assert!(!ready[gone].exists(), "what was left at point {gone} is still there");
    }
    assert_eq!(place.machines().len(), 2, "the sandbox, and the one that is ready");
    assert_eq!(registry.get(&which("own")).unwrap().state, State::Running);
    assert!(!claimed.join(CLAIMED_FILE).exists());
    let again = registry.create(spec("again")).await.unwrap();
    assert_eq!(again.id.as_str(), id(&ready[3]));
    let guest = registry.guest(&which("again")).unwrap();
    assert_eq!(output_of(&guest, "hostname").await, "again\n");
    remove_all(&registry).await;
    registry.leave().await;
    assert_eq!((place.machines().len(), place.boxes()), (0, 0));
}

/// A small generator with a seed: the same points in every run.
fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_is_killed_at_any_moment_leaves_nothing_behind() {
    needs_agent!();
    let place = PoolScene::new("seeds");
    let mut state = 0x5eed_0005;
    for round in 0..12 {
        let daemon = place.serve(Some("/=4 memory_mib=off cpus=off"));
        let mut client = place.client().await;
        if round % 3 > 0 {
            until_served(&mut client, 4).await;
        }
        let mut creations = JoinSet::new();
        for number in 0..6 {
            let mut client = place.client().await;
            creations.spawn(async move {
                client.start(spec(&format!("box-{round}-{number}"))).await.map(|record| record.id)
            });
        }
        // The moment of death, which differs in each round.
        tokio::time::sleep(Duration::from_micros(draw(&mut state) % 12_000)).await;
        daemon.kill();
        let records_made: Vec<_> = creations.join_all().await.into_iter().flatten().collect();

        // The next bridge has no pool, and so wants none of the ready machines.
        let registry = place.open(Options::none()).await;
        let records = registry.list(None);
        for id in &records_made {
            let found = records.iter().find(|record| record.id == *id);
            assert!(found.is_some_and(|record| record.state == State::Running), "{id} is lost");
        }
        let mut owned: Vec<_> = records.iter().filter_map(|record| record.pid).collect();
        let mut alive = place.machines();
        owned.sort_unstable();
        alive.sort_unstable();
        assert_eq!(alive, owned, "round {round}: a machine lives that is nobody's");
        for record in &records {
            let guest = registry.guest(&record.which()).unwrap();
            assert_eq!(output_of(&guest, "hostname").await.trim(), record.name.as_str());
        }
        remove_all(&registry).await;
        registry.leave().await;
        assert_eq!((place.machines().len(), place.boxes()), (0, 0), "round {round}");
        // Frees the locks' files for the next daemon.
        drop(registry);
    }
}
