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
fn what_is_missing_is_said() {
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
