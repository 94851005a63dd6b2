//! Compares the table with itself, with the kinds' behaviour, and with the documentation.

use super::*;
use crate::cloud_hypervisor::CloudHypervisor;
use crate::firecracker::Firecracker;
use crate::qemu::Qemu;
use crate::vmm::Monitor;

const PAGE: &str = include_str!("../../../../docs/reference/machines.md");

#[test]
fn the_table_is_in_the_order_of_the_variants() {
    for (at, kind) in MachineKind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, at, "{kind}");
        assert_eq!(kind.name().parse(), Ok(kind));
        let json = serde_json::to_string(&kind).unwrap();
        assert_eq!(json, format!("\"{kind}\""));
        assert_eq!(serde_json::from_str::<MachineKind>(&json).unwrap(), kind);
    }
}

#[test]
fn the_words_of_configuration_and_wire_stay_as_they_are() {
    assert_eq!(
        MachineKind::NAMES,
        ["process", "qemu", "firecracker", "cloud-hypervisor", "external"]
    );
    assert_eq!(MachineKind::STARTED_NAMES, ["process", "qemu", "firecracker", "cloud-hypervisor"]);
    assert_eq!(
        "vm".parse::<MachineKind>().unwrap_err().to_string(),
        "\"vm\" is not a kind of machine; there are \"process\", \"qemu\", \"firecracker\", \
         \"cloud-hypervisor\" and \"external\""
    );
    assert!(serde_json::from_str::<MachineKind>("\"cloud_hypervisor\"").is_err());
}

#[test]
fn a_row_does_not_contradict_itself() {
    for profile in PROFILES {
        let kind = profile.kind;
        assert_eq!(kind.can(Capability::Mount), profile.mount != Mount::Never, "{kind}");
        assert_eq!(profile.is_virtual, matches!(profile.root, Root::Kit(_)), "{kind}");
        // The root of the host is an image too, as the options of a sandbox have it.
        assert_eq!(kind.can(Capability::Image), profile.root != Root::Own, "{kind}");
        let has_monitor = profile.hypervisor != Hypervisor::Unused;
        assert_eq!(profile.is_virtual, has_monitor, "{kind}");
        // The first program is the one that uses the hypervisor.
        assert!(!has_monitor || !profile.programs.is_empty(), "{kind}");
        for (at, lack) in profile.lacks.iter().enumerate() {
            assert!(!lack.why.is_empty() && !lack.hint.is_empty(), "{kind}: {lack:?}");
            let mut others = profile.lacks[at + 1..].iter();
            assert!(others.all(|other| other.capability != lack.capability), "{kind}: {lack:?}");
        }
    }
}

#[test]
fn a_row_says_pause_and_snapshot_of_the_monitors_that_do_it() {
    let monitors: [Box<dyn Monitor>; 3] =
        [Box::new(Qemu::default()), Box::new(Firecracker::default()), Box::new(CloudHypervisor)];
    let kinds = MachineKind::ALL.into_iter().filter(|kind| kind.is_virtual());
    assert!(kinds.eq(monitors.iter().map(|monitor| monitor.kind())), "a monitor is not checked");
    for monitor in monitors {
        let kind = monitor.kind();
        assert_eq!(kind.can(Capability::Pause), monitor.halt().is_some(), "{kind}");
        assert_eq!(kind.can(Capability::Snapshot), monitor.halt().is_some(), "{kind}");
        // What cannot be taken cannot travel.
        assert!(kind.can(Capability::Snapshot) || !kind.can(Capability::Export), "{kind}");
    }
}

/// The rows of the table below a heading of the page, as cells.
fn rows_of(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, below) = PAGE.split_once(heading).unwrap_or_else(|| panic!("no {heading:?}"));
    let lines = below.lines().skip_while(|line| !line.starts_with("| kind"));
    let lines = lines.skip(2).take_while(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn the_documentation_has_a_row_for_each_kind_with_what_it_needs() {
    let rows = rows_of("# Machines");
    let names: Vec<_> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    assert_eq!(names, MachineKind::NAMES);
    for (profile, row) in PROFILES.iter().zip(&rows) {
        let needs = row[2];
        for program in profile.programs {
            assert!(needs.contains(&format!("`{}`", program.name)), "{}: {needs}", profile.name);
        }
        assert_eq!(needs.contains("a kit"), profile.is_virtual, "{}: {needs}", profile.name);
        let needs_kvm = profile.hypervisor == Hypervisor::Required;
        assert_eq!(needs.contains("KVM that runs guests"), needs_kvm, "{}", profile.name);
    }
}

#[test]
fn the_documentation_names_the_kinds_that_can_be_paused() {
    for row in rows_of("## Pause, snapshot, restore") {
        let Ok(kind) = row[0].trim_matches('`').parse::<MachineKind>() else {
            assert_eq!(row[0], "others");
            continue;
        };
        let says = |cell: &str| !cell.starts_with("refused");
        assert_eq!(kind.can(Capability::Pause), says(row[1]), "{kind}");
        assert_eq!(kind.can(Capability::Snapshot), says(row[2]), "{kind}");
    }
    for kind in MachineKind::ALL.into_iter().filter(|kind| kind.can(Capability::Pause)) {
        let name = format!("`{kind}`");
        let rows = rows_of("## Pause, snapshot, restore");
        assert!(rows.iter().any(|row| row[0] == name), "{kind}");
    }
}
