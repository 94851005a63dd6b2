//! What befalls hosts and NATS servers, by a seed: each fault has its end, and several may last at once.

use std::time::{Duration, Instant};

use fleet::random::Random;
use nix::sys::signal::Signal;
use tests::cluster::{Cluster, SERVERS};

use super::hosts::Host;

/// The NATS server whose disk gets full.
pub(super) const FULL_SERVER: usize = SERVERS - 1;
/// How wrong a clock gets, at most.
const CLOCK_S_MAX: usize = 4 * 3_600;
/// Between the beginnings of two faults, at most.
const PAUSE_MS_MAX: usize = 1_600;

#[derive(Clone, Copy, Debug)]
enum End {
    Start(usize),
    Continue(usize),
    StartServer(usize),
    ContinueServer(usize),
    Heal(usize),
    FreeDisk(usize),
    FreeServer,
    SetClockRight(usize),
}

/// See the module's description.
pub(super) struct Faults {
    random: Random,
    next: Instant,
    lasting: Vec<(Instant, End)>,
    /// The disk of [`FULL_SERVER`], if it could be mounted.
    server_disk: Option<tests::small_disk::SmallDisk>,
    filler: Option<tests::small_disk::Filler>,
    began: Instant,
    /// What happened, for who reads a failure.
    pub events: Vec<String>,
}

impl Faults {
    pub(super) fn new(seed: u64, server_disk: Option<tests::small_disk::SmallDisk>) -> Self {
        let now = Instant::now();
        Self {
            random: Random::new(seed),
            next: now,
            lasting: Vec::new(),
            server_disk,
            filler: None,
            began: now,
            events: Vec::new(),
        }
    }

    /// What is due now.
    pub(super) fn step(&mut self, hosts: &mut [Host], cluster: &mut Cluster) {
        let now = Instant::now();
        let (due, left) = self.lasting.drain(..).partition(|(at, _)| *at <= now);
        self.lasting = left;
        let due: Vec<(Instant, End)> = due;
        for (_, end) in due {
            self.end(end, hosts, cluster);
        }
        if now < self.next {
            return;
        }
        let pause = self.random.below(PAUSE_MS_MAX) as u64;
        self.next = now + Duration::from_millis(pause);
        self.begin(hosts, cluster);
        // One that its guardian has killed, or that found no disk, is started again as its service would be.
        let at = self.random.below(hosts.len());
        let is_meant = |(_, end): &(Instant, End)| matches!(end, End::Start(of) if *of == at);
        if !self.lasting.iter().any(is_meant) {
            hosts[at].start();
        }
    }

    fn begin(&mut self, hosts: &mut [Host], cluster: &mut Cluster) {
        let (at, server) = (self.random.below(hosts.len()), self.random.below(SERVERS));
        // Most faults are short, and one in four is longer than a lease.
        let is_long = self.random.below(4) == 0;
        let ms = 200 + self.random.below(if is_long { 14_000 } else { 3_000 }) as u64;
        let kind = self.random.below(15);
        let end = match kind {
            0..=2 => {
                hosts[at].kill();
                End::Start(at)
            }
            3 | 4 => {
                hosts[at].signal(Signal::SIGSTOP);
                End::Continue(at)
            }
            5 => {
                cluster.kill(server);
                End::StartServer(server)
            }
            6 => {
                cluster.signal(server, Signal::SIGSTOP);
                End::ContinueServer(server)
            }
            7 | 8 => {
                hosts[at].cut_from_nats(true);
                End::Heal(at)
            }
            9 => {
                hosts[at].cut_from_nats(false);
                End::Heal(at)
            }
            10 | 11 => {
                hosts[at].from_others.cut();
                End::Heal(at)
            }
            12 => {
                let Some(at) = hosts.iter_mut().position(Host::fill_disk) else { return };
                End::FreeDisk(at)
            }
            13 => {
                let Some(disk) = self.server_disk.as_ref().filter(|_| self.filler.is_none()) else {
                    return;
                };
                self.filler = Some(disk.fill());
                End::FreeServer
            }
            _ => {
                let by_s = 60 + self.random.below(CLOCK_S_MAX) as i64;
                if !hosts[at].set_clock(if self.random.below(2) == 0 { by_s } else { -by_s }) {
                    return;
                }
                End::SetClockRight(at)
            }
        };
        self.note(&format!("kind {kind}, {ms} ms, until {end:?}"));
        self.lasting.push((Instant::now() + Duration::from_millis(ms), end));
    }

    fn end(&mut self, end: End, hosts: &mut [Host], cluster: &mut Cluster) {
        self.note(&format!("{end:?}"));
        match end {
            End::Start(at) => hosts[at].start(),
            End::Continue(at) => hosts[at].signal(Signal::SIGCONT),
            End::StartServer(at) => cluster.start_again(at),
            End::ContinueServer(at) => cluster.signal(at, Signal::SIGCONT),
            End::Heal(at) => hosts[at].heal_cables(),
            End::FreeDisk(at) => hosts[at].free_disk(),
            End::SetClockRight(at) => drop(hosts[at].set_clock(0)),
            End::FreeServer => {
                if let Some(filler) = self.filler.take() {
                    filler.remove();
                }
                // It keeps no streams any more until it starts again.
                cluster.kill(FULL_SERVER);
                cluster.start_again(FULL_SERVER);
            }
        }
    }

    fn note(&mut self, what: &str) {
        self.events.push(format!("{:>7} {what}", self.began.elapsed().as_millis()));
    }

    /// Everything ends.
    pub(super) fn heal(&mut self, hosts: &mut [Host], cluster: &mut Cluster) {
        for (_, end) in std::mem::take(&mut self.lasting) {
            self.end(end, hosts, cluster);
        }
        for at in 0..SERVERS {
            cluster.signal(at, Signal::SIGCONT);
            cluster.start_again(at);
        }
        for host in hosts {
            host.signal(Signal::SIGCONT);
            host.heal_cables();
            host.free_disk();
            host.start();
        }
    }
}
