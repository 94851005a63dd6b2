//! The process machine with a real agent: start, record, lose, find again, stop, and leave nothing.
//!
//! Every test is skipped, with its reason, where there is no agent binary or this host cannot make
//! namespaces.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_client::guest::{Guest, Options};
use agent_client::program::collect;
use control::{Client, ClientError, ErrorCode, List, Purpose, Request};
use daemon::{ServeOptions, serve};
use host::paths::Paths;
use machine::{MachineError, Machines};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::message::Channel;
use protocol::requests::Start;
use protocol::{Cause, SessionId};
use sandbox::log::{Entry, Event, From, Reader};
use sandbox::record::StoredRecord;
use sandbox::{
    EventSink, RECORDED_HOLDER, Record, Registry, SandboxError, Spec, State, StopReason, event,
    find_log, one_shot,
};
use settings::Settings;

use super::place::{RegistryScene, groups_named, script, until, which};

/// Long enough for the slowest machine; a test that waits so long fails.
const DEADLINE: Duration = Duration::from_secs(30);

fn spec(name: &str) -> Spec {
    Spec::new(which(name))
}

fn session(id: &str) -> SessionId {
    id.parse().unwrap()
}

/// A shell script as a session that is recorded.
fn recorded(id: &str, text: &str) -> Start {
    Start { holders: vec![RECORDED_HOLDER.to_owned()], ..script(id, text) }
}

async fn output_of(guest: &Guest, text: &str) -> (String, Cause) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let start = script("look", text);
    let finished = collect(
        guest,
        &start,
        &[],
        |b| out.extend_from_slice(b),
        |b| {
            err.extend_from_slice(b);
        },
    );
    let finished = tokio::time::timeout(DEADLINE, finished).await.unwrap().unwrap();
    out.extend(err);
    (String::from_utf8_lossy(&out).into_owned(), finished.record.cause)
}

/// The output of `seq 1 last`.
fn numbers_up_to(last: u32) -> String {
    (1..=last).fold(String::new(), |mut text, number| {
        writeln!(text, "{number}").unwrap();
        text
    })
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn children_named(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).map(|entries| {
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    });
    entries.unwrap_or_default()
}

/// Everything that a log says, as (session's stdout, whether it has exited, closed).
fn read_log(paths: &Paths, name: &str, id: &str) -> (Vec<u8>, Option<Cause>, bool) {
    let directory = find_log(paths, &which(name)).unwrap();
    let mut reader = Reader::open(&directory, From::Start).unwrap().only(session(id));
    let (mut bytes, mut cause, mut closed) = (Vec::new(), None, false);
    while let Some(Entry { event, .. }) = reader.next().unwrap() {
        match event {
            Event::Output { channel: Channel::Stdout, offset, bytes: chunk, .. } => {
                assert_eq!(
                    offset,
                    bytes.len() as u64,
                    "the log has a hole or says something twice"
                );
                bytes.extend(chunk);
            }
            Event::Gap { from, to, .. } => panic!("bytes {from} to {to} are not in the log"),
            Event::Exited { record, .. } => {
                assert!(cause.replace(record.cause).is_none(), "it exited twice");
            }
            Event::Closed { .. } => closed = true,
            Event::Damaged { bytes } => panic!("{bytes} bytes of the log are damaged"),
            Event::Started { .. }
            | Event::Output { .. }
            | Event::Resized { .. }
            | Event::Missing { .. } => {}
        }
    }
    (bytes, cause, closed)
}

#[tokio::test]
async fn a_one_shot_runs_a_command_and_leaves_nothing() {
    needs_agent!();
    let place = RegistryScene::new("one-shot");
    let mut spec = spec("once");
    spec.env = vec![("COLOUR".to_owned(), "blue".to_owned())];
    let sandbox = one_shot(&place.0, &spec).await.unwrap();
    let (output, cause) = output_of(sandbox.guest(), "echo $COLOUR $(hostname); echo $$ >&2").await;
    assert!(output.starts_with("blue once\n"), "{output:?}");
    assert_eq!(cause, Cause::Exited { code: 0 });
    let began = Instant::now();
    sandbox.end().await;
    assert!(began.elapsed() < Duration::from_secs(1), "it took {:?} to end", began.elapsed());
    assert!(children_named(&place.0.runtime).is_empty());
    assert!(children_named(&place.0.state).is_empty());
}

#[tokio::test]
async fn the_bridges_directories_and_the_hosts_secrets_are_hidden() {
    needs_agent!();
    let place = RegistryScene::new("hidden");
    fs::write(place.0.state.join("canary"), "x").unwrap();
    let sandbox = one_shot(&place.0, &spec("hidden")).await.unwrap();
    let canary = place.0.state.join("canary");
    let text = format!("cat {}; cat /etc/shadow", canary.display());
    let (output, _) = output_of(sandbox.guest(), &text).await;
    assert!(!output.contains("root:") && !output.starts_with('x'), "{output:?}");
    sandbox.end().await;
}

#[tokio::test]
async fn a_dropped_one_shot_is_killed() {
    needs_agent!();
    let place = RegistryScene::new("dropped");
    let sandbox = one_shot(&place.0, &spec("dropped")).await.unwrap();
    let exited = {
        let guest = sandbox.guest().clone();
        drop(sandbox);
        guest.lost()
    };
    tokio::time::timeout(DEADLINE, exited).await.unwrap();
}

#[tokio::test]
async fn a_missing_root_is_reported_before_anything_is_made() {
    needs_agent!();
    let place = RegistryScene::new("no-root");
    let registry = place.registry().await;
    let mut spec = spec("web");
    spec.image = Some("/nowhere/at/all".to_owned());
    let error = registry.create(spec).await.unwrap_err();
    assert!(matches!(error, SandboxError::Machine(MachineError::Root { .. })), "{error}");
    assert!(children_named(&place.0.state_boxes()).is_empty());
    assert!(registry.list(None).is_empty(), "the name is still taken");
}

#[tokio::test]
async fn a_sandbox_is_started_recorded_stopped_and_removed() {
    needs_agent!();
    let place = RegistryScene::new("whole-life");
    let registry = place.registry().await;
    let record = registry.create(spec("web")).await.unwrap();
    assert_eq!(record.state, State::Running);
    let pid = record.pid.unwrap();
    let taken = registry.create(spec("web")).await.unwrap_err();
    assert!(matches!(&taken, SandboxError::NameTaken { id, .. } if *id == record.id), "{taken}");
    registry.create(spec("other/web")).await.unwrap();

    let (address, _) = registry.dial(&which("web")).unwrap();
    let guest = Guest::connect(address, Options::named("t"));
    let guest = guest.await.unwrap();
    guest.start(&recorded("s1", "seq 1 10000")).await.unwrap();
    let cause = until("the exit in the log", || read_log(&place.0, "web", "s1").1).await;
    assert_eq!(cause, Cause::Exited { code: 0 });
    let expected = numbers_up_to(10_000);
    assert_eq!(read_log(&place.0, "web", "s1").0, expected.as_bytes());

    let running = registry.remove(&which("web"), false).await.unwrap_err();
    assert!(matches!(running, SandboxError::StillRunning { .. }), "{running}");
    drop(guest);
    let stopped = registry.stop(&which("web"), Duration::from_secs(5)).await.unwrap();
    assert!(
        matches!(stopped.state, State::Stopped { why: StopReason::Requested, .. }),
        "{}",
        stopped.state
    );
    assert!(!is_alive(pid));
    assert!(read_log(&place.0, "web", "s1").2, "the log is not closed");
    assert!(!place.0.runtime_boxes().join(record.id.as_str()).exists());

    registry.remove(&which("web"), false).await.unwrap();
    assert!(!place.0.state_boxes().join(record.id.as_str()).exists());
    registry.remove(&which("other/web"), true).await.unwrap();
    assert!(children_named(&place.0.state_boxes()).is_empty());
    assert!(children_named(&place.0.runtime_boxes()).is_empty());
}

#[tokio::test]
async fn output_during_a_stop_is_in_the_log() {
    needs_agent!();
    let place = RegistryScene::new("last-words");
    let registry = place.registry().await;
    registry.create(spec("web")).await.unwrap();
    let (address, _) = registry.dial(&which("web")).unwrap();
    let options = Options::named("t");
    let guest = Guest::connect(address, options).await.unwrap();
    let text = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done";
    guest.start(&recorded("s", text)).await.unwrap();
    until("the session to be up", || (read_log(&place.0, "web", "s").0 == b"up\n").then_some(()))
        .await;
    registry.stop(&which("web"), Duration::from_secs(10)).await.unwrap();
    let (output, cause, closed) = read_log(&place.0, "web", "s");
    assert_eq!(String::from_utf8_lossy(&output), "up\nbye\n");
    assert!(closed && cause.is_some(), "{cause:?}");
    registry.remove(&which("web"), false).await.unwrap();
}

#[tokio::test]
async fn a_killed_supervisor_is_noticed_and_nothing_stays() {
    needs_agent!();
    let place = RegistryScene::new("killed");
    let registry = place.registry().await;
    let record = registry.create(spec("web")).await.unwrap();
    let pid = Pid::from_raw(record.pid.unwrap() as i32);
    kill(pid, Signal::SIGKILL).unwrap();
    let state = until("the end", || {
        let state = registry.get(&which("web")).unwrap().state;
        state.is_over().then_some(state)
    })
    .await;
    assert!(matches!(state, State::Stopped { why: StopReason::Ended { .. }, .. }), "{state}");
    assert!(children_named(&place.0.runtime_boxes()).is_empty());
    let groups = groups_named(&format!("burrow-{}", record.id));
    assert!(groups.is_empty(), "{groups:?} are left");
    registry.remove(&which("web"), false).await.unwrap();
}

/// The directories of a test that runs in its own process.
const PLACE_VARIABLE: &str = "BURROW_TEST_PLACE";

/// Runs this test program again, to be killed while it runs one of the tests for that.
struct Killable(std::process::Child);

impl Killable {
    fn run(test: &str, place: &RegistryScene) -> Self {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        // Tests are named by their modules within the binary.
        let (_, module) = module_path!().split_once("::").expect("a module of the binary");
        let test = format!("{module}::{test}");
        command.args(["--ignored", "--exact", &test, "--nocapture"]);
        command.env(PLACE_VARIABLE, place.0.runtime.parent().unwrap());
        Self(command.stdout(std::process::Stdio::null()).spawn().unwrap())
    }

    /// Its child processes.
    fn children(&self) -> Vec<u32> {
        let tasks = children_named(Path::new(&format!("/proc/{}/task", self.0.id())));
        let read = |task| fs::read_to_string(format!("/proc/{}/task/{task}/children", self.0.id()));
        let lists: Vec<String> = tasks.iter().flat_map(read).collect();
        let pids = lists.iter().flat_map(|list| list.split_whitespace());
        pids.map(|pid| pid.parse().unwrap()).collect()
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// `None` when the test was not run by another one.
fn place_of_parent() -> Option<Paths> {
    let base = PathBuf::from(std::env::var_os(PLACE_VARIABLE)?);
    Some(Paths { runtime: base.join("run"), state: base.join("state") })
}

#[tokio::test]
#[ignore = "run by another test in a process of its own"]
async fn as_a_bridge_that_is_killed() {
    let Some(paths) = place_of_parent() else { return };
    let registry = Registry::open(paths, Machines::default(), event::nobody()).await.unwrap();
    registry.create(spec("dies")).await.unwrap();
    registry.create(spec("kept")).await.unwrap();
    let (address, _) = registry.dial(&which("kept")).unwrap();
    let options = Options::named("t");
    let guest = Guest::connect(address, options).await.unwrap();
    guest.start(&recorded("flood", "seq 1 3000000")).await.unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_bridge_killed_in_a_flood_finds_its_sandboxes_again_and_the_output_is_whole() {
    needs_agent!();
    let place = RegistryScene::new("adopted");
    let bridge = Killable::run("as_a_bridge_that_is_killed", &place);
    until("some of the flood", || {
        let directory = find_log(&place.0, &which("kept")).ok()?;
        let bytes: u64 = children_named(&directory)
            .iter()
            .flat_map(|name| fs::metadata(directory.join(name)))
            .map(|metadata| metadata.len())
            .sum();
        (bytes > 1_000_000).then_some(())
    })
    .await;
    bridge.kill();
    let (before, _, _) = read_log(&place.0, "kept", "flood");
    let expected = numbers_up_to(3_000_000);
    assert!(before.len() < expected.len(), "the flood was over before the bridge was killed");
    let dies = state_of(&place.0, "dies").pid.unwrap();
    let pid = Pid::from_raw(dies as i32);
    kill(pid, Signal::SIGKILL).unwrap();
    until("the supervisor to be gone", || (!is_alive(dies)).then_some(())).await;

    let registry = place.registry().await;
    let state = registry.get(&which("dies")).unwrap().state;
    assert!(matches!(state, State::Stopped { why: StopReason::BridgeAway, .. }), "{state}");
    let handle = registry.get(&which("kept")).unwrap();
    assert_eq!(handle.state, State::Running);
    let mut reader =
        Reader::open(&find_log(&place.0, &which("kept")).unwrap(), From::Start).unwrap();
    let follow_to_exit = async {
        while !matches!(reader.follow().await.unwrap().unwrap().event, Event::Exited { .. }) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, follow_to_exit).await.unwrap();
    assert!(read_log(&place.0, "kept", "flood").0 == expected.as_bytes(), "the flood differs");
    registry.kill(&which("kept")).await.unwrap();
    assert!(!is_alive(handle.pid.unwrap()));
    for name in ["kept", "dies"] {
        registry.remove(&which(name), false).await.unwrap();
    }
    assert!(children_named(&place.0.state_boxes()).is_empty());
    let groups = groups_named(&format!("burrow-{}", handle.id));
    assert!(groups.is_empty(), "{groups:?} are left");
}

#[tokio::test]
#[ignore = "run by another test in a process of its own"]
async fn as_a_one_shot_that_is_killed() {
    let Some(paths) = place_of_parent() else { return };
    let sandbox = one_shot(&paths, &spec("once")).await.unwrap();
    sandbox.guest().start(&script("s", "sleep 1000")).await.unwrap();
    fs::write(paths.state.join("up"), "").unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_one_shot_is_gone_soon_after_its_bridge_was_killed() {
    needs_agent!();
    let place = RegistryScene::new("orphan");
    let bridge = Killable::run("as_a_one_shot_that_is_killed", &place);
    until("the sandbox", || place.0.state.join("up").exists().then_some(())).await;
    let supervisors = bridge.children();
    assert_eq!(supervisors.len(), 1, "{supervisors:?}");
    bridge.kill();
    until("the end of the sandbox", || (!is_alive(supervisors[0])).then_some(())).await;
}

fn state_of(paths: &Paths, name: &str) -> Record {
    let directory = find_log(paths, &which(name)).unwrap();
    let stored = StoredRecord::read(directory.parent().unwrap()).unwrap();
    stored.record
}

#[tokio::test]
async fn the_whole_of_it_goes_over_the_control_socket() {
    needs_agent!();
    let place = RegistryScene::new("control");
    let paths = place.0.clone();
    assert!(matches!(Client::connect(&paths).await, Err(ClientError::NotRunning { .. })));
    let received = Arc::new(Mutex::new(Vec::new()));
    let events: EventSink = {
        let received = Arc::clone(&received);
        Arc::new(move |event| received.lock().unwrap().push(event.to_string()))
    };
    let mut settings = Settings::default();
    settings.server.listen.clear();
    let otel = otel::Otel::default();
    let paths_of = paths.clone();
    let options = ServeOptions { paths: paths_of, settings, events, otel, is_unattended: false };
    let serving = tokio::spawn(serve(options));
    until("the socket", || paths.control_socket().exists().then_some(())).await;

    let mut client = Client::connect(&paths).await.unwrap();
    assert_eq!(client.version().await.unwrap().pid, std::process::id());
    let record = client.start(spec("web")).await.unwrap();
    assert_eq!(record.state, State::Running);
    let Err(ClientError::Refused(refusal)) = client.start(spec("web")).await else { panic!() };
    assert_eq!(refusal.code, ErrorCode::NameTaken);
    assert!(refusal.hint.is_some());
    assert_eq!(client.list(List::default()).await.unwrap().len(), 1);
    assert_eq!(client.dial(&which("web"), Purpose::default()).await.unwrap().state, State::Running);
    let stop = Request::Stop { sandbox: which("web"), grace_ms: Some(1000) };
    client.ask::<Record>(&stop).await.unwrap();
    assert!(client.list(List::default()).await.unwrap().is_empty());
    assert!(client.inspect(&which("web")).await.unwrap().state.is_over());
    let remove = Request::Remove { sandbox: which("web"), force: false, moves: false };
    client.ask::<Record>(&remove).await.unwrap();
    serving.abort();
    let received = received.lock().unwrap().clone();
    assert!(received.iter().any(|line| line == "web: removed"), "{received:?}");
}
