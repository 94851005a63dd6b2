//! bash's row.

use std::time::Duration;

use super::language::{Action, Driver, Language, Outputs, RungActions};

/// One that code has not ignored: `trap '' INT` is common; see the driver.
const FIRM_SIGNAL: i32 = 40;
const FIRM: &[Action] = &[Action::Others(libc::SIGKILL), Action::Interpreter(FIRM_SIGNAL)];

pub const BASH: Language = Language {
    name: "bash",
    aliases: &["sh", "shell"],
    programs: &["bash"],
    arguments: &["--norc", "--noprofile"],
    driver: Driver::File(include_bytes!(concat!(env!("OUT_DIR"), "/bash.sh"))),
    outputs: Outputs::Named,
    polite: RungActions { actions: &[Action::Group(libc::SIGINT)], repeat: None },
    firm: RungActions { actions: FIRM, repeat: Some((Duration::from_millis(100), FIRM)) },
};
