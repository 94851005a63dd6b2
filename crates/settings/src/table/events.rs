//! `[events]`: what the stream of events has.

use super::{ConfigOption, Section, put};

pub const SECTION: Section = Section {
    name: "events",
    about: "The stream of what happens to sandboxes.",
    options: &[ConfigOption {
        key: "programs",
        values: "`true` or `false`",
        about: "Add each program and each run of code that begins and ends, as `command_begun`, \
                `command_ended`, `run_begun` and `run_ended`. A busy server has many.",
        set: |settings, given| put(&mut settings.events.programs, given.truth()),
        show: |settings| settings.events.programs.to_string(),
    }],
};
