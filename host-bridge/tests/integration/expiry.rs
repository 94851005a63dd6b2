//! Times to live and limits with a real agent: what counts as activity, what expires, and what
//! limits a sandbox.
//!
//! Every test is skipped, with its reason, where there is no agent binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::time::{Duration, Instant};

use agent_client::guest::contexts::open;
use agent_client::guest::{Guest, Options, RunCode};
use agent_client::program::collect;
use control::Client;
use daemon::{Life, Server};
use machine::ScratchPlace;
use protocol::Cause;
use sandbox::{ExpiryKind, Registry, SandboxError, Spec, State, StopReason, Until, one_shot};

use super::place::{RegistryScene, groups_named, script, which};

/// Long enough for the slowest machine; a test that waits so long fails.
const DEADLINE: Duration = Duration::from_secs(30);

/// An idle time that a busy host does not stretch beyond recognition.
const IDLE: Duration = Duration::from_millis(600);

/// A sandbox that expires when it is left alone.
fn idling(name: &str) -> Spec {
    let mut spec = Spec::new(which(name));
    spec.idle_ttl_ms = Some(IDLE.as_millis() as u64);
    spec
}

/// A separate client, which the bridge does not see.
async fn dialled(registry: &Registry, name: &str) -> Guest {
    let (address, _) = registry.dial(&which(name)).unwrap();
    Guest::connect(address, Options::named("t")).await.unwrap()
}

async fn run(guest: &Guest, text: &str) -> (String, Cause) {
    let mut output = Vec::new();
    let start = script("look", text);
    let finished = collect(guest, &start, &[], |bytes| output.extend_from_slice(bytes), |_| {});
    let finished = tokio::time::timeout(DEADLINE, finished).await.unwrap().unwrap();
    (String::from_utf8_lossy(&output).into_owned(), finished.record.cause)
}

async fn end_of(registry: &Registry, name: &str) -> StopReason {
    let name = which(name);
    let waiting = registry.wait(&name, Until::Stopped);
    let record = tokio::time::timeout(DEADLINE, waiting).await.unwrap().unwrap();
    let State::Stopped { why, .. } = record.state else { panic!("{}", record.state) };
    why
}

const IDLED: StopReason = StopReason::Expired { kind: ExpiryKind::Idle };

#[tokio::test]
async fn a_session_of_a_stranger_keeps_a_sandbox_until_its_end() {
    needs_agent!();
    let place = RegistryScene::new("session");
    let registry = place.registry().await;
    registry.create(idling("web")).await.unwrap();
    let guest = dialled(&registry, "web").await;
    let started = Instant::now();
    let long = IDLE * 3;
    let (_, cause) = run(&guest, &format!("sleep {}", long.as_secs_f64())).await;
    assert_eq!(cause, Cause::Exited { code: 0 });
    assert!(started.elapsed() >= long);
    let ended = Instant::now();
    // The link that it still has is no work.
    assert_eq!(end_of(&registry, "web").await, IDLED);
    assert!(ended.elapsed() >= IDLE / 2, "its idle time was cut short: {:?}", ended.elapsed());
}

#[tokio::test]
async fn a_run_of_a_stranger_keeps_a_sandbox_until_its_end() {
    needs_agent!();
    let place = RegistryScene::new("run");
    let registry = place.registry().await;
    registry.create(idling("web")).await.unwrap();
    let guest = dialled(&registry, "web").await;
    let code = format!("sleep {}", (IDLE * 3).as_secs_f64());
    let context = open("bash".parse().unwrap(), "bash");
    let run = guest.run_code(RunCode::new(context, code.as_str())).await.unwrap();
    run.collect(1024).await.unwrap();
    let ended = Instant::now();
    assert_eq!(end_of(&registry, "web").await, IDLED);
    assert!(ended.elapsed() >= IDLE / 2, "its idle time was cut short: {:?}", ended.elapsed());
}

#[tokio::test]
async fn work_of_the_bridge_keeps_a_sandbox_and_shows() {
    needs_agent!();
    let place = RegistryScene::new("work");
    let registry = place.registry().await;
    registry.create(idling("web")).await.unwrap();
    let activity = registry.activity(&which("web")).unwrap();
    // A sandbox that counts as idle expires within this time.
    tokio::time::sleep(IDLE * 2).await;
    let busy = registry.get(&which("web")).unwrap();
    assert_eq!((busy.state, busy.idle_since_ms), (State::Running, None));
    drop(activity);
    let idle = registry.get(&which("web")).unwrap();
    let idle_ms = idle.idle_expires_at_ms.unwrap() - idle.idle_since_ms.unwrap();
    assert_eq!(u128::from(idle_ms), IDLE.as_millis());
    assert_eq!(end_of(&registry, "web").await, IDLED);
    let gone = registry.guest(&which("web")).unwrap_err();
    assert!(matches!(gone, SandboxError::NotRunning { .. }), "{gone}");
}

#[tokio::test]
async fn a_client_of_the_control_socket_that_is_at_work_keeps_a_sandbox() {
    needs_agent!();
    let place = RegistryScene::new("idle-control");
    let registry = place.registry().await;
    let server = Server::bind(&place.0.control_socket()).unwrap();
    let serving = tokio::spawn({
        let api = api::Api::new(registry.clone(), api::Options::local());
        async move { server.run(api, Life::default()).await }
    });
    registry.create(idling("web")).await.unwrap();
    let mut client = Client::connect(&place.0).await.unwrap();
    client.work(&which("web")).await.unwrap();
    // A sandbox that counts as idle expires within this time.
    tokio::time::sleep(IDLE * 2).await;
    assert_eq!(registry.get(&which("web")).unwrap().state, State::Running);
    drop(client);
    assert_eq!(end_of(&registry, "web").await, IDLED);
    serving.abort();
}

#[tokio::test]
async fn an_absolute_time_to_live_ends_a_session_too_and_the_record_goes_in_time() {
    needs_agent!();
    let place = RegistryScene::new("age");
    let registry = place.registry().await;
    let mut spec = Spec::new(which("web"));
    (spec.ttl_ms, spec.keep_stopped_ms) = (Some(800), Some(300));
    registry.create(spec).await.unwrap();
    let guest = registry.guest(&which("web")).unwrap();
    guest.start(&script("s", "sleep 1000")).await.unwrap();
    assert_eq!(end_of(&registry, "web").await, StopReason::Expired { kind: ExpiryKind::Age });
    let web = which("web");
    let removed = registry.wait(&web, Until::Removed);
    tokio::time::timeout(DEADLINE, removed).await.unwrap().unwrap();
    assert_eq!(fs::read_dir(place.0.state_boxes()).unwrap().count(), 0);
    assert_eq!(fs::read_dir(place.0.runtime_boxes()).unwrap().count(), 0);
}

#[tokio::test]
async fn an_adopted_sandbox_begins_a_new_idle_time_and_keeps_its_other_times() {
    needs_agent!();
    let place = RegistryScene::new("idle-adopted");
    let before = {
        let registry = place.registry().await;
        let mut spec = idling("web");
        spec.ttl_ms = Some(3_600_000);
        let record = registry.create(spec).await.unwrap();
        registry.leave().await;
        record
    };
    // Time without a bridge must not count as idle time.
    tokio::time::sleep(IDLE * 2).await;
    let registry = place.registry().await;
    let after = registry.get(&which("web")).unwrap();
    assert_eq!(after.state, State::Running);
    assert_eq!(
        (after.expires_at_ms, after.idle_ttl_ms),
        (before.expires_at_ms, before.idle_ttl_ms)
    );
    assert!(after.idle_since_ms > before.idle_since_ms);
    assert_eq!(end_of(&registry, "web").await, IDLED);
}

#[tokio::test]
async fn a_sandbox_has_no_network_but_its_own() {
    needs_agent!();
    let place = RegistryScene::new("network");
    let sandbox = one_shot(&place.0, &Spec::new(which("net"))).await.unwrap();
    let (output, _) = run(sandbox.guest(), "tail -n +3 /proc/net/dev | cut -d: -f1 | xargs").await;
    assert_eq!(output, "lo\n");
    sandbox.end().await;
}

/// Takes so much memory, touches it all, and says so.
fn takes_mib(mib: u32) -> String {
    format!("head -c {mib}M /dev/zero | tail -c {mib}M | wc -c")
}

#[tokio::test]
async fn memory_is_bounded_or_the_record_says_that_it_is_not() {
    needs_agent!();
    let place = RegistryScene::new("memory");
    let registry = place.registry().await;
    let mut spec = Spec::new(which("web"));
    spec.memory_mib = Some(64);
    let record = registry.create(spec).await.unwrap();
    let guest = registry.guest(&which("web")).unwrap();
    if record.warnings.is_empty() {
        let (output, _) = run(&guest, &takes_mib(16)).await;
        assert_eq!(output.trim(), (16 << 20).to_string());
        let (output, _) = run(&guest, &takes_mib(128)).await;
        assert_ne!(output.trim(), (128 << 20).to_string(), "it had more than it was granted");
        // What it writes to a layer in memory is memory, too; none must cost it its agent.
        let fill = "head -c 128M /dev/zero > /tmp/big; stat -c %s /tmp/big";
        let (output, _) = run(&guest, fill).await;
        let written = output.trim().parse::<u64>().unwrap();
        let is_on_disk = record.scratch_place == Some(ScratchPlace::Disk);
        assert!(is_on_disk || written <= 48 << 20, "its layer had {output}");
        for _ in 0..5 {
            let (output, _) = run(&guest, &takes_mib(128)).await;
            assert_ne!(output.trim(), (128 << 20).to_string(), "it had more than it was granted");
        }
        let (output, _) = run(&guest, "echo well").await;
        assert_eq!(output, "well\n", "the agent outlives what is killed for its memory");
    } else {
        assert!(record.warnings[0].starts_with("memory_mib is not enforced"), "{record:?}");
        println!("skipped: {}", record.warnings[0]);
    }
    registry.remove(&which("web"), true).await.unwrap();
    let name = format!("burrow-{}", record.id);
    assert!(groups_named(&name).is_empty(), "{:?} are left", groups_named(&name));
}

#[tokio::test]
async fn processors_are_bounded_or_the_record_says_that_they_are_not() {
    needs_agent!();
    let place = RegistryScene::new("cpu");
    let registry = place.registry().await;
    let mut spec = Spec::new(which("web"));
    spec.cpu_millis = Some(200);
    let record = registry.create(spec).await.unwrap();
    if record.warnings.is_empty() {
        let guest = registry.guest(&which("web")).unwrap();
        let mut start = script("loop", "while :; do :; done");
        start.deadline_ms = Some(2000);
        let finished = collect(&guest, &start, &[], |_| {}, |_| {}).await.unwrap();
        let usage = &finished.record.usage;
        let percent = (usage.user_us + usage.system_us) * 100 / finished.record.duration_us;
        assert!((5..=30).contains(&percent), "it had {percent} % of a processor");
    } else {
        println!("skipped: {}", record.warnings[0]);
    }
    registry.remove(&which("web"), true).await.unwrap();
    assert!(groups_named(&format!("burrow-{}", record.id)).is_empty());
}
