//! `[audit]`: the audit log.

use super::{ConfigOption, DURATION_OR_OFF, SECOND, Section, put, put_usize};
use crate::limits::{AUDIT_FILE_BYTES_MAX, AUDIT_FILE_BYTES_MIN};
use crate::shown::{quote, quote_duration};
use crate::value::show_size;

pub const SECTION: Section = Section {
    name: "audit",
    about: "The audit log: one line of JSON for each operation of each API and of the command \
            line, in `audit/` of the state directory. `host-bridge audit` shows it.",
    options: &[
        ConfigOption {
            key: "enabled",
            values: "`true` or `false`",
            about: "Whether to keep an audit log.",
            set: |settings, given| put(&mut settings.audit.enabled, given.truth()),
            show: |settings| settings.audit.enabled.to_string(),
        },
        ConfigOption {
            key: "reads",
            values: "`true` or `false`",
            about: "Also record operations that only read: lists, logs, metrics. Operations \
                    that a key is not allowed to do are always recorded.",
            set: |settings, given| put(&mut settings.audit.reads, given.truth()),
            show: |settings| settings.audit.reads.to_string(),
        },
        ConfigOption {
            key: "arguments",
            values: "`true` or `false`",
            about: "Record the arguments of programs beside their names. Arguments may contain \
                    secrets. Code is never recorded.",
            set: |settings, given| put(&mut settings.audit.arguments, given.truth()),
            show: |settings| settings.audit.arguments.to_string(),
        },
        ConfigOption {
            key: "chain",
            values: "`true` or `false`",
            about: "Store in each record the digest of the record before it, so that \
                    `host-bridge audit verify` finds changed or missing records.",
            set: |settings, given| put(&mut settings.audit.chain, given.truth()),
            show: |settings| settings.audit.chain.to_string(),
        },
        ConfigOption {
            key: "on_failure",
            values: "`\"continue\"` or `\"refuse\"`",
            about: "What to do when the log cannot be written, for example because the disk is \
                    full: carry operations out and later write one record with the number of \
                    lost records, or refuse operations with 503.",
            set: |settings, given| {
                let choice = given.choice(&["continue", "refuse"])?;
                settings.audit.refuse_on_failure = choice == "refuse";
                Ok(())
            },
            show: |settings| {
                quote(if settings.audit.refuse_on_failure { "refuse" } else { "continue" })
            },
        },
        ConfigOption {
            key: "file_bytes_max",
            values: "a size, 256KiB to 1GiB",
            about: "The size at which a new file is started.",
            set: |settings, given| {
                let bytes = given.bytes(AUDIT_FILE_BYTES_MIN, AUDIT_FILE_BYTES_MAX);
                put(&mut settings.audit.file_bytes_max, bytes)
            },
            show: |settings| quote(show_size(settings.audit.file_bytes_max)),
        },
        ConfigOption {
            key: "files_max",
            values: "2 to 10000",
            about: "The number of files to keep; the oldest is removed. The first line of each \
                    file says how many records came before it.",
            set: |settings, given| put_usize(&mut settings.audit.files_max, given.whole(2, 10_000)),
            show: |settings| settings.audit.files_max.to_string(),
        },
        ConfigOption {
            key: "age_max",
            values: DURATION_OR_OFF,
            about: "The age of the newest record in a file at which the file is removed; \
                    checked whenever a new file is started.",
            set: |settings, given| put(&mut settings.audit.age_max, given.duration_or_off(SECOND)),
            show: |settings| quote_duration(settings.audit.age_max),
        },
    ],
};
