use std::path::PathBuf;

use super::*;

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
    assert_eq!(days::list(&directory).unwrap(), [(now - 3 * day) / day]);
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
