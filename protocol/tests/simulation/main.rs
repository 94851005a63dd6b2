//! A host and an agent over a link that is cut wherever it hurts, in virtual time.
//!
//! Each seed makes a [`plan::Plan`]: sessions with viewers of every kind, uploads, downloads, forwarded
//! connections and plain calls, some of which either end resets half-way. The two ends are written as real
//! ends would be, only on the state machines of this crate; the link delivers arbitrary slices and is cut at
//! any byte, in the middle of a handshake or of a frame. Then it must hold that every request was carried out
//! once and answered once, that every byte arrived once and in order or is in a gap, and that nothing is left
//! behind. Agents are adopted on the way; and snapshots are taken of some, whose clones get their own hosts.
//!
//! `BURROW_SIM_SEEDS=100000` runs more seeds; `BURROW_SIM_SEED=17` runs one and prints its events.

mod agent;
mod bytes;
mod host;
mod link;
mod plan;
mod random;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use random::Random;
use world::{Tally, Telling, World};

/// What CI can afford in its test profile: about ten seconds on two processors.
const SEEDS_DEFAULT: u64 = 1_500;

#[test]
fn two_ends_agree_over_a_link_that_is_cut_anywhere() {
    if let Some(seed) = read_number("BURROW_SIM_SEED") {
        World::new(seed, Telling::Aloud).run();
        return;
    }
    let seeds = read_number("BURROW_SIM_SEEDS").unwrap_or(SEEDS_DEFAULT);
    let began = Instant::now();
    let tally = run_seeds(seeds, &|seed| World::new(seed, Telling::Silent).run());
    println!("{seeds} seeds in {:.1} s: {tally}", began.elapsed().as_secs_f64());
    tally.assert_worth_running(seeds);
}

/// An agent is copied at any moment, and each copy is adopted by its own host. From then on they are
/// different agents: nobody resumes there what it has in the original, and unacknowledged output of the
/// original's sessions reaches each of their hosts once.
#[test]
fn clones_of_a_snapshot_are_apart_and_lose_nothing() {
    if let Some(seed) = read_number("BURROW_SIM_SEED") {
        run_clones(seed, Telling::Aloud);
        return;
    }
    let seeds = read_number("BURROW_SIM_SEEDS").unwrap_or(SEEDS_DEFAULT) / CLONE_SHARE;
    let tally = run_seeds(seeds, &|seed| run_clones(seed, Telling::Silent));
    println!("clones of {seeds} seeds: {tally}");
    tally.assert_clones_worth_running(seeds);
}

/// Each takes two runs up to the snapshot and three after it.
const CLONE_SHARE: u64 = 15;

fn run_clones(seed: u64, telling: Telling) -> Tally {
    let mut original = World::new(seed, Telling::Silent);
    let steps = original.run().steps();
    let mut tally = Tally::default();
    let mut identities = vec![original.identity()];
    let moment = Random::new(!seed).below(steps);
    for number in 1..=2 {
        let mut clone = World::clone_of(seed, moment, number, telling);
        identities.push(clone.identity());
        tally.add(&clone.run());
        identities.push(clone.identity());
    }
    // The identity of the two before they were adopted is the snapshot's, and may still be the original's.
    let [own, before, one, before_too, two] = identities[..] else { unreachable!("five") };
    assert_eq!(before, before_too, "they are clones");
    for (a, b) in [(own, one), (own, two), (one, two), (before, one), (before, two)] {
        assert!(a.0 != b.0 && a.1 != b.1, "they are others: {a:?} {b:?}");
    }
    tally
}

fn read_number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")))
}

/// Runs all seeds on all processors, and stops at the first that fails.
fn run_seeds(seeds: u64, run_one: &(dyn Fn(u64) -> Tally + Sync)) -> Tally {
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let work = || {
        let mut tally = Tally::default();
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                break;
            }
            let run = catch_unwind(AssertUnwindSafe(|| run_one(seed)));
            let Ok(one) = run else {
                failed.store(true, Ordering::Relaxed);
                panic!(
                    "seed {seed} failed; see its story with BURROW_SIM_SEED={seed} \
                     cargo test -p protocol --test simulation -- --nocapture"
                );
            };
            tally.add(&one);
        }
        tally
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut tally = Tally::default();
        for worker in workers {
            tally.add(&worker.join().expect("a seed failed; it is named above"));
        }
        tally
    })
}
