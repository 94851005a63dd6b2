use proptest::prelude::*;

use super::*;
use crate::{Record, Spec};
use host::instant::DAY_MS;

fn snapshot(which: &str, at_ms: u64, bytes: u64) -> Snapshot {
    let which: SandboxRef = which.parse().unwrap();
    let record = Record::new("0123456789ab".parse().unwrap(), &Spec::new(which.clone()), 7);
    let mut snapshot = Snapshot::of(&record, which.name);
    (snapshot.created_at_ms, snapshot.bytes) = (at_ms, bytes);
    snapshot
}

fn removed(
    retention: &Retention,
    all: &[Snapshot],
    used: &[&str],
    now_ms: u64,
) -> Vec<(String, Excess)> {
    let used = used.iter().map(|which| which.parse().unwrap()).collect();
    let removals = retention.removals(all, &used, now_ms);
    let due = removals.into_iter().filter(|(_, removal)| removal.at_ms <= now_ms);
    due.map(|(which, removal)| (which.name.to_string(), removal.why)).collect()
}

#[test]
fn the_oldest_go_and_the_reason_is_the_limit_that_they_meet() {
    let all = [
        snapshot("a/one", 1000, 10),
        snapshot("a/two", 2000, 10),
        snapshot("a/three", 3000, 10),
        snapshot("b/four", 1500, 10),
    ];
    let now_ms = 10_000;
    let removed = |retention: &Retention| removed(retention, &all, &[], now_ms);
    assert_eq!(removed(&Retention::default()), []);
    let count = |count_max| Amount { count_max: Some(count_max), bytes_max: None };
    let bytes = |bytes_max| Amount { count_max: None, bytes_max: Some(bytes_max) };
    let (none, first) = (Retention::default(), |why| vec![("one".to_owned(), why)]);
    let two = Retention { namespace: count(2), ..none };
    assert_eq!(removed(&two), first(Excess::Count));
    assert_eq!(removed(&Retention { all: count(3), ..none }), first(Excess::TotalCount));
    assert_eq!(removed(&Retention { namespace: bytes(25), ..none }), first(Excess::Bytes));
    assert_eq!(removed(&Retention { all: bytes(35), ..none }), first(Excess::TotalBytes));
    let age_max = Some(Duration::from_secs(9));
    assert_eq!(removed(&Retention { age_max, ..none }), first(Excess::Age));
    // The newest is kept, however large.
    let kept = removed(&Retention { namespace: bytes(1), ..none });
    let names: Vec<_> = kept.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["one", "two"]);
    // One that is in use counts, so that no newer one goes for it.
    let removals = two.removals(&all, &["a/three".parse().unwrap()].into(), now_ms);
    assert_eq!(removals.len(), 1);
}

#[test]
fn an_age_is_counted_from_when_a_snapshot_came_here() {
    let age_max = Some(Duration::from_secs(24 * 3600));
    let retention = Retention { age_max, ..Retention::default() };
    let mut imported = snapshot("a/imported", 0, 1);
    imported.imported_at_ms = Some(5 * DAY_MS);
    let all = [imported];
    assert_eq!(removed(&retention, &all, &[], 5 * DAY_MS + 1), []);
    let removals = retention.removals(&all, &BTreeSet::new(), 5 * DAY_MS + 1);
    let at_ms: Vec<_> = removals.values().map(|removal| removal.at_ms).collect();
    assert_eq!(at_ms, [6 * DAY_MS], "it is known before");
    assert_eq!(removed(&retention, &all, &[], 6 * DAY_MS).len(), 1);
    // The clock of another time overflows nothing.
    assert_eq!(removed(&retention, &[snapshot("a/late", u64::MAX, u64::MAX)], &[], 7), []);
}

proptest! {
    /// What is left meets each limit on counts, besides what is in use, and another look removes nothing more.
    #[test]
    fn what_is_kept_meets_the_limits(
        made in prop::collection::vec((0_u8..3, 0_u64..50, 0_u64..40, any::<bool>()), 0..20),
        counts in (prop::option::of(1_u64..6), prop::option::of(1_u64..10)),
        sizes in (prop::option::of(1_u64..80), prop::option::of(1_u64..150)),
        age in prop::option::of(1_u64..50),
    ) {
        let now_ms = 50;
        let all: Vec<_> = made
            .iter()
            .enumerate()
            .map(|(at, (space, at_ms, bytes, _))| {
                snapshot(&format!("n{space}/s{at}"), *at_ms, *bytes)
            })
            .collect();
        let used = all.iter().zip(&made).filter(|(_, one)| one.3);
        let used: BTreeSet<_> = used.map(|(snapshot, _)| snapshot.which()).collect();
        let retention = Retention {
            age_max: age.map(Duration::from_millis),
            namespace: Amount { count_max: counts.0, bytes_max: sizes.0 },
            all: Amount { count_max: counts.1, bytes_max: sizes.1 },
        };
        let gone = |all: &[Snapshot]| {
            let due = retention.removals(all, &used, now_ms).into_iter();
            let due = due.filter(|(which, removal)| removal.at_ms <= now_ms && !used.contains(which));
            due.map(|(which, _)| which).collect::<BTreeSet<_>>()
        };
        let going = gone(&all);
        let kept: Vec<_> =
            all.iter().filter(|one| !going.contains(&one.which())).cloned().collect();
        let free: Vec<_> = kept.iter().filter(|one| !used.contains(&one.which())).collect();
        for space in 0..3 {
            let own = format!("n{space}");
            let count = free.iter().filter(|one| one.namespace.as_str() == own).count() as u64;
            prop_assert!(counts.0.is_none_or(|max| count <= max));
        }
        prop_assert!(counts.1.is_none_or(|max| free.len() as u64 <= max));
        prop_assert_eq!(gone(&kept), BTreeSet::new());
    }
}
