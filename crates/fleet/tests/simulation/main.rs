//! The deciding code of a fleet under seeded chaos, and at the size of a thousand nodes.

mod chaos;
mod checker;
mod scale;
mod store;
mod world;

/// `BURROW_SIM_SEEDS` is how many; `BURROW_SIM_SEED` runs one alone.
fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("BURROW_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BURROW_SIM_SEEDS").unwrap_or(default),
    }
}

#[test]
fn no_name_has_two_owners_and_no_promise_is_forgotten_under_chaos() {
    let (mut promised, mut lost, mut returned, mut ran) = (0, 0, 0, 0);
    for seed in seeds(30) {
        match chaos::run(seed) {
            Ok(outcome) => {
                promised += outcome.promised;
                lost += outcome.lost;
                returned += outcome.returned;
                ran += 1;
            }
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    println!(
        "{ran} seeds: {promised} creates promised, {lost} reported lost, {returned} made again"
    );
    // Chaos that nothing comes through, or that hurts nobody, proves nothing.
    assert!(promised > ran * 40, "only {promised} creates in {ran} seeds");
    assert!(lost > ran * 5, "only {lost} lost in {ran} seeds");
    assert!(returned > ran * 2, "only {returned} made again in {ran} seeds");
}

fn check(figures: &scale::Figures) {
    figures.print();
    assert_eq!(figures.refused, 0, "a fleet that is two thirds full refuses creates");
    let mean = figures.created / figures.nodes;
    assert!(figures.most < mean * 3 / 2, "a node has {}, the mean is {mean}", figures.most);
    assert!(figures.fewest > mean / 2, "a node has {}, the mean is {mean}", figures.fewest);
    assert_eq!(figures.lost, figures.dead, "some are lost and not said to be");
    // A renewal and a look of each node a second, and some more now and then.
    let bound = figures.nodes as f64 * 1.5;
    assert!(figures.writes_per_s < bound && figures.reads_per_s < bound, "leases cost more");
}

#[test]
fn a_hundred_nodes_share_five_thousand_sandboxes_and_a_tenth_of_them_dies() {
    check(&scale::run(100, 5_000).expect("a fleet"));
}

/// `just simulate-fleet` runs it, optimized.
#[test]
#[ignore = "minutes"]
fn a_thousand_nodes() {
    let sandboxes = std::env::var("BURROW_SIM_SANDBOXES").ok().and_then(|text| text.parse().ok());
    check(&scale::run(1_000, sandboxes.unwrap_or(1_000_000)).expect("a fleet"));
}
