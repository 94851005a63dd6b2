//! `[defaults]`: the values of a sandbox whose creator does not set them.

use super::{ConfigOption, DURATION_OR_OFF, SECOND, Section, put};
use crate::limits::MEMORY_MIB_MAX;
use crate::namespaces::read_egress;
use crate::shown::{quote, quote_all, quote_duration, show_cpus};
use sandbox::{Durability, MachineKind, OnIdle, RecordPolicy};

pub const SECTION: Section = Section {
    name: "defaults",
    about: "The values of a sandbox whose creator does not set them.",
    options: &[
        ConfigOption {
            // A test compares the values with the table of kinds.
            key: "machine",
            values: "`\"process\"`, `\"qemu\"`, `\"firecracker\"` or `\"cloud-hypervisor\"`",
            about: "The kind of machine. On a virtual machine an image is one of the kit: the \
                    names that clients use are known, and `[images]` may name a file.",
            set: |settings, given| {
                put(&mut settings.defaults.machine, given.choice(&MachineKind::STARTED_NAMES))
            },
            show: |settings| quote(settings.defaults.machine),
        },
        ConfigOption {
            key: "memory_mib",
            values: "1 to 67108864",
            about: "Memory in MiB.",
            set: |settings, given| {
                put(&mut settings.defaults.memory_mib, given.whole(1, MEMORY_MIB_MAX))
            },
            show: |settings| settings.defaults.memory_mib.to_string(),
        },
        ConfigOption {
            key: "cpus",
            values: "0.001 to 4096",
            about: "CPUs; fractions are allowed.",
            set: |settings, given| put(&mut settings.defaults.cpu_millis, given.cpu_millis()),
            show: |settings| show_cpus(settings.defaults.cpu_millis),
        },
        ConfigOption {
            key: "ttl",
            values: DURATION_OR_OFF,
            about: "The age at which a sandbox is stopped, even if it is busy.",
            set: |settings, given| put(&mut settings.defaults.ttl, given.duration_or_off(SECOND)),
            show: |settings| quote_duration(settings.defaults.ttl),
        },
        ConfigOption {
            key: "idle_ttl",
            values: DURATION_OR_OFF,
            about: "How long nothing may run in a sandbox before it is idle.",
            set: |settings, given| {
                put(&mut settings.defaults.idle_ttl, given.duration_or_off(SECOND))
            },
            show: |settings| quote_duration(settings.defaults.idle_ttl),
        },
        ConfigOption {
            // A test compares the values with those that there are.
            key: "on_idle",
            values: "`\"stop\"` or `\"pause\"`",
            about: "What happens to a sandbox that is idle: it is stopped, or paused until the \
                    next request. A kind of machine that cannot be paused is stopped.",
            set: |settings, given| {
                put(&mut settings.defaults.on_idle, given.choice(&OnIdle::NAMES))
            },
            show: |settings| quote(settings.defaults.on_idle),
        },
        ConfigOption {
            // A test compares the values with those that there are.
            key: "durability",
            values: "`\"off\"`, `\"async\"` or `\"sync\"`",
            about: "Whether what programs write outlives the host, in a fleet: `async` puts it into \
                    the fleet's log a moment later, `sync` before anybody sees it. It holds for \
                    sandboxes of `host-bridge start` and of `POST /v1/sandboxes`; those of other \
                    doors have contexts, whose output is not durable.",
            set: |settings, given| {
                put(&mut settings.defaults.durability, given.choice(&Durability::NAMES))
            },
            show: |settings| quote(settings.defaults.durability),
        },
        ConfigOption {
            // A test compares the values with those that there are.
            key: "record",
            values: "`\"off\"`, `\"on\"` or `\"input\"`",
            about: "What is recorded of sessions: `off` that they began and how they ended, `on` \
                    also what they wrote, `input` also what was typed into them, passwords \
                    included.",
            set: |settings, given| {
                put(&mut settings.defaults.record, given.choice(&RecordPolicy::NAMES))
            },
            show: |settings| quote(settings.defaults.record),
        },
        ConfigOption {
            key: "keep_stopped",
            values: DURATION_OR_OFF,
            about: "How long the record and logs of a stopped sandbox are kept. With `off`, \
                    until somebody removes them.",
            set: |settings, given| {
                put(&mut settings.defaults.keep_stopped, given.duration_or_off(SECOND))
            },
            show: |settings| quote_duration(settings.defaults.keep_stopped),
        },
        ConfigOption {
            key: "egress",
            values: "a list of rules, as in `[\"@pypi\", \"*.example.org\"]`",
            about: "The hosts that a sandbox may connect to, also with `host-bridge start`. A \
                    list that the creator gives replaces this one, even if it is empty; \
                    `[namespaces.NAME]` sets one for a namespace. Empty means none.",
            set: |settings, given| put(&mut settings.defaults.egress, read_egress(given)),
            show: |settings| quote_all(&settings.defaults.egress),
        },
    ],
};
