use super::*;

fn mount(kind: &str, root: &str, point: &str, read_only: bool) -> mountinfo::Mount {
    mountinfo::Mount { root: root.into(), point: point.into(), kind: kind.into(), read_only }
}

const HYBRID: &str = "8:pids:/a\n1:cpu:/\n0::/own/group\n";

#[test]
fn the_unified_hierarchy_is_found_beside_version_1() {
    let mounts = [
        mount("tmpfs", "/", "/sys/fs/cgroup", false),
        mount("cgroup", "/", "/sys/fs/cgroup/pids", false),
        mount("cgroup2", "/", "/sys/fs/cgroup/unified", false),
    ];
    let path = own_path(&mounts, HYBRID).expect("it is there");
    assert_eq!(path, Path::new("/sys/fs/cgroup/unified/own/group"));
}

#[test]
fn a_mount_of_a_part_is_looked_into_from_there() {
    let mounts = [mount("cgroup2", "/own", "/sys/fs/cgroup", false)];
    let path = own_path(&mounts, HYBRID).expect("it is there");
    assert_eq!(path, Path::new("/sys/fs/cgroup/group"));
}

#[test]
fn missing_controllers_are_reported() {
    let error = |mounts: &[mountinfo::Mount], memberships| {
        own_path(mounts, memberships).expect_err("not there").to_string()
    };
    let read_only = mount("cgroup2", "/", "/c", true);
    let elsewhere = mount("cgroup2", "/else", "/c", false);
    assert!(error(&[], HYBRID).contains("no cgroup2"));
    assert!(error(&[mount("cgroup2", "/", "/c", false)], "1:cpu:/\n").contains("no cgroup2"));
    assert!(error(&[read_only], HYBRID).contains("/c"));
    assert!(error(&[elsewhere], HYBRID).contains("/c"));
}

#[test]
fn fields_are_matched_whole() {
    let text = "oom 1\noom_kill 2\noom_group_kill 3\n";
    assert_eq!(field(text, "oom"), Some(1));
    assert_eq!(field(text, "oom_kill"), Some(2));
    assert_eq!(field(text, "oom_"), None);
}

fn account_of(older: &OlderGroups) -> Account {
    let mut account = Account::default();
    older.complete(&mut account);
    account
}

#[test]
fn the_memory_of_a_sandbox_that_version_1_holds_is_found_and_read() {
    const LIMIT: &str = "memory.limit_in_bytes";
    let root = std::env::temp_dir().join(format!("burrow-older-{}", std::process::id()));
    let group = root.join("memory/up/burrow-0123456789ab");
    std::fs::create_dir_all(&group).expect("a directory");
    std::fs::write(
        group.join("memory.oom_control"),
        "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    )
    .expect("written");
    std::fs::write(group.join("memory.limit_in_bytes"), "67108864\n").expect("written");
    let point = |name: &str| root.join(name).to_str().expect("UTF-8").to_owned();
    let mounts =
        [mount("cgroup", "/", &point("cpu"), false), mount("cgroup", "/", &point("memory"), false)];
    let memberships = "4:rdma,memory:/up/burrow-0123456789ab\n1:cpu:/\n0::/\n";
    assert_eq!(own_version_1(&mounts, memberships, "memory", LIMIT).as_ref(), Some(&group));
    assert_eq!(own_version_1(&mounts, "1:cpu:/\n", "memory", LIMIT), None);
    let directory = Directory::open(&group).expect("a directory");
    let older = OlderGroups::within(Some(&directory), None);
    let expected =
        Account { memory_bytes_max: Some(64 << 20), oom_kills: Some(2), ..Account::default() };
    assert_eq!(account_of(&older), expected, "what has no file is not known");
    for (file, text) in [
        ("memory.stat", "cache 9\ntotal_cache 5000\ntotal_shmem 1000\ntotal_swap 77\n"),
        ("memory.max_usage_in_bytes", "123456\n"),
        ("cpu.stat", "nr_periods 9\nnr_throttled 4\nthrottled_time 2500999\n"),
    ] {
        std::fs::write(group.join(file), text).expect("written");
    }
    let older = OlderGroups::within(Some(&directory), Some(&directory));
    let expected = Account {
        throttled_us: Some(2500),
        memory_bytes_peak: Some(123_456),
        cache_bytes: Some(4000),
        swap_bytes: Some(77),
        ..expected
    };
    assert_eq!(account_of(&older), expected);
    std::fs::write(group.join("memory.limit_in_bytes"), "9223372036854771712\n").expect("written");
    assert_eq!(older.limit_bytes(), None, "no limit");
    std::fs::remove_dir_all(root).expect("removed");
}
