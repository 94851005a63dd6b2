//! Node's row.

use std::time::Duration;

use super::language::{Action, Driver, Language, Outputs, RungActions};

// A child that is waited for keeps JavaScript from hearing anything.
const FIRM: &[Action] = &[Action::Message, Action::Others(libc::SIGKILL)];

pub const NODE: Language = Language {
    name: "node",
    aliases: &["nodejs", "javascript", "js"],
    programs: &["node", "nodejs"],
    arguments: &["-e", include_str!("node.boot")],
    driver: Driver::Channel(include_bytes!(concat!(env!("OUT_DIR"), "/node.z"))),
    outputs: Outputs::Named,
    polite: RungActions { actions: &[Action::Message, Action::Group(libc::SIGINT)], repeat: None },
    firm: RungActions { actions: FIRM, repeat: Some((Duration::from_millis(100), FIRM)) },
};
