//! `[pool]`: prepared machines.

use super::{ConfigOption, DURATION_OR_OFF, SECOND, Section, put, put_usize};
use crate::shown::{quote, quote_all, quote_duration};
use crate::value::{OFF, show_duration};

pub const SECTION: Section = Section {
    name: "pool",
    about: "Machines that are started in advance. A new sandbox that matches an entry (kind, \
            image, memory, CPUs, writable layer, nothing else hidden) gets one within \
            milliseconds; name, environment, labels and lifetimes are set when it is taken.",
    options: &[
        ConfigOption {
            key: "entries",
            values: "a list of `\"IMAGE=COUNT\"`, each optionally followed by `machine=KIND`, \
                     `memory_mib=N`, `cpus=N`, `scratch=SIZE` and `contexts=LANGUAGE+LANGUAGE`, \
                     separated by spaces; or `\"off\"`",
            about: "The machines to prepare, and how many: `\"python=4 contexts=python \
                    memory_mib=256\"`. Machine, memory and CPUs default to those of \
                    `[defaults]`, and `off` means no limit; `contexts` are interpreters that \
                    are started in advance.",
            set: |settings, given| {
                settings.pool.entries =
                    given.texts()?.into_iter().map(str::parse).collect::<Result<_, _>>()?;
                Ok(())
            },
            show: |settings| {
                let entries = &settings.pool.entries;
                if entries.is_empty() { quote(OFF) } else { quote_all(entries) }
            },
        },
        ConfigOption {
            key: "age_max",
            values: DURATION_OR_OFF,
            about: "The age at which an unused machine is replaced.",
            set: |settings, given| put(&mut settings.pool.age_max, given.duration_or_off(SECOND)),
            show: |settings| quote_duration(settings.pool.age_max),
        },
        ConfigOption {
            key: "check_every",
            values: "a duration, 1s or more",
            about: "How often each prepared machine is checked for an answer. An exit is \
                    noticed at once.",
            set: |settings, given| put(&mut settings.pool.check_every, given.duration(SECOND)),
            show: |settings| quote(show_duration(settings.pool.check_every)),
        },
        ConfigOption {
            key: "starts_at_once",
            values: "1 to 16",
            about: "How many machines are started at the same time, over all entries. A higher \
                    number fills the pool sooner and leaves less of the host to running \
                    sandboxes.",
            set: |settings, given| put_usize(&mut settings.pool.starts_at_once, given.whole(1, 16)),
            show: |settings| settings.pool.starts_at_once.to_string(),
        },
    ],
};
