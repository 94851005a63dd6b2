//! Python's row.

use std::time::Duration;

use super::language::{Action, Driver, Language, Outputs, RungActions};

/// Raises in the main thread whatever the code does with `SIGINT`; see the driver.
const FIRM_SIGNAL: i32 = 40;

pub const PYTHON: Language = Language {
    name: "python",
    aliases: &["python3", "py"],
    programs: &["python3", "python"],
    // C's own streams are not buffered either, so that what C code prints stays in its place.
    arguments: &["-u", "-c", include_str!("python.boot")],
    driver: Driver::Channel(include_bytes!(concat!(env!("OUT_DIR"), "/python.z"))),
    outputs: Outputs::Passed,
    polite: RungActions { actions: &[Action::Group(libc::SIGINT)], repeat: None },
    firm: RungActions {
        actions: &[Action::Interpreter(FIRM_SIGNAL)],
        repeat: Some(Duration::from_millis(5)),
    },
};
