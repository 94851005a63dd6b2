//! `[audit]`: the log of what was done.

use super::{Choice, DURATION_OR_OFF, SECOND, Section, put, put_usize};
use crate::limits::{AUDIT_FILE_BYTES_MAX, AUDIT_FILE_BYTES_MIN};
use crate::shown::{quote, quote_duration};
use crate::value::show_size;

pub const SECTION: Section = Section {
    name: "audit",
    about: "The audit log: a line of JSON for each operation of each door, in `audit/` of the \
            state directory. `host-bridge audit` shows it.",
    options: &[
        Choice {
            key: "enabled",
            values: "`true` or `false`",
            about: "Whether there is one.",
            set: |settings, given| put(&mut settings.audit.enabled, given.truth()),
            show: |settings| settings.audit.enabled.to_string(),
        },
        Choice {
            key: "reads",
            values: "`true` or `false`",
            about: "Record operations that only look, too: lists, logs, metrics. Those that a \
                    key may not do are recorded anyway.",
            set: |settings, given| put(&mut settings.audit.reads, given.truth()),
            show: |settings| settings.audit.reads.to_string(),
        },
        Choice {
            key: "arguments",
            values: "`true` or `false`",
            about: "Record the arguments of programs beside their names. Arguments may be \
                    secrets. Code is never recorded.",
            set: |settings, given| put(&mut settings.audit.arguments, given.truth()),
            show: |settings| settings.audit.arguments.to_string(),
        },
        Choice {
            key: "chain",
            values: "`true` or `false`",
            about: "Have each record say the digest of the one before it, so that \
                    `host-bridge audit verify` finds what was changed or taken away.",
            set: |settings, given| put(&mut settings.audit.chain, given.truth()),
            show: |settings| settings.audit.chain.to_string(),
        },
        Choice {
            key: "on_failure",
            values: "`\"continue\"` or `\"refuse\"`",
            about: "What becomes of operations while the log cannot be written, as on a full \
                    disk: they are carried out, and records that find no place are counted in \
                    one of their own; or they are refused with 503.",
            set: |settings, given| {
                let choice = given.choice(&["continue", "refuse"])?;
                settings.audit.refuse_on_failure = choice == "refuse";
                Ok(())
            },
            show: |settings| {
                quote(if settings.audit.refuse_on_failure { "refuse" } else { "continue" })
            },
        },
        Choice {
            key: "file_bytes_max",
            values: "a size, 256KiB to 1GiB",
            about: "How large a file becomes before another is begun.",
            set: |settings, given| {
                let bytes = given.bytes(AUDIT_FILE_BYTES_MIN, AUDIT_FILE_BYTES_MAX);
                put(&mut settings.audit.file_bytes_max, bytes)
            },
            show: |settings| quote(show_size(settings.audit.file_bytes_max)),
        },
        Choice {
            key: "files_max",
            values: "2 to 10000",
            about: "How many files are kept; the oldest gives way. The first line of each says \
                    how many records there were before it.",
            set: |settings, given| put_usize(&mut settings.audit.files_max, given.whole(2, 10_000)),
            show: |settings| settings.audit.files_max.to_string(),
        },
        Choice {
            key: "age_max",
            values: DURATION_OR_OFF,
            about: "How old the newest record of a file may become before the file is removed; \
                    looked at when another is begun.",
            set: |settings, given| put(&mut settings.audit.age_max, given.duration_or_off(SECOND)),
            show: |settings| quote_duration(settings.audit.age_max),
        },
    ],
};
