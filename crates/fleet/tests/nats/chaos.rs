//! Five members on three NATS servers, while servers are killed and stopped and hosts die. The checker of the
//! simulation judges what has really happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fleet::driver::{Handle, Left, Machinery, Machines, now_ms, run};
use fleet::event::{Answer, Call, CreateCall, Note, Scope};
use fleet::ids::{Incarnation, Name, NodeId};
use fleet::lease::Leash;
use fleet::nats::Link;
use fleet::placement::Wish;
use fleet::random::Random;
use fleet::records::{NameState, NodeRecord, Room};
use fleet::{Me, nats};
use rustix::process::Signal;

use crate::checker::{Checker, Happened};
use crate::cluster::{Cluster, SERVERS};

const HOSTS: usize = 5;
const QUOTA: u32 = 5;
/// Longer than a change of NATS's leader takes; a lease lives for thirteen seconds then.
const GRACE_MS: u64 = 10_000;

/// What has happened, in the order in which it did.
#[derive(Clone)]
struct History(Arc<Mutex<Recorded>>);

struct Recorded {
    checker: Checker,
    began: Instant,
    failure: Option<String>,
}

impl History {
    fn see(recorded: &mut Recorded, happened: Happened) {
        let at = recorded.began.elapsed().as_millis() as u64;
        if let Err(why) = recorded.checker.see(at, happened) {
            recorded.failure.get_or_insert(why);
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Recorded) -> T) -> T {
        look(&mut self.0.lock().expect("no panic"))
    }
}

/// The machines of one host: entries of a map, with the guardian that a host has.
#[derive(Clone)]
struct Host {
    node: NodeId,
    history: History,
    state: Arc<Mutex<HostState>>,
}

#[derive(Default)]
struct HostState {
    running: BTreeMap<Incarnation, Name>,
    leash: Option<Leash>,
    is_dead: bool,
}

impl Host {
    /// Ends all, and the history knows it in the same moment.
    fn end_everything(&self, state: &mut HostState) {
        for incarnation in std::mem::take(&mut state.running).into_keys() {
            self.history.with(|recorded| History::see(recorded, Happened::Stops { incarnation }));
        }
    }

    fn die(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.is_dead = true;
        self.end_everything(&mut state);
    }

    async fn guard(self, leash: Leash) {
        tokio::time::sleep(Duration::from_millis(leash.end_at.saturating_sub(now_ms()))).await;
        let mut state = self.state.lock().expect("no panic");
        if state.leash == Some(leash) {
            self.end_everything(&mut state);
        }
    }
}

impl Machines for Host {
    fn start(&mut self, incarnation: Incarnation, name: Name, _: Arc<str>, report: Machinery) {
        let mut state = self.state.lock().expect("no panic");
        if state.is_dead {
            return;
        }
        let node = self.node.clone();
        let runs = Happened::Runs { node, name: name.clone(), incarnation };
        self.history.with(|recorded| History::see(recorded, runs));
        state.running.insert(incarnation, name);
        tokio::spawn(async move { report.started(incarnation, Ok(())).await });
    }

    fn end(&mut self, incarnation: Incarnation, report: Machinery) {
        let mut state = self.state.lock().expect("no panic");
        if state.running.remove(&incarnation).is_some() {
            self.history.with(|recorded| History::see(recorded, Happened::Stops { incarnation }));
        }
        tokio::spawn(async move { report.ended(incarnation).await });
    }

    fn end_all(&mut self) {
        let mut state = self.state.lock().expect("no panic");
        self.end_everything(&mut state);
    }

    fn leash(&mut self, leash: Leash) {
        self.state.lock().expect("no panic").leash = Some(leash);
        tokio::spawn(self.clone().guard(leash));
    }

    fn note(&mut self, _: &Note) {}
}

struct Fleet {
    cluster: Cluster,
    history: History,
    hosts: Vec<Option<(Handle, Host)>>,
    random: Random,
}

impl Fleet {
    /// Whether the host has come up; NATS may be away.
    async fn join(&mut self, at: usize) -> bool {
        let Ok(link) = Link::connect(&self.cluster.place(), &format!("n{at}")).await else {
            return false;
        };
        let node = NodeId::parse(&format!("n{at}")).expect("a name");
        let room = Room { sandboxes: 20, memory_mib: 2_000, cpu_millis: 2_000 };
        let me = Me {
            id: node.clone(),
            installation: node.as_str().into(),
            record: NodeRecord { room, ..NodeRecord::default() },
            grace_ms: GRACE_MS,
            seed: self.random.draw(),
        };
        let host = Host { node, history: self.history.clone(), state: Arc::default() };
        let Ok(handle) = run(me, link, host.clone(), Left::default()).await else { return false };
        self.hosts[at] = Some((handle, host));
        true
    }

    fn die(&mut self, at: usize) {
        if let Some((_, host)) = self.hosts[at].take() {
            host.die();
        }
    }

    /// A client calls some host; what it is promised is in the history.
    fn call(&mut self, number: u64) {
        let at = self.random.below(HOSTS);
        let Some((handle, _)) = &self.hosts[at] else { return };
        let namespace = ["quota", "free"][self.random.below(2)];
        let text = format!("s{}", self.random.below(10));
        let name = Name::parse(namespace, &text).expect("a name");
        let request: Arc<str> = format!("r{number}").into();
        let needs = Room { sandboxes: 1, memory_mib: 50, cpu_millis: 50 };
        let what = if self.random.below(3) == 0 {
            Call::Remove { name: name.clone() }
        } else {
            Call::Create(Box::new(CreateCall {
                name: name.clone(),
                request: request.clone(),
                wish: Wish { needs, ..Wish::default() },
                spec: "".into(),
                limit: (namespace == "quota").then_some(QUOTA),
                returns: false,
                in_place_of: None,
            }))
        };
        let (handle, history) = (handle.clone(), self.history.clone());
        tokio::spawn(async move {
            if let Answer::Created { incarnation, .. } = handle.call(what).await {
                let promised = Happened::Promised { request, name, incarnation };
                history.with(|recorded| History::see(recorded, promised));
            }
        });
    }

    /// One blow, and what it leaves to be made good, when.
    fn strike(&mut self, wounds: &mut Vec<(Instant, Wound)>) {
        let heals = Instant::now() + Duration::from_millis(500 + self.random.below(6_000) as u64);
        let server = self.random.below(SERVERS);
        let host = self.random.below(HOSTS);
        let is_hurt = |wounds: &[(Instant, Wound)]| {
            wounds.iter().any(|(_, wound)| matches!(wound, Wound::Stopped(at) | Wound::Killed(at) if *at == server))
        };
        match self.random.below(4) {
            0 if !is_hurt(wounds) => {
                self.cluster.kill(server);
                wounds.push((heals, Wound::Killed(server)));
            }
            1 | 2 if !is_hurt(wounds) => {
                self.cluster.signal(server, Signal::STOP);
                wounds.push((heals, Wound::Stopped(server)));
            }
            _ if self.hosts[host].is_some() => {
                self.die(host);
                wounds.push((heals, Wound::Dead(host)));
            }
            _ => {}
        }
    }

    async fn heal(&mut self, wounds: &mut Vec<(Instant, Wound)>, all: bool) {
        let now = Instant::now();
        let (healing, open): (Vec<_>, Vec<_>) =
            std::mem::take(wounds).into_iter().partition(|(at, _)| all || *at <= now);
        *wounds = open;
        for (_, wound) in healing {
            match wound {
                Wound::Killed(at) => self.cluster.start_again(at),
                Wound::Stopped(at) => self.cluster.signal(at, Signal::CONT),
                Wound::Dead(at) => {
                    if !self.join(at).await {
                        wounds.push((now + Duration::from_secs(1), Wound::Dead(at)));
                    }
                }
            }
        }
    }
}

enum Wound {
    Killed(usize),
    Stopped(usize),
    Dead(usize),
}

/// Adds to the history which promised sandboxes are reported lost or were removed.
async fn read_records(link: &Link, history: &History) -> Result<(), nats::StoreError> {
    let who = NodeId::parse("reader").expect("a name");
    // Those that are promised later may be claimed after the scan.
    let promised = history.with(|recorded| recorded.checker.promised());
    let (mut owned, mut lost) = (BTreeSet::new(), BTreeSet::new());
    for namespace in ["quota", "free"] {
        for (_, _, record) in link.scan(&Scope::Namespace(namespace.into()), &who).await? {
            match record.state {
                NameState::Owned => owned.insert(record.incarnation),
                NameState::Lost => lost.insert(record.incarnation),
            };
        }
    }
    history.with(|recorded| {
        for incarnation in promised {
            if lost.contains(&incarnation) {
                History::see(recorded, Happened::ReportedLost { incarnation });
            } else if !owned.contains(&incarnation) {
                History::see(recorded, Happened::RecordRemoved { incarnation });
            }
        }
    });
    Ok(())
}

async fn begin(cluster: Cluster, seed: u64) -> Fleet {
    let limits = BTreeMap::from([(Arc::from("quota"), QUOTA)]);
    let recorded = Recorded { checker: Checker::new(limits), began: Instant::now(), failure: None };
    let history = History(Arc::new(Mutex::new(recorded)));
    let hosts = (0..HOSTS).map(|_| None).collect();
    let mut fleet = Fleet { cluster, history, hosts, random: Random::new(seed) };
    let deadline = Instant::now() + Duration::from_secs(60);
    for at in 0..HOSTS {
        while !fleet.join(at).await {
            assert!(Instant::now() < deadline, "the cluster does not come up");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    fleet
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_die_and_stop_and_hosts_that_die_break_no_promise() {
    let Some(cluster) = Cluster::start("chaos") else { return };
    let mut fleet = begin(cluster, number("BURROW_CHAOS_SEED", 1)).await;
    let ends = Instant::now() + Duration::from_secs(number("BURROW_CHAOS_SECONDS", 20));
    let (mut wounds, mut calls) = (Vec::new(), 0);
    while Instant::now() < ends {
        calls += 1;
        fleet.call(calls);
        if calls % 40 == 0 {
            fleet.strike(&mut wounds);
        }
        fleet.heal(&mut wounds, false).await;
        // Time passes between calls: this is the pace of the clients.
        tokio::time::sleep(Duration::from_millis(10 + fleet.random.below(40) as u64)).await;
        assert_eq!(fleet.history.with(|recorded| recorded.failure.take()), None);
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    while !wounds.is_empty() {
        assert!(Instant::now() < deadline, "a host does not come up again");
        fleet.heal(&mut wounds, true).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The servers that are back have to find a leader first.
    let link = loop {
        match Link::connect(&fleet.cluster.place(), "reader").await {
            Ok(link) => break link,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    loop {
        let is_read = read_records(&link, &fleet.history).await;
        let end = fleet.history.with(|recorded| recorded.checker.end());
        if is_read.is_ok() && end.is_ok() {
            break;
        }
        assert!(Instant::now() < deadline, "{is_read:?}: {end:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(fleet.history.with(|recorded| recorded.failure.take()), None);
    let counts = |recorded: &mut Recorded| {
        let checker = &recorded.checker;
        (checker.promised().len(), checker.lost(), checker.running("quota"))
    };
    let (promises, lost, running) = fleet.history.with(counts);
    println!(
        "{calls} calls, {promises} promised, {lost} still reported lost, {running} in the quota"
    );
    assert!(promises > 5, "only {promises} creates came through: this proves nothing");
}
