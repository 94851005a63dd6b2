//! Members over a real server. Their machines are entries of a set: what a machine is, is no matter of the fleet's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fleet::driver::{Handle, Left, Machinery, Machines, run};
use fleet::event::{Answer, Call, CreateCall, Note, Refusal};
use fleet::ids::{Incarnation, Name, NodeId};
use fleet::lease::{Leash, Phase};
use fleet::nats::{Link, Place};
use fleet::placement::Wish;
use fleet::records::{NodeRecord, Room};
use fleet::{Me, Status, limits};

use crate::server::Server;

/// Short, so that a test of its end does not take a minute; the lease lives six seconds then.
pub(crate) const GRACE_MS: u64 = 3_000;

#[derive(Clone, Default)]
struct Running(Arc<Mutex<BTreeMap<Incarnation, Name>>>);

impl Running {
    fn names(&self) -> Vec<String> {
        self.0.lock().expect("no panic").values().map(ToString::to_string).collect()
    }
}

impl Machines for Running {
    fn start(&mut self, incarnation: Incarnation, name: Name, _: Arc<str>, report: Machinery) {
        self.0.lock().expect("no panic").insert(incarnation, name);
        tokio::spawn(async move { report.started(incarnation, Ok(())).await });
    }

    fn end(&mut self, incarnation: Incarnation, report: Machinery) {
        self.0.lock().expect("no panic").remove(&incarnation);
        tokio::spawn(async move { report.ended(incarnation).await });
    }

    fn end_all(&mut self) {
        self.0.lock().expect("no panic").clear();
    }

    fn leash(&mut self, _: Leash) {}

    fn note(&mut self, _: &Note) {}
}

pub(crate) struct Bridge {
    pub(crate) handle: Handle,
    running: Running,
}

async fn join(server: &Server, id: &str, grace_ms: u64) -> Bridge {
    join_at(&server.place(), id, grace_ms).await
}

pub(crate) async fn join_at(place: &Place, id: &str, grace_ms: u64) -> Bridge {
    let link = Link::connect(place, id).await.expect("a link");
    let room = Room { sandboxes: 10, memory_mib: 1_000, cpu_millis: 1_000 };
    let me = Me {
        id: NodeId::parse(id).expect("a name"),
        installation: id.into(),
        record: NodeRecord { room, ..NodeRecord::default() },
        grace_ms,
        seed: u64::from(id.as_bytes()[1]),
    };
    let running = Running::default();
    let handle = run(me, link, running.clone(), Left::default()).await.expect("it joins");
    until(&handle, |status| status.phase == Phase::Held).await;
    Bridge { handle, running }
}

pub(crate) async fn until(handle: &Handle, is_so: impl FnMut(&Status) -> bool) {
    let waiting = handle.until(is_so);
    let in_time = tokio::time::timeout(Duration::from_secs(40), waiting).await;
    in_time.unwrap_or_else(|_| panic!("it stays at {:?}", handle.status()));
}

pub(crate) fn create(name: &str, request: &str, limit: Option<u32>) -> Call {
    let needs = Room { sandboxes: 1, memory_mib: 100, cpu_millis: 100 };
    Call::Create(Box::new(CreateCall {
        name: Name::parse("team", name).expect("a name"),
        request: request.into(),
        wish: Wish { needs, ..Wish::default() },
        spec: "".into(),
        limit,
        returns: false,
        in_place_of: None,
    }))
}

pub(crate) fn named(name: &str) -> Name {
    Name::parse("team", name).expect("a name")
}

/// Repeats a call until its answer is as wished.
pub(crate) async fn eventually(
    handle: &Handle,
    call: Call,
    is_so: impl Fn(&Answer) -> bool,
) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(40);
    loop {
        let answer = handle.call(call.clone()).await;
        if is_so(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "the answer stays {answer:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Three bridges that know of each other.
async fn three(server: &Server) -> Vec<Bridge> {
    let mut bridges = Vec::new();
    for id in ["n1", "n2", "n3"] {
        bridges.push(join(server, id, GRACE_MS).await);
    }
    for bridge in &bridges {
        until(&bridge.handle, |status| status.nodes == 3).await;
    }
    bridges
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_gateway_creates_every_gateway_finds_and_may_remove() {
    let Some(server) = Server::start() else { return };
    let bridges = three(&server).await;
    let is_created = |answer: &Answer| matches!(answer, Answer::Created { .. });
    for number in 0..12 {
        let call = create(&format!("s{number}"), &format!("r{number}"), None);
        let created = eventually(&bridges[number % 3].handle, call.clone(), is_created).await;
        let Answer::Created { incarnation, node, fence } = created else { unreachable!() };
        // The same create at another gateway is the same sandbox.
        let again = bridges[(number + 1) % 3].handle.call(call).await;
        assert_eq!(again, Answer::Created { incarnation, node: node.clone(), fence });
        let find = Call::Find { name: named(&format!("s{number}")) };
        let found = bridges[(number + 2) % 3].handle.call(find).await;
        assert_eq!(found, Answer::Found { incarnation, node, fence });
    }
    let owned: Vec<_> = bridges.iter().map(|bridge| bridge.running.names().len()).collect();
    assert_eq!(owned.iter().sum::<usize>(), 12);
    assert!(owned.iter().all(|count| *count >= 2), "they are not spread: {owned:?}");
    let taken = bridges[0].handle.call(create("s1", "another", None)).await;
    assert_eq!(taken, Answer::Refused(Refusal::Taken));
    let removed = bridges[2].handle.call(Call::Remove { name: named("s1") }).await;
    assert_eq!(removed, Answer::Removed);
    let found = bridges[0].handle.call(Call::Find { name: named("s1") }).await;
    assert_eq!(found, Answer::Absent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_never_exceeded_by_gateways_that_race() {
    let Some(server) = Server::start() else { return };
    let bridges = three(&server).await;
    let calls = (0..24).map(|number| {
        let handle = bridges[number % 3].handle.clone();
        let call = create(&format!("s{number}"), &format!("r{number}"), Some(7));
        tokio::spawn(async move { handle.call(call).await })
    });
    let mut created = 0;
    for call in calls.collect::<Vec<_>>() {
        created += u32::from(matches!(call.await.expect("a call"), Answer::Created { .. }));
    }
    let running: usize = bridges.iter().map(|bridge| bridge.running.names().len()).sum();
    assert!(running <= 7 && created as usize == running, "{created} created, {running} run");
    assert!(created > 0, "the quota lets nothing in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_bridge_had_is_reported_lost_and_its_name_is_free_again() {
    let Some(server) = Server::start() else { return };
    let mut bridges = three(&server).await;
    let is_created = |answer: &Answer| matches!(answer, Answer::Created { .. });
    let mut doomed = Vec::new();
    for number in 0..9 {
        let call = create(&format!("s{number}"), &format!("r{number}"), None);
        let created = eventually(&bridges[number % 3].handle, call, is_created).await;
        if matches!(created, Answer::Created { node, .. } if node.as_str() == "n3") {
            doomed.push(format!("s{number}"));
        }
    }
    assert!(!doomed.is_empty(), "the third bridge has none");
    drop(bridges.pop());
    for name in &doomed {
        let find = Call::Find { name: named(name) };
        let answer =
            eventually(&bridges[0].handle, find, |a| matches!(a, Answer::Lost { .. })).await;
        assert!(matches!(answer, Answer::Lost { node, .. } if node.as_str() == "n3"));
    }
    until(&bridges[0].handle, |status| status.nodes == 2).await;
    eventually(&bridges[1].handle, create(&doomed[0], "second", None), is_created).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_nats_creates_are_refused_and_all_is_as_before_when_it_comes_back() {
    let Some(mut server) = Server::start() else { return };
    let bridge = join(&server, "n1", limits::GRACE_MS).await;
    let is_created = |answer: &Answer| matches!(answer, Answer::Created { .. });
    eventually(&bridge.handle, create("s1", "r1", None), is_created).await;
    server.kill();
    let refused = bridge.handle.call(create("s2", "r2", None)).await;
    assert_eq!(refused, Answer::Refused(Refusal::Away));
    assert_eq!(bridge.running.names(), ["team.s1"], "it runs on within the grace");
    server.start_again();
    let again = eventually(&bridge.handle, create("s2", "r2", None), is_created).await;
    assert!(matches!(again, Answer::Created { .. }));
    let find = bridge.handle.call(Call::Find { name: named("s1") }).await;
    assert!(matches!(find, Answer::Found { .. }), "{find:?}");
    assert_eq!(bridge.running.names().len(), 2);
}
