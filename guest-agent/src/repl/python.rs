//! Python's row.

use std::time::Duration;

use super::language::{Action, Driver, Language, Outputs, RungActions};

/// Raises in the main thread, whatever the code does with `SIGINT`; see the driver.
const FIRM: &[Action] = &[Action::Interpreter(40)];
/// Wakes the main thread, which then runs the handler of a `SIGINT` that came just before it began to
/// wait: Python notices a signal between its steps, or when a system call is cut short.
const WAKE: &[Action] = &[Action::Interpreter(libc::SIGURG)];

pub const PYTHON: Language = Language {
    name: "python",
    aliases: &["python3", "py"],
    programs: &["python3", "python"],
    // C's own streams are not buffered either, so that the output of C code stays in order.
    arguments: &["-u", "-c", include_str!("python.boot")],
    driver: Driver::Channel(include_bytes!(concat!(env!("OUT_DIR"), "/python.z"))),
    outputs: Outputs::Passed,
    polite: RungActions {
        actions: &[Action::Group(libc::SIGINT)],
        repeat: Some((Duration::from_millis(50), WAKE)),
    },
    firm: RungActions { actions: FIRM, repeat: Some((Duration::from_millis(5), FIRM)) },
};
