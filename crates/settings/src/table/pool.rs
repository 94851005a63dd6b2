//! `[pool]`: machines that are kept ready.

use super::{Choice, DURATION_OR_OFF, SECOND, Section, put, put_usize};
use crate::shown::{quote, quote_all, quote_duration};
use crate::value::{OFF, show_duration};

pub const SECTION: Section = Section {
    name: "pool",
    about: "Machines that are started before anybody asks for them. Whoever asks for one like an \
            entry (kind, image, memory, CPUs, writable layer, nothing else hidden) gets it within \
            milliseconds; name, environment, labels and times to live are that sandbox's own.",
    options: &[
        Choice {
            key: "entries",
            values: "a list of `\"IMAGE=COUNT\"` with, behind it and divided by spaces, \
                     `machine=KIND`, `memory_mib=N`, `cpus=N`, `scratch=SIZE`, \
                     `contexts=LANGUAGE+LANGUAGE`; or `\"off\"`",
            about: "What is kept ready, and how much of it: \
                    `\"python=4 contexts=python memory_mib=256\"`. Without them, machine, \
                    memory and CPUs are those of `[defaults]`, and `off` is no bound; `contexts` \
                    are interpreters that are started ahead.",
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
        Choice {
            key: "age_max",
            values: DURATION_OR_OFF,
            about: "How old a machine may become that nobody has claimed, before another takes its \
                    place.",
            set: |settings, given| put(&mut settings.pool.age_max, given.duration_or_off(SECOND)),
            show: |settings| quote_duration(settings.pool.age_max),
        },
        Choice {
            key: "check_every",
            values: "a duration, 1s or more",
            about: "How often each ready machine is asked whether it still answers. That it has \
                    ended is noticed at once.",
            set: |settings, given| put(&mut settings.pool.check_every, given.duration(SECOND)),
            show: |settings| quote(show_duration(settings.pool.check_every)),
        },
        Choice {
            key: "starts_at_once",
            values: "1 to 16",
            about: "How many machines are started at the same time, over all entries. More fill \
                    the pool sooner and leave less of the host to those who work on it.",
            set: |settings, given| put_usize(&mut settings.pool.starts_at_once, given.whole(1, 16)),
            show: |settings| settings.pool.starts_at_once.to_string(),
        },
    ],
};
