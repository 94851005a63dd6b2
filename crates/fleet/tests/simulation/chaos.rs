//! Clients and chaos by one seed, on a few hosts; then everything is made whole, and the checker has the last word.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet::event::{Answer, Call, CreateCall, Refusal, Ticket};
use fleet::ids::Name;
use fleet::limits::RESCAN_EVERY_MS;
use fleet::placement::Wish;
use fleet::quota::QuotaError;
use fleet::records::Room;

use crate::world::{Config, World, needs_of};

/// One of them, by the seed: a small one is full most of the time.
const QUOTAS: [u32; 2] = [3, 8];
const STEPS: u64 = 1_500;
/// Longer than any stop, the grace, a lease and a refusal; shorter than the pause between two scans that nobody has asked for.
const SETTLED_MS: u64 = RESCAN_EVERY_MS - 20_000;

struct Clients {
    under_way: BTreeMap<Ticket, CreateCall>,
    /// Creates of which nobody knows whether they were done.
    unknown: Vec<CreateCall>,
    next: u64,
    quota: u32,
    refused: u64,
}

/// Half of the names are of sandboxes that are made again when they are lost.
fn returns(name: &str) -> bool {
    name.len() == 2 && name.ends_with(['0', '1', '2', '3', '4', '5'])
}

fn create_call(quota: u32, namespace: &str, name: &str, request: &str, mib: u64) -> CreateCall {
    let spec = mib.to_string();
    CreateCall {
        name: Name::parse(namespace, name).expect("a name"),
        request: request.into(),
        wish: Wish { needs: needs_of(&spec), ..Wish::default() },
        spec: spec.into(),
        limit: (namespace == "quota").then_some(quota),
        returns: returns(name),
        in_place_of: None,
    }
}

impl Clients {
    fn act(&mut self, world: &mut World) {
        let host = world.random.below(world.hosts.len());
        match world.random.below(11) {
            0..=4 => {
                self.next += 1;
                let namespace = if world.random.below(2) == 0 { "quota" } else { "free" };
                let name = format!("s{}", world.random.below(12));
                let mib = 50 + world.random.below(200) as u64;
                let call =
                    create_call(self.quota, namespace, &name, &format!("r{}", self.next), mib);
                self.create(world, host, call);
                // Two gateways at once for the same create, as a client that has lost patience does.
                if world.random.below(4) == 0 {
                    let other = world.random.below(world.hosts.len());
                    let call =
                        create_call(self.quota, namespace, &name, &format!("r{}", self.next), mib);
                    self.create(world, other, call);
                }
            }
            5 | 6 if !self.unknown.is_empty() => {
                let at = world.random.below(self.unknown.len());
                let call = self.unknown.swap_remove(at);
                self.create(world, host, call);
            }
            10 => world.remove_here(host),
            _ => {
                let namespace = if world.random.below(2) == 0 { "quota" } else { "free" };
                let name = format!("s{}", world.random.below(12));
                let name = Name::parse(namespace, &name).expect("a name");
                world.call(host, Call::Remove { name });
            }
        }
    }

    fn create(&mut self, world: &mut World, host: usize, call: CreateCall) {
        match world.call(host, Call::Create(Box::new(call.clone()))) {
            Some(ticket) => {
                self.under_way.insert(ticket, call);
            }
            None => self.unknown.push(call),
        }
    }

    fn read_answers(&mut self, world: &mut World) {
        for (ticket, answer) in std::mem::take(&mut world.answers) {
            let Some(call) = self.under_way.remove(&ticket) else { continue };
            match answer {
                Answer::Created { incarnation, .. } => {
                    world.promise(call.request, call.name, incarnation);
                }
                Answer::Refused(Refusal::Unknown | Refusal::UnderWay) => self.unknown.push(call),
                _ => self.refused += 1,
            }
        }
    }
}

fn strike(world: &mut World) {
    let host = world.random.below(world.hosts.len());
    let what = world.random.below(18);
    // A bridge that is stopped for long does not know it: half of the stops are.
    let long = world.random.below(if matches!(what, 4 | 5) { 2 } else { 4 }) == 0;
    let ms = 200 + world.random.below(if long { 60_000 } else { 6_000 }) as u64;
    let until = world.now + ms;
    match what {
        0 | 1 => world.crash(host, Some(ms)),
        2 | 3 => world.end_bridge(host, Some(ms)),
        4 | 5 => world.hosts[host].stopped_until = until,
        6 | 7 => world.hosts[host].no_requests_until = until,
        8 | 9 => world.hosts[host].no_replies_until = until,
        10 | 11 => world.hosts[host].no_peers_until = until,
        12 => world.store_away_until = world.now + ms.min(30_000),
        13 => world.config.way_ms = [40, 400, 8_000][world.random.below(3)],
        14 | 15 => world.jump(host, ms),
        _ => world.config.loss = [0, 10, 100][world.random.below(3)],
    }
}

fn heal(world: &mut World) {
    world.store_away_until = 0;
    world.config.loss = 0;
    world.config.way_ms = 20;
    for host in &mut world.hosts {
        host.stopped_until = host.stopped_until.min(world.now);
        host.no_requests_until = 0;
        host.no_replies_until = 0;
        host.no_peers_until = 0;
    }
}

pub(crate) struct Outcome {
    pub(crate) promised: usize,
    pub(crate) lost: usize,
    /// Made again after they were lost.
    pub(crate) returned: usize,
}

/// One seed from start to end.
pub(crate) fn run(seed: u64) -> Result<Outcome, String> {
    let room = Room { sandboxes: 20, memory_mib: 1_500, cpu_millis: 1_500 };
    let quota = QUOTAS[(seed % 2) as usize];
    let limits = BTreeMap::from([(Arc::from("quota"), quota)]);
    let config = Config { hosts: 5, room, limits, loss: 10, way_ms: 40 };
    let mut world = World::new(seed, config);
    let mut clients =
        Clients { under_way: BTreeMap::new(), unknown: Vec::new(), next: 0, quota, refused: 0 };
    world.run(5_000)?;
    for step in 0..STEPS {
        clients.act(&mut world);
        if step % 8 == 0 {
            strike(&mut world);
        }
        let after = world.random.below(400) as u64;
        let until = world.now + after;
        world.run(until)?;
        clients.read_answers(&mut world);
    }
    heal(&mut world);
    let until = world.now + SETTLED_MS;
    world.run(until)?;
    clients.read_answers(&mut world);
    world.checker.end()?;
    if let Some((name, record)) = world.owned_by_none() {
        return Err(format!("{name} has {record:?}, and its sandbox is not there"));
    }
    if let Some(incarnation) = world.still_recorded() {
        return Err(format!("{incarnation} was removed, and its record is still there"));
    }
    if let Some(name) = world.forgotten() {
        return Err(format!("{name} was lost, and nobody makes it again"));
    }
    let returned = world.returned;
    fill_quota(&mut world, quota)?;
    let (promised, lost) = (world.checker.promised().len(), world.checker.lost());
    Ok(Outcome { promised, lost, returned })
}

/// Nothing that chaos has left counted stays counted: the quota can be filled to the last place.
fn fill_quota(world: &mut World, quota: u32) -> Result<(), String> {
    for attempt in 0..quota + 3 {
        let call =
            create_call(quota, "quota", &format!("fill{attempt}"), &format!("fill{attempt}"), 1);
        world.call(0, Call::Create(Box::new(call))).ok_or("the first host is away")?;
        // A repair drops what it has seen for half a minute.
        let until = world.now + 40_000;
        world.run(until)?;
        for (_, answer) in std::mem::take(&mut world.answers) {
            if let Answer::Refused(refusal) = answer {
                let is_full = refusal == Refusal::Quota(QuotaError::Full { limit: quota });
                let running = world.checker.running("quota");
                if !is_full {
                    return Err(format!("a create in a whole fleet is refused: {refusal}"));
                }
                if running == quota {
                    return Ok(());
                }
            }
        }
    }
    Err(format!("the quota has {} of {quota} and takes no more", world.checker.running("quota")))
}
