//! A host and an agent over a link that is cut wherever it hurts, in virtual time.
//!
//! Each seed makes a [`plan::Plan`]: sessions with viewers of every kind, uploads, downloads,
//! forwarded connections and plain calls, some of which are given up half-way by either end. The
//! two ends are written as real ends would be, on the state machines of this crate alone; the link
//! delivers arbitrary slices and is cut at any byte, in the middle of a handshake or of a frame.
//! Then it must hold that every request was carried out once and answered once, that every byte
//! came once and in order or stands in a gap, and that nothing is left behind.
//!
//! `BURROW_SIM_SEEDS=100000` runs more seeds; `BURROW_SIM_SEED=17` runs one and tells its story.

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
    let tally = run_seeds(seeds);
    println!("{seeds} seeds in {:.1} s: {tally}", began.elapsed().as_secs_f64());
    tally.assert_worth_running(seeds);
}

fn read_number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")))
}

/// Runs all seeds on all processors, and stops at the first that fails.
fn run_seeds(seeds: u64) -> Tally {
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let work = || {
        let mut tally = Tally::default();
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                break;
            }
            let run = catch_unwind(AssertUnwindSafe(|| World::new(seed, Telling::Silent).run()));
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
