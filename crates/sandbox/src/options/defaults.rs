//! Defaults for options that a sandbox's creator has not set.

use crate::{Durability, OnIdle, RecordPolicy, Spec};
use machine::{Capability, MachineKind};

/// The defaults of one bridge, for all doors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    pub machine: MachineKind,
    pub memory_mib: Option<u64>,
    pub cpu_millis: Option<u32>,
    pub ttl_ms: Option<u64>,
    pub idle_ttl_ms: Option<u64>,
    pub on_idle: Option<OnIdle>,
    pub keep_stopped_ms: Option<u64>,
    /// For doors that have the option: the others need contexts, whose output is not durable.
    pub durability: Option<Durability>,
    pub record: Option<RecordPolicy>,
}

impl Defaults {
    /// Sets what a request leaves out. A snapshot determines the machine and its limits, and a machine that
    /// cannot enforce a limit gets none.
    pub fn fill(&self, spec: &mut Spec) {
        if spec.snapshot.is_none() {
            let machine = *spec.machine.get_or_insert(self.machine);
            if machine.can(Capability::Memory) {
                spec.memory_mib = spec.memory_mib.or(self.memory_mib);
            }
            if machine.can(Capability::Cpus) {
                spec.cpu_millis = spec.cpu_millis.or(self.cpu_millis);
            }
        }
        spec.ttl_ms = spec.ttl_ms.or(self.ttl_ms);
        spec.idle_ttl_ms = spec.idle_ttl_ms.or(self.idle_ttl_ms);
        // A sandbox that is never idle needs none, and a machine that cannot be paused gets none.
        if spec.idle_ttl_ms.is_some() && spec.machine().can(Capability::Pause) {
            spec.on_idle = spec.on_idle.or(self.on_idle);
        }
        spec.keep_stopped_ms = spec.keep_stopped_ms.or(self.keep_stopped_ms);
        spec.record = spec.record.or(self.record);
    }

    /// Sets the defaults of a sandbox that ends with its only command: it has no record to keep, and is never
    /// idle.
    pub fn fill_one_shot(&self, spec: &mut Spec) {
        let lives = (spec.ttl_ms, spec.idle_ttl_ms, spec.on_idle, spec.keep_stopped_ms);
        self.fill(spec);
        (spec.ttl_ms, spec.idle_ttl_ms, spec.on_idle, spec.keep_stopped_ms) = lives;
    }
}
