//! bash's row.

use std::time::Duration;

use super::language::{Act, Driver, Language, Outputs, Press};

/// One that code has not ignored: `trap '' INT` is common; see the driver.
const FIRM_SIGNAL: i32 = 40;

pub const BASH: Language = Language {
    name: "bash",
    aliases: &["sh", "shell"],
    programs: &["bash"],
    arguments: &["--norc", "--noprofile"],
    driver: Driver::File(include_bytes!(concat!(env!("OUT_DIR"), "/bash.sh"))),
    outputs: Outputs::Named,
    polite: Press { acts: &[Act::Group(libc::SIGINT)], repeat: None },
    firm: Press {
        acts: &[Act::Others(libc::SIGKILL), Act::Interpreter(FIRM_SIGNAL)],
        repeat: Some(Duration::from_millis(100)),
    },
};
