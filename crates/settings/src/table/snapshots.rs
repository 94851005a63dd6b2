//! `[snapshots]`: which snapshots are kept.

use std::time::Duration;

use super::{ConfigOption, DURATION_OR_OFF, Section, put};
use crate::shown::{quote, quote_duration};
use crate::value::{InvalidValue, OFF, RawValue, show_size};
use sandbox::limits::{SNAPSHOTS_BYTES_MAX, SNAPSHOTS_MAX};

/// Younger ones would be removed while they are made use of.
const AGE_MIN: Duration = Duration::from_secs(60);
const BYTES_MIN: u64 = 1024 * 1024;

const COUNT_OR_OFF: &str = "1 to 64, or `\"off\"`";
const SIZE_OR_OFF: &str = "a size from 1MiB to 64GiB, or `\"off\"`";

pub const SECTION: Section = Section {
    name: "snapshots",
    about: "Which snapshots are kept. Once a minute those beyond a limit are removed, the oldest first, but none \
            from which a sandbox is being started or that is being exported. `host-bridge snapshot ls` shows \
            what will be removed, and `host-bridge snapshot prune` removes it at once.",
    options: &[
        ConfigOption {
            key: "age_max",
            values: DURATION_OR_OFF,
            about: "The age at which a snapshot is removed, counted from when it was taken or imported here.",
            set: |settings, given| {
                put(&mut settings.snapshots.age_max, given.duration_or_off(AGE_MIN))
            },
            show: |settings| quote_duration(settings.snapshots.age_max),
        },
        ConfigOption {
            key: "count_max",
            values: COUNT_OR_OFF,
            about: "How many snapshots of each namespace are kept.",
            set: |settings, given| put(&mut settings.snapshots.namespace.count_max, count(given)),
            show: |settings| show_count(settings.snapshots.namespace.count_max),
        },
        ConfigOption {
            key: "bytes_max",
            values: SIZE_OR_OFF,
            about: "What the snapshots of each namespace may take of the disk. The newest one is kept, however \
                    large it is.",
            set: |settings, given| put(&mut settings.snapshots.namespace.bytes_max, bytes(given)),
            show: |settings| show_bytes(settings.snapshots.namespace.bytes_max),
        },
        ConfigOption {
            key: "total_count_max",
            values: COUNT_OR_OFF,
            about: "How many snapshots of all namespaces together are kept.",
            set: |settings, given| put(&mut settings.snapshots.all.count_max, count(given)),
            show: |settings| show_count(settings.snapshots.all.count_max),
        },
        ConfigOption {
            key: "total_bytes_max",
            values: SIZE_OR_OFF,
            about: "What the snapshots of all namespaces together may take of the disk.",
            set: |settings, given| put(&mut settings.snapshots.all.bytes_max, bytes(given)),
            show: |settings| show_bytes(settings.snapshots.all.bytes_max),
        },
    ],
};

fn count(given: &RawValue) -> Result<Option<u64>, InvalidValue> {
    if given.is_off() { Ok(None) } else { given.whole(1, SNAPSHOTS_MAX as u64).map(Some) }
}

fn bytes(given: &RawValue) -> Result<Option<u64>, InvalidValue> {
    if given.is_off() { Ok(None) } else { given.bytes(BYTES_MIN, SNAPSHOTS_BYTES_MAX).map(Some) }
}

fn show_count(limit: Option<u64>) -> String {
    limit.map_or_else(|| quote(OFF), |count| count.to_string())
}

fn show_bytes(limit: Option<u64>) -> String {
    quote(limit.map_or_else(|| OFF.to_owned(), show_size))
}
