//! The time to claim a pooled machine, compared with the time to start one.

use std::time::{Duration, Instant};

use agent_client::guest::Guest;
use host::paths::Paths;
use machine::Machines;
use sandbox::pool::{Entry, Options};
use sandbox::{Record, Registry, RegistryOptions, Spec, event};
use tempfile::TempDir;
use tests::PATIENCE;
use tests::sandbox::start;

use super::{Report, Target, beside, median};

/// Claims, and starts, of which the median is taken.
const ROUNDS: usize = 40;
/// Machines that are ready before each claim.
const READY: usize = 4;

/// The time of one creation.
struct Took {
    created: Duration,
    first_done: Duration,
}

pub async fn figures(report: &mut Report) {
    let scratch = TempDir::with_prefix_in("burrow-bench-", "/tmp").expect("a directory");
    let paths = Paths { runtime: scratch.path().join("run"), state: scratch.path().join("state") };
    paths.prepare().expect("directories");
    let options = Options { entries: vec![Entry::new("host", READY)], ..Options::none() };
    let means = RegistryOptions { pool: options, ..RegistryOptions::default() };
    let registry = Registry::open_with(paths, Machines::default(), event::nobody(), means);
    let registry = registry.await.expect("a registry");
    let (mut warm, mut cold) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The refill is over, so that either is measured alone.
        full(&registry).await;
        warm.push(create(&registry, Spec::new(name("warm", round))).await);
        full(&registry).await;
        let mut other = Spec::new(name("cold", round));
        other.hide = Some(Vec::new());
        cold.push(create(&registry, other).await);
    }
    let claimed = registry.pool()[0].counts.claimed;
    assert_eq!(claimed, ROUNDS as u64, "each of the warm ones came from the pool");
    let take =
        |took: &[Took], which: fn(&Took) -> Duration| median(took.iter().map(which).collect());
    let (claim, launch) = (take(&warm, |it| it.created), take(&cold, |it| it.created));
    report.bound("claim a pooled sandbox, median", claim.as_secs_f64() * 1e3, "ms", 3.0);
    beside("the same beside a start", claim, launch);
    let (warm, cold) = (take(&warm, |it| it.first_done), take(&cold, |it| it.first_done));
    let target = Target::toward(2.0, 6.0);
    report.bound("claim to first command done, median", warm.as_secs_f64() * 1e3, "ms", target);
    report.ratio("the same beside a start", warm, cold, Target::toward(0.25, 0.8));
    registry.leave().await;
}

fn name(kind: &str, round: usize) -> sandbox::SandboxRef {
    format!("{kind}-{round}").parse().expect("a name")
}

async fn full(registry: &Registry) {
    let deadline = Instant::now() + PATIENCE;
    while registry.pool().iter().any(|shelf| shelf.ready < shelf.wanted) {
        assert!(Instant::now() < deadline, "the pool is not filled");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn create(registry: &Registry, spec: Spec) -> Took {
    let which = spec.which();
    let begun = Instant::now();
    let _: Record = registry.create(spec).await.expect("it starts");
    let created = begun.elapsed();
    let guest: Guest = registry.guest(&which).expect("it runs");
    let session = start("true", &["/bin/true"]);
    guest.start(&session).await.expect("it starts");
    guest.wait(&session.session).await.expect("it ends");
    let first_done = begun.elapsed();
    registry.remove(&which, true).await.expect("it goes");
    Took { created, first_done }
}
