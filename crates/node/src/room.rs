//! What this node has for sandboxes, and what one takes of it.

use std::collections::BTreeSet;

use fleet::records::Room;
use host::memory;
use machine::MachineKind;
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

/// The kinds of machines of this host: those that a process needs nothing for, and the one that the operator has
/// chosen.
pub(crate) fn machines(usual: &str) -> BTreeSet<String> {
    BTreeSet::from([MachineKind::default().name().to_owned(), usual.to_owned()])
}
