//! Real bridges on three real NATS servers, while bridges and servers are killed and stopped, cut from each other and
//! left without disk, and while the wall clocks of hosts are set, by a seed. What has happened is recorded from outside, and judged when all is whole again.

mod clients;
mod faults;
mod hosts;
mod judge;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clients::{Caller, SharedLog};
use faults::{FULL_SERVER, Faults};
use hosts::{Host, NAMESPACES, QUOTA};
use judge::{History, Record};
use tempfile::TempDir;
use tests::cluster::Cluster;
use tests::eventually;
use tests::http::Client;
use tests::small_disk::SmallDisk;
use tests::wall_clock::{self, WallClock};
use watch::{Watch, keep_history, now_ms, read_history};

/// Of the short form, which is part of the suite.
const SECONDS: u64 = 14;
const HOSTS: u64 = 5;
const CALLERS: usize = 3;
/// Of the NATS server whose disk gets full: what its log of writes needs.
const SERVER_DISK_KIB: u32 = 96 * 1024;
/// A lease, a refusal, a look at every node and a scan of every name, on a busy machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(90);
/// How long what was lost is waited for to be made again. It may have no room in its namespace.
const RETURNED_WITHIN: Duration = Duration::from_secs(15);

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn real_bridges_keep_every_promise_under_chaos() {
    let seconds = number("BURROW_CHAOS_SECONDS", SECONDS);
    let hosts = number("BURROW_CHAOS_HOSTS", HOSTS) as usize;
    let first = number("BURROW_CHAOS_SEED", 1);
    for seed in first..first + number("BURROW_CHAOS_SEEDS", 1) {
        if !survives(seed, hosts, Duration::from_secs(seconds)) {
            return;
        }
    }
}

/// Whether it could be tried here.
fn survives(seed: u64, count: usize, time: Duration) -> bool {
    let place = TempDir::with_prefix("burrow-chaos-").expect("a directory");
    let stores = ["s0", "s1", "s2"].map(|name| place.path().join(name));
    let server_disk = SmallDisk::mount_or_skip(&stores[FULL_SERVER], SERVER_DISK_KIB);
    let [a, b, c] = &stores;
    let Some(mut cluster) = Cluster::start([a, b, c]) else { return false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(keep_history(&cluster.urls()));

    let shared = place.path().join("shared");
    fs::create_dir(&shared).expect("a directory");
    // The user of a sandbox is another one on the host.
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let library = wall_clock::library_or_skip();
    let mut hosts: Vec<_> = (1..=count)
        .map(|at| {
            let file = place.path().join(format!("clock{at}"));
            let clock = library.as_ref().map(|library| WallClock::new(library, file));
            Host::new(&cluster, &format!("n{at}"), &shared, clock, at == count)
        })
        .collect();
    let joined = |host: &Host| nodes(host).is_some_and(|nodes| nodes.len() == count);
    eventually("all are in the fleet", || hosts.iter().all(joined));

    let log = SharedLog::default();
    let is_over = Arc::new(AtomicBool::new(false));
    let urls: Vec<_> = hosts.iter().map(|host| format!("http://127.0.0.1:{}", host.port)).collect();
    let watch = Watch::start(hosts.iter().map(|host| (host.name.clone(), host.state())).collect());
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| {
            let seed = seed << 8 | number as u64;
            let caller = Caller::new(number, seed, urls.clone(), Arc::clone(&log));
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || caller.run(&is_over))
        })
        .collect();
    let mut faults = Faults::new(seed, server_disk);
    let end = Instant::now() + time;
    while Instant::now() < end {
        faults.step(&mut hosts, &mut cluster);
        // Faults are due in milliseconds.
        thread::sleep(Duration::from_millis(10));
    }
    is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.join().expect("a client does not fail");
    }
    faults.heal(&mut hosts, &mut cluster);
    let (history, wrong) = settle(&mut hosts, &watch, &log, &shared, || {
        runtime.block_on(read_history(&cluster.urls()))
    });
    report(seed, &history, wrong, &log, &faults);
    true
}

/// The nodes, as one of them knows them; `None` while it is not in the fleet.
fn nodes(host: &Host) -> Option<Vec<serde_json::Value>> {
    let listed = host.burrow.run(&["node", "ls", "--json"]);
    let nodes: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).ok()?;
    let is_in = nodes.iter().any(|node| node["here"] == true && node["trouble"].is_null());
    is_in.then_some(nodes)
}

/// Waits until nothing is wrong any more, or for as long as it may take; what is wrong then stays wrong, and is the answer.
fn settle(
    hosts: &mut [Host],
    watch: &Watch,
    log: &SharedLog,
    shared: &Path,
    mut read: impl FnMut() -> Vec<judge::Written>,
) -> (History, Vec<String>) {
    let (begun, deadline) = (Instant::now(), Instant::now() + SETTLED_WITHIN);
    loop {
        hosts.iter_mut().for_each(Host::start);
        let away = hosts.iter().filter(|host| nodes(host).is_none());
        let away: Vec<_> = away.map(|host| format!("{} is not in the fleet", host.name)).collect();
        // What runs is looked at before what is written is read: nothing that ends between them looks forgotten.
        let lives = watch.lives();
        let running = watch.running().into_iter().collect();
        let writes = read();
        let mut history = recorded(log, shared, writes, lives, running);
        history.stopped = stopped(hosts);
        let mut wrong = history.judge();
        wrong.extend(away);
        if wrong.is_empty() {
            wrong = disagreements(hosts, &history);
        }
        let has_returned = !history.returns().1 || begun.elapsed() > RETURNED_WITHIN;
        if (wrong.is_empty() && has_returned) || Instant::now() > deadline {
            return (history, wrong);
        }
        // Polled until the deadline.
        thread::sleep(Duration::from_millis(300));
    }
}

/// The sandboxes that are there and have stopped, by their ids, with the reason.
fn stopped(hosts: &[Host]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (host, namespace) in hosts.iter().flat_map(|host| NAMESPACES.map(|name| (host, name))) {
        let client = Client::new(&format!("http://127.0.0.1:{}", host.port));
        let path = format!("/v1/sandboxes?state=stopped&namespace={namespace}");
        let answer = client.try_send("GET", &path, &[], &[], Duration::from_secs(5));
        let Some(answer) = answer.filter(|answer| answer.status == 200) else { continue };
        let listed = answer.json();
        let all = listed["sandboxes"].as_array().into_iter().flatten();
        let text = |one: &serde_json::Value, field: &str| one[field].as_str().map(str::to_owned);
        let stopped = all.filter(|one| one["state"] == "stopped");
        found.extend(stopped.filter_map(|one| text(one, "id").zip(text(one, "reason"))));
    }
    found
}

fn recorded(
    log: &SharedLog,
    shared: &Path,
    writes: Vec<judge::Written>,
    lives: BTreeMap<judge::Incarnation, judge::Life>,
    running: BTreeSet<judge::Incarnation>,
) -> History {
    let log = log.lock().expect("no client has failed");
    let mut commands = log.commands.clone();
    let ran = fs::read_to_string(shared.join("ran")).unwrap_or_default();
    for line in ran.lines() {
        commands.entry(line.to_owned()).or_default().times += 1;
    }
    History {
        writes,
        lives,
        running,
        promises: log.promises.clone(),
        removals: log.removals.clone(),
        given_up: log.given_up.clone(),
        commands,
        quotas: [(QUOTA.0.to_owned(), QUOTA.1)].into(),
        ..History::default()
    }
}

/// Where a node says something else of a name than what the fleet has written: that it is there, or lost, or that there is
/// none.
fn disagreements(hosts: &[Host], history: &History) -> Vec<String> {
    let mut last = BTreeMap::new();
    for written in &history.writes {
        last.insert(&written.name, &written.record);
    }
    let mut found = Vec::new();
    for (host, (known, record)) in
        hosts.iter().flat_map(|host| last.iter().map(move |it| (host, it)))
    {
        let client = Client::new(&format!("http://127.0.0.1:{}", host.port));
        let (namespace, name) = known.split_once('.').expect("two words");
        let path = format!("/v1/sandboxes/{namespace}/{name}");
        let answer = client.try_send("GET", &path, &[], &[], Duration::from_secs(5));
        let expected = match record {
            Record::Owned { .. } => 200,
            Record::Lost { .. } => 410,
            Record::Removed => 404,
        };
        if answer.as_ref().is_none_or(|answer| answer.status != expected) {
            let said =
                answer.map_or("nothing".to_owned(), |it| format!("{} {}", it.status, it.text()));
            found.push(format!("{} says of {known}, which is {record:?}: {said}", host.name));
        }
    }
    found
}

#[expect(clippy::print_stdout, reason = "what a seed has come to is for who runs it")]
fn report(seed: u64, history: &History, mut wrong: Vec<String>, log: &SharedLog, faults: &Faults) {
    let log = log.lock().expect("no client has failed");
    let lost = history.writes.iter().filter(|it| matches!(it.record, Record::Lost { .. })).count();
    let (again, _) = history.returns();
    let asks = |it: &&judge::Written| matches!(it.record, Record::Lost { returns: true, .. });
    let asking = history.writes.iter().filter(asks).count();
    println!(
        "seed {seed}: {} faults, {} machines, {} creates acknowledged, {lost} lost, {asking} of those to be made again, {again} made again, {} commands asked for",
        faults.events.len(),
        history.lives.len(),
        history.promises.len(),
        history.commands.len(),
    );
    println!("answers: {:?}", log.answers);
    wrong.extend(log.wrong.iter().cloned());
    if !wrong.is_empty() {
        let names: BTreeSet<_> =
            history.writes.iter().map(|written| written.name.as_str()).collect();
        let concerned = names.iter().filter(|name| wrong.iter().any(|line| line.contains(**name)));
        let parts: Vec<_> =
            concerned.map(|name| format!("{name}:\n{}", history.of_name(name))).collect();
        panic!(
            "seed {seed}, at {}:\n{}\n\n{}\nfaults:\n{}",
            now_ms(),
            wrong.join("\n"),
            parts.join("\n"),
            faults.events.join("\n")
        );
    }
    // Chaos that nothing comes through, or that hurts nobody, proves nothing.
    assert!(history.promises.len() > 3, "only {} creates", history.promises.len());
    assert!(faults.events.len() > 5, "only {} faults", faults.events.len());
}
