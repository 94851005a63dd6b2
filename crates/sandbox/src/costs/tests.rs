use std::path::PathBuf;

use super::*;
use crate::limits::PROGRAM_NAMES_MAX;

fn place(name: &str) -> PathBuf {
    let directory =
        std::env::temp_dir().join(format!("burrow-costs-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    directory
}

fn payer(id: &str, namespace: &str) -> Payer {
    Payer { id: id.parse().unwrap(), namespace: namespace.to_owned() }
}

fn sample(number: u64, cpu_us: u64) -> Sample {
    let uptime_ms = number * 1000;
    Sample { number, uptime_ms, cpu_us, memory_bytes: 1 << 30, ..Sample::default() }
}

/// Counts what an agent has sampled by now, as `telemetry` does.
fn count(costs: &Costs, of: &Payer, samples: &[Sample], at_ms: u64) {
    for sample in samples {
        let last = costs.last(of);
        if last.is_none_or(|last| last.number < sample.number) {
            let last = last.unwrap_or_default();
            let run_ms = sample.uptime_ms - last.uptime_ms;
            let more = Cost {
                run_ms,
                cpu_us: sample.cpu_us - last.cpu_us,
                memory_kib_ms: sample.memory_bytes / 1024 * run_ms,
                ..Cost::default()
            };
            costs.count(of, sample, more, at_ms);
        }
    }
}

#[test]
fn nothing_is_counted_twice_or_missed_wherever_a_bridge_is_killed() {
    let directory = place("killed");
    let of = payer("0123456789ab", "a");
    let now = now_ms();
    let samples: Vec<Sample> = (1..=40).map(|number| sample(number, number * 70)).collect();
    for end in 1..=samples.len() {
        // Each bridge counts all that there is, and every third is killed before it has saved that.
        let (costs, trouble) = Costs::open(&directory, |_| true);
        assert!(trouble.is_none());
        count(&costs, &of, &samples[..end], now);
        let sums = costs.of_namespaces(Some("a"), now, now + 1).unwrap();
        assert_eq!(sums["a"].cpu_us, end as u64 * 70);
        assert_eq!(costs.of_sandbox(&of), sums["a"]);
        if end % 3 != 0 {
            costs.mark().unwrap();
        }
    }
    let (costs, _) = Costs::open(&directory, |_| true);
    let cost = costs.of_sandbox(&of);
    assert_eq!((cost.cpu_us, cost.run_ms), (40 * 70, 40_000));
    assert!((cost.gib_seconds() - 40.0).abs() < 1e-9, "{}", cost.gib_seconds());
}

#[test]
fn a_namespace_adds_up_over_its_sandboxes_and_keeps_what_removed_ones_have_used() {
    let directory = place("sums");
    let (one, two) = (payer("0123456789ab", "a"), payer("ba9876543210", "a"));
    let other = payer("aaaaaaaaaaaa", "b");
    let now = now_ms();
    let (costs, _) = Costs::open(&directory, |_| true);
    for (of, cpu_us) in [(&one, 1), (&two, 20), (&other, 300)] {
        count(&costs, of, &[sample(1, cpu_us)], now);
    }
    costs.count_carried(&two, 5, 7, now);
    costs.forget(&one);
    costs.mark().unwrap();
    let (costs, _) = Costs::open(&directory, |id| *id == two.id);
    let sums = costs.of_namespaces(None, now, now + 1).unwrap();
    assert_eq!((sums["a"].cpu_us, sums["b"].cpu_us), (21, 300));
    assert_eq!((sums["a"].sent_bytes, sums["a"].received_bytes), (5, 7));
    assert_eq!(costs.of_sandbox(&one), Cost::default());
    assert_eq!(costs.of_sandbox(&other), Cost::default(), "it is not there any more");
    assert_eq!(costs.of_sandbox(&two).cpu_us, 20);
}

#[test]
fn finished_days_are_moved_to_their_files_and_counted_once() {
    let directory = place("days");
    let of = payer("0123456789ab", "a");
    let (now, day) = (now_ms(), 24 * MS_PER_HOUR);
    let (costs, _) = Costs::open(&directory, |_| true);
    count(&costs, &of, &[sample(1, 10)], now - 3 * day);
    count(&costs, &of, &[sample(2, 30)], now - day);
    count(&costs, &of, &[sample(3, 60)], now);
    let before = std::fs::read(directory.join(CURRENT));
    assert!(before.is_err());
    costs.mark().unwrap();
    assert_eq!(days::list::<Row>(&directory).unwrap(), [(now - 3 * day) / day]);
    let all = |costs: &Costs| costs.of_namespaces(None, 0, now + 1).unwrap()["a"].cpu_us;
    let (next, _) = Costs::open(&directory, |_| true);
    assert_eq!((all(&costs), all(&next)), (60, 60));
    let old = next.of_namespaces(None, now - 4 * day, now - 2 * day).unwrap();
    assert_eq!(old["a"].cpu_us, 10);
    // Killed between the two files: the day is in both.
    count(&next, &of, &[sample(4, 61)], now - 3 * day);
    assert_eq!(next.of_namespaces(None, now, now + 1).unwrap()["a"].cpu_us, 30);
}

#[test]
fn a_damaged_file_is_set_aside() {
    let directory = place("damaged");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join(CURRENT), "{\"hours\":[").unwrap();
    let (costs, trouble) = Costs::open(&directory, |_| true);
    assert!(trouble.is_some() && directory.join("current.damaged").exists());
    let of = payer("0123456789ab", "a");
    count(&costs, &of, &[sample(1, 10)], now_ms());
    costs.mark().unwrap();
    assert_eq!(Costs::open(&directory, |_| true).0.of_sandbox(&of).cpu_us, 10);
}

fn ended(name: &str, cpu_us: u64, at_ms: u64) -> CountedEnd {
    let end = agent_client::guest::ProgramEnd {
        session: "one".parse().unwrap(),
        started_at_ms: 1,
        program: name.to_owned(),
        duration_us: 7,
        cpu_us,
        memory_bytes_peak: 0,
        read_bytes: 1,
        written_bytes: 2,
    };
    CountedEnd::of(at_ms, &agent_client::guest::Provenance::Program(end)).unwrap()
}

#[test]
fn ends_are_summed_up_by_day_and_name_and_saved_with_their_position() {
    let directory = place("programs");
    let (one, two) = (payer("0123456789ab", "a"), payer("ba9876543210", "b"));
    let (now, day) = (now_ms(), 24 * MS_PER_HOUR);
    let (costs, _) = Costs::open(&directory, |_| true);
    let reached = EndsPosition::default();
    // What was counted of it is not known: only what the lost sums could have had is counted.
    costs.count_ends(&one, vec![ended("old", 1, now - 3 * day), ended("sh", 2, now)], reached);
    costs.count_ends(&one, vec![ended("sh", 3, now), ended("sh", 4, now - day)], reached);
    costs.count_ends(&two, vec![ended("sh", 50, now)], reached);
    costs.mark().unwrap();
    // This is not saved, nor is how far it was read.
    costs.count_ends(&one, vec![ended("sh", 600, now)], reached);
    let (costs, _) = Costs::open(&directory, |_| true);
    assert_eq!(costs.ends_position(&one), Some(reached));
    let of = |namespace: Option<&str>, from_ms: u64| {
        let rows = costs.of_programs(namespace, from_ms, now + 1).unwrap();
        rows.into_iter().map(|row| (row.of.name, row.cost.cpu_us)).collect::<Vec<_>>()
    };
    let row = |cpu_us: u64| ("sh".to_owned(), cpu_us);
    assert_eq!(of(Some("a"), now), [row(5)]);
    assert_eq!(of(None, 0), [row(4), row(5), row(50)]);
}

#[test]
fn names_that_are_too_many_are_counted_together() {
    let directory = place("names");
    let (costs, _) = Costs::open(&directory, |_| true);
    let of = payer("0123456789ab", "a");
    let ends = (0..PROGRAM_NAMES_MAX + 7).map(|at| ended(&format!("p{at}"), 1, now_ms())).collect();
    costs.count_ends(&of, ends, EndsPosition::default());
    let rows = costs.of_programs(None, 0, now_ms() + 1).unwrap();
    assert_eq!(rows.len(), PROGRAM_NAMES_MAX + 1);
    let others = rows.iter().find(|row| row.of.name == OTHERS).unwrap();
    assert_eq!((others.cost.ends, others.of.namespace.as_str()), (7, "a"));
    assert_eq!(rows.iter().map(|row| row.cost.ends).sum::<u64>(), PROGRAM_NAMES_MAX as u64 + 7);
}
