//! `[forwards]`: ports of this host that lead into sandboxes.

use super::{ConfigOption, Section, put};
use crate::shown::quote;
use crate::value::show_ports;

pub const SECTION: Section = Section {
    name: "forwards",
    about: "Ports of this host that lead into sandboxes: forwarded ports and those of apps.",
    options: &[ConfigOption {
        key: "ports",
        values: "the first and the last port, as in `\"20000-20999\"`; 1024 is the lowest",
        about: "The ports that clients may have. Others, and those below 1024, need a key with the \
                scope `admin`, or the command line.",
        set: |settings, given| put(&mut settings.forwards.ports, given.ports()),
        show: |settings| quote(show_ports(&settings.forwards.ports)),
    }],
};
