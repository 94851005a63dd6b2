//! What a specification means and what it refuses.

use super::*;

fn paths() -> Paths {
    Paths { runtime: "/nowhere/run".into(), state: "/nowhere/state".into() }
}

fn machine(spec: &Spec) -> MachineSpec {
    spec.machine_spec("0123456789ab".parse().unwrap(), &paths(), &HostFiles::default(), None)
}

#[test]
fn defaults_are_the_hosts_root_with_its_credentials_hidden() {
    let spec = Spec::new("web".parse().unwrap());
    let machine = machine(&spec);
    assert_eq!(machine.root, Path::new("/"));
    assert_eq!(machine.hostname, "web");
    assert_eq!(machine.scratch_bytes, SCRATCH_BYTES_DEFAULT);
    assert!(machine.hide.contains(&"/nowhere/state".to_owned()), "{:?}", machine.hide);
    if Path::new("/etc/shadow").exists() {
        assert!(machine.hide.contains(&"/etc/shadow".to_owned()));
    }
}

#[test]
fn the_bridges_own_directories_stay_hidden_whatever_is_asked_for() {
    let mut spec = Spec::new("web".parse().unwrap());
    spec.hide = Some(vec!["/opt".to_owned()]);
    let files = HostFiles { private: vec!["/nowhere/key".into()], ..HostFiles::default() };
    let machine = spec.machine_spec("0123456789ab".parse().unwrap(), &paths(), &files, None);
    for path in ["/nowhere/key", "/nowhere/run", "/nowhere/state", "/opt"] {
        assert!(machine.hide.iter().any(|hidden| hidden == path), "{:?}", machine.hide);
    }
    assert!(!machine.hide.iter().any(|hidden| hidden == "/etc/shadow"), "{:?}", machine.hide);
}

#[test]
fn another_root_hides_nothing_by_itself() {
    let mut spec = Spec::new("web".parse().unwrap());
    spec.image = Some("/usr".to_owned());
    assert!(machine(&spec).hide.is_empty());
}

#[test]
fn paths_of_the_host_stay_out_of_machines_that_do_not_see_it() {
    for kind in MachineKind::ALL.into_iter().filter(|kind| !kind.sees_host()) {
        let mut spec = Spec::new("web".parse().unwrap());
        spec.machine = Some(kind);
        assert_eq!(machine(&spec).hide, [""; 0], "{kind}");
        spec.hide = Some(vec!["/opt".to_owned()]);
        assert_eq!(machine(&spec).hide, ["/opt"], "{kind}");
    }
}

#[test]
fn a_name_alone_is_a_whole_request_and_unknown_fields_are_refused() {
    let spec: Spec = serde_json::from_str(r#"{"name":"web"}"#).unwrap();
    assert_eq!(spec, Spec::new("web".parse().unwrap()));
    assert!(serde_json::from_str::<Spec>(r#"{"name":"web","imgae":"/x"}"#).is_err());
}

#[test]
fn an_environment_name_with_an_equals_sign_is_refused() {
    let mut spec = Spec::new("web".parse().unwrap());
    spec.env = vec![("A=B".to_owned(), String::new())];
    assert!(matches!(spec.check(), Err(SandboxError::Environment { .. })));
    spec.env.clear();
    spec.hostname = Some("a.b c".to_owned());
    assert!(matches!(spec.check(), Err(SandboxError::Hostname { .. })));
}
#[test]
fn the_smallest_share_of_processors_is_what_zero_asks_for() {
    let mut spec = Spec::new("web".parse().unwrap());
    spec.cpu_millis = Some(0);
    spec.memory_mib = Some(512);
    assert_eq!(spec.check().map(|()| spec.cpu_millis()).unwrap(), Some(CPU_MILLIS_MIN));
    let bounds = machine(&spec).bounds;
    assert_eq!((bounds.memory_bytes, bounds.cpu_millis), (Some(512 << 20), Some(50)));
}

#[test]
fn absent_options_get_defaults_and_given_ones_replace_them() {
    let settled = |machine: MachineKind, named: Option<&[&str]>| {
        let mut spec = Spec::new("web".parse().unwrap());
        spec.machine = Some(machine);
        spec.egress = named.map(|rules| rules.iter().map(|rule| (*rule).to_owned()).collect());
        spec.settle_egress(&["a.org".to_owned()]).unwrap();
        spec.check().map(|()| spec.egress.unwrap_or_default())
    };
    assert_eq!(settled(MachineKind::Process, None).unwrap(), ["a.org"]);
    assert_eq!(settled(MachineKind::Qemu, Some(&["b.org"])).unwrap(), ["b.org"]);
    for nothing in [&[][..], &["none"]] {
        assert_eq!(settled(MachineKind::Process, Some(nothing)).unwrap(), [""; 0]);
        assert_eq!(settled(MachineKind::External, Some(nothing)).unwrap(), [""; 0]);
    }
    assert_eq!(settled(MachineKind::External, None).unwrap(), [""; 0]);
    settled(MachineKind::External, Some(&["b.org"])).unwrap_err();
}

#[test]
fn the_writable_layer_in_memory_leaves_some_of_it_to_programs() {
    let mut spec = Spec::new("web".parse().unwrap());
    spec.memory_mib = Some(512);
    assert_eq!(spec.scratch_bytes(), 384 << 20);
    spec.memory_mib = Some(4096);
    assert_eq!(spec.scratch_bytes(), SCRATCH_BYTES_DEFAULT);
    spec.scratch_bytes = Some(3 << 30);
    spec.check().unwrap();
    spec.memory_mib = None;
    spec.scratch_bytes = Some(1024);
    let refused = spec.check().unwrap_err().to_string();
    let message = "scratch_bytes (--scratch) must be from 1.0 MiB to 64.0 GiB, not 1.0 KiB";
    assert_eq!(refused, message);
}

#[test]
fn the_writable_layer_on_disk_does_not_depend_on_the_memory() {
    let mut spec = Spec::new("web".parse().unwrap());
    (spec.memory_mib, spec.is_on_disk) = (Some(256), true);
    assert_eq!(machine(&spec).scratch_disk.as_deref(), Some(Path::new("/nowhere/state")));
    spec.scratch_bytes = Some(SCRATCH_DISK_BYTES_MAX);
    spec.check().unwrap();
    spec.scratch_bytes = Some(SCRATCH_DISK_BYTES_MAX + 1);
    spec.check().unwrap_err();
    spec.scratch_bytes = Some(1 << 20);
    let refused = spec.check().unwrap_err().to_string();
    let message = "scratch_bytes (--scratch) must be from 64.0 MiB to 64.0 GiB, not 1.0 MiB";
    assert_eq!(refused, message);
}

#[test]
fn the_writable_layer_of_a_virtual_machine_has_a_bound_of_its_own() {
    for kind in MachineKind::ALL.into_iter().filter(|kind| kind.is_virtual()) {
        let mut spec = Spec::new("web".parse().unwrap());
        (spec.machine, spec.memory_mib) = (Some(kind), Some(MEMORY_MIB_MAX));
        assert_eq!(spec.scratch_bytes(), VIRTUAL_SCRATCH_BYTES_MAX, "{kind}");
        spec.memory_mib = Some(256);
        assert_eq!(spec.scratch_bytes(), 128 << 20, "{kind}");
        spec.scratch_bytes = Some(VIRTUAL_SCRATCH_BYTES_MAX);
        spec.check().unwrap();
        spec.scratch_bytes = Some(VIRTUAL_SCRATCH_BYTES_MAX + 1);
        let refused = spec.check();
        assert!(
            matches!(refused, Err(SandboxError::OutOfRange { what: "scratch_bytes", .. })),
            "{kind}: {refused:?}"
        );
    }
}

#[test]
fn numbers_beyond_reason_are_refused_with_what_would_do() {
    let refused = |change: fn(&mut Spec)| {
        let mut spec = Spec::new("web".parse().unwrap());
        change(&mut spec);
        spec.check().unwrap_err().to_string()
    };
    for (message, word) in [
        (refused(|spec| spec.memory_mib = Some(1)), "memory_mib"),
        (
            refused(|spec| spec.memory_mib = Some(u64::MAX)),
            "(--memory) must be from 16.0 MiB to 16.0 TiB",
        ),
        (
            refused(|spec| spec.cpu_millis = Some(u32::MAX)),
            "cpu_millis (--cpus) must be from 0 CPUs to 1024 CPUs",
        ),
        (refused(|spec| spec.ttl_ms = Some(0)), "ttl_ms (--ttl) must be from 1ms"),
        (refused(|spec| spec.idle_ttl_ms = Some(u64::MAX)), "idle_ttl_ms"),
        (refused(|spec| spec.workdir = Some("work".to_owned())), "absolute"),
        (refused(|spec| drop(spec.labels.insert("-".to_owned(), String::new()))), "key"),
    ] {
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    }
}
