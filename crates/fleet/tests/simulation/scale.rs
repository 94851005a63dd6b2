//! A fleet at its full size, without chaos until a tenth of its nodes die at once: balance, time to place, and what
//! it asks of the store.

use std::collections::BTreeMap;
use std::time::Instant;

use fleet::event::{Answer, Call, CreateCall, Refusal};
use fleet::ids::Name;
use fleet::placement::Wish;
use fleet::records::Room;

use crate::world::{Config, TICK_MS, World, needs_of};

pub(crate) struct Figures {
    pub(crate) nodes: usize,
    pub(crate) created: usize,
    /// Creates that were refused, or got no answer.
    pub(crate) refused: usize,
    /// Of a create, in simulated milliseconds.
    pub(crate) p50_ms: u64,
    pub(crate) p99_ms: u64,
    pub(crate) fewest: usize,
    pub(crate) most: usize,
    pub(crate) messages_per_create: f64,
    /// Of a fleet in which nothing happens.
    pub(crate) writes_per_s: f64,
    pub(crate) reads_per_s: f64,
    /// Sandboxes of the nodes that died, and how many were reported lost.
    pub(crate) dead: usize,
    pub(crate) lost: usize,
    pub(crate) lost_after_ms: u64,
    pub(crate) took_s: f64,
}

/// How many creates are begun in a simulated second, for each node.
const CREATES_PER_NODE: usize = 5;

struct Filling {
    begun: BTreeMap<u64, u64>,
    latencies_ms: Vec<u64>,
    refused: usize,
}

impl Filling {
    fn read(&mut self, world: &mut World) {
        for (call, answer) in std::mem::take(&mut world.answers) {
            let Some(begun) = self.begun.remove(&call) else { continue };
            match answer {
                Answer::Created { .. } => self.latencies_ms.push(world.now - begun),
                Answer::Refused(Refusal::NoRoom | Refusal::Unknown | Refusal::StartFailed) => {
                    self.refused += 1;
                }
                other => panic!("a create in a whole fleet: {other:?}"),
            }
        }
    }
}

fn fill(world: &mut World, sandboxes: usize) -> Result<Filling, String> {
    let mut filling = Filling { begun: BTreeMap::new(), latencies_ms: Vec::new(), refused: 0 };
    let step_ms = 10;
    let per_step = (world.hosts.len() * CREATES_PER_NODE * step_ms as usize).div_ceil(1_000);
    let mut next = 0;
    while next < sandboxes || !filling.begun.is_empty() {
        for _ in 0..per_step.min(sandboxes - next) {
            let host = world.random.below(world.hosts.len());
            let mib = 64 + world.random.below(384) as u64;
            let spec = mib.to_string();
            let what = CreateCall {
                name: Name::parse("free", &format!("s{next}")).expect("a name"),
                request: format!("r{next}").into(),
                wish: Wish { needs: needs_of(&spec), ..Wish::default() },
                spec: spec.into(),
                limit: None,
                returns: false,
                in_place_of: None,
            };
            let call = world.call(host, Call::Create(Box::new(what))).ok_or("a host is away")?;
            filling.begun.insert(call, world.now);
            next += 1;
        }
        let until = world.now + step_ms;
        world.run(until)?;
        filling.read(world);
    }
    Ok(filling)
}

pub(crate) fn run(nodes: usize, sandboxes: usize) -> Result<Figures, String> {
    let began = Instant::now();
    // Half as much again as the mean sandbox takes: the fleet ends two thirds full.
    let each = (sandboxes / nodes) as u64;
    let mib = each * 256 * 3 / 2;
    let room = Room { sandboxes: each as u32 * 2, memory_mib: mib, cpu_millis: mib };
    let config = Config { hosts: nodes, room, limits: BTreeMap::new(), loss: 0, way_ms: 4 };
    let mut world = World::new(1, config);
    world.run(10_000)?;
    let (writes, reads) = (world.store.writes, world.store.reads);
    world.run(20_000)?;
    let idle = |now: u64, before: u64| (now - before) as f64 / 10.0;
    let writes_per_s = idle(world.store.writes, writes);
    let reads_per_s = idle(world.store.reads, reads);

    let (messages, filled_from) = (world.messages, world.now);
    let mut filling = fill(&mut world, sandboxes)?;
    let seconds = (world.now - filled_from) as f64 / 1_000.0;
    // Without what leases cost meanwhile: a renewal and a look a second.
    let of_leases = seconds * nodes as f64 * 2.0;
    let created = filling.latencies_ms.len();
    let messages_per_create = ((world.messages - messages) as f64 - of_leases) / created as f64;
    filling.latencies_ms.sort_unstable();
    let latency = |of: usize| filling.latencies_ms[(created * of / 1_000).min(created - 1)];
    let counts: Vec<_> = (0..nodes).map(|host| world.machines(host)).collect();

    let dying = nodes / 10;
    let dead: usize = (0..dying).map(|host| world.machines(host)).sum();
    let died_at = world.now;
    for host in 0..dying {
        world.crash(host, None);
    }
    while world.checker.lost() < dead && world.now < died_at + 300_000 {
        let until = world.now + TICK_MS;
        world.run(until)?;
    }
    Ok(Figures {
        nodes,
        created,
        refused: filling.refused,
        p50_ms: latency(500),
        p99_ms: latency(990),
        fewest: counts.iter().copied().min().unwrap_or_default(),
        most: counts.iter().copied().max().unwrap_or_default(),
        messages_per_create,
        writes_per_s,
        reads_per_s,
        dead,
        lost: world.checker.lost(),
        lost_after_ms: world.now - died_at,
        took_s: began.elapsed().as_secs_f64(),
    })
}

impl Figures {
    #[expect(clippy::print_stdout, reason = "the figures are what a person runs it for")]
    pub(crate) fn print(&self) {
        println!("nodes                          {}", self.nodes);
        println!("sandboxes                      {}, {} refused", self.created, self.refused);
        println!("a create                       p50 {} ms, p99 {} ms", self.p50_ms, self.p99_ms);
        println!("sandboxes of a node            {} to {}", self.fewest, self.most);
        println!("messages for a create          {:.1}", self.messages_per_create);
        println!(
            "at rest                        {} writes/s, {} reads/s",
            self.writes_per_s, self.reads_per_s
        );
        println!(
            "a tenth of the nodes dies      {} of {} reported lost after {} s",
            self.lost,
            self.dead,
            self.lost_after_ms / 1_000
        );
        println!("it took                        {:.0} s", self.took_s);
    }
}
