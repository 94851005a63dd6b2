//! Node's row.

use std::time::Duration;

use super::language::{Act, Driver, Language, Outputs, Press};

pub const NODE: Language = Language {
    name: "node",
    aliases: &["nodejs", "javascript", "js"],
    programs: &["node", "nodejs"],
    arguments: &["-e", include_str!("node.boot")],
    driver: Driver::Channel(include_bytes!(concat!(env!("OUT_DIR"), "/node.z"))),
    outputs: Outputs::Named,
    polite: Press { acts: &[Act::Message, Act::Group(libc::SIGINT)], repeat: None },
    // A child that is waited for keeps JavaScript from hearing anything.
    firm: Press {
        acts: &[Act::Message, Act::Others(libc::SIGKILL)],
        repeat: Some(Duration::from_millis(100)),
    },
};
