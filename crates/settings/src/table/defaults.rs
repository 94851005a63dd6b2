//! `[defaults]`: what a sandbox has that names nothing else.

use super::{Choice, DURATION_OR_OFF, SECOND, Section, put};
use crate::limits::MEMORY_MIB_MAX;
use crate::namespaces::read_egress;
use crate::shown::{quote, quote_all, quote_duration, show_cpus};
use sandbox::MachineKind;

pub const SECTION: Section = Section {
    name: "defaults",
    about: "What a sandbox has whose maker does not say otherwise.",
    options: &[
        Choice {
            // A test compares the values with the table of kinds.
            key: "machine",
            values: "`\"process\"`, `\"qemu\"`, `\"firecracker\"` or `\"cloud-hypervisor\"`",
            about: "What it runs in. On a virtual machine an image is one of the kit: the names \
                    that clients give are known, and `[images]` may name a file.",
            set: |settings, given| {
                put(&mut settings.defaults.machine, given.choice(&MachineKind::STARTED_NAMES))
            },
            show: |settings| quote(settings.defaults.machine),
        },
        Choice {
            key: "memory_mib",
            values: "1 to 67108864",
            about: "Memory in MiB.",
            set: |settings, given| {
                put(&mut settings.defaults.memory_mib, given.whole(1, MEMORY_MIB_MAX))
            },
            show: |settings| settings.defaults.memory_mib.to_string(),
        },
        Choice {
            key: "cpus",
            values: "0.001 to 4096",
            about: "CPUs; fractions are shares of one.",
            set: |settings, given| put(&mut settings.defaults.cpu_millis, given.cpu_millis()),
            show: |settings| show_cpus(settings.defaults.cpu_millis),
        },
        Choice {
            key: "ttl",
            values: DURATION_OR_OFF,
            about: "The age at which a sandbox is stopped, whatever it does.",
            set: |settings, given| put(&mut settings.defaults.ttl, given.duration_or_off(SECOND)),
            show: |settings| quote_duration(settings.defaults.ttl),
        },
        Choice {
            key: "idle_ttl",
            values: DURATION_OR_OFF,
            about: "How long a sandbox in which nothing runs is left alone before it is stopped.",
            set: |settings, given| {
                put(&mut settings.defaults.idle_ttl, given.duration_or_off(SECOND))
            },
            show: |settings| quote_duration(settings.defaults.idle_ttl),
        },
        Choice {
            key: "keep_stopped",
            values: DURATION_OR_OFF,
            about: "How long record and logs of a stopped sandbox are kept. Without it, until \
                    somebody removes them.",
            set: |settings, given| {
                put(&mut settings.defaults.keep_stopped, given.duration_or_off(SECOND))
            },
            show: |settings| quote_duration(settings.defaults.keep_stopped),
        },
        Choice {
            key: "egress",
            values: "a list of rules, as in `[\"pypi.org\", \"*.pythonhosted.org\"]`",
            about: "What a sandbox may reach, `host-bridge start` included. A list that its maker names \
                    takes the place of this one, an empty one too; `[namespaces.NAME]` has that of one namespace. Without it, nothing.",
            set: |settings, given| put(&mut settings.defaults.egress, read_egress(given)),
            show: |settings| quote_all(&settings.defaults.egress),
        },
    ],
};
