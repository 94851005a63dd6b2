//! Process sandboxes that sleep when they are idle, with a real agent: what wakes them, what is right when
//! they go on, and what a bridge leaves that dies meanwhile.
//!
//! Every test is skipped, with its reason, where there is no agent binary or no control group to freeze.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agent_client::guest::Guest;
use agent_client::program::collect;
use protocol::Cause;
use sandbox::{OnIdle, Record, Registry, SandboxError, Spec, State, Until};
use tokio::task::JoinSet;

use super::place::{RegistryScene, groups_named, script, until, which};

/// Long enough for the slowest machine; a test that waits so long fails.
const DEADLINE: Duration = Duration::from_secs(30);

/// An idle time that a busy host does not stretch beyond recognition.
const IDLE: Duration = Duration::from_millis(600);

fn sleepy(name: &str) -> Spec {
    let mut spec = Spec::new(which(name));
    spec.idle_ttl_ms = Some(IDLE.as_millis() as u64);
    spec.on_idle = Some(OnIdle::Pause);
    spec
}

/// Makes one, or says why this host cannot.
#[expect(clippy::print_stdout, reason = "a skip says why")]
async fn make(registry: &Registry, spec: Spec) -> Option<Record> {
    match registry.create(spec).await {
        Ok(record) => Some(record),
        Err(error @ SandboxError::CannotSleep { .. }) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

async fn until_asleep(registry: &Registry, name: &str) {
    let mut shown = registry.watch(&which(name)).unwrap();
    let asleep = shown.wait_for(|record| record.state.is_asleep());
    tokio::time::timeout(DEADLINE, asleep).await.unwrap().unwrap();
}

async fn run(guest: &Guest, session: &str, text: &str) -> String {
    let mut output = Vec::new();
    let start = script(session, text);
    let finished = collect(guest, &start, &[], |bytes| output.extend_from_slice(bytes), |_| {});
    let finished = tokio::time::timeout(DEADLINE, finished).await.unwrap().unwrap();
    assert_eq!(finished.record.cause, Cause::Exited { code: 0 });
    String::from_utf8(output).unwrap()
}

/// The control group of version 2 that holds all of a sandbox.
fn group(record: &Record) -> PathBuf {
    let groups = groups_named(&format!("burrow-{}", record.id));
    groups.into_iter().find(|group| group.join("cgroup.freeze").exists()).unwrap()
}

fn is_frozen(group: &std::path::Path) -> bool {
    fs::read_to_string(group.join("cgroup.events")).unwrap().contains("frozen 1")
}

#[tokio::test]
async fn a_hundred_requests_wake_a_frozen_sandbox_once_and_each_is_carried_out_once() {
    needs_agent!();
    let place = RegistryScene::new("woken");
    let registry = place.registry().await;
    let Some(record) = make(&registry, sleepy("web")).await else { return };
    until_asleep(&registry, "web").await;
    assert!(is_frozen(&group(&record)));
    // Those who only look wake nobody.
    assert!(matches!(registry.guest(&which("web")), Err(SandboxError::Paused { .. })));
    assert!(matches!(registry.dial(&which("web")), Err(SandboxError::Paused { .. })));
    assert!(is_frozen(&group(&record)));
    let mut requests = JoinSet::new();
    for number in 0..100 {
        let registry = registry.clone();
        requests.spawn(async move {
            let visit = registry.visit(&which("web")).await.unwrap();
            assert!(visit.activity.is_some());
            run(&visit.guest, &format!("r{number}"), &format!("echo {number} >> /tmp/seen")).await;
            visit.woke_in.is_some()
        });
    }
    let woken = requests.join_all().await;
    assert!(woken.iter().any(|woke| *woke), "nobody was told that it had slept");
    let visit = registry.visit(&which("web")).await.unwrap();
    assert_eq!(visit.woke_in, None);
    let seen = run(&visit.guest, "count", "sort -n /tmp/seen").await;
    let expected: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    assert_eq!(seen.lines().collect::<Vec<_>>(), expected);
    drop(visit);
    until_asleep(&registry, "web").await;
    registry.remove(&which("web"), true).await.unwrap();
}

#[tokio::test]
async fn programs_go_on_where_they_were_with_the_hosts_clock_and_timers_that_are_due() {
    needs_agent!();
    let place = RegistryScene::new("clock");
    let registry = place.registry().await;
    let Some(record) = make(&registry, sleepy("web")).await else { return };
    let visit = registry.visit(&which("web")).await.unwrap();
    // A program that outlives its session is no work that somebody waits for.
    let left = "( i=0; while :; do i=$((i+1)); echo $i > /tmp/count.new; mv /tmp/count.new /tmp/count; \
                sleep 0.05; done ) >/dev/null 2>&1 & ( sleep 1; date +%s%N > /tmp/fired ) >/dev/null 2>&1 &";
    run(&visit.guest, "left", left).await;
    drop(visit);
    until_asleep(&registry, "web").await;
    let group = group(&record);
    let usage = || fs::read_to_string(group.join("cpu.stat")).unwrap();
    let used = usage();
    // It sleeps for longer than its timer.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(usage(), used, "a sandbox that sleeps has used the processor");
    let before = std::time::SystemTime::now();
    let visit = registry.visit(&which("web")).await.unwrap();
    assert!(visit.woke_in.is_some());
    let count = || run(&visit.guest, "look", "cat /tmp/count");
    let first: u64 = count().await.trim().parse().unwrap();
    let later: u64 =
        run(&visit.guest, "later", "sleep 0.3; cat /tmp/count").await.trim().parse().unwrap();
    assert!(later > first, "the program did not go on: {first}, {later}");
    let fired: u128 = run(&visit.guest, "fired", "cat /tmp/fired").await.trim().parse().unwrap();
    let before_ns = before.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    assert!(fired >= before_ns, "its timer fired while it slept");
    let now: u128 = run(&visit.guest, "now", "date +%s%N").await.trim().parse().unwrap();
    let ours = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(now.abs_diff(ours.as_nanos()) < 5_000_000_000, "its clock is wrong: {now}");
    drop(visit);
    registry.remove(&which("web"), true).await.unwrap();
}

#[tokio::test]
async fn the_next_bridge_finds_it_asleep_and_a_request_wakes_it() {
    needs_agent!();
    let place = RegistryScene::new("next-asleep");
    let registry = place.registry().await;
    let Some(record) = make(&registry, sleepy("web")).await else { return };
    let visit = registry.visit(&which("web")).await.unwrap();
    run(&visit.guest, "w", "echo kept > /tmp/kept").await;
    drop(visit);
    until_asleep(&registry, "web").await;
    registry.leave().await;
    drop(registry);
    assert!(is_frozen(&group(&record)));
    let registry = place.registry().await;
    assert!(registry.get(&which("web")).unwrap().state.is_asleep());
    let mut requests = JoinSet::new();
    for number in 0..10 {
        let registry = registry.clone();
        requests.spawn(async move {
            let visit = registry.visit(&which("web")).await.unwrap();
            run(&visit.guest, &format!("r{number}"), "cat /tmp/kept").await
        });
    }
    assert!(requests.join_all().await.iter().all(|text| text == "kept\n"));
    until_asleep(&registry, "web").await;
    registry.remove(&which("web"), true).await.unwrap();
    assert!(!group_exists(&record));
}

fn group_exists(record: &Record) -> bool {
    !groups_named(&format!("burrow-{}", record.id)).is_empty()
}

#[tokio::test]
async fn whatever_a_bridge_that_died_has_left_the_next_one_finishes() {
    needs_agent!();
    let place = RegistryScene::new("half-asleep");
    let registry = place.registry().await;
    let Some(record) = make(&registry, sleepy("web")).await else { return };
    let group = group(&record);
    let switch = group.join("cgroup.freeze");
    // It died between the freeze and the record.
    let activity = registry.activity(&which("web")).unwrap();
    registry.leave().await;
    drop((activity, registry));
    fs::write(&switch, "1").unwrap();
    let registry = place.registry().await;
    assert_eq!(registry.get(&which("web")).unwrap().state, State::Running);
    let visit = registry.visit(&which("web")).await.unwrap();
    assert_eq!(run(&visit.guest, "a", "echo on").await, "on\n");
    drop(visit);
    until_asleep(&registry, "web").await;
    registry.leave().await;
    drop(registry);
    // It died between the thaw and the record.
    fs::write(&switch, "0").unwrap();
    let registry = place.registry().await;
    assert_eq!(registry.get(&which("web")).unwrap().state, State::Running);
    let visit = registry.visit(&which("web")).await.unwrap();
    assert_eq!(run(&visit.guest, "b", "echo on").await, "on\n");
    drop(visit);
    until_asleep(&registry, "web").await;
    registry.remove(&which("web"), true).await.unwrap();
}

#[tokio::test]
async fn one_that_sleeps_is_stopped_in_order_and_killed() {
    needs_agent!();
    let place = RegistryScene::new("ends-asleep");
    let registry = place.registry().await;
    for name in ["stopped", "killed", "old"] {
        let mut spec = sleepy(name);
        spec.ttl_ms = (name == "old").then_some(2_500);
        if make(&registry, spec).await.is_none() {
            return;
        }
        until_asleep(&registry, name).await;
    }
    let since = Instant::now();
    registry.stop(&which("stopped"), Duration::from_secs(10)).await.unwrap();
    registry.kill(&which("killed")).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    let old = which("old");
    let ended = tokio::time::timeout(DEADLINE, registry.wait(&old, Until::Stopped)).await;
    assert!(ended.unwrap().unwrap().state.is_over());
}

#[tokio::test]
async fn a_pause_by_hand_lasts_until_the_resumption_by_hand() {
    needs_agent!();
    let place = RegistryScene::new("by-hand");
    let registry = place.registry().await;
    let Some(record) = make(&registry, sleepy("web")).await else { return };
    let visit = registry.visit(&which("web")).await.unwrap();
    let guest = visit.guest.clone();
    // A request that is under way when it is paused is answered when it goes on.
    let under_way = tokio::spawn(async move { run(&guest, "long", "sleep 0.5; echo done").await });
    until("the session", || fs::read_to_string(group(&record).join("cgroup.events")).ok()).await;
    registry.pause(&which("web")).await.unwrap();
    assert!(is_frozen(&group(&record)));
    let refused = registry.visit(&which("web")).await.err().unwrap();
    assert!(matches!(refused, SandboxError::Paused { .. }), "{refused}");
    registry.resume(&which("web")).await.unwrap();
    assert_eq!(tokio::time::timeout(DEADLINE, under_way).await.unwrap().unwrap(), "done\n");
    drop(visit);
    registry.remove(&which("web"), true).await.unwrap();
}
