//! What this node has for sandboxes, and what one takes of it.

use std::collections::BTreeSet;

use fleet::records::Room;
use host::memory;
use machine::MachineKind;
use machine::kind::Hypervisor;
use machine::vmm::Kit;
use sandbox::{Record, Spec};
use settings::Fleet;

use crate::limits::CPUS_PROMISED;

/// What sandboxes may be promised here together.
pub(crate) fn of(fleet: &Fleet) -> Room {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let usual_millis = processors * 1_000 * u64::from(CPUS_PROMISED);
    Room {
        sandboxes: fleet.sandboxes_max,
        memory_mib: fleet.memory_bytes.or_else(memory::total_bytes).unwrap_or(0) / (1024 * 1024),
        cpu_millis: fleet.cpu_millis.map_or(usual_millis, u64::from),
    }
}

/// What a sandbox takes. One without limits counts as a sandbox alone.
pub(crate) fn needs(record: &Record) -> Room {
    Room {
        sandboxes: 1,
        memory_mib: record.memory_mib.unwrap_or(0),
        cpu_millis: record.cpu_millis.map_or(0, u64::from),
    }
}

/// The same, before there is a record.
pub(crate) fn needs_of(spec: &Spec) -> Room {
    Room {
        sandboxes: 1,
        memory_mib: spec.memory_mib.unwrap_or(0),
        cpu_millis: spec.cpu_millis.map_or(0, u64::from),
    }
}

/// The kinds of machines of this host: the one that needs nothing, the one that the operator has chosen, and those whose
/// programs are here and that run without the host's help. Of the others nobody knows before one is started.
pub(crate) fn machines(usual: &str) -> BTreeSet<String> {
    let has_kit = Kit::find().is_ok();
    let is_here = |kind: &MachineKind| {
        let profile = kind.profile();
        let may = profile.hypervisor == Hypervisor::Optional && has_kit;
        may && profile.programs.iter().all(|program| program.find().is_ok())
    };
    let here = MachineKind::ALL.into_iter().filter(is_here);
    let always = [MachineKind::default().name().to_owned(), usual.to_owned()];
    always.into_iter().chain(here.map(|kind| kind.name().to_owned())).collect()
}
