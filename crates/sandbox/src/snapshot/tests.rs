mod travel;

use super::*;

fn at(name: &str) -> (PathBuf, Snapshots) {
    let path = std::env::temp_dir().join(format!("burrow-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    (path.clone(), Snapshots::open(path).unwrap())
}

fn record() -> Record {
    let mut spec = Spec::new("team/web".parse().unwrap());
    (spec.memory_mib, spec.scratch_bytes) = (Some(128), Some(1 << 20));
    Record::new("0123456789ab".parse().unwrap(), &spec, 7)
}

#[test]
fn a_snapshot_is_there_when_it_is_whole_and_not_before() {
    let (path, snapshots) = at("snapshots");
    let which: SandboxRef = "team/base".parse().unwrap();
    let draft = snapshots.begin(&record(), &path, which.name.clone()).unwrap();
    fs::write(draft.machine().join("memory"), b"x").unwrap();
    assert!(snapshots.list(None).is_empty());
    let again = snapshots.begin(&record(), &path, which.name.clone());
    assert!(matches!(again, Err(SandboxError::SnapshotTaken { .. })));
    let made = draft.finish().unwrap();
    assert_eq!(snapshots.get(&which).unwrap(), made);
    assert!(snapshots.path(&which).join(MACHINE).join("memory").exists());
    assert_eq!(snapshots.list(Some(&which.namespace)), [made]);
    let taken = snapshots.begin(&record(), &path, which.name.clone());
    assert!(matches!(taken, Err(SandboxError::SnapshotTaken { .. })));
    snapshots.remove(&which).unwrap();
    assert!(matches!(snapshots.get(&which), Err(SandboxError::NoSnapshot { .. })));
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn drafts_of_a_killed_bridge_are_removed_at_the_next_start() {
    let (path, snapshots) = at("snapshots-cut");
    let draft = snapshots.begin(&record(), &path, "base".parse().unwrap()).unwrap();
    let begun = draft.machine();
    std::mem::forget(draft);
    assert!(begun.exists());
    let snapshots = Snapshots::open(path.clone()).unwrap();
    assert!(!begun.exists() && snapshots.list(None).is_empty());
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_clone_is_what_the_snapshot_is_of() {
    let snapshot = Snapshot::of(&record(), "base".parse().unwrap());
    let mut spec = Spec::new("team/clone".parse().unwrap());
    snapshot.fill(&mut spec).unwrap();
    assert_eq!((spec.memory_mib, spec.scratch_bytes), (Some(128), Some(1 << 20)));
    spec.memory_mib = Some(256);
    let refused = snapshot.fill(&mut spec).unwrap_err().to_string();
    assert!(refused.contains("memory") && refused.contains("team/base"), "{refused}");
}

#[test]
fn names_that_are_written_alike_are_two_snapshots() {
    let (path, snapshots) = at("snapshots-alike");
    let record = |which: &str| {
        let spec = Spec::new(which.parse().unwrap());
        Record::new("0123456789ab".parse().unwrap(), &spec, 7)
    };
    let name = |name: &str| name.parse::<Name>().unwrap();
    let one = snapshots.begin(&record("a-b/web"), &path, name("c")).unwrap();
    let other = snapshots.begin(&record("a/web"), &path, name("b-c")).unwrap();
    assert_ne!(one.machine(), other.machine());
    let (one, other) = (one.finish().unwrap(), other.finish().unwrap());
    assert_eq!(snapshots.list(None), [other.clone(), one.clone()]);
    // The state that an interrupted removal leaves.
    fs::create_dir_all(path.join(format!("{GONE_PREFIX}a-b-c")).join("machine")).unwrap();
    snapshots.remove(&one.which()).unwrap();
    snapshots.remove(&other.which()).unwrap();
    assert!(snapshots.list(None).is_empty());
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn there_are_only_so_many_bytes_of_snapshots() {
    let (path, snapshots) = at("snapshots-full");
    let refused = |record: &Record| {
        let refused = snapshots.begin(record, &path, "base".parse().unwrap());
        matches!(refused, Err(SandboxError::SnapshotsTooLarge { .. }))
    };
    let mut large = record();
    large.memory_mib = Some(SNAPSHOTS_BYTES_MAX / BYTES_PER_MIB);
    assert!(refused(&large));
    // No number is so large that it counts as a small one.
    for huge in [u64::MAX / BYTES_PER_MIB, u64::MAX] {
        large.memory_mib = Some(huge);
        assert!(refused(&large));
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_disk_counts_by_its_content_and_not_by_its_size() {
    let (path, snapshots) = at("snapshots-disk");
    let state = path.join(".state");
    fs::create_dir(&state).unwrap();
    let mut record = record();
    // Without a disk the layer is in the memory, however large it is.
    record.scratch_bytes = u64::MAX;
    let room = SNAPSHOTS_BYTES_MAX - SNAPSHOT_MARGIN_BYTES;
    record.memory_mib = Some(room / BYTES_PER_MIB);
    drop(snapshots.begin(&record, &state, "base".parse().unwrap()).unwrap());

    let disk = File::create_new(state.join(SCRATCH)).unwrap();
    disk.set_len(SNAPSHOTS_BYTES_MAX).unwrap();
    record.scratch_bytes = SNAPSHOTS_BYTES_MAX;
    record.memory_mib = Some(room / BYTES_PER_MIB - 1);
    drop(snapshots.begin(&record, &state, "base".parse().unwrap()).unwrap());
    fs::write(state.join(SCRATCH), vec![1; 2 << 20]).unwrap();
    let refused = snapshots.begin(&record, &state, "base".parse().unwrap());
    assert!(matches!(refused, Err(SandboxError::SnapshotsTooLarge { .. })));

    // A directory that cannot be read counts as full.
    let refused = snapshots.begin(&record, &state.join(SCRATCH), "base".parse().unwrap());
    assert!(matches!(refused, Err(SandboxError::SnapshotsTooLarge { .. })));
    fs::remove_dir_all(path).unwrap();
}
